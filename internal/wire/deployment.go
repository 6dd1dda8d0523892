package wire

import "github.com/redlock-go/redlock/internal/quorum"

// Deployment is the nodes of a Redlock, and what its locks need of them: what package doctor gets
// to see, and the API of package redlock does not tell.
type Deployment struct {
	Nodes   []*quorum.Node
	Terms   Terms
	Tokens  *Tokens
	Prefix  string // of the locks' keys
	Channel string // on which the process hears of its turns

	// Denied is what a reply says that denies a key to be ours.
	Denied func(quorum.Reply) error
	// Exported is the error of a node as users of package redlock get it.
	Exported func(error) error
}

// DeploymentOf returns the deployment of a *redlock.Redlock. It panics if New did not make that,
// and returns what is wrong with its options. Package redlock sets it.
var DeploymentOf func(rl any) (Deployment, error)
