package loader

import (
	"errors"
	"strconv"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/fill"
	"github.com/stoker-data/stoker/internal/stage/batch"
)

// heldGrace is how long the user may hold every slot before that is an error:
// another thread may be about to release one.
const heldGrace = time.Second

// slots is the memory of one loader's batches. Lanes take memory for large pictures
// from the same limit, and slots ahead of need wait for them. Slots are allocated
// when first needed and then reused. Shared.mu guards all of it.
type slots struct {
	l      *Loader
	limit  int64 // bytes
	auto   bool  // the limit is shared by all loaders without their own
	bytes  int64 // of all slots, free or leased
	count  int
	leased int
	free   []*batch.Slot
}

// take returns a slot for pass p, or nil if there is none now. Shared.mu is held,
// and released while memory is allocated.
func (s *slots) take(p *Pass) (*batch.Slot, error) {
	l := s.l
	s.makeRoom(p)
	if len(s.free) == 0 && !s.room(l.slotBytes) && s.count > 0 && p.starves() {
		l.shared.reclaim(l, p, false)
	}
	if n := len(s.free); n > 0 {
		slot := s.free[n-1]
		s.free = s.free[:n-1]
		if !slot.Sound() {
			panic("loader: slot " + strconv.Itoa(slot.ID) + " was written to while it was free")
		}
		p.heldSince = time.Time{}
		return slot, nil
	}
	beside := int64(0)
	if !p.starves() {
		beside = l.shared.scratch.Used()
	}
	if s.count == 0 || s.room(l.slotBytes+beside) {
		p.planning.Rests() // allocating does not count as planning: it is rare, and takes as long as a thousand batches
		slot, err := s.alloc(l.slotBytes)
		p.planning.Works()
		if err == nil || s.count == 0 {
			return slot, err
		}
		s.limit = s.bytes // continue with the slots that exist
		if p.starves() {
			l.shared.reclaim(l, p, true)
		}
		return nil, nil
	}
	if p.starves() && s.leased == s.count {
		return nil, s.held(p)
	}
	return nil, nil
}

// room reports whether bytes more are within the limits. If the limit is shared,
// every loader may always have two slots, one that the user has and one that is
// being filled, so that no loader waits for another.
func (s *slots) room(bytes int64) bool {
	if s.bytes+bytes > s.limit {
		return false
	}
	return !s.auto || s.count < 2 || s.l.shared.taken+s.l.shared.kept(s)+s.weight(bytes) <= s.l.shared.auto
}

// kept is what the loaders that share the limit with but still need for two slots
// each.
func (s *Shared) kept(but *slots) (bytes int64) {
	for _, l := range s.loaders {
		if l.slots.auto && &l.slots != but {
			bytes += int64(max(0, 2-l.slots.count)) * l.slots.weight(l.slotBytes)
		}
	}
	return bytes
}

// makeRoom frees what the loaders that share the limit do not use: the free slots
// of those without a pass, and, if the consumer of p starves, everything that was
// made ahead for consumers that do not wait. Shared.mu is held.
func (s *slots) makeRoom(p *Pass) {
	l := s.l
	if !s.auto || len(s.free) > 0 || s.room(l.slotBytes) || s.bytes+l.slotBytes > s.limit {
		return
	}
	for _, other := range l.shared.loaders {
		if other != l && other.slots.auto && len(other.passes) == 0 {
			other.slots.drain()
		}
	}
	if p.starves() && !s.room(l.slotBytes) {
		l.shared.reclaim(l, p, true)
	}
}

// grow makes room for batches of at least rows rows, and some more. Shared.mu is
// held.
func (l *Loader) grow(rows int) error {
	if rows <= l.layout.Rows {
		return nil
	}
	return l.reserve(rows + rows/4)
}

// reserve makes room for batches of rows rows. Slots that are too small are not
// used again. Shared.mu is held.
func (l *Loader) reserve(rows int) error {
	if rows <= l.layout.Rows {
		return nil
	}
	layout := batch.NewLayout(l.fields, rows)
	if layout.Bytes() > l.slotBytes {
		if err := l.fits(layout.Bytes(), l.slots.limit); err != nil {
			return err
		}
		l.slotBytes = layout.Bytes()
		l.setPrefetch(l.slots.limit)
		l.slots.drain()
	}
	l.layout = layout
	return nil
}

// drain frees the free slots.
func (s *slots) drain() {
	for _, slot := range s.free {
		s.discard(slot)
	}
	s.free = nil
}

// add adjusts the totals by bytes, which may be negative.
func (s *slots) add(bytes int64) {
	s.bytes += bytes
	if s.auto {
		s.l.shared.taken += s.weight(bytes)
	}
}

// weight is how much of a limit bytes of slots take: rows of unequal length count
// twice, as collected and as laid out.
func (s *slots) weight(bytes int64) int64 {
	if s.l.loose() {
		return 2 * bytes
	}
	return bytes
}

// starves reports whether the consumer waits and no batch is open.
func (p *Pass) starves() bool { return p.waiting > 0 && len(p.open) == 0 }

// held returns the error of a user who holds every slot, once that has lasted for
// heldGrace.
func (s *slots) held(p *Pass) error {
	if p.heldSince.IsZero() {
		p.heldSince = time.Now()
		time.AfterFunc(heldGrace+10*time.Millisecond, func() {
			s.l.shared.mu.Lock()
			s.l.shared.changed.Broadcast()
			s.l.shared.mu.Unlock()
		})
	}
	if time.Since(p.heldSince) < heldGrace {
		return nil
	}
	if s.bytes+s.l.slotBytes <= s.limit {
		return errs.New(errs.Held, "the training loop holds %d batches of %s, and all loaders together hold the %s that memory=auto allows",
			s.leased, mem.Size(s.l.slotBytes), mem.Size(s.l.shared.auto)).
			Try("release batches (del images, or copy what you keep: images.clone()), or set memory= for each loader")
	}
	return errs.New(errs.Held, "the training loop holds %d batches of %s, all that memory=%s allows",
		s.leased, mem.Size(s.l.slotBytes), mem.Size(s.limit)).
		Try("release batches (del images, or copy what you keep: images.clone()), or raise memory=")
}

// alloc allocates a slot. Shared.mu is held, and released meanwhile.
func (s *slots) alloc(bytes int64) (*batch.Slot, error) {
	s.add(bytes)
	s.count++
	s.l.shared.mu.Unlock()
	slot, err := s.l.shared.Arena.Alloc(bytes)
	s.l.shared.mu.Lock()
	if err != nil {
		s.add(-bytes)
		s.count--
		return nil, err
	}
	return slot, nil
}

// errLater says that a batch outgrew its slot and that there is no memory for a
// larger one now: the batch is made again when there is.
var errLater = errors.New("loader: a larger slot, later")

// replace returns a larger slot with the fixed columns (so many bytes) of an old
// one, which is freed. Slots of the old size are not used again, and fewer batches
// are made ahead.
func (s *slots) replace(old *batch.Slot, fixed, bytes int64) (*batch.Slot, error) {
	l := s.l
	bytes = (bytes + 4095) / 4096 * 4096
	mu := &l.shared.mu
	mu.Lock()
	defer mu.Unlock()
	if err := l.fits(bytes, s.limit); err != nil {
		return nil, err
	}
	l.slotBytes = max(l.slotBytes, bytes)
	l.setPrefetch(s.limit)
	s.drain()
	if !s.room(bytes - int64(len(old.Mem))) {
		return nil, errLater
	}
	slot, err := s.alloc(bytes)
	if err != nil {
		return nil, err
	}
	copy(slot.Mem, old.Mem[:fixed])
	s.discard(old)
	return slot, nil
}

func (s *slots) discard(slot *batch.Slot) {
	s.count--
	s.add(-int64(len(slot.Mem)))
	if w, ok := s.l.hands().(fill.Watcher); ok {
		w.Freed(slot)
	}
	s.l.shared.Arena.Free(slot)
}

// put takes back a slot that is not in use. Shared.mu is held.
func (s *slots) put(slot *batch.Slot) {
	if s.l.closed || int64(len(slot.Mem)) < s.l.slotBytes {
		s.discard(slot)
	} else {
		if s.l.shared.Poison {
			slot.Poison()
		}
		s.free = append(s.free, slot)
	}
	s.l.shared.changed.Broadcast()
}

// release takes a leased slot back, for the next batch if again, or else never to
// be written to again.
func (s *slots) release(slot *batch.Slot, again bool) {
	mu := &s.l.shared.mu
	mu.Lock()
	defer mu.Unlock()
	s.leased--
	if again {
		s.put(slot)
		return
	}
	s.discard(slot)
	s.l.shared.changed.Broadcast()
}

// reclaim drops what is prefetched by passes whose consumers do not wait, the one
// that was asked longest ago first: those of the same loader, or of all loaders if
// the machine has no memory left. Shared.mu is held.
func (s *Shared) reclaim(l *Loader, p *Pass, everybody bool) {
	for {
		var victim *Pass
		for _, other := range s.loaders {
			if other != l && !everybody {
				continue
			}
			if everybody {
				other.slots.drain()
			}
			for _, q := range other.passes {
				if q != p && q.waiting == 0 && q.l.feeds == nil && len(q.open) > 0 && (victim == nil || q.asked < victim.asked) {
					victim = q
				}
			}
		}
		if victim == nil {
			return
		}
		victim.resting = true
		victim.giveUp(0)
		if !everybody {
			return
		}
	}
}
