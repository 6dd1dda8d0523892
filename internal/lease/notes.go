package lease

// notes are functions that were noted under a mutex, and run without it.
type notes struct {
	noted   []func()
	telling bool
}

// Note notes what Tell runs. The caller holds Mu.
func (k *Lock) Note(f func()) { k.noted = append(k.noted, f) }

// Tell runs what was noted without Mu, one function at a time, in the order in which they were
// noted, on the goroutine of the first who comes. It returns at once if somebody does that. So a
// function may call Tell. The caller does not hold Mu.
func (k *Lock) Tell() {
	k.Mu.Lock()
	defer k.Mu.Unlock()
	for !k.telling && len(k.noted) > 0 {
		f := k.noted[0]
		k.noted = k.noted[1:]
		k.telling = true
		k.tell(f)
	}
}

// tell runs one function. The caller holds Mu, which is unlocked meanwhile.
func (k *Lock) tell(f func()) {
	k.Mu.Unlock()
	defer func() { // also if the function ends its goroutine
		k.Mu.Lock()
		k.telling = false
	}()
	f()
}
