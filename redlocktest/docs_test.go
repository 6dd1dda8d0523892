package redlocktest_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The programs of the page, one after the other, are recipes_test.go: each of them is run.
func TestThePageIsTheRecipes(t *testing.T) {
	page, err := os.ReadFile("../docs/testing-your-code.md")
	require.NoError(t, err)
	recipes, err := os.ReadFile("recipes_test.go")
	require.NoError(t, err)
	var programs []string
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	for _, block := range blocks {
		programs = append(programs, block[1])
	}
	assert.Equal(t, string(recipes), strings.Join(programs, "\n"))
}
