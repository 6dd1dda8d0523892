package quorum

import (
	"slices"
	"strings"
)

// Denials are in the errors of servers that do not let a user have a command, a key or a channel.
var Denials = []string{"NOPERM", "can't run this command or subcommand", "ACL failure in script"}

// Lasting are the words of servers that refuse a command until somebody changes the server or the
// client, by the codes that package doctor has for them.
var Lasting = map[string][]string{
	"noperm":    Denials,
	"noauth":    {"NOAUTH"},
	"wrongpass": {"WRONGPASS", "invalid password", "invalid username-password"},
	"crossslot": {"CROSSSLOT"},
	"moved":     {"MOVED", "ASK"},
	"readonly":  {"READONLY", "MASTERDOWN"},
}

// Lasts reports whether an error has such words.
func Lasts(err error) bool {
	for _, words := range Lasting {
		if Says(err, words) {
			return true
		}
	}
	return false
}

// Says reports whether one of the words is in an error's text, and is not the beginning or the end
// of another word there.
func Says(err error, words []string) bool {
	return err != nil && slices.ContainsFunc(words, func(word string) bool {
		return hasWord(err.Error(), word)
	})
}

func hasWord(text, word string) bool {
	letter := func(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
	for i := range text {
		rest, found := strings.CutPrefix(text[i:], word)
		if found && (i == 0 || !letter(text[i-1])) && (rest == "" || !letter(rest[0])) {
			return true
		}
	}
	return false
}
