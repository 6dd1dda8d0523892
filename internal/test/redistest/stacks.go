package redistest

import (
	"os"
	"strings"
	"syscall"
)

// adaptive is the setting with which a goroutine starts with a stack of the average size, not of
// 2 KiB. The runtime reads it once, as the process starts.
const adaptive = "adaptivestackstart"

// adaptStacks starts the program again with that setting, unless GODEBUG has it or the system
// cannot do that. Most commands to a simulated node have a goroutine of their own, whose stack
// grows and is copied each time: that was a seventh of the processor time.
func adaptStacks() {
	set := os.Getenv("GODEBUG")
	if strings.Contains(set, adaptive) {
		return
	}
	program, err := os.Executable()
	if err != nil {
		return
	}
	set = strings.TrimPrefix(set+","+adaptive+"=1", ",")
	if os.Setenv("GODEBUG", set) == nil {
		_ = syscall.Exec(program, os.Args, os.Environ())
	}
}
