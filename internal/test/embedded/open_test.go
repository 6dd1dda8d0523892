package embedded

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lesson L83
func TestOpenTakesURLs(t *testing.T) {
	nodes := map[string]*miniredis.Miniredis{"redis": miniredis.NewMiniRedis(),
		"rediss": miniredis.NewMiniRedis()}
	require.NoError(t, nodes["redis"].Start())
	certificates := []tls.Certificate{certificate(t)}
	require.NoError(t, nodes["rediss"].StartTLS(&tls.Config{Certificates: certificates}))
	for scheme, node := range nodes {
		t.Cleanup(node.Close)
		node.RequireUserAuth("app", "p@ss/w,rd#1")
		t.Run(scheme, func(t *testing.T) {
			const login = "app:p%40ss%2Fw%2Crd%231@"
			query := map[string]string{"rediss": "?skip_verify=true"}[scheme]
			set := func(urls string) (ok bool, err error) {
				pools, closePools, err := Open(urls, 0)
				require.NoError(t, err)
				defer closePools()
				ok, err = pools[len(pools)-1].SetNX(t.Context(), "k", "v", time.Minute)
				return ok, err
			}
			ok, err := set("127.0.0.1:1, " + scheme + "://" + login + node.Addr() + "/3" + query)
			require.NoError(t, err)
			assert.True(t, ok)
			assert.Equal(t, []string{"k"}, node.DB(3).Keys())

			_, err = set(scheme + "://app:wrong@" + node.Addr() + query)
			require.ErrorContains(t, err, "WRONGPASS")
			assert.NotContains(t, err.Error(), "app:wrong")
			if scheme == "rediss" {
				// A busy machine may take longer than the client waits.
				for end := time.Now().Add(time.Minute); ; {
					_, err = set(scheme + "://" + login + node.Addr())
					require.Error(t, err, "an unknown authority")
					assert.NotContains(t, err.Error(), "p%40ss")
					if time.Now().After(end) || strings.Contains(err.Error(), "certificate") {
						break
					}
				}
				require.ErrorContains(t, err, "certificate", "an unknown authority")
			}
		})
	}
}

// lesson L83: however a password is spoilt, no error shows a part of it.
func TestOpenShowsNoPassword(t *testing.T) {
	for name, addr := range map[string]string{
		"a space":         "redis://app:xyz zy@host:6379",
		"a slash":         "redis://app:xyz/zy@host:6379",
		"digits, slash":   "redis://app:12/xyz@host:6379",
		"a hash sign":     "redis://app:12#xyz@host:6379",
		"a question mark": "redis://app:12?xyz@host:6379",
		"a percent sign":  "redis://app:xy%zz@host:6379",
		"a comma":         "redis://app:12,xyz@host:6379",
		"no scheme":       "app:xyz@host:6379",
		"another scheme":  "http://app:xyz@host:6379",
		"a bad database":  "redis://app:xyz@host:6379/zero",
		"a bad option":    "redis://app:xyz@host:6379?password=xyz",
		"no port":         "host",
		"nothing":         ",",
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := Open(addr, 0)
			require.Error(t, err)
			assert.Regexp(t, `^address \d of \d: `, err.Error())
			for _, secret := range []string{"xy", "zy", "zz", "app", "12"} {
				assert.NotContains(t, err.Error(), secret)
			}
		})
	}
}

// certificate is one that no authority has signed.
func certificate(t *testing.T) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
