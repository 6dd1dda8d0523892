// Package chaos attacks redlock with real processes, and checks what they saw.
//
//	go test -run 'TestChaos$' -v -duration 10m -seed 7 -timeout 0
//
// Five redis-servers run on loopback addresses of their own. Worker processes (the test binary,
// started again) take turns on one lock; who holds it reads numbers from a resource, works for
// some milliseconds, and writes each back one higher. One is claimed with the fencing token by
// the read, and written with it. One is written with it, but was read without a claim. One is
// used without a token. Meanwhile a nemesis freezes, kills, restarts, slows and misconfigures the
// servers, cuts and pauses the workers, by a plan that follows from the seed.
//
// All that happened is written to one history with one clock (CLOCK_MONOTONIC is the same in
// all processes of a machine). [Check] then asks whether
//
//   - no two workers could trust the lock at the same time, which a sweep over the
//     intervals and a linearizability checker with the model of a fenced lock both answer;
//   - fencing tokens increase from one grant to the next;
//   - the fenced number has lost no update.
//
// In other rounds the workers are candidates of an election, and look a thousand times a second
// whether they lead. [CheckElection] asks whether two said so at the same time, and whether terms
// increase.
//
// In others they read and write under a lock that readers share, and work under one of two slots,
// or under both. [CheckSeveral] asks whether somebody read beside a writer, a slot had two holders,
// or more were at work than there are permits: by sweeps, and by the models of a register under
// readers and writers and of a semaphore.
//
// [CheckTold] asks whether who lost the lock was told in time. What the servers executed, as
// MONITOR tells it, must not have changed the key by anybody whose value it did not hold. After
// the last fault a worker must get the lock within a bound, and when all have stopped, nothing of
// theirs may remain on any server. Faults that Redlock does not claim to survive are tried in
// rounds of their own, where only the fence has to hold.
//
// Partitions need nftables and root, skewed clocks need gcc. Where they are missing, their faults
// are left out, and standard error says so. With REDLOCK_REQUIRE_REDIS=1 that is a failure,
// unless REDLOCK_LEAVE_OUT=clocks,partitions names what to go without.
package chaos
