package errtext

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// lesson L70: an error is one line.
func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "",
		"one":                       "one",
		" kept  as it is ":          " kept  as it is ",
		"first\r\n\n\tsecond\n":     "first; second",
		"\n\r\n":                    "",
		"first \n second \r third ": "first; second; third",
		"a\x1b[31m\x00b\tc":         `a\x1b[31m\x00b\tc`,
		"10.0.0.3 ± ‘ü’ \xff\ufffd": `10.0.0.3 ± ‘ü’ \xff` + "\ufffd",
		"left\u202eright'\"":        `left\u202eright'"`,
	} {
		assert.Equal(t, want, Text(text), "%q", text)
	}
}

// lesson L145: what a node says can be shown, whatever that is.
func TestSaid(t *testing.T) {
	for text, want := range map[string]string{
		"ERR oops\r\n":              "ERR oops",
		strings.Repeat("é", 250):    strings.Repeat("é", 250),
		strings.Repeat("é", 4e5):    strings.Repeat("é", 248) + "…",
		strings.Repeat("\x1b", 80):  strings.Repeat(`\x1b`, 80),
		strings.Repeat("\x00", 4e5): strings.Repeat(`\x00`, 124) + `\…`,
		"ERR unknown command 'EVALSHA', with args beginning with: 'f00' '1' 'x' 'secret' ": "" +
			"ERR unknown command 'EVALSHA'",
		"ERR unknown command `EVALSHA`, with args beginning with: `f00`, `1`, `x`, `secret`, ": "" +
			"ERR unknown command `EVALSHA`",
	} {
		assert.Equal(t, want, Said(text))
		assert.LessOrEqual(t, len(want), longest)
	}
}

func TestJoin(t *testing.T) {
	lines := errors.New("first\nsecond")
	assert.NoError(t, Join())
	assert.NoError(t, Join(nil, nil))
	assert.Equal(t, io.EOF, Join(nil, io.EOF))
	err := Join(lines, nil, io.EOF)
	assert.EqualError(t, err, "first; second; EOF")
	assert.ErrorIs(t, err, lines)
	assert.ErrorIs(t, err, io.EOF)
}

func TestError(t *testing.T) {
	err := Error("no\nluck", io.EOF)
	assert.EqualError(t, err, "no; luck")
	assert.ErrorIs(t, err, io.EOF)
}
