package docs

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/assert/yaml"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/doctor"
	"github.com/redlock-go/redlock/internal/nodeurl"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/internal/test/sim"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
)

// It turns off go-redis's log once, before there is a client: the log is shared and has no lock.
func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// blocks returns the code blocks of a language on a page.
func blocks(t *testing.T, page, language string) []string {
	t.Helper()
	var found []string
	block := regexp.MustCompile("(?s)```" + language + "\n(.*?)```")
	for _, m := range block.FindAllStringSubmatch(read(t, page), -1) {
		found = append(found, m[1])
	}
	require.NotEmpty(t, found, "no %s on %s", language, page)
	return found
}

// pages are those of the project.
func pages(t *testing.T) (all []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "docs/*.md", "model/*.md", "benchmarks/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		for _, path := range found {
			page, err := filepath.Rel(root, path)
			require.NoError(t, err)
			all = append(all, page)
		}
	}
	require.Greater(t, len(all), 20)
	return all
}

func read(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	require.NoError(t, err)
	return string(text)
}

const operations = "docs/operations.md"

// included writes a configuration of the page to a file and returns what makes a server read it.
// The port, the address and the directory stay those of the test.
func included(t *testing.T, conf string, replace ...string) redistest.Option {
	t.Helper()
	conf = regexp.MustCompile(`(?m)^(port|bind|dir) .*$`).ReplaceAllString(conf, "")
	path := filepath.Join(t.TempDir(), "redis.conf")
	require.NoError(t, os.WriteFile(path, []byte(strings.NewReplacer(replace...).Replace(conf)),
		0o600))
	return redistest.Args("--include", path)
}

const adminPassword = "admin-secret" // of the page

// clients returns a Redlock on servers at the addresses, which are in the form of REDLOCK_NODES.
func clients(t *testing.T, nodes string, config *tls.Config) *redlock.Redlock {
	t.Helper()
	all, err := nodeurl.Parse(strings.Split(nodes, ","))
	require.NoError(t, err)
	var pools []pool.Pool
	for _, o := range all {
		if o.TLSConfig != nil {
			o.TLSConfig = config
		}
		client := redis.NewClient(o)
		t.Cleanup(func() { _ = client.Close() })
		pools = append(pools, goredis.NewPool(client))
	}
	rl := redlock.New(pools...).With(redlock.WithNodeTimeout(4 * time.Second))
	t.Cleanup(func() { _ = rl.Close() })
	return rl
}

// exported returns the values of REDLOCK_NODES on the page.
func exported(t *testing.T) (all []string) {
	export := regexp.MustCompile(`(?m)^ +export REDLOCK_NODES=(.*)$`)
	for _, m := range export.FindAllStringSubmatch(read(t, operations), -1) {
		all = append(all, m[1])
	}
	require.Len(t, all, 2)
	return all
}

// Servers with the configuration of the page, and a program with its addresses, are without
// fault. A node takes no more memory than the page says, and tells all that is to be watched.
func TestTheConfigurationOfThePageIsSound(t *testing.T) {
	conf := blocks(t, operations, "conf")[0]
	servers := redistest.Start(t, 3, redistest.Password(adminPassword), included(t, conf))
	for _, nodes := range exported(t) {
		for i, m := range regexp.MustCompile(`@([^,]+)`).FindAllStringSubmatch(nodes, -1) {
			nodes = strings.Replace(nodes, m[1], servers[i].Addr(), 1)
		}
		rl := clients(t, nodes, nil).With(redlock.WithKeyPrefix("app:"), redlock.WithFencing())
		report, err := doctor.Check(t.Context(), rl)
		require.NoError(t, err)
		assert.True(t, strings.HasSuffix(report.String(), "\nNo problems found.\n"), "%v", report)
		require.NoError(t, rl.Do(t.Context(), "x", func(context.Context) error { return nil }))
	}

	info := map[string]string{}
	for line := range strings.Lines(servers[0].Must("INFO").(string)) {
		field, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		info[field] = value
	}
	_, watched, _ := strings.Cut(read(t, operations), "\n| Field of `INFO` |")
	watched, _, _ = strings.Cut(watched, "\n\n")
	fields := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(watched, -1)
	require.Greater(t, len(fields), 8)
	for _, f := range fields {
		_, ok := info[f[1]]
		assert.True(t, ok, "INFO has no field %s", f[1])
	}

	before, err := strconv.Atoi(info["used_memory"])
	require.NoError(t, err)
	conn := servers[0].Dial()
	defer conn.Close()
	_, err = conn.Do("AUTH", adminPassword)
	require.NoError(t, err)
	const locks = 1 << 14 // a hash table is full then
	for i := range locks {
		require.NoError(t, conn.Send("SET", fmt.Sprintf("app:invoice:%06d", i),
			"0123456789012345678901==", "NX", "PX", "600000"))
	}
	for range locks {
		_, err := conn.Receive()
		require.NoError(t, err)
	}
	memory := servers[0].Must("INFO", "memory").(string)
	after := regexp.MustCompile(`used_memory:(\d+)`).FindStringSubmatch(memory)
	used, err := strconv.Atoi(after[1])
	require.NoError(t, err)
	each := float64(used-before) / locks
	t.Logf("%.0f bytes for each lock", each)
	assert.Less(t, each, 250.0)
	assert.Contains(t, read(t, operations), "less than 250 bytes for each lock")
}

// The user of the page has the rights of docs/rights.md.
func TestThePageHasTheUserWithAllRights(t *testing.T) {
	user := regexp.MustCompile(`(?m)^ *(?:ACL SETUSER|user) app on >\S+ (.*)$`)
	in := func(text string) string {
		m := user.FindStringSubmatch(text)
		require.NotNil(t, m)
		return m[1]
	}
	assert.Equal(t, in(read(t, "docs/rights.md")), in(blocks(t, operations, "conf")[0]))
}

// The user of the page can be elected. Without a right that only elections need, nobody is, and the
// page's command says which one is missing.
//
// lesson L144
func TestTheUserOfThePageIsElected(t *testing.T) {
	servers := redistest.Start(t, 3, redistest.Password(adminPassword),
		included(t, blocks(t, operations, "conf")[0]))
	var nodes []string
	for _, s := range servers {
		nodes = append(nodes, "redis://app:app-secret@"+s.Addr())
	}
	rl := clients(t, strings.Join(nodes, ","), nil).With(redlock.WithKeyPrefix("app:"),
		redlock.WithNodeTimeout(2*time.Second))
	election := rl.NewElection("leader")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	term, err := election.Campaign(ctx)
	require.NoError(t, err)
	require.NoError(t, election.Resign(term))
	require.Contains(t, read(t, operations), "redlock doctor -prefix app: -fencing")
	check := func() []doctor.Finding {
		report, err := doctor.Check(t.Context(), rl.With(redlock.WithFencing()))
		require.NoError(t, err)
		return report.Findings
	}
	for _, f := range check() {
		assert.NotEqual(t, "noperm", f.Code, f.Problem)
	}
	for _, s := range servers {
		s.Must("ACL", "SETUSER", "app", "resetkeys", "~app:*", "~redlock:fence:*")
	}
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = election.Campaign(short)
	assert.ErrorContains(t, err, "NOPERM")
	var found []doctor.Finding
	for _, f := range check() {
		if f.Code == "noperm" {
			found = append(found, f)
		}
	}
	require.Len(t, found, 1)
	assert.Equal(t, doctor.Note, found[0].Severity, "locks do not need it")
	assert.Contains(t, found[0].Problem, "nobody is elected")
	assert.Regexp(t, `^Allow it: ACL SETUSER (app|<user>) ~\{app:\*$`, found[0].Advice)
}

// With the lines for the guard, a server keeps nothing, and Check asks for nothing else.
func TestTheConfigurationForTheGuardIsSound(t *testing.T) {
	all := blocks(t, operations, "conf")
	servers := redistest.Start(t, 3, redistest.Password(adminPassword), included(t, all[0]+all[1]))
	var nodes []string
	for _, s := range servers {
		assert.Equal(t, []any{"appendonly", "no"}, s.Must("CONFIG", "GET", "appendonly"))
		assert.Equal(t, []any{"save", ""}, s.Must("CONFIG", "GET", "save"))
		nodes = append(nodes, "redis://app:app-secret@"+s.Addr())
	}
	rl := clients(t, strings.Join(nodes, ","), nil).With(redlock.WithKeyPrefix("app:"),
		redlock.WithRestartGuard(time.Hour))
	report, err := doctor.Check(t.Context(), rl)
	require.NoError(t, err)
	for _, f := range report.Findings {
		assert.Equal(t, "guard", f.Code, "%v", f)
	}
}

// The lines for TLS work, with an authority of one's own.
func TestTheConfigurationForTLSIsSound(t *testing.T) {
	plain := redistest.Start(t, 1)[0]
	if len(plain.Must("CONFIG", "GET", "tls-port").([]any)) == 0 {
		t.Skip("this server was built without TLS")
	}
	dir := t.TempDir()
	authority := certify(t, dir)
	addr := redistest.FreeAddr(t, "127.0.0.1")
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	all := blocks(t, operations, "conf")
	conf := included(t, all[0]+all[2], "/etc/redis/tls", dir, "tls-port 6379", "tls-port "+port)
	redistest.Start(t, 1, redistest.Password(adminPassword), conf)
	rl := clients(t, "rediss://app:app-secret@"+addr,
		&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authority})
	assert.NoError(t, rl.Do(t.Context(), "app:x", func(context.Context) error { return nil }))

	tool := build(t, "./cmd/redlock")
	assert.Contains(t, read(t, operations), "`SSL_CERT_FILE`")
	for ca, says := range map[string]string{
		"ca.crt":   "1 node, quorum 1: 0 critical",
		"node.key": "certificate signed by unknown authority",
	} {
		assert.Eventually(t, func() bool { // a busy machine may not answer in time
			doctor := exec.Command(tool, "doctor", "-prefix", "app:")
			doctor.Env = append(os.Environ(), "REDLOCK_NODES=rediss://app:app-secret@"+addr,
				"SSL_CERT_FILE="+filepath.Join(dir, ca), "SSL_CERT_DIR="+dir+"/none")
			out, _ := doctor.CombinedOutput()
			return strings.Contains(string(out), says)
		}, time.Minute, time.Millisecond, says)
	}
}

// certify writes node.crt, node.key and ca.crt, and returns the authority.
func certify(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	own := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, own, own, key.Public(), key)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	for name, b := range map[string]*pem.Block{
		"node.crt": {Type: "CERTIFICATE", Bytes: der}, "ca.crt": {Type: "CERTIFICATE", Bytes: der},
		"node.key": {Type: "PRIVATE KEY", Bytes: secret},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(b), 0o600))
	}
	authority := x509.NewCertPool()
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	authority.AddCert(cert)
	return authority
}

// at returns what is at a path of keys and indexes in a document.
func at(t *testing.T, v any, path ...any) any {
	t.Helper()
	for i, p := range path {
		switch p := p.(type) {
		case string:
			m, ok := v.(map[string]any)
			require.True(t, ok && m[p] != nil, "there is no %v", path[:i+1])
			v = m[p]
		case int:
			l, ok := v.([]any)
			require.True(t, ok && p < len(l), "there is no %v", path[:i+1])
			v = l[p]
		}
	}
	return v
}

// documents parses a block of YAML.
func documents(t *testing.T, text string) (all []any) {
	t.Helper()
	for d := range strings.SplitSeq(text, "\n---\n") {
		var v any
		require.NoError(t, yaml.Unmarshal([]byte(d), &v), d)
		all = append(all, v)
	}
	return all
}

// The Compose file publishes the ports of its REDLOCK_NODES, each of a node with data of its own.
func TestTheComposeFileOfThePage(t *testing.T) {
	compose := documents(t, blocks(t, operations, "yaml")[0])[0]
	nodes := exported(t)[1]
	services := at(t, compose, "services").(map[string]any)
	require.Len(t, services, 3)
	seen := map[any]bool{}
	for name := range services {
		assert.Equal(t, []any{"redis-server", "/etc/redis/redis.conf"},
			at(t, services, name, "command"))
		published := at(t, services, name, "ports", 0).(string)
		assert.Contains(t, nodes, "@"+strings.TrimSuffix(published, ":6379"))
		assert.Equal(t, "./redis.conf:/etc/redis/redis.conf:ro",
			at(t, services, name, "volumes", 0))
		volume, path, _ := strings.Cut(at(t, services, name, "volumes", 1).(string), ":")
		assert.Contains(t, at(t, compose, "volumes"), volume)
		assert.Contains(t, blocks(t, operations, "conf")[0], "dir "+path+"\n")
		seen[published], seen[volume] = true, true
	}
	assert.Len(t, seen, 6, "a port and a volume for each")
}

// The objects for Kubernetes belong together, and keep the nodes apart.
func TestTheKubernetesObjectsOfThePage(t *testing.T) {
	all := documents(t, blocks(t, operations, "yaml")[1])
	require.Len(t, all, 3)
	service, budget, set := all[0], all[1], all[2]
	labels := at(t, set, "spec", "template", "metadata", "labels")
	pod := at(t, set, "spec", "template", "spec")
	apart := at(t, pod, "affinity", "podAntiAffinity",
		"requiredDuringSchedulingIgnoredDuringExecution", 0)
	assert.Equal(t, "kubernetes.io/hostname", at(t, apart, "topologyKey"))
	for _, selected := range []any{
		at(t, service, "spec", "selector"), at(t, budget, "spec", "selector", "matchLabels"),
		at(t, set, "spec", "selector", "matchLabels"), at(t, apart, "labelSelector", "matchLabels"),
		at(t, pod, "topologySpreadConstraints", 0, "labelSelector", "matchLabels"),
	} {
		assert.Equal(t, labels, selected)
	}
	assert.Equal(t, at(t, service, "metadata", "name"), at(t, set, "spec", "serviceName"))
	assert.Equal(t, "None", at(t, service, "spec", "clusterIP"))
	assert.Equal(t, 1, at(t, budget, "spec", "maxUnavailable"))
	assert.Equal(t, 3, at(t, set, "spec", "replicas"))
	assert.Greater(t, at(t, set, "spec", "minReadySeconds").(int),
		int(redlock.DefaultExpiry/time.Second)+1)

	c := at(t, pod, "containers", 0)
	assert.Equal(t, []any{"redis-server", "/etc/redis/redis.conf"}, at(t, c, "args"))
	mounts := map[any]any{}
	for _, m := range at(t, c, "volumeMounts").([]any) {
		mounts[at(t, m, "mountPath")] = at(t, m, "name")
	}
	assert.Equal(t, at(t, pod, "volumes", 0, "name"), mounts["/etc/redis"])
	assert.Equal(t, at(t, set, "spec", "volumeClaimTemplates", 0, "metadata", "name"),
		mounts["/data"])
	secret := at(t, pod, "volumes", 0, "secret", "secretName")
	assert.Equal(t, secret, at(t, c, "env", 0, "valueFrom", "secretKeyRef", "name"))
	create := fmt.Sprintf("kubectl create secret generic %v --from-file=redis.conf "+
		"--from-literal=password=%s", secret, adminPassword)
	assert.Contains(t, read(t, operations), create)
}

// What follows is on the page, word for word.

// outcome is a label for a counter of calls: what Lock, Do, Extend or Unlock returned.
func outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, redlock.ErrLost):
		return "lost"
	case errors.Is(err, redlock.ErrExpired):
		return "expired"
	case errors.Is(err, redlock.ErrNotReleased):
		return "not_released" // the work was done
	case errors.Is(err, redlock.ErrNoQuorum):
		return "no_quorum"
	case errors.Is(err, redlock.ErrTaken):
		return "taken"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return "context"
	}
	return "other"
}

// group returns the index of the group that decides about a name. A group keeps its label for ever.
func group(name string, labels []string) int {
	chosen, most := 0, uint64(0)
	for i, label := range labels {
		sum := sha256.Sum256([]byte(label + "\x00" + name))
		if weight := binary.BigEndian.Uint64(sum[:]); weight >= most {
			chosen, most = i, weight
		}
	}
	return chosen
}

func TestTheProgramsOfThePage(t *testing.T) {
	here, err := os.ReadFile("operations_test.go")
	require.NoError(t, err)
	for _, block := range blocks(t, operations, "go") {
		assert.Contains(t, string(here), "\n"+block)
	}
}

// The labels of outcome tell apart what the alerts are about, and no alert has another label.
//
// lesson L152
func TestTheAlertsOfThePage(t *testing.T) {
	got := map[string]bool{}
	note := func(want string, err error) {
		assert.Equal(t, want, outcome(err), "%v", err)
		got[want] = true
	}
	synctest.Test(t, func(t *testing.T) {
		nodes := sim.NewNodes(3)
		rl := redlock.New(nodes.Pools("a")...)
		m := rl.NewMutex("x")
		note("ok", m.Lock())
		note("taken", rl.NewMutex("x").TryLock())
		brief, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		note("taken", rl.NewMutex("x").LockContext(brief))
		note("context", rl.NewMutex("y").LockContext(brief))
		time.Sleep(redlock.DefaultExpiry)
		_, err := m.Unlock()
		note("expired", err)
		note("lost", rl.Do(t.Context(), "z", func(held context.Context) error {
			for _, n := range nodes {
				n.Flush()
			}
			<-held.Done()
			note("lost", context.Cause(held))
			return nil
		}))
		note("not_released", rl.Do(t.Context(), "a", func(context.Context) error {
			for _, n := range nodes[1:] {
				n.Crash()
			}
			return nil
		}))
		note("no_quorum", m.TryLock())
		brief, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		note("no_quorum", m.LockContext(brief))
		note("other", rl.NewMutex("").Lock())
		assert.NoError(t, rl.Close())
	})
	rules := at(t, documents(t, blocks(t, operations, "yaml")[2])[0], "groups", 0, "rules").([]any)
	require.Len(t, rules, 3)
	assert.Contains(t, at(t, rules[0], "expr"), `operation=~"acquire|do"`,
		"a release without a quorum keeps nobody from a lock for long")
	for _, rule := range rules {
		outcome := regexp.MustCompile(`outcome=~?"([a-z_|]*)"`)
		for _, m := range outcome.FindAllStringSubmatch(at(t, rule, "expr").(string), -1) {
			for label := range strings.SplitSeq(m[1], "|") {
				assert.True(t, got[label], "no call has the outcome %q", label)
			}
		}
	}
}

// Names are spread evenly, and a new group takes names from the others in equal parts.
func TestTheGroupsOfThePage(t *testing.T) {
	const names = 8000
	labels := []string{"a", "b", "c"}
	before, moved := make([]int, 3), 0
	for i := range names {
		name := fmt.Sprint("invoice:", i)
		g := group(name, labels)
		before[g]++
		assert.Equal(t, labels[g], []string{"c", "b", "a"}[group(name, []string{"c", "b", "a"})],
			"the order does not matter")
		if with := group(name, append(labels, "d")); with != g {
			require.Equal(t, 3, with, "a name moves only to the new group")
			moved++
		}
	}
	for _, n := range before {
		assert.InDelta(t, names/3, n, names/20)
	}
	assert.InDelta(t, names/4, moved, names/20)
}

// With nodes in three regions, a call takes as long as the page says, and a lock is held through
// the loss of any region.
func TestTheRegionsOfThePage(t *testing.T) {
	page := read(t, operations)
	for _, words := range []string{
		"1 ms within a region, 20 ms between two of them, 60 and 70 ms to the third",
		"20 ms in the first two, 60 ms in the third",
		"60 ms in the first, and as long in the third",
		"here 1.4 s and 210 ms",
	} {
		require.Contains(t, page, words)
	}
	regions := [5]int{0, 0, 1, 1, 2} // of the nodes
	trips := [3][3]time.Duration{{1, 20, 60}, {20, 1, 70}, {60, 70, 1}}
	for here, want := range [3][4]time.Duration{ // while a region is down, or none
		{60, 60, 20, 20}, {70, 70, 20, 20}, {70, 60, 70, 60},
	} {
		for down, want := range want {
			synctest.Test(t, func(t *testing.T) {
				nodes := sim.NewNodes(5)
				for i, n := range nodes {
					n.Always(sim.Slow(trips[here][regions[i]] * time.Millisecond))
					if regions[i] == down {
						n.Crash()
					}
				}
				rl := redlock.New(nodes.Pools("a")...).With(
					redlock.WithExpiry(1400*time.Millisecond),
					redlock.WithNodeTimeout(210*time.Millisecond))
				m := rl.NewMutex("x")
				start := time.Now()
				held, err := m.Hold(t.Context())
				require.NoError(t, err)
				assert.Equal(t, want*time.Millisecond, time.Since(start), "in %d without %d", here,
					down)
				time.Sleep(time.Minute)
				require.NoError(t, held.Err())
				start = time.Now()
				_, err = m.Unlock()
				require.NoError(t, err)
				assert.Equal(t, want*time.Millisecond, time.Since(start))
				require.NoError(t, rl.Close())
			})
		}
	}
}

// A client sends each node one command for each call, and the page says so.
func TestTheCommandsOfThePage(t *testing.T) {
	assert.Contains(t, read(t, operations),
		"Lock 1, Extend 1, Unlock 1; fencing and guard add none")
	for name, opts := range map[string][]redlock.Option{
		"plain": nil, "fencing": {redlock.WithFencing()},
		"guard": {redlock.WithRestartGuard(redlock.DefaultExpiry)},
	} {
		synctest.Test(t, func(t *testing.T) {
			nodes := sim.NewNodes(5)
			m := redlock.New(nodes.Pools("a")...).NewMutex("x", opts...)
			count := func(err error) {
				require.NoError(t, err)
				synctest.Wait()
				for _, n := range nodes {
					assert.Equal(t, 1, n.Count("")-n.Count("subscribe"), "%s: node %v", name, n)
				}
			}
			count(m.Lock())
			sent := nodes.Count("")
			for _, call := range []func() (bool, error){m.Extend, m.Unlock} {
				_, err := call()
				require.NoError(t, err)
				synctest.Wait()
				sent += 5
				assert.Equal(t, sent, nodes.Count(""), name)
			}
		})
	}
}

// A server executes for a call what the page says.
func TestTheCommandsInsideTheServer(t *testing.T) {
	server := redistest.Start(t, 1)[0]
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	rl := redlock.New(goredis.NewPool(client))
	_, row, _ := strings.Cut(read(t, operations), "\n| Commands inside the server | ")
	row, _, _ = strings.Cut(row, " |")
	does := func(what string, call func() error) {
		want := map[string]int64{}
		_, listed, found := strings.Cut(". "+row, ". "+what+": ")
		require.True(t, found, what)
		listed, _, _ = strings.Cut(listed, ". ")
		command := regexp.MustCompile("(?:(\\d+) × )?`([A-Z]+)`")
		for _, m := range command.FindAllStringSubmatch(listed, -1) {
			times, _ := strconv.ParseInt(m[1], 10, 64)
			want[strings.ToLower(m[2])] = max(times, 1)
		}
		before := server.Commands()
		require.NoError(t, call())
		got := server.Commands()
		for name := range got {
			if got[name] -= before[name]; got[name] == 0 {
				delete(got, name)
			}
		}
		assert.Equal(t, want, got, what)
	}
	for _, what := range []string{"Lock", "Fenced Lock"} {
		m := rl.NewMutex("x")
		if what == "Fenced Lock" {
			m = rl.NewMutex("x", redlock.WithFencing())
		}
		extend := func() error { _, err := m.Extend(); return err }
		unlock := func() error { _, err := m.Unlock(); return err }
		for _, call := range []func() error{m.Lock, extend, unlock} { // it learns the scripts
			require.NoError(t, call())
		}
		does(what, m.Lock)
		does("Extend", extend)
		does("Unlock", unlock)
	}
}

// Links to a page lead to one, and those to a heading to one.
func TestLinksOfThePagesLeadSomewhere(t *testing.T) {
	heading, link := regexp.MustCompile(`(?m)^#+ (.*)$`),
		regexp.MustCompile(`\]\(([^):]*?)(?:#([^)]*))?\)`)
	noise := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	known := map[string]map[string]bool{} // the anchors of each page
	anchors := func(page string) map[string]bool {
		if known[page] == nil {
			known[page] = map[string]bool{}
			for _, m := range heading.FindAllStringSubmatch(read(t, page), -1) {
				slug := noise.ReplaceAllString(strings.ToLower(m[1]), "")
				known[page][strings.ReplaceAll(slug, " ", "-")] = true
			}
		}
		return known[page]
	}
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(strings.ReplaceAll(read(t, page), "\n", " "),
			-1) {
			target := page
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(page), m[1])
			}
			_, err := os.Stat(filepath.Join(root, target))
			require.NoError(t, err, "%s links to %s", page, m[0])
			if m[2] != "" {
				assert.True(t, anchors(target)[m[2]], "%s has no heading for the link %s of %s",
					target, m[2], page)
			}
		}
	}
}
