// Package oneline keeps errors to one line of text: logs are read and searched by lines.
package oneline

import (
	"slices"
	"strings"
)

// Text puts a semicolon in the place of line breaks, with the white space around them.
func Text(text string) string {
	if !strings.ContainsAny(text, "\n\r") {
		return text
	}
	var lines []string
	for line := range strings.FieldsFuncSeq(text, isBreak) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}

func isBreak(c rune) bool { return c == '\n' || c == '\r' }

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
	return Error(List(errs), errs...)
}

// Error returns an error with that text, which wraps the causes.
func Error(text string, causes ...error) error { return &joined{Text(text), causes} }

type joined struct {
	text   string
	causes []error
}

func (e *joined) Error() string { return e.text }

func (e *joined) Unwrap() []error { return e.causes }
