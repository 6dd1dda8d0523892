package sim_test

import (
	"encoding/binary"
	"testing"
)

// FuzzSchedule lets coverage choose the schedules: what there is of everything, and which faults.
//
//	go test ./internal/test/sim -run '^$' -fuzz FuzzSchedule -fuzztime 1m
func FuzzSchedule(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 0, 0, 3, 2, 1, 2})
	f.Add([]byte{19, 0, 0x20, 0x06, 0, 0, 7, 2, 2, 2})
	f.Add([]byte{203, 0, 0xff, 0xff, 0x01, 1, 5, 4, 1, 4})
	f.Add([]byte{7, 0, 0xff, 0xff, 0x01, 2, 3, 3, 1, 2})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 10 {
			return
		}
		h := run(t, setup{
			Seed:    uint64(binary.LittleEndian.Uint16(b)),
			Faults:  faults(binary.LittleEndian.Uint32(append(b[2:5:5], 0))) & inModel,
			Few:     b[5]&1 != 0,
			Edge:    b[5]&6 == 2,
			Nodes:   1 + int(b[6])%7,
			Clients: 1 + int(b[7])%4,
			Workers: 1 + int(b[8])%2,
			Cycles:  1 + int(b[9])%3,
		}, false)
		if len(h.violations) > 0 {
			t.Fatalf("%s\n%s", h.setup, some(h.violations))
		}
	})
}
