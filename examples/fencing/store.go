package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"go.etcd.io/bbolt"
)

// ErrStale is the answer to a client whose lock has been somebody else's since.
var ErrStale = errors.New("stale fencing token")

// Store keeps stocks in a bbolt file. It refuses claims and writes with a fencing token lower than
// one that it has seen for the same item. That is all a resource has to do.
type Store struct {
	db      *bbolt.DB
	fencing bool
}

var (
	stocks = []byte("stocks")
	tokens = []byte("tokens")
)

// OpenStore opens or makes the file. Without fencing the store takes no notice of tokens.
func OpenStore(path string, fencing bool) (*Store, error) {
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		return nil, err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, stocksErr := tx.CreateBucketIfNotExists(stocks)
		_, tokensErr := tx.CreateBucketIfNotExists(tokens)
		return errors.Join(stocksErr, tokensErr)
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &Store{db: db, fencing: fencing}, nil
}

// Close closes the file.
func (s *Store) Close() error { return s.db.Close() }

// Claim shows a token before anything is read. From then on no holder with a lower token can write
// over what the new one is about to read.
func (s *Store) Claim(token uint64, item string) error {
	return s.db.Update(func(tx *bbolt.Tx) error { return s.admit(tx, token, item) })
}

// Read returns the stock of an item.
func (s *Store) Read(item string) (stock int, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		stock, err = strconv.Atoi(string(tx.Bucket(stocks).Get([]byte(item))))
		return err
	})
	return stock, err
}

// Write sets the stock of an item.
func (s *Store) Write(token uint64, item string, stock int) error {
	return s.db.Update(func(tx *bbolt.Tx) error {
		if err := s.admit(tx, token, item); err != nil {
			return err
		}
		return tx.Bucket(stocks).Put([]byte(item), []byte(strconv.Itoa(stock)))
	})
}

// admit refuses a token lower than the greatest seen, in the transaction of the access itself:
// between a check and a later access another token could come.
func (s *Store) admit(tx *bbolt.Tx, token uint64, item string) error {
	if !s.fencing {
		return nil
	}
	b := tx.Bucket(tokens)
	if v := b.Get([]byte(item)); v != nil {
		if seen := binary.BigEndian.Uint64(v); token < seen {
			return fmt.Errorf("%w: %d, and %d has been here", ErrStale, token, seen)
		}
	}
	return b.Put([]byte(item), binary.BigEndian.AppendUint64(nil, token))
}
