package valkeygo_test

import (
	"testing"

	client "github.com/valkey-io/valkey-go"

	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/internal/test/together"
	"github.com/redlock-go/redlock/pool/valkeygo"
)

func TestManyReleasesAreFewCommands(t *testing.T) {
	server := redistest.Start(t, 1)[0]
	p := valkeygo.NewPool(newClient(t, options(server.Addr())))
	together.FewScripts(t, server, p)
}

// A server of a cluster refuses keys of several slots, also if all of them are its own. A client
// for a cluster may have to send releases to several servers.
func TestReleasesOnAServerOfACluster(t *testing.T) {
	server := redistest.StartCluster(t, 1)[0]
	p := valkeygo.NewPool(newClient(t, options(server.Addr())))
	together.ManyScripts(t, server, p, together.Key)

	cluster := client.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true}
	p = valkeygo.NewPool(newClient(t, cluster))
	together.ManyScripts(t, server, p, together.KeyOfOneSlot)
}
