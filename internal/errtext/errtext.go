// Package errtext keeps the texts of errors to one line: logs are read and searched by lines.
package errtext

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// longest is how many bytes of what somebody else said are shown. Servers and clients need less.
const longest = 500

// Said is the text of what a node, or the client that speaks with it, has said. It is cut if it is
// very long. It ends before the arguments of a command that the node does not know: nodes repeat
// them, and the value of a lock is one.
func Said(text string) string {
	text, _, _ = strings.Cut(text, ", with args beginning with")
	return Cut(Text(Cut(text)))
}

// Name is a name, of a lock usually, as a text shows it: quoted, and cut if it is very long.
func Name(name string) string { return strconv.Quote(Cut(name)) }

// Cut returns at most the first 500 bytes of a text, and an ellipsis if there are more.
func Cut(text string) string { return CutTo(text, longest) }

// CutTo returns at most so many bytes of a text, the last of them an ellipsis if there are more.
func CutTo(text string, length int) string {
	const more = "…"
	if len(text) <= length {
		return text
	}
	end := length - len(more)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + more
}

// Text puts a semicolon in the place of line breaks, with the white space around them. What cannot
// be printed, and could change how a terminal shows the rest, is escaped as in Go.
func Text(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, isOdd) {
		return text
	}
	var lines []string
	for line := range strings.FieldsFuncSeq(text, isBreak) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, escape(line))
		}
	}
	return strings.Join(lines, "; ")
}

func isBreak(c rune) bool { return c == '\n' || c == '\r' }

// isOdd reports whether a rune is not shown as it is.
func isOdd(c rune) bool { return !strconv.IsPrint(c) }

// escape escapes what is odd in a line.
func escape(line string) string {
	quoted := strconv.Quote(line)
	return asIs.Replace(quoted[1 : len(quoted)-1])
}

// asIs undoes what [strconv.Quote] does to characters that can be shown.
var asIs = strings.NewReplacer(`\"`, `"`, `\\`, `\`)

// List is the text of several errors.
func List(errs []error) string {
	texts := make([]string, len(errs))
	for i, err := range errs {
		texts[i] = Text(err.Error())
	}
	return strings.Join(texts, "; ")
}

// Join returns the errors that are not nil as one, or nil if there are none. Unlike [errors.Join],
// it returns a lone error as it is.
func Join(errs ...error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	}
	return Error(List(errs), slices.Clone(errs)...) // so that errs need no allocation otherwise
}

// Error returns an error with that text, which wraps the causes.
func Error(text string, causes ...error) error { return &joined{Text(text), causes} }

type joined struct {
	text   string
	causes []error
}

func (e *joined) Error() string { return e.text }

func (e *joined) Unwrap() []error { return e.causes }
