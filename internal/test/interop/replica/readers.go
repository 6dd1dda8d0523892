package main

import "github.com/redlock-go/redlock"

// Versions before WithShared are built without this file.
func init() {
	kinds = append(kinds, kind{name: "waits", reads: true,
		options: []redlock.Option{redlock.WithShared()}})
}
