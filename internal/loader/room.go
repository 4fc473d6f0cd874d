package loader

// What lanes hold for large pictures counts against the memory of the loader whose
// picture it is, with its batches. Lanes of all loaders wait for one another by the rule
// of mem.Scratch, at one place: in transform.Program.Finish, where they hold no lock, no
// room and nothing else that another lane waits for. Batches do not wait for them: a
// slot that the consumer waits for is taken at once, only those ahead of it are put
// off (slots.take), until Give wakes their planner.

// Take waits until a lane may hold n bytes for a picture of this loader.
func (l *Loader) Take(n int64) { l.shared.scratch.Take(n, l.left) }

// Give gives them back.
func (l *Loader) Give(n int64) {
	s := l.shared
	s.scratch.Give(n)
	s.mu.Lock()
	s.changed.Broadcast()
	s.mu.Unlock()
}

// left is the memory that batches leave.
func (l *Loader) left() int64 {
	l.shared.mu.Lock()
	defer l.shared.mu.Unlock()
	return l.slots.limit - l.slots.bytes
}

// looseRow is memory for a row whose size only the sample tells. A batch is refused as
// soon as no slot can hold what it has collected.
func (l *Loader) looseRow(t *task, field int, n int) ([]byte, error) {
	if all := t.batch.collected.Add(int64(n)); 2*all > l.most {
		return nil, l.fits(all, l.most)
	}
	return t.batch.loose[field].Row(t.row, n), nil
}

// looseFailed takes a row out of the account that was not filled in.
func (t *task) looseFailed(n int, err error) error {
	if err != nil {
		t.batch.collected.Add(int64(-n))
	}
	return err
}

// trim lets go of rows that are too large to be kept for another batch.
func (ob *openBatch) trim() {
	for i := range ob.loose {
		ob.loose[i].Trim()
	}
}
