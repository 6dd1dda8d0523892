// Package clocktest makes times for tests of what happens when a process's clocks disagree.
package clocktest

import (
	"time"
	"unsafe"
)

// Time is what time.Now returns in a process whose two clocks show these times. Package time has
// no way to make that, and in a bubble its times have no monotonic reading at all.
func Time(wall time.Time, monotonic time.Duration) time.Time {
	const flag, since1885 = 1 << 63, 2_682_288_000 // seconds, until 1970
	t := struct {
		wall uint64 // the flag, 33 bits of seconds, and 30 of nanoseconds
		ext  int64
		loc  *time.Location
	}{flag | uint64(wall.Unix()+since1885)<<30 | uint64(wall.Nanosecond()), int64(monotonic),
		time.Local}
	return *(*time.Time)(unsafe.Pointer(&t))
}
