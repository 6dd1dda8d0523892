package goredis

// Watched is how many clients are remembered.
func Watched() int {
	n := 0
	watched.Range(func(any, any) bool { n++; return true })
	return n
}
