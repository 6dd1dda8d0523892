package quorum

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestWordsOfRefusals(t *testing.T) {
	for text, want := range map[string]bool{
		"NOPERM No permissions to access a key":                                       true,
		"acquire: ERR ACL failure in script: User app has no permissions":             true,
		"WRONGPASS invalid username-password pair or user is disabled.":               true,
		"READONLY You can't write against a read only replica.":                       true,
		"no answer within 400ms: the last dial: NOAUTH Authentication required.":      true,
		"LOADING Redis is loading the dataset in memory":                              false,
		"dial tcp 10.0.0.1:6379: connect: connection refused":                         false,
		"NOTMOVED, MOVEDON: the word is in others, before and after them: TASK, ASKS": false,
		"": false,
	} {
		assert.Equal(t, want, Lasts(errors.New(text)), text)
	}
	assert.False(t, Lasts(nil))
	assert.True(t, Says(errors.New("TASK, then ASK"), Lasting["moved"]))
	assert.False(t, Says(errors.New("ZASK"), Lasting["moved"]))
}
