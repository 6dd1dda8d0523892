package wire

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
)

// valueBytes is how many random bytes a value has.
const valueBytes = 16

// NewValue makes the random bits of a value. Before them may stand an owner's text and a colon. No
// two attempts may share a value, or the late release of the first could delete the key of the
// second.
func NewValue() string {
	var bits [valueBytes]byte
	rand.Read(bits[:]) // never fails
	var text [24]byte
	base64.StdEncoding.Encode(text[:], bits[:])
	return string(text[:])
}

// OwnerOf returns what stands before the random bits of a value, or "".
func OwnerOf(value string) string {
	end := len(value) - len(":") - base64.StdEncoding.EncodedLen(valueBytes)
	if end < 0 || value[end] != ':' {
		return ""
	}
	if bits, err := base64.StdEncoding.DecodeString(value[end+1:]); err != nil ||
		len(bits) != valueBytes {
		return ""
	}
	return value[:end]
}

// Brief shows the beginning of a value, from which nobody learns the whole. Of the 24 random
// letters of redlock's values, it shows six. Other libraries may set short values, of which it
// shows a third.
func Brief(value string) string {
	if value == "" {
		return `""`
	}
	return fmt.Sprintf("%q…", value[:max(len(value)-18, min(len(value)/3, 6))])
}
