package doctor

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The comment of package doctor lists the codes of all findings, and no others.
func TestTheListOfCodesIsComplete(t *testing.T) {
	made := map[string]bool{unreachable.code: true, "other-nodes": true} // of redlock doctor
	for _, t := range troubles {
		made[t.code] = true
	}
	judge, err := os.ReadFile("judge.go")
	require.NoError(t, err)
	find := regexp.MustCompile(`j\.find\w*\([^"\n]*, "([a-z-]+)",`)
	calls := regexp.MustCompile(`j\.find\w*\(`).FindAllIndex(judge, -1)
	found := find.FindAllSubmatch(judge, -1)
	const variable = 3 // two helpers call others, and reach has the codes of the troubles
	require.Len(t, found, len(calls)-variable, "a call whose code this test cannot read")
	for _, f := range found {
		made[string(f[1])] = true
	}

	page, err := os.ReadFile("doctor.go")
	require.NoError(t, err)
	comment, _, _ := strings.Cut(string(page), "\npackage doctor\n")
	items := regexp.MustCompile(`(?m)^//   - ([a-z, -]+):`).FindAllStringSubmatch(comment, -1)
	listed := map[string]bool{}
	for _, item := range items {
		for code := range strings.SplitSeq(item[1], ", ") {
			assert.False(t, listed[code], "%s is listed twice", code)
			listed[code] = true
		}
	}
	assert.Equal(t, slices.Sorted(maps.Keys(made)), slices.Sorted(maps.Keys(listed)))
}
