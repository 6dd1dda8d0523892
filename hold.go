package redlock

import "context"

type hold struct{}

func (h *hold) end(error) {}
func (m *Mutex) Hold(ctx context.Context) (context.Context, error) { return nil, nil }
func (c *core) closeHolds(ctx context.Context) error { return nil }
func (c *core) isClosed() bool { return false }
