//go:build linux

package dbtest

import (
	"bytes"
	"context"
	"database/sql"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/redlock-go/redlock/fence"
	"github.com/redlock-go/redlock/internal/test/redistest"
)

// database is one that the tests run on.
type database struct {
	name    string
	driver  string
	dialect fence.Dialect
	start   func(t testing.TB) (dsn string)
	bind    func(n int) string // the n-th parameter of a statement, from 1
}

var databases = []database{
	{
		"postgres",
		"pgx",
		fence.Postgres,
		startPostgres,
		func(n int) string { return "$" + strconv.Itoa(n) },
	},
	{"mariadb", "mysql", fence.MySQL, startMariaDB, func(int) string { return "?" }},
	{"sqlite", "sqlite", fence.SQLite, startSQLite, func(int) string { return "?" }},
}

// onEach runs a test on every database, with the table of tokens.
func onEach(t *testing.T, test func(t *testing.T, d database, dsn string, db *sql.DB)) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			dsn := d.start(t)
			db := d.open(t, dsn)
			_, err := db.Exec(d.dialect.Schema())
			require.NoError(t, err)
			test(t, d, dsn, db)
		})
	}
}

// open returns a database handle that is closed with the test.
func (d database) open(t testing.TB, dsn string) *sql.DB {
	db, err := sql.Open(d.driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// begin begins a transaction on the isolation level that InTx chooses.
func (d database) begin(ctx context.Context, db *sql.DB) (*sql.Tx, error) {
	if d.driver == "sqlite" {
		return db.BeginTx(ctx, nil)
	}
	return db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
}

func startSQLite(t testing.TB) string {
	return "file:" + filepath.Join(t.TempDir(), "test.db") +
		"?_pragma=busy_timeout(60000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"
}

func startPostgres(t testing.TB) string {
	bin := program(t, "postgres", "/usr/lib/postgresql/*/bin/postgres")
	dir, owner := folder(t, "postgres")
	data := filepath.Join(dir, "data")
	run(t, dir, owner, filepath.Join(filepath.Dir(bin), "initdb"),
		"-D", data, "-U", "test", "-A", "trust", "-E", "UTF8", "--no-sync", "--no-instructions")
	port := freePort(t)
	launch(
		t,
		dir,
		owner,
		bin,
		"-D",
		data,
		"-p",
		port,
		"-k",
		dir,
		"-c",
		"listen_addresses=127.0.0.1",
		"-c",
		"fsync=off",
		"-c",
		"max_connections=50",
		"-c",
		"deadlock_timeout=10ms",
	)
	dsn := "postgres://test@127.0.0.1:" + port + "/postgres?sslmode=disable"
	await(t, "pgx", dsn)
	return dsn
}

func startMariaDB(t testing.TB) string {
	bin := program(t, "mariadbd", "/usr/sbin/mariadbd")
	dir, owner := folder(t, "mysql")
	data := filepath.Join(dir, "data")
	install := program(t, "mariadb-install-db")
	run(
		t,
		dir,
		owner,
		install,
		"--no-defaults",
		"--datadir="+data,
		"--tmpdir="+dir, // which servers beside this one would share
		"--auth-root-authentication-method=normal",
		"--skip-test-db",
	)
	port := freePort(t)
	launch(
		t,
		dir,
		owner,
		bin,
		"--no-defaults",
		"--datadir="+data,
		"--tmpdir="+dir, // which servers beside this one would share
		"--port="+port,
		"--bind-address=127.0.0.1",
		"--socket="+filepath.Join(dir, "s"),
		"--pid-file="+filepath.Join(dir, "pid"),
		"--innodb-flush-log-at-trx-commit=0",
		"--innodb-buffer-pool-size=32M",
		"--skip-log-bin",
	)
	dsn := "root@tcp(127.0.0.1:" + port + ")/"
	await(t, "mysql", dsn)
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec("CREATE DATABASE test")
	require.NoError(t, err)
	return dsn + "test"
}

// program returns the path of a program, or skips the test where there is none.
func program(t testing.TB, name string, patterns ...string) string {
	for _, pattern := range patterns {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		if len(found) > 0 {
			return slices.Max(found)
		}
	}
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
	case os.Getenv("REDLOCK_REQUIRE_SQL") == "1":
		t.Fatalf("%s is not installed, and REDLOCK_REQUIRE_SQL is set", name)
	default:
		t.Skipf("%s is not installed", name)
	}
	return path
}

// folder makes a folder for a server, and returns who is to run the server: it refuses to run as
// root.
func folder(t testing.TB, name string) (string, *syscall.Credential) {
	dir, err := os.MkdirTemp("", "fence")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	if os.Getuid() != 0 {
		return dir, nil
	}
	u, err := user.Lookup(name)
	require.NoError(t, err)
	uid, err := strconv.Atoi(u.Uid)
	require.NoError(t, err)
	gid, err := strconv.Atoi(u.Gid)
	require.NoError(t, err)
	require.NoError(t, os.Chown(dir, uid, gid))
	return dir, &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// run runs a command to its end.
func run(t testing.TB, dir string, owner *syscall.Credential, name string, args ...string) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: owner}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// launch starts a server that ends with the test, and with this process.
func launch(t testing.TB, dir string, owner *syscall.Credential, name string, args ...string) {
	var log bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: owner, Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGQUIT) // an immediate shutdown; MariaDB takes it for an abort
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("%s said:\n%s", name, log.Bytes())
		}
	})
}

// await returns when the server answers.
func await(t testing.TB, driver, dsn string) {
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	defer db.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		err := db.PingContext(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the server does not answer: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// freePort returns a port of the loopback address that nobody uses, or is given before the test
// ends.
func freePort(t testing.TB) string {
	_, port, err := net.SplitHostPort(redistest.FreeAddr(t, "127.0.0.1"))
	require.NoError(t, err)
	return port
}
