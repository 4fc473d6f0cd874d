package format_test

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/stage/format"
)

// Against a list of what was asked for, newest last: what is kept is its longest
// end of different blocks that fits, or the block that was made last.
func TestBlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(0, 100).Draw(t, "limit")
		b := format.NewBlocks(int64(limit))
		size := func(key int64) int { return int(key * 7 % 40) }
		var kept []int64
		for range rapid.IntRange(1, 60).Draw(t, "calls") {
			key := rapid.Int64Range(1, 12).Draw(t, "key")
			fails := rapid.IntRange(0, 9).Draw(t, "fails") == 0
			unpacked := false
			data, err := b.Get(key, func() ([]byte, error) {
				unpacked = true
				if fails {
					return nil, errors.New("damaged")
				}
				return slices.Repeat([]byte{byte(key)}, size(key)), nil
			})
			at := slices.Index(kept, key)
			if unpacked != (at < 0) || (err != nil) != (unpacked && fails) {
				t.Fatalf("block %d: unpacked %v, %v; kept were %v", key, unpacked, err, kept)
			}
			if err != nil {
				continue
			}
			if !slices.Equal(data, slices.Repeat([]byte{byte(key)}, size(key))) {
				t.Fatalf("block %d is %v", key, data)
			}
			if at >= 0 {
				kept = slices.Delete(kept, at, at+1)
			}
			kept = append(kept, key)
			sum := 0
			for _, k := range kept {
				sum += size(k)
			}
			for ; sum > limit && len(kept) > 1; kept = kept[1:] {
				sum -= size(kept[0])
			}
			if _, _, n := b.Counts(); n > int64(max(limit, size(key))) {
				t.Fatalf("%d bytes are kept of %d", n, limit)
			}
		}
	})
}

func TestBlocksAreUnpackedOnce(t *testing.T) {
	b := format.NewBlocks(1 << 20)
	var unpacked atomic.Int64
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 200 {
				key := int64((i + g) % 10)
				data, err := b.Get(key, func() ([]byte, error) {
					unpacked.Add(1)
					return []byte{byte(key)}, nil
				})
				if err != nil || data[0] != byte(key) {
					t.Errorf("block %d: %v, %v", key, data, err)
				}
			}
		})
	}
	wg.Wait()
	if hits, misses, _ := b.Counts(); unpacked.Load() != 10 || misses != 10 || hits != 16*200-10 {
		t.Errorf("unpacked %d times, %d misses, %d hits", unpacked.Load(), misses, hits)
	}
}

// A panic goes on to the caller that caused it, and no other waits forever.
func TestBlocksSurviveAPanic(t *testing.T) {
	b := format.NewBlocks(100)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_, _ = b.Get(1, func() ([]byte, error) { panic("damaged") })
	}()
	if data, err := b.Get(1, func() ([]byte, error) { return []byte("x"), nil }); err != nil || string(data) != "x" {
		t.Errorf("%q, %v", data, err)
	}
}
