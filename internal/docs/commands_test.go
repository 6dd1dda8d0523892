package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The tests that pages name exist, also where a page gives the beginning or the end of a name, as
// TestSchedulesOf… or …OfSlots. A go test whose -run matches nothing passes.
func TestTheTestsThatPagesNameExist(t *testing.T) {
	var exist []string
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range function.FindAllSubmatch(source, -1) {
			exist = append(exist, string(m[1]))
		}
		return err
	}))
	all := " " + strings.Join(exist, " ") + " "
	name := regexp.MustCompile("[`'^(|]((?:…|Test|Fuzz|Benchmark)[A-Z]\\w*(?:…\\w*)?)[`'$|)]")
	named := 0
	for _, page := range pages(t) {
		for _, m := range name.FindAllStringSubmatch(read(t, page), -1) {
			switch m[1] {
			case "FuzzName", "TestOnBorrowContext": // any; a field of redigo's Pool
				continue
			}
			named++
			pattern := ` ` + strings.ReplaceAll(m[1], "…", `\w*`) + ` `
			assert.True(t, regexp.MustCompile(pattern).MatchString(all), "%s names %s", page, m[1])
		}
	}
	assert.Greater(t, named, 40)
}
