package nodeurl_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/nodeurl"
)

// lesson L133
func TestAnAddressIsOneNode(t *testing.T) {
	all, err := nodeurl.Parse([]string{"a:1", "redis://u:p,w,@b:2"})
	require.NoError(t, err)
	require.Len(t, all, 2)
	assert.Equal(t, "a:1", all[0].Addr)
	assert.Equal(t, "b:2", all[1].Addr)
	assert.Equal(t, "p,w,", all[1].Password)
	for _, list := range []string{"a:1,b:2", "a,b:2", "redis://a:1,redis://b:2",
		"redis://u:secret@a:1,redis://u:secret@b:2", "redis://a,b:2"} {
		_, err := nodeurl.Parse([]string{list})
		require.Error(t, err, list)
		assert.NotContains(t, err.Error(), "secret")
	}
}
