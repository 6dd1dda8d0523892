module github.com/redlock-go/redlock/internal/chaos

go 1.26.0

require (
	github.com/anishathalye/porcupine v1.3.1
	golang.org/x/sys v0.48.0
)

replace github.com/redlock-go/redlock => ../..
