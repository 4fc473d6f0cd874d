package order

import (
	"slices"
	"sync"
)

// recent keeps the last results of a computation, by number. Concurrent requests
// for one number compute it once. Safe for concurrent use.
type recent[T any] struct {
	mu   sync.Mutex
	kept []*kept[T] // the one asked for last is first
}

type kept[T any] struct {
	number int64
	once   sync.Once
	value  T
}

func newRecent[T any](n int) *recent[T] { return &recent[T]{kept: make([]*kept[T], 0, n)} }

// get returns compute(number), computed now or earlier. A new result replaces the
// one that was asked for longest ago.
func (r *recent[T]) get(number int64, compute func(int64) T) T {
	k := r.find(number)
	k.once.Do(func() { k.value = compute(number) })
	return k.value
}

func (r *recent[T]) find(number int64) *kept[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.kept, func(k *kept[T]) bool { return k.number == number })
	if i < 0 {
		if len(r.kept) < cap(r.kept) {
			r.kept = append(r.kept, nil)
		}
		i = len(r.kept) - 1
		r.kept[i] = &kept[T]{number: number}
	}
	k := r.kept[i]
	copy(r.kept[1:i+1], r.kept[:i])
	r.kept[0] = k
	return k
}
