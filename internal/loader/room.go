package loader

// The memory that lanes use for large pictures counts against the memory limit of
// the picture's loader, together with its batches. Lanes of all loaders wait for
// each other by the rule of mem.Scratch, in one place: transform.Program.Finish,
// where they hold no lock, no room and nothing else that another lane waits for.
// Batches do not wait for them: a slot that the consumer waits for is taken at
// once; only those ahead of it are put off (slots.take), until Give wakes their
// prefetcher.

// Take waits until a lane may use n bytes for a picture of this loader.
func (l *Loader) Take(n int64) { l.shared.scratch.Take(n, l.left) }

// Give returns the bytes of Take.
func (l *Loader) Give(n int64) {
	s := l.shared
	s.scratch.Give(n)
	s.mu.Lock()
	s.changed.Broadcast()
	s.mu.Unlock()
}

// left is the memory that batches leave for lanes.
func (l *Loader) left() int64 {
	l.shared.mu.Lock()
	defer l.shared.mu.Unlock()
	return l.slots.limit - l.slots.bytes
}
