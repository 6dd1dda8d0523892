package main

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The processes of the playground are this program.
func TestMain(m *testing.M) {
	if name := os.Getenv(processEnv); name != "" {
		runProcess(name, os.Getenv(nodesEnv))
		return
	}
	os.Exit(m.Run())
}

// sentences are what the stories end in.
var sentences = map[string]string{
	"node": `^([6-9]|\d\d+) updates after node 2 had died, 0 updates lost\.$`,
	"majority": `^0 locks granted while three of five nodes were down, 2 updates after that, ` +
		`0 updates lost\.$`,
	"pause":           `^3 updates, and the counter is 1: 2 updates lost\.$`,
	"pause-fenced":    `^1 write refused, 3 updates, and the counter is 3: 0 updates lost\.$`,
	"restart":         `^2 holders at once, 2 updates, and the counter is 1: 1 update lost\.$`,
	"restart-guarded": `^1 holder at once, 2 updates, and the counter is 2: 0 updates lost\.$`,
	"queue":           `^10 of 10 were served in the order in which they came, 0 updates lost\.$`,
	"readers": `^\d+ reads by up to [23] at once, \d+ writes, and nobody beside a writer: ` +
		`0 updates lost\.$`,
}

func TestStories(t *testing.T) {
	assert.Len(t, sentences, len(stories))
	for _, st := range stories {
		t.Run(st.ID, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			sentence, err := st.alone(ctx)
			require.NoError(t, err)
			assert.Regexp(t, sentences[st.ID], sentence)
		})
	}
}
