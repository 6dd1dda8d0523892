package fence

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"unicode"
)

// Dialect is how a database does what [Guard] needs. The zero value is none.
type Dialect struct {
	table  string // the name of the table of tokens
	quote  string // what stands around a name
	schema string // with %s for the table
	level  sql.IsolationLevel
	guard  func(ctx context.Context, tx Tx, table, resource string, token int64) (bool, error)

	// Whether the database may end a transaction by itself, and then commits each statement.
	autocommits bool
	// Whether it runs in this process, as SQLite does: there is no connection that may fail.
	embedded bool
}

// WithTable returns a dialect whose table of tokens has another name than redlock_fence: "tokens",
// or "billing.tokens" for a table in a schema (PostgreSQL) or another database (MySQL). All users
// of a resource need the same table.
//
// The name has letters, digits, "_" and "-", and is quoted: its case counts as it does for quoted
// names of the database. [Guard] and [InTx] return an error for any other name.
func (d Dialect) WithTable(name string) Dialect {
	d.table = name
	return d
}

// Schema returns the statement that makes the table of tokens unless it exists. Run it once, with
// the other migrations of the database, or whenever a program starts: several may run it at once.
// If [Dialect.WithTable] was given a name that it does not allow, Schema returns what is wrong with
// that, which no database takes for a statement.
func (d Dialect) Schema() string {
	if err := d.checkTable(); err != nil {
		return err.Error()
	}
	return fmt.Sprintf(d.schema, d.quotedTable())
}

func (d Dialect) quotedTable() string {
	return d.quote + strings.ReplaceAll(d.table, ".", d.quote+"."+d.quote) + d.quote
}

// checkTable says what is wrong with the name of the table.
func (d Dialect) checkTable() error {
	odd := func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' && r != '-'
	}
	parts := strings.Split(d.table, ".")
	for _, part := range parts {
		if part == "" || strings.ContainsFunc(part, odd) || len(parts) > 2 {
			return fmt.Errorf("fence: the table %q needs a name of letters, digits, _ and -, "+
				`such as "tokens" or "billing.tokens"`, d.table)
		}
	}
	return nil
}

var (
	// Postgres is PostgreSQL, and what speaks its SQL and keeps its row locks.
	Postgres = Dialect{
		table: defaultTable,
		quote: `"`,
		// IF NOT EXISTS alone fails if another connection makes the table at this moment.
		schema: `DO $$ BEGIN
	CREATE TABLE IF NOT EXISTS %s (
		resource VARCHAR(190) PRIMARY KEY,
		token BIGINT NOT NULL,
		uses BIGINT NOT NULL
	);
EXCEPTION WHEN unique_violation OR duplicate_table OR duplicate_object THEN NULL;
END $$`,
		level: sql.LevelReadCommitted,
		guard: upsert(`INSERT INTO %s AS f (resource, token, uses) VALUES ($1, $2, 0)
ON CONFLICT (resource) DO UPDATE SET token = excluded.token, uses = f.uses + 1
WHERE f.token <= excluded.token`),
	}

	// SQLite is SQLite 3.24 or newer. Set a busy timeout, or a second transaction fails at once
	// instead of waiting.
	SQLite = Dialect{
		table: defaultTable,
		quote: `"`,
		schema: `CREATE TABLE IF NOT EXISTS %s (
	resource TEXT PRIMARY KEY,
	token INTEGER NOT NULL,
	uses INTEGER NOT NULL
)`,
		guard: upsert(`INSERT INTO %s AS f (resource, token, uses) VALUES (?, ?, 0)
ON CONFLICT (resource) DO UPDATE SET token = excluded.token, uses = f.uses + 1
WHERE f.token <= excluded.token`),
		autocommits: true,
		embedded:    true,
	}

	// MySQL is MySQL or MariaDB, with InnoDB tables. Names are compared byte by byte.
	MySQL = Dialect{
		table: defaultTable,
		quote: "`",
		schema: `CREATE TABLE IF NOT EXISTS %s (
	resource VARBINARY(190) PRIMARY KEY,
	token BIGINT NOT NULL,
	uses BIGINT NOT NULL
) ENGINE = InnoDB`,
		level:       sql.LevelReadCommitted,
		guard:       updateOrInsert,
		autocommits: true,
	}
)

const defaultTable = "redlock_fence"

// begin begins a transaction, for [InTx].
func (d Dialect) begin(ctx context.Context, db *sql.DB) (*sql.Tx, error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: d.level})
	if err != nil || !d.autocommits {
		return tx, err
	}
	if _, err = tx.ExecContext(ctx, "SAVEPOINT redlock_fence"); err != nil {
		tx.Rollback()
		return nil, err
	}
	return tx, nil
}

// ended reports whether the database has ended a transaction of begin: MySQL does so after a
// deadlock, and before a statement such as CREATE TABLE, SQLite when a statement that writes is
// interrupted, or finds the disk full (sqlite.org/lang_transaction.html). The savepoint of begin
// ends with the transaction. An error is that of the connection, or of ctx, and nothing is known
// about the transaction.
func (d Dialect) ended(ctx context.Context, tx *sql.Tx) (bool, error) {
	if !d.autocommits {
		return false, nil
	}
	_, err := tx.ExecContext(ctx, "RELEASE SAVEPOINT redlock_fence")
	switch {
	case err == nil || ctx.Err() != nil:
		return false, err
	case d.embedded: // of anything else, Commit says what is wrong
		return strings.Contains(err.Error(), "no such savepoint"), nil
	case tx.Rollback() == nil: // the database answers: it has no such savepoint
		return true, nil
	}
	return false, err
}

// upsert is for databases that insert or update a row in one statement, and do not count a row that
// the WHERE leaves alone. The database locks the row first, and looks at its latest version then.
func upsert(
	statement string,
) func(ctx context.Context, tx Tx, table, resource string, token int64) (bool, error) {
	return func(ctx context.Context, tx Tx, table, resource string, token int64) (bool, error) {
		n, err := changes(ctx, tx, fmt.Sprintf(statement, table), resource, token)
		return n > 0, err
	}
}

// updateOrInsert is for MySQL, whose upsert has no WHERE. A resource that has its row costs one
// statement. The column uses changes each time, because MySQL does not count a row that stays
// equal.
func updateOrInsert(
	ctx context.Context,
	tx Tx,
	table, resource string,
	token int64,
) (bool, error) {
	update := fmt.Sprintf(`UPDATE %s SET token = ?, uses = uses + 1
WHERE resource = ? AND token <= ?`, table)
	n, err := changes(ctx, tx, update, token, resource, token)
	if n > 0 || err != nil {
		return n > 0, err
	}
	// There is no row, or it has a greater token. MySQL counts an insert as 1 and an update as 2.
	// Unlike INSERT IGNORE this locks an existing row exclusively at once, and two stale holders
	// cannot deadlock.
	insert := fmt.Sprintf(`INSERT INTO %s (resource, token, uses) VALUES (?, ?, 0)
ON DUPLICATE KEY UPDATE uses = uses + 1`, table)
	n, err = changes(ctx, tx, insert, resource, token)
	if n == 1 || err != nil {
		return n == 1, err
	}
	// There is a row. Another transaction may have inserted it since, with a smaller token.
	n, err = changes(ctx, tx, update, token, resource, token)
	return n > 0, err
}

// changes runs a statement and returns how many rows it has changed.
func changes(ctx context.Context, tx Tx, statement string, args ...any) (int64, error) {
	result, err := tx.ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}
