//go:build linux

package dbtest

import (
	"database/sql"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/fence"
)

// Programs that make the table when they start do so at the same time.
// lesson L125
func TestTheSchemaByManyAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, d database, _ string, db *sql.DB) {
		for range 30 {
			_, err := db.Exec(`DROP TABLE redlock_fence`)
			require.NoError(t, err)
			var many sync.WaitGroup
			for range 8 {
				many.Go(func() {
					_, err := db.Exec(d.dialect.Schema())
					assert.NoError(t, err)
				})
			}
			many.Wait()
		}
	})
}

// The table of tokens may have another name, and stand in another schema.
func TestWithTable(t *testing.T) {
	onEach(t, func(t *testing.T, d database, _ string, db *sql.DB) {
		_, err := db.Exec(`DROP TABLE redlock_fence`)
		require.NoError(t, err)
		names := []string{"tokens", "Select"}
		switch d.name {
		case "postgres":
			_, err = db.Exec(`CREATE SCHEMA "billing-2"`)
			names = append(names, "billing-2.tokens")
		case "mariadb":
			_, err = db.Exec("CREATE DATABASE `billing-2`")
			names = append(names, "billing-2.tokens")
		case "sqlite":
			names = append(names, "main.token-2")
		}
		require.NoError(t, err)
		for _, name := range []string{"", "a; b", `"; DROP TABLE t`, "`; DROP TABLE t"} {
			_, err := db.Exec(d.dialect.WithTable(name).Schema())
			require.Error(t, err, name)
		}
		for _, name := range names {
			d.dialect = d.dialect.WithTable(name)
			for range 2 {
				_, err := db.Exec(d.dialect.Schema())
				require.NoError(t, err)
			}
			require.NoError(t, guardOnce(t, d, db, "a", 7))
			require.NoError(t, guardOnce(t, d, db, "a", 7))
			require.ErrorIs(t, guardOnce(t, d, db, "a", 6), fence.ErrStale)
			require.NoError(t, fence.InTx(holding(t), db, d.dialect, "a",
				func(*sql.Tx) error { return nil }))
		}
	})
}
