package redigo

import (
	"context"
	"testing"

	"github.com/gomodule/redigo/redis"
)

// A batch that is abandoned as it ends does not break off the next one, which has the connection by
// then.
func TestAConnectionThatWasReturnedIsLeftAlone(t *testing.T) {
	for _, owed := range []int{0, 1} {
		fake := &fakeConn{}
		c := &connection{Conn: fake, owed: owed}
		c.giveBack()
		if fake.broken != owed || fake.closed != 1 {
			t.Errorf("with %d replies owed, it was broken off %d times and closed %d times",
				owed, fake.broken, fake.closed)
		}
		c.breakOff()
		if fake.broken != owed {
			t.Error("it was broken off after it had been returned")
		}
	}
}

// fakeConn counts.
type fakeConn struct {
	redis.ConnWithContext
	broken, closed int
}

func (c *fakeConn) ReceiveContext(context.Context) (any, error) {
	c.broken++
	return nil, context.DeadlineExceeded
}

func (c *fakeConn) Close() error {
	c.closed++
	return nil
}
