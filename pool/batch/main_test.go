package batch_test

import (
	"os"
	"testing"

	"github.com/redlock-go/redlock/internal/test/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }
