package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/doctor"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/internal/test/sim"
	"github.com/redlock-go/redlock/pool"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

var errOops = errors.New("oops")

// check runs Check, and returns the report and its findings as "severity code nodes". Each has
// advice, and the worst come first.
func check(t *testing.T, rl *redlock.Redlock) (report *doctor.Report, found []string) {
	t.Helper()
	report, err := doctor.Check(t.Context(), rl)
	require.NoError(t, err)
	t.Log(report)
	for i, f := range report.Findings {
		found = append(found, fmt.Sprint(f.Severity, " ", f.Code, " ", f.Nodes))
		assert.NotEmpty(t, f.Advice)
		if i > 0 {
			assert.LessOrEqual(t, f.Severity, report.Findings[i-1].Severity, "the worst come first")
		}
	}
	return report, found
}

// bubble runs f in virtual time with n simulated nodes and a Redlock on them.
func bubble(
	t *testing.T, n int, f func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock),
	opts ...redlock.Option,
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(n)
		defer nodes.Close()
		rl := redlock.New(nodes.Pools("a")...).With(opts...)
		f(t, nodes, rl)
		nodes.Close()
		require.NoError(t, rl.Close())
	})
}

// doer is a node that tells what it is told to.
type doer struct {
	pool.Pool
	info   map[string]string
	config string
	reply  func(parameter, value string) any // of CONFIG GET, as some client has it; nil: a list
	clock  func() time.Time
	time   any           // the reply to TIME, if not nil
	hang   chan struct{} // not nil: do not answer before it is closed
	slow   map[string]time.Duration
	asked  []string
}

func (d *doer) Do(ctx context.Context, args ...any) (any, error) {
	name := args[0].(string)
	d.asked = append(d.asked, name)
	if d.hang != nil {
		<-d.hang
	}
	if d.slow[name] > 0 {
		defer time.Sleep(d.slow[name])
	}
	if d.slow[name] < 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	switch name {
	case "INFO":
		if d.info == nil {
			return nil, errOops
		}
		text := "# Server\r\n"
		for k, v := range d.info {
			text += k + ":" + v + "\r\n"
		}
		return text, nil
	case "TIME":
		if d.time != nil {
			return d.time, nil
		}
		now := d.clock()
		return []any{strconv.FormatInt(now.Unix(), 10), strconv.Itoa(now.Nanosecond() / 1000)}, nil
	case "CONFIG":
		if d.reply != nil {
			return d.reply(args[2].(string), d.config), nil
		}
		return []any{args[2], d.config}, nil
	}
	return nil, errors.New("ERR unknown command")
}

// doers returns nodes about which nothing is to be said.
func doers(n int) ([]*doer, []pool.Pool) {
	var ds []*doer
	pools := sim.NewNodes(n).Pools("a")
	for i := range pools {
		d := &doer{Pool: pools[i], config: "always", clock: time.Now, info: map[string]string{
			"redis_version": "7.2.4", "redis_mode": "standalone", "role": "master",
			"run_id":           strings.Repeat(strconv.Itoa(i), 40),
			"connected_slaves": "0", "uptime_in_seconds": "3600",
			"maxmemory": "0", "maxmemory_policy": "noeviction", "aof_enabled": "1",
		}}
		ds = append(ds, d)
		pools[i] = d
	}
	return ds, pools
}
