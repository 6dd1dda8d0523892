package pool_test

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redlock-go/redlock/pool"
)

// An error that is marked stays what it was.
func TestNotSentKeepsTheError(t *testing.T) {
	why := &fs.PathError{Op: "dial", Path: "node", Err: fs.ErrPermission}
	err := pool.NotSent(fmt.Errorf("connecting: %w", why))
	assert.ErrorIs(t, err, pool.ErrNotSent)
	assert.ErrorIs(t, err, fs.ErrPermission)
	var path *fs.PathError
	assert.ErrorAs(t, err, &path)
	assert.EqualError(t, err, "connecting: "+why.Error())
	assert.NoError(t, pool.NotSent(nil))
	assert.NotErrorIs(t, why, pool.ErrNotSent)
}

// What servers say is known by its text, wherever it stands.
func TestRepliesAreKnownByTheirText(t *testing.T) {
	const noScript, noMaster = 1, 2
	for text, want := range map[string]int{
		"NOSCRIPT No matching script. Please use EVAL.":                        noScript,
		"hook: NOSCRIPT No matching script":                                    noScript,
		"READONLY You can't write against a read only replica.":                noMaster,
		"ERR user_script:1: READONLY You can't write against a replica":        noMaster,
		"MASTERDOWN Link with MASTER is down":                                  noMaster,
		"LOADING Redis is loading the dataset in memory":                       noMaster,
		"NOPERM this user has no permissions to run the 'evalsha' command":     0,
		"OOM command not allowed when used memory > 'maxmemory'.":              0,
		"MISCONF Redis is configured to save RDB snapshots, but can't persist": 0,
	} {
		err := errors.New(text)
		assert.Equal(t, want == noScript, pool.IsNoScript(err), text)
		assert.Equal(t, want == noMaster, pool.IsNoMaster(err), text)
	}
	assert.False(t, pool.IsNoScript(nil))
	assert.False(t, pool.IsNoMaster(nil))
}

// A panic is an error of one line, and is what it panicked with.
func TestAPanicIsAnErrorOfOneLine(t *testing.T) {
	caught := func(value any) (err *pool.PanicError) {
		defer func() { err = pool.Recovered(recover()) }()
		panic(value)
	}
	err := caught(fmt.Errorf("two\n\tlines: %w", fs.ErrClosed))
	assert.EqualError(t, err, "the client panicked: two lines: file already closed")
	assert.ErrorIs(t, err, fs.ErrClosed)
	assert.Contains(t, string(err.Stack), "TestAPanicIsAnErrorOfOneLine")
	assert.NoError(t, errors.Unwrap(caught("no error")))
}
