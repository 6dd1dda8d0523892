package redigo_test

import (
	"testing"

	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/internal/test/together"
	"github.com/redlock-go/redlock/pool/redigo"
)

func TestManyReleasesAreFewCommands(t *testing.T) {
	server := redistest.Start(t, 1)[0]
	together.FewScripts(t, server, redigo.NewPool(newPool(t, server.Addr())))
}

// A server of a cluster refuses keys of several slots, also if all of them are its own.
func TestReleasesOnAServerOfACluster(t *testing.T) {
	t.Parallel()
	server := redistest.StartCluster(t, 1)[0]
	together.ManyScripts(t, server, redigo.NewPool(newPool(t, server.Addr())), together.Key)
}
