//go:build linux

package dbtest

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/fence"
	"github.com/redlock-go/redlock/internal/test/embedded"
)

// guardOnce runs Guard in a transaction of its own.
func guardOnce(t *testing.T, d database, db *sql.DB, resource string, token uint64) error {
	tx, err := d.begin(t.Context(), db)
	require.NoError(t, err)
	if err := fence.Guard(t.Context(), tx, d.dialect, resource, token); err != nil {
		require.NoError(t, tx.Rollback())
		return err
	}
	return tx.Commit()
}

func TestGuard(t *testing.T) {
	onEach(t, func(t *testing.T, d database, _ string, db *sql.DB) {
		require.NoError(t, guardOnce(t, d, db, "a", 5))
		require.NoError(t, guardOnce(t, d, db, "a", 5), "the same holder again")
		require.NoError(t, guardOnce(t, d, db, "a", 7))
		err := guardOnce(t, d, db, "a", 6)
		require.ErrorIs(t, err, fence.ErrStale)
		var stale *fence.StaleError
		require.ErrorAs(t, err, &stale)
		assert.Equal(t, &fence.StaleError{Resource: "a", Token: 6}, stale)
		require.NoError(t, guardOnce(t, d, db, "a", 7), "a refused token changes nothing")
		require.NoError(t, guardOnce(t, d, db, "A", 1), "another resource")
		require.NoError(t, guardOnce(t, d, db, "a ", 1), "another resource")
		require.NoError(t, guardOnce(t, d, db, strings.Repeat("ä", 95), 1<<53), "the longest name")
	})
}

// What a transaction that is rolled back has claimed counts for nothing.
func TestARolledBackGuardClaimsNothing(t *testing.T) {
	onEach(t, func(t *testing.T, d database, _ string, db *sql.DB) {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, fence.Guard(t.Context(), tx, d.dialect, "a", 9))
		require.NoError(t, tx.Rollback())
		require.NoError(t, guardOnce(t, d, db, "a", 8))
	})
}

// Two holders who use a resource for the first time at the same moment: whatever the order, the one
// with the greater token is not called stale.
func TestTheFirstUseByTwo(t *testing.T) {
	onEach(t, func(t *testing.T, d database, _ string, db *sql.DB) {
		for i := range 100 {
			resource := "first " + strconv.Itoa(i)
			var errs [2]error
			var both sync.WaitGroup
			for n := range errs {
				both.Go(func() { errs[n] = guardOnce(t, d, db, resource, uint64(n+1)) })
			}
			both.Wait()
			require.NoError(t, errs[1])
			if errs[0] != nil {
				require.ErrorIs(t, errs[0], fence.ErrStale)
			}
			require.ErrorIs(t, guardOnce(t, d, db, resource, 1), fence.ErrStale)
		}
	})
}

// A driver may count the rows that a statement finds instead of those that it changes.
func TestMySQLThatCountsFoundRows(t *testing.T) {
	d := databases[1]
	db := d.open(t, d.start(t)+"?clientFoundRows=true")
	_, err := db.Exec(d.dialect.Schema())
	require.NoError(t, err)
	for _, token := range []uint64{5, 5, 7} {
		require.NoError(t, guardOnce(t, d, db, "a", token))
	}
	require.ErrorIs(t, guardOnce(t, d, db, "a", 6), fence.ErrStale)
}

// locks returns locks whose nodes run in this process.
func locks(t *testing.T) *redlock.Redlock {
	pools, closePools, err := embedded.Open("", 3)
	require.NoError(t, err)
	rl := redlock.New(pools...)
	t.Cleanup(func() {
		require.NoError(t, rl.Close())
		require.NoError(t, closePools())
	})
	return rl
}

func TestInTx(t *testing.T) {
	onEach(t, func(t *testing.T, d database, _ string, db *sql.DB) {
		_, err := db.Exec(`CREATE TABLE word (w VARCHAR(20))`)
		require.NoError(t, err)
		rl := locks(t)
		write := func(word string) func(*sql.Tx) error {
			return func(tx *sql.Tx) error {
				_, err := tx.Exec(`INSERT INTO word VALUES ('` + word + `')`)
				return err
			}
		}
		words := func() (list []string) {
			rows, err := db.Query(`SELECT w FROM word ORDER BY w`)
			require.NoError(t, err)
			defer rows.Close()
			for rows.Next() {
				var w string
				require.NoError(t, rows.Scan(&w))
				list = append(list, w)
			}
			require.NoError(t, rows.Err())
			return list
		}

		m := rl.NewMutex("a", redlock.WithFencing())
		old, err := m.Hold(t.Context())
		require.NoError(t, err)
		require.NoError(t, fence.InTx(old, db, d.dialect, "a", write("one")))

		errFn := errors.New("fn failed")
		err = fence.InTx(
			old,
			db,
			d.dialect,
			"a",
			func(tx *sql.Tx) error { return errors.Join(write("no")(tx), errFn) },
		)
		require.ErrorIs(t, err, errFn)
		assert.Panics(t, func() {
			fence.InTx(
				old,
				db,
				d.dialect,
				"a",
				func(tx *sql.Tx) error { write("no")(tx); panic("fn") },
			)
		})

		// The next holder, while the first one's context is still good: as after a pause.
		require.NoError(t, guardOnce(t, d, db, "a", m.FencingToken()+1))
		err = fence.InTx(old, db, d.dialect, "a", write("no"))
		require.ErrorIs(t, err, fence.ErrStale)

		_, err = m.Unlock()
		require.NoError(t, err)
		err = fence.InTx(t.Context(), db, d.dialect, "a", write("no"))
		require.ErrorIs(t, err, fence.ErrNoToken)
		assert.Equal(t, []string{"one"}, words())
	})
}

// asHolder makes this test binary a holder in a process of its own, see [holder].
const asHolder = "FENCE_HOLDER"

func TestMain(m *testing.M) {
	if os.Getenv(asHolder) != "" {
		if err := holder(os.Args[1:]); err != nil {
			fmt.Println("failed:", err)
		}
		return
	}
	os.Exit(m.Run())
}

// holder guards the bank with a token, reads an account, adds to it and commits. Before each step
// it says what comes, and waits for a line.
func holder(args []string) error {
	name, dsn, token := args[0], args[1], args[2]
	var d database
	for _, d = range databases {
		if d.name == name {
			break
		}
	}
	number, err := strconv.ParseUint(token, 10, 64)
	if err != nil {
		return err
	}
	db, err := sql.Open(d.driver, dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	in := bufio.NewReader(os.Stdin)
	step := func(what string) {
		fmt.Println(what)
		in.ReadString('\n')
	}
	b := &bank{d: d, db: db}
	step("guard")
	err = b.byGuard(context.Background(), number, func(tx *sql.Tx) error {
		step("read")
		var balance int64
		if err := b.read(context.Background(), tx, 0, &balance); err != nil {
			return err
		}
		step("write")
		statement := fmt.Sprintf(`UPDATE account SET balance = %d WHERE id = 0`, balance+1)
		if _, err := tx.Exec(statement); err != nil {
			return err
		}
		step("commit")
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Println("done")
	return nil
}

// process is a holder in a process of its own.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startHolder(t *testing.T, d database, dsn string, token int) *process {
	p := &process{t: t, cmd: exec.Command(os.Args[0], d.name, dsn, strconv.Itoa(token))}
	p.cmd.Env = append(os.Environ(), asHolder+"=1")
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	p.in, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.out = bufio.NewReader(out)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		p.cmd.Wait()
	})
	return p
}

// says returns what the holder says next.
func (p *process) says() string {
	line, err := p.out.ReadString('\n')
	require.NoError(p.t, err)
	return strings.TrimSpace(line)
}

// goOn lets the holder take its next steps, up to one.
func (p *process) goOn(steps int) {
	for range steps {
		fmt.Fprintln(p.in)
	}
}

func (p *process) signal(s os.Signal) { require.NoError(p.t, p.cmd.Process.Signal(s)) }

// frozenAt stops the holder where it is about to take a step: after as many others as in the list
// before.
func frozenAt(t *testing.T, d database, dsn string, token int, step string) *process {
	p := startHolder(t, d, dsn, token)
	for p.says() != step {
		p.goOn(1)
	}
	p.signal(syscall.SIGSTOP)
	for !p.stopped() {
	}
	p.goOn(4) // which it reads when it runs again
	return p
}

// stopped reports whether every thread of the holder stands still. A signal takes a moment to
// arrive.
func (p *process) stopped() bool {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
	require.NoError(p.t, err)
	for _, task := range tasks {
		stat, err := os.ReadFile(task)
		require.NoError(p.t, err)
		// The state follows the name, which is in brackets and may hold anything.
		if !bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" T")) {
			return false
		}
	}
	return len(tasks) > 0
}

// account returns the balance of account 0.
func account(t *testing.T, db *sql.DB) (balance int) {
	require.NoError(t, db.QueryRow(`SELECT balance FROM account WHERE id = 0`).Scan(&balance))
	return balance
}

// A holder that is frozen before its Guard is refused when it runs again, for the next one has
// been there.
func TestAHolderFrozenBeforeItsGuardIsRefused(t *testing.T) {
	onEach(t, func(t *testing.T, d database, dsn string, db *sql.DB) {
		newBank(t, d, db)
		old := frozenAt(t, d, dsn, 1, "guard")
		next := startHolder(t, d, dsn, 2)
		next.goOn(4)
		for next.says() != "done" {
		}
		old.signal(syscall.SIGCONT)
		assert.Contains(
			t,
			old.says(),
			"failed: fence: \"bank\" has seen a greater fencing token than 1",
		)
		assert.Equal(t, balance+1, account(t, db))
	})
}

// A holder that is frozen between its Guard and its commit keeps the next one waiting, who then
// sees what it wrote. One that dies there lets the next one go on, and has written nothing.
func TestAHolderFrozenBehindItsGuard(t *testing.T) {
	onEach(t, func(t *testing.T, d database, dsn string, db *sql.DB) {
		newBank(t, d, db)
		token := 0
		for _, step := range []string{"read", "write", "commit"} {
			for _, dies := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s,dies=%t", step, dies), func(t *testing.T) {
					before := account(t, db)
					token += 2
					old := frozenAt(t, d, dsn, token, step)
					next := startHolder(t, d, dsn, token+1)
					require.Equal(t, "guard", next.says())
					next.goOn(4)
					added := 1
					if dies {
						old.signal(syscall.SIGKILL)
					} else {
						added++
						old.signal(syscall.SIGCONT)
						for old.says() != "done" {
						}
					}
					for next.says() != "done" {
					}
					assert.Equal(t, before+added, account(t, db), "an update is lost")
				})
			}
		}
	})
}
