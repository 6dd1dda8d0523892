//go:build !linux

package main

import "os"

// isTerminal reports whether a file is a terminal, or another device.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// size returns how many lines and columns a terminal has at least.
func size(*os.File) (lines, width int) { return 24, 80 }

// singleKeys does nothing: a key needs Enter after it.
func singleKeys(*os.File) (restore func()) { return func() {} }

func catchStops(chan<- os.Signal) (restore func()) { return func() {} }

func stopSelf() {}
