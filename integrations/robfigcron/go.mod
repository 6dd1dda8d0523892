module github.com/redlock-go/redlock/integrations/robfigcron

go 1.25.0

replace github.com/redlock-go/redlock => ../..

require (
	github.com/redlock-go/redlock v0.0.0-00010101000000-000000000000
	github.com/robfig/cron/v3 v3.0.1
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/hashicorp/errwrap v1.0.0 // indirect
	github.com/hashicorp/go-multierror v1.1.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)
