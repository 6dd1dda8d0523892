// Package checkuptest reads the reports of Check in tests.
package checkuptest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redlock-go/redlock/doctor"
)

// Findings returns the findings of a report as "severity code nodes". Each has advice, and the
// worst come first.
func Findings(t testing.TB, r *doctor.Report) []string {
	t.Helper()
	var found []string
	for i, f := range r.Findings {
		found = append(found, fmt.Sprint(f.Severity, " ", f.Code, " ", f.Nodes))
		assert.NotEmpty(t, f.Advice)
		if i > 0 {
			assert.LessOrEqual(t, f.Severity, r.Findings[i-1].Severity, "the worst come first")
		}
	}
	return found
}
