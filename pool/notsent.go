package pool

import "errors"

// ErrNotSent is matched by the error of a command that was certainly not sent to the node, nor is
// later: the client could not connect, or the context ended in a queue. An adapter marks such an
// error with [NotSent]. Redlock then has nothing to take back on that node. An error that is not
// marked may belong to a command that the node has executed.
var ErrNotSent = errors.New("pool: command not sent")

// NotSent returns err, marked so that it matches [ErrNotSent]. The text stays the same, and
// [errors.Is] and [errors.As] find what they found in err. NotSent(nil) is nil.
func NotSent(err error) error {
	if err == nil {
		return nil
	}
	return &notSent{err}
}

type notSent struct{ error }

func (e *notSent) Is(target error) bool { return target == ErrNotSent }

func (e *notSent) Unwrap() error { return e.error }
