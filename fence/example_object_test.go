package fence_test

import (
	"errors"
	"fmt"
	"sync"
)

// bucket is an object store, such as S3 or Google Cloud Storage. Each write gives the object a new
// tag. A conditional write (If-Match) fails if the tag is not that of the present version.
type bucket struct {
	mu      sync.Mutex // guards what follows
	objects map[string]version
	writes  int
}

type version struct {
	tag   string
	token uint64 // in the metadata
	body  string
}

var (
	errChanged = errors.New("412 Precondition Failed")
	errStale   = errors.New("a newer holder has claimed the object")
)

func (b *bucket) get(name string) version {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.objects[name]
}

func (b *bucket) putIfMatch(tag, name string, v version) (version, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.objects[name].tag != tag {
		return version{}, errChanged
	}
	b.writes++
	v.tag = fmt.Sprint(b.writes)
	b.objects[name] = v
	return v, nil
}

// claim stores the token beside the body that is there, before anybody uses that body.
func claim(b *bucket, name string, token uint64) (version, error) {
	for {
		v := b.get(name)
		if v.token > token {
			return version{}, errStale
		}
		claimed, err := b.putIfMatch(v.tag, name, version{token: token, body: v.body})
		if !errors.Is(err, errChanged) {
			return claimed, err
		}
	}
}

// update replaces the body of the version that was claimed.
func update(b *bucket, name string, claimed version, body string) error {
	_, err := b.putIfMatch(claimed.tag, name, version{token: claimed.token, body: body})
	if errors.Is(err, errChanged) {
		return errStale
	}
	return err
}

// Two holders of one lock, of which the first was paused for too long. The second has claimed the
// object before it reads it, so the first cannot write any more, nor claim it again.
func Example_objectStore() {
	b := &bucket{objects: map[string]version{}}
	older, newer := uint64(41), uint64(42) // their fencing tokens

	paused, _ := claim(b, "stock", older)
	reads, _ := claim(b, "stock", newer)
	fmt.Println("older:", update(b, "stock", paused, "9 lamps"))
	fmt.Println("newer:", update(b, "stock", reads, "7 lamps"))
	_, err := claim(b, "stock", older)
	fmt.Println("older:", err)
	fmt.Println(b.get("stock").body)
	// Output:
	// older: a newer holder has claimed the object
	// newer: <nil>
	// older: a newer holder has claimed the object
	// 7 lamps
}
