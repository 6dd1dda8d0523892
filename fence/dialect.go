package fence

import (
	"context"
	"database/sql"
)

// Dialect is how a database does what [Guard] needs. The zero value is none.
type Dialect struct {
	schema string
	level  sql.IsolationLevel
	guard  func(ctx context.Context, tx DBTX, resource string, token int64) (ok bool, err error)
}

// Schema returns the statement that makes the table of tokens unless it exists. Run it once, with
// the other migrations of the database.
func (d Dialect) Schema() string { return d.schema }

var (
	// Postgres is PostgreSQL, and what speaks its SQL and keeps its row locks.
	Postgres = Dialect{
		schema: `CREATE TABLE IF NOT EXISTS redlock_fence (
	resource VARCHAR(190) PRIMARY KEY,
	token BIGINT NOT NULL,
	uses BIGINT NOT NULL
)`,
		level: sql.LevelReadCommitted,
		guard: upsert(`INSERT INTO redlock_fence (resource, token, uses) VALUES ($1, $2, 0)
ON CONFLICT (resource) DO UPDATE SET token = excluded.token, uses = redlock_fence.uses + 1
WHERE redlock_fence.token <= excluded.token`),
	}

	// SQLite is SQLite 3.24 or newer. Set a busy timeout, or a second transaction fails at once
	// instead of waiting.
	SQLite = Dialect{
		schema: `CREATE TABLE IF NOT EXISTS redlock_fence (
	resource TEXT PRIMARY KEY,
	token INTEGER NOT NULL,
	uses INTEGER NOT NULL
)`,
		guard: upsert(`INSERT INTO redlock_fence (resource, token, uses) VALUES (?, ?, 0)
ON CONFLICT (resource) DO UPDATE SET token = excluded.token, uses = redlock_fence.uses + 1
WHERE redlock_fence.token <= excluded.token`),
	}

	// MySQL is MySQL or MariaDB, with InnoDB tables. Names are compared byte by byte.
	MySQL = Dialect{
		schema: `CREATE TABLE IF NOT EXISTS redlock_fence (
	resource VARBINARY(190) PRIMARY KEY,
	token BIGINT NOT NULL,
	uses BIGINT NOT NULL
) ENGINE = InnoDB`,
		level: sql.LevelReadCommitted,
		guard: updateOrInsert,
	}
)

// upsert is for databases that insert or update a row in one statement, and do not count a row that
// the WHERE leaves alone. The database locks the row first, and looks at its latest version then.
func upsert(statement string) func(context.Context, DBTX, string, int64) (bool, error) {
	return func(ctx context.Context, tx DBTX, resource string, token int64) (bool, error) {
		n, err := changes(ctx, tx, statement, resource, token)
		return n > 0, err
	}
}

// updateOrInsert is for MySQL, whose upsert has no WHERE. A resource that has its row costs one
// statement. The column uses changes each time, because MySQL does not count a row that stays
// equal.
func updateOrInsert(ctx context.Context, tx DBTX, resource string, token int64) (bool, error) {
	const (
		update = `UPDATE redlock_fence SET token = ?, uses = uses + 1
WHERE resource = ? AND token <= ?`
		insert = `INSERT INTO redlock_fence (resource, token, uses) VALUES (?, ?, 0)
ON DUPLICATE KEY UPDATE uses = uses + 1`
	)
	n, err := changes(ctx, tx, update, token, resource, token)
	if n > 0 || err != nil {
		return n > 0, err
	}
	// There is no row, or it has a greater token. MySQL counts an insert as 1 and an update as 2.
	// Unlike INSERT IGNORE this locks an existing row exclusively at once, and two stale holders
	// cannot deadlock.
	n, err = changes(ctx, tx, insert, resource, token)
	if n == 1 || err != nil {
		return n == 1, err
	}
	// There is a row. Another transaction may have inserted it since, with a smaller token.
	n, err = changes(ctx, tx, update, token, resource, token)
	return n > 0, err
}

// changes runs a statement and returns how many rows it has changed.
func changes(ctx context.Context, tx DBTX, statement string, args ...any) (int64, error) {
	result, err := tx.ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}
