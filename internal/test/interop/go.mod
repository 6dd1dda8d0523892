module github.com/redlock-go/redlock/internal/test/interop

go 1.26.0

replace (
	github.com/redlock-go/redlock => ../../..
	github.com/redlock-go/redlock/integrations/gocron => ../../../integrations/gocron
	github.com/redlock-go/redlock/integrations/robfigcron => ../../../integrations/robfigcron
)

// Redsync's own tests import these two, and "go mod tidy" looks at them; nothing
// here compiles them. Module proxies do not serve the v1.0.79 that Redsync asks for.
replace (
	github.com/redis/rueidis/rueidiscompat => github.com/redis/rueidis/rueidiscompat v1.0.78
	github.com/valkey-io/valkey-go/valkeycompat => github.com/valkey-io/valkey-go/valkeycompat v1.0.77
)

require (
	github.com/go-co-op/gocron/v2 v2.21.2
	github.com/go-redsync/redsync/v4 v4.18.1
	github.com/gomodule/redigo v1.9.3
	github.com/redis/go-redis/v9 v9.23.0
	github.com/redlock-go/redlock v0.0.0-00010101000000-000000000000
	github.com/redlock-go/redlock/integrations/gocron v0.0.0-00010101000000-000000000000
	github.com/redlock-go/redlock/integrations/robfigcron v0.0.0-00010101000000-000000000000
	github.com/robfig/cron/v3 v3.0.1
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/alicebob/miniredis/v2 v2.40.0 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/hashicorp/errwrap v1.0.0 // indirect
	github.com/hashicorp/go-multierror v1.1.1 // indirect
	github.com/jonboulle/clockwork v0.5.0 // indirect
	github.com/yuin/gopher-lua v1.1.1 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.48.0 // indirect
)
