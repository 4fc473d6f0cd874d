package source

import (
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// descriptors are open files by name, at most limit of them without a reader.
// Invariant: after a descriptor was forgotten, the goroutine that ends its last use closes
// it, and no other does; so nobody reads from a number that the system has given to
// another file.
type descriptors struct {
	limit  int
	mu     sync.Mutex
	byName map[string]*descriptor
	// Ring of recency through next and prev: newest first. nil: empty.
	newest *descriptor
}

type descriptor struct {
	name       string
	fd         int
	uses       int  // readers
	forgotten  bool // not in byName any more
	next, prev *descriptor

	hot atomic.Int32           // reads of runs, in a row, that were in memory; up to about mapRow
	mem atomic.Pointer[[]byte] // all of the file, mapped; nil: not yet, or not at all
}

// close wants that nobody reads.
func (d *descriptor) close() {
	if m := d.mem.Load(); m != nil {
		_ = unix.Munmap(*m)
	}
	_ = unix.Close(d.fd)
}

// get is the open file of that name with one use more, or nil.
func (t *descriptors) get(name string) *descriptor {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.byName[name]
	if d != nil {
		d.uses++
		if t.newest != d {
			t.unlink(d)
			t.front(d)
		}
	}
	return d
}

// add keeps a file that was just opened, with one use. Another reader may have
// opened it too in the meantime; then the younger one is closed.
func (t *descriptors) add(name string, fd int) *descriptor {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d := t.byName[name]; d != nil {
		_ = unix.Close(fd)
		d.uses++
		return d
	}
	d := &descriptor{name: strings.Clone(name), fd: fd, uses: 1}
	t.byName[d.name] = d
	t.front(d)
	for len(t.byName) > t.limit {
		t.remove(t.newest.prev)
	}
	return d
}

// put takes a use away. forget makes the next get miss; the file is closed when
// its last use ends.
func (t *descriptors) put(d *descriptor, forget bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d.uses--
	switch {
	case !d.forgotten && forget:
		t.remove(d)
	case d.forgotten && d.uses == 0:
		d.close()
	}
}

// drop forgets all.
func (t *descriptors) drop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.newest != nil {
		t.remove(t.newest)
	}
}

// remove wants the lock.
func (t *descriptors) remove(d *descriptor) {
	delete(t.byName, d.name)
	t.unlink(d)
	d.forgotten = true
	if d.uses == 0 {
		d.close()
	}
}

func (t *descriptors) front(d *descriptor) {
	if t.newest == nil {
		d.next, d.prev = d, d
	} else {
		d.next, d.prev = t.newest, t.newest.prev
		d.next.prev, d.prev.next = d, d
	}
	t.newest = d
}

func (t *descriptors) unlink(d *descriptor) {
	if d.next == d {
		t.newest = nil
	} else {
		d.next.prev, d.prev.next = d.prev, d.next
		if t.newest == d {
			t.newest = d.next
		}
	}
	d.next, d.prev = nil, nil
}
