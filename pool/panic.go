package pool

import (
	"fmt"
	"runtime/debug"
	"strings"
)

// PanicError is the outcome of a call during which the client panicked. An adapter returns it
// from a goroutine of its own, where nobody else can recover: one node fails, and the process
// goes on.
type PanicError struct {
	Value any    // what was given to panic
	Stack []byte // of the goroutine, as [debug.Stack] formats it
}

// Recovered returns the PanicError of a value that recover returned. The caller is the deferred
// function that recovered, so that the stack shows the panic.
func Recovered(value any) *PanicError { return &PanicError{value, debug.Stack()} }

// Try calls f, and returns its error or what it panicked with.
func Try(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = Recovered(value)
		}
	}()
	return f()
}

// Error says in one line what the panic was about, without the stack.
func (e *PanicError) Error() string {
	return "the client panicked: " + strings.Join(strings.Fields(fmt.Sprint(e.Value)), " ")
}

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
