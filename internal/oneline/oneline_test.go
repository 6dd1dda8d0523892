package oneline

import (
	"errors"
	"io"
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
	} {
		assert.Equal(t, want, Text(text), "%q", text)
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
