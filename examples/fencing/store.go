package main

import (
	"errors"
	"fmt"
	"sync"
)

// ErrStale is the answer to a client whose lock has been somebody else's since.
var ErrStale = errors.New("stale fencing token")

// Store keeps stocks, as a database would. It refuses claims and writes with a fencing token
// lower than one that it has seen for the same item. That is all a resource has to do; for SQL
// databases, package fence does it. A Store is safe for concurrent use.
type Store struct {
	fencing bool

	mu     sync.Mutex // guards what follows
	stocks map[string]int
	tokens map[string]uint64 // the greatest that an item has seen
}

// NewStore returns an empty store. Without fencing the store ignores tokens.
func NewStore(fencing bool) *Store {
	return &Store{fencing: fencing, stocks: map[string]int{}, tokens: map[string]uint64{}}
}

// Claim shows a token before anything is read. From then on no holder with a lower token can write
// over what the new one is about to read.
func (s *Store) Claim(token uint64, item string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.admit(token, item)
}

// Read returns the stock of an item.
func (s *Store) Read(item string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stocks[item]
}

// Write sets the stock of an item.
func (s *Store) Write(token uint64, item string, stock int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.admit(token, item); err != nil {
		return err
	}
	s.stocks[item] = stock
	return nil
}

// admit refuses a token lower than the greatest seen. The caller holds mu, and does not release it
// before the access itself is done: in between, another token could come.
func (s *Store) admit(token uint64, item string) error {
	if !s.fencing {
		return nil
	}
	if seen := s.tokens[item]; token < seen {
		return fmt.Errorf("%w: %d, and %d has been here", ErrStale, token, seen)
	}
	s.tokens[item] = token
	return nil
}
