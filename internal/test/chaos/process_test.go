package chaos

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	goredislib "github.com/redis/go-redis/v9"

	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
)

// start starts the test binary as a process of another kind, which reads its config from a variable
// of the environment. The caller closes its standard input and output.
func start(t *testing.T, env string, config any) (p *redistest.Process, in, out *os.File) {
	t.Helper()
	conf, err := json.Marshal(config)
	must(t, "config", err)
	inR, in, err := os.Pipe()
	must(t, "pipe", err)
	out, outW, err := os.Pipe()
	must(t, "pipe", err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), env+"="+string(conf))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, os.Stderr
	p, err = redistest.StartProcess(cmd)
	must(t, "start", err)
	_, _ = inR.Close(), outW.Close()
	return p, in, out
}

// started reports whether the process was started with a config in env, and reads that.
func started(env string, config any) bool {
	text := os.Getenv(env)
	if text == "" {
		return false
	}
	if err := json.Unmarshal([]byte(text), config); err != nil {
		panic(err)
	}
	return true
}

// poolsOf makes a pool of every server with go-redis's default options.
func poolsOf(addrs []string) []pool.Pool {
	pools := make([]pool.Pool, len(addrs))
	for i, addr := range addrs {
		pools[i] = goredis.NewPool(goredislib.NewClient(&goredislib.Options{Addr: addr}))
	}
	return pools
}
