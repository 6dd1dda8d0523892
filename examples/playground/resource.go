package main

import (
	"errors"
	"maps"
	"slices"
	"sync"
)

// resource is what the locks protect: counters, which every update reads, and writes back plus 1.
type resource struct {
	fencing bool // it refuses tokens lower than one that it has seen

	mu     sync.Mutex // guards what follows
	items  map[string]*item
	inside map[string]bool // the processes that use it, and whether they only read
	totals
}

// item is one counter.
type item struct {
	Name    string `json:"name"`
	Value   int    `json:"value"`
	Token   uint64 `json:"token"`   // the greatest seen
	Updates int    `json:"updates"` // that were accepted
	Refused int    `json:"refused"`
}

// totals are about all items.
type totals struct {
	Updates int `json:"updates"`
	Lost    int `json:"lost"` // updates that another one has written over
	Refused int `json:"refused"`
	Reads   int `json:"reads"`
	Most    int `json:"most"`    // processes inside at once
	Beside  int `json:"beside"`  // times that a writer was not alone
	Readers int `json:"readers"` // at once, at most
}

// errStale is the refusal of a token.
var errStale = errors.New("refused: a later holder has come with a greater token")

func newResource(fencing bool) *resource {
	return &resource{fencing: fencing, items: map[string]*item{}, inside: map[string]bool{}}
}

// read is the first thing that a holder does. Where tokens count, one who wants to write claims the
// item with its token, so that nobody before it can write any more.
func (r *resource) read(process string, u Use) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	it := r.item(u.Item)
	if err := r.check(it, u); err != nil {
		return 0, err
	}
	if !u.Reads {
		it.Token = max(it.Token, u.Token)
	}
	r.enter(process, u.Reads)
	return it.Value, nil
}

func (r *resource) write(u Use) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	it := r.item(u.Item)
	if err := r.check(it, u); err != nil {
		return err
	}
	it.Value = u.Value
	it.Updates++
	return nil
}

func (r *resource) item(name string) *item {
	if r.items[name] == nil {
		r.items[name] = &item{Name: name}
	}
	return r.items[name]
}

func (r *resource) check(it *item, u Use) error {
	if !r.fencing || u.Token >= it.Token {
		return nil
	}
	it.Refused++
	return errStale
}

func (r *resource) enter(process string, reads bool) {
	if _, in := r.inside[process]; in {
		return
	}
	alone := !reads
	for _, other := range r.inside {
		alone = alone || !other
	}
	if alone && len(r.inside) > 0 {
		r.Beside++
	}
	r.inside[process] = reads
	r.Most = max(r.Most, len(r.inside))
	if reads {
		r.Reads++
		readers := 0
		for _, other := range r.inside {
			if other {
				readers++
			}
		}
		r.Readers = max(r.Readers, readers)
	}
}

func (r *resource) leave(process string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.inside, process)
}

// sum returns the totals, and the items by name. Each update adds 1, so what is missing is lost.
func (r *resource) sum() (totals, []item) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, list := r.totals, []item{}
	for _, name := range slices.Sorted(maps.Keys(r.items)) {
		it := *r.items[name]
		list = append(list, it)
		t.Updates += it.Updates
		t.Refused += it.Refused
		t.Lost += it.Updates - it.Value
	}
	return t, list
}
