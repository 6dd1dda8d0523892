//go:build !unix

package main

import (
	"errors"
	"os"
)

func suspend(*os.Process, bool) error {
	return errors.New("this system has no signal that pauses a process")
}
