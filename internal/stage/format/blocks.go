package format

import (
	"errors"
	"sync"
)

// errUnpack answers those who waited for a block whose unpacking panicked.
var errUnpack = errors.New("format: a block could not be unpacked")

// Blocks keeps the most recently used decompressed blocks of one dataset, up to a
// number of bytes, so that samples which share a block share the work of unpacking it.
// One block is kept however large it is: otherwise reading a file from beginning to end
// would unpack it again for every sample in it. It is safe for concurrent use: if
// several goroutines ask for one block at once, one unpacks it and the others wait.
//
// A block is ordinary memory, never written to after it was made: a view of it stays
// valid for as long as it is held, whether the block is still kept or not. Reference
// counts would save the collector some work, but every field of every sample would have
// to be released; next to unpacking, the collector is cheap.
type Blocks struct {
	limit int64

	mu    sync.Mutex
	byKey map[int64]*block
	kept  int64
	// Ring of recency through next and prev, of the blocks that are made: newest
	// first. nil: empty.
	newest       *block
	hits, misses int64
}

type block struct {
	key        int64
	data       []byte
	err        error
	made       chan struct{} // closed when data or err is there
	next, prev *block
}

// NewBlocks keeps at most limit bytes, or the block that was made last where that
// alone is larger.
func NewBlocks(limit int64) *Blocks {
	return &Blocks{limit: limit, byKey: make(map[int64]*block)}
}

// Get is the block of that key, unpacked by unpack where it is not kept. An
// error goes to all that waited for it, and the next one to ask tries again.
func (b *Blocks) Get(key int64, unpack func() ([]byte, error)) ([]byte, error) {
	b.mu.Lock()
	if k := b.byKey[key]; k != nil {
		b.hits++
		if k.next != nil {
			b.unlink(k)
			b.front(k)
		}
		b.mu.Unlock()
		<-k.made
		return k.data, k.err
	}
	k := &block{key: key, made: make(chan struct{})}
	b.byKey[key] = k
	b.misses++
	b.mu.Unlock()

	done := false
	defer func() {
		if !done { // unpack panics; nobody shall wait for it
			b.keep(k, nil, errUnpack)
		}
	}()
	data, err := unpack()
	done = true
	b.keep(k, data, err)
	return data, err
}

// keep answers those who wait for k and makes room for it.
func (b *Blocks) keep(k *block, data []byte, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k.data, k.err = data, err
	close(k.made)
	size := int64(cap(data))
	if err != nil {
		delete(b.byKey, k.key)
		return
	}
	for b.newest != nil && b.kept+size > b.limit {
		last := b.newest.prev
		b.unlink(last)
		b.kept -= int64(cap(last.data))
		delete(b.byKey, last.key)
	}
	b.kept += size
	b.front(k)
}

// Counts are how often a block was there already or had to be unpacked, and the
// bytes kept.
func (b *Blocks) Counts() (hits, misses, kept int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hits, b.misses, b.kept
}

func (b *Blocks) front(k *block) {
	if b.newest == nil {
		k.next, k.prev = k, k
	} else {
		k.next, k.prev = b.newest, b.newest.prev
		k.next.prev, k.prev.next = k, k
	}
	b.newest = k
}

func (b *Blocks) unlink(k *block) {
	if k.next == k {
		b.newest = nil
	} else {
		k.next.prev, k.prev.next = k.prev, k.next
		if b.newest == k {
			b.newest = k.next
		}
	}
	k.next, k.prev = nil, nil
}
