// Package deployment lets package doctor see what a Redlock works with, which the API of package
// redlock does not tell. Neither imports doctor, so only programs that use it compile it.
package deployment

import (
	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/wire"
)

// Deployment is the nodes of a Redlock, and what its locks need of them.
type Deployment struct {
	Nodes   []*quorum.Node
	Terms   wire.Terms
	Tokens  *wire.Tokens
	Prefix  string // of the locks' keys
	Channel string // on which the process hears of its turns

	// Denied is what a reply says that denies a key to be ours.
	Denied func(quorum.Reply) error
	// Exported is the error of a node as users of package redlock get it.
	Exported func(error) error
}

// Of returns the deployment of a *redlock.Redlock. It panics if New did not make that, and returns
// what is wrong with its options. Package redlock sets it.
var Of func(rl any) (Deployment, error)
