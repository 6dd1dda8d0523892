//go:build unix && !linux

package main

import "syscall"

// dieWithParent does nothing: this system cannot do that.
func dieWithParent(*syscall.SysProcAttr) {}

// lendTerminal does nothing: a command cannot read from a terminal here.
func lendTerminal(*syscall.SysProcAttr) (takeBack func()) { return func() {} }
