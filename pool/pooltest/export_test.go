package pooltest

import "time"

import "github.com/redlock-go/redlock/pool"

// Scripts are the scripts with fixed sources, for the test of their IDs.
var Scripts = []*pool.Script{sha1hex, same, pttl, take, count, list, release, queue, echo,
	publish, flood}

// Hurry makes the suite wait less long for what a defect keeps from coming.
func Hurry() { arrival = 2 * time.Second }
