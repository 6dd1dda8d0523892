package pooltest

import "github.com/redlock-go/redlock/pool"

// Scripts are the scripts with fixed sources, for the test of their IDs.
var Scripts = []*pool.Script{sha1hex, same, pttl, count, list, release, echo, publish}
