// Package browser tests the pages of examples/playground in a real browser.
package browser
