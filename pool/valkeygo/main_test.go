package valkeygo_test

import (
	"os"
	"testing"

	"github.com/redlock-go/redlock/internal/test/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }
