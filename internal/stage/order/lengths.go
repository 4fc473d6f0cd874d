package order

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/stoker-data/stoker/internal/base/rng"
)

// Lengths makes batches by the lengths of samples. The zero value does not use
// lengths. At most one of Bucket, Tokens and Pack is set. All of them work within
// windows of Window places of the shuffled order, so that the sample at a place
// never depends on ranks, and memory never on the size of the epoch.
//
// Every place of the epoch comes once, whichever is set. A window is computed when
// it is first asked for: n samples are looked up and sorted. An Epoch keeps the
// last few windows, with 32 bytes per place.
//
// With Tokens and Pack the number of items of a window depends on what the shuffle
// put there. So the first Epoch(e) of a plan goes through the whole epoch, on all
// cores, in O(n log Window) time, with 8 bytes per window. The plan keeps the
// counts of the last few epochs, and asking for one of them again costs nothing.
type Lengths struct {
	// Of is the length of every sample, 0 or above: tokens, bytes, frames. The plan
	// reads it as long as it lives.
	Of     []int32
	Window int64 // places; 0: 10,000

	// Bucket sorts each window by length and puts its runs of Bucket places, of
	// nearly equal length, in a random order. Items are still places. A window is
	// rounded down to whole runs, so that run r is always the places from r*Bucket
	// on. The rest at the end of the epoch is a shorter run, with lengths drawn at
	// random like those of all runs: if it were the longest, a tail that is dropped
	// would never show them to the model.
	Bucket int64

	// Tokens cuts each window, sorted by length, into batches with at most this
	// many tokens after padding (rows times the longest) and at most Rows rows, and
	// puts the batches in a random order. An item is a batch. A sample of length 0
	// counts as 1: it is a row like others, and rows have a cost.
	Tokens int64
	Rows   int64 // 0: no limit

	// Pack fills rows of Pack tokens with whole samples, the longest first, each
	// where it leaves the least room, and puts the rows in a random order. An item
	// is a row. Every piece has From and Len. Only a sample of length 0 has a piece
	// with Len 0, in the fullest row that samples share, because it must come like
	// all others.
	Pack int64
	// Long decides what happens to a sample longer than Pack.
	Long Long
}

// Long is what happens to a sample that does not fit into a row.
type Long string

// The rules for long samples.
const (
	Split    Long = "split"    // into pieces of Pack tokens, each a full row, and a rest (the default)
	Truncate Long = "truncate" // its first Pack tokens
	Refuse   Long = "refuse"   // New fails
)

const (
	wordLengths = 1<<64 - 10 // below an epoch's key: for the windows
	wordShort   = 1<<64 - 11 // below a window's key: which run is the short one

	defaultWindow = 10_000 // places
	// Windows that an Epoch keeps: two for each of four concurrent passes, because
	// a pass may be between two windows.
	keptWindows = 8
	keptEpochs  = 4 // epochs whose counts a Plan keeps
	mostCounted = 1 << 40
	mostWindows = 1 << 27 // 1 GiB of counts
)

// newLengths checks the policy.
func (p *Plan) newLengths() error {
	l := &p.policy.Lengths
	if err := l.settings(); err != nil || l.Of == nil {
		return err
	}
	if int64(len(l.Of)) != p.all {
		return fmt.Errorf("order: %s for %s", many(int64(len(l.Of)), "length"), many(p.all, "sample"))
	}
	if p.policy.Mix != nil && p.policy.Mix.Batches {
		return errors.New("order: a mixture whose batches are of one dataset each cannot also be batched by length: set one or the other")
	}
	limit, what := int64(math.MaxInt64), ""
	switch {
	case l.Tokens > 0:
		limit, what = l.Tokens, "a batch holds %d tokens: raise Tokens, or leave the sample out"
	case l.Pack > 0 && l.Long == Refuse:
		limit, what = l.Pack, "a row holds %d: raise Pack, or let long samples be split or truncated"
	}
	for id, length := range l.Of {
		if length < 0 {
			return fmt.Errorf("order: sample %d has length %d", id, length)
		}
		if int64(length) > limit {
			return fmt.Errorf("order: sample %d is %d tokens long, and "+what, id, length, limit)
		}
	}
	p.counts = newRecent[[]int64](keptEpochs)
	return p.countable()
}

// countable checks that the items of an epoch can be counted, in memory and in 63
// bits.
func (p *Plan) countable() error {
	l := &p.policy.Lengths
	if l.Bucket > 0 {
		return nil
	}
	if p.places > mostCounted || p.places/l.Window >= mostWindows {
		return fmt.Errorf("order: %d places in windows of %d: batches are counted window by window, at most %d places and %d windows: make num smaller or the window larger",
			p.places, l.Window, int64(mostCounted), mostWindows)
	}
	if l.Pack == 0 || l.Long == Truncate {
		return nil
	}
	if longest := int64(slices.Max(l.Of)); longest/l.Pack >= math.MaxInt64/p.places {
		return fmt.Errorf("order: %d places, of up to %d tokens, in rows of %d: too many rows to count", p.places, longest, l.Pack)
	}
	return nil
}

// settings checks what does not depend on the samples, and fills in defaults.
func (l *Lengths) settings() error {
	if l.Window < 0 || l.Bucket < 0 || l.Tokens < 0 || l.Rows < 0 || l.Pack < 0 {
		return fmt.Errorf("order: lengths with window %d, bucket %d, tokens %d, rows %d, pack %d: none can be negative",
			l.Window, l.Bucket, l.Tokens, l.Rows, l.Pack)
	}
	set := 0
	for _, v := range []int64{l.Bucket, l.Tokens, l.Pack} {
		if v > 0 {
			set++
		}
	}
	switch {
	case set > 1:
		return fmt.Errorf("order: bucket %d, tokens %d, pack %d: set only one of them", l.Bucket, l.Tokens, l.Pack)
	case set == 0 && (l.Of != nil || l.Window > 0):
		return errors.New("order: lengths need bucket, tokens or pack: set one of them")
	case set == 1 && l.Of == nil:
		return errors.New("order: bucket, tokens and pack need the lengths of samples, which are missing")
	case l.Rows > 0 && l.Tokens == 0:
		return fmt.Errorf("order: at most %d rows per batch without tokens: the limit is only for batches of a token budget", l.Rows)
	case l.Long != "" && l.Pack == 0:
		return fmt.Errorf("order: the rule for long samples is %q, but without pack no sample is too long", l.Long)
	case l.Pack > math.MaxInt32:
		return fmt.Errorf("order: pack is %d: 32-bit offsets reach %d tokens at most", l.Pack, math.MaxInt32)
	case l.Window > math.MaxInt32:
		return fmt.Errorf("order: window is %d: a window of lengths is sorted in memory and can have at most %d places", l.Window, math.MaxInt32)
	}
	if set == 0 {
		return nil
	}
	if l.Window == 0 {
		l.Window = defaultWindow
	}
	if l.Window < l.Bucket {
		return fmt.Errorf("order: bucket is %d and window %d: a window must hold at least one bucket, and mixes well with 10 or more", l.Bucket, l.Window)
	}
	if l.Bucket > 0 {
		l.Window -= l.Window % l.Bucket
	}
	switch l.Long {
	case "":
		l.Long = Split
	case Split, Truncate, Refuse:
	default:
		return fmt.Errorf("order: unknown rule %q for long samples: the choices are %q, %q and %q", l.Long, Split, Truncate, Refuse)
	}
	return nil
}

// MaxRows is the largest number of rows that an item can have: 1, or, if an item is
// a batch, a bound on its rows in any epoch. It reads all lengths.
func (p Plan) MaxRows() int64 {
	l, mix := &p.policy.Lengths, p.policy.Mix
	if l.Tokens == 0 {
		if mix != nil && mix.Batches {
			return min(max(1, mix.Run), p.places)
		}
		return 1
	}
	most := min(l.Window, p.places)
	if l.Rows > 0 {
		most = min(most, l.Rows)
	}
	if p.policy.Draw.Replacement || mix != nil { // the shortest may come again and again
		return max(1, min(most, l.Tokens/int64(max(1, slices.Min(l.Of)))))
	}
	// The largest q such that q samples are short enough for a batch of q rows; the
	// same idea as Hirsch's index of papers and citations (2005).
	rows := make([]int64, most+1)
	for _, length := range l.Of {
		rows[min(most, l.Tokens/int64(max(1, length)))]++
	}
	var enough int64
	for q := most; q > 1; q-- {
		if enough += rows[q]; enough >= q {
			return q
		}
	}
	return 1
}

// group puts the places of an epoch together into items, as Lengths or a Mix of
// whole batches asks.
func (p *Plan) group(out *Epoch, key rng.Key) {
	l := &p.policy.Lengths
	if l.Of == nil {
		if g := p.mixBatches(out.seq); g != nil {
			out.groups = g
		}
		return
	}
	w := windows{lengths: l, seq: out.seq, places: out.places, key: key.With(wordLengths)}
	if l.Bucket > 0 {
		out.seq = newBuckets(w)
		return
	}
	g := newCuts(w)
	g.first = p.counts.get(out.epoch, g.count)
	out.groups = g
}

// windows is the places of an epoch, one window at a time.
type windows struct {
	lengths *Lengths
	seq     sequence
	places  int64
	key     rng.Key
}

// number is the number of windows.
func (w *windows) number() int64 {
	return w.places/w.lengths.Window + min(1, w.places%w.lengths.Window)
}

// scratch is the memory of one goroutine, reused from window to window.
type scratch struct {
	samples []int64  // of the window's places
	keys    []uint64 // sort key <<32 | place within the window
	spare   []uint64
	ends    []int32 // of batches, in places of the sorted order; of rows, in pieces
	pack    packer
}

// read looks up the samples of window i and computes their sort keys.
func (w *windows) read(i int64, s *scratch) {
	first := i * w.lengths.Window
	size := min(w.lengths.Window, w.places-first)
	s.samples = slices.Grow(s.samples[:0], int(size))[:size]
	s.keys = slices.Grow(s.keys[:0], int(size))[:size]
	for j := range s.samples {
		s.samples[j] = w.seq.at(first + int64(j))
	}
	for j, sample := range s.samples { // a loop of its own, so that cache misses overlap
		s.keys[j] = uint64(w.lengths.Of[sample])<<32 | uint64(j)
	}
}

// sort sorts the keys by their upper halves. It is stable, and the keys come in the
// order of places, so equal lengths stay in that order. A radix sort is four times
// as fast as comparing.
func (s *scratch) sort() {
	const digit = 11
	var most uint64
	for _, k := range s.keys {
		most = max(most, k>>32)
	}
	s.spare = slices.Grow(s.spare[:0], len(s.keys))[:len(s.keys)]
	for shift := 32; most > 0; shift, most = shift+digit, most>>digit {
		var count [1<<digit + 1]int32
		for _, k := range s.keys {
			count[k>>shift&(1<<digit-1)+1]++
		}
		for d := range 1 << digit {
			count[d+1] += count[d]
		}
		for _, k := range s.keys {
			d := k >> shift & (1<<digit - 1)
			s.spare[count[d]] = k
			count[d]++
		}
		s.keys, s.spare = s.spare, s.keys
	}
}

// buckets is a sequence whose windows are sorted by length in runs.
type buckets struct {
	windows
	tables  *recent[[]int64] // samples in order of places, by window
	compute func(int64) []int64
}

func newBuckets(w windows) *buckets {
	b := &buckets{windows: w, tables: newRecent[[]int64](keptWindows)}
	b.compute = b.table
	return b
}

func (b *buckets) at(place int64) int64 {
	w := place / b.lengths.Window
	return b.tables.get(w, b.compute)[place-w*b.lengths.Window]
}

func (b *buckets) table(w int64) []int64 {
	var s scratch
	b.read(w, &s)
	s.sort()
	size, run := int64(len(s.keys)), b.lengths.Bucket
	key := b.key.With(uint64(w))
	whole := newPermutation(size/run, key)
	short := size % run
	gap := key.With(wordShort).Intn(0, size/run+1) * run // where the short run is in the sorted order
	out := make([]int64, 0, size)
	add := func(from, n int64) {
		for _, k := range s.keys[from : from+n] {
			out = append(out, s.samples[uint32(k)])
		}
	}
	for r := range size / run {
		from := whole.at(r) * run
		if from >= gap {
			from += short
		}
		add(from, run)
	}
	add(gap, short)
	return out
}

// cuts is the items with Tokens or Pack.
type cuts struct {
	windows
	first   []int64 // first item of each window, then the number of items
	tables  *recent[*items]
	compute func(int64) *items
}

// items is the items of one window.
type items struct {
	order  *permutation // item -> batch or row, as they were cut
	pieces []Piece
	ends   []int32 // of each batch or row, in pieces

	// Rows that one sample fills come before those that samples share, and are not
	// written down: a sample may be a million times as long as a row.
	filled []int64 // by place: rows filled up to and with it; nil: none
	row    Piece   // From and Len of a full row of the window's first place
	held   []int64 // the samples of places
}

func newCuts(w windows) *cuts {
	c := &cuts{windows: w, tables: newRecent[*items](keptWindows)}
	c.compute = c.table
	return c
}

func (c *cuts) rows() bool { return c.lengths.Pack > 0 }
func (c *cuts) len() int64 { return c.first[len(c.first)-1] }

func (c *cuts) item(i int64, dst []Piece) []Piece {
	w := sort.Search(len(c.first)-1, func(w int) bool { return c.first[w+1] > i })
	return c.tables.get(int64(w), c.compute).item(i-c.first[w], dst)
}

// count returns the first item of every window, computed on all cores. Each count
// is independent, so the result does not depend on which goroutine computed it.
func (c *cuts) count(int64) []int64 {
	number := c.number()
	first := make([]int64, number+1)
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(int64(runtime.GOMAXPROCS(0)), number) {
		all.Go(func() {
			var s scratch
			for w := next.Add(1) - 1; w < number; w = next.Add(1) - 1 {
				c.cut(w, &s)
				first[w+1] = s.pack.total() + int64(len(s.ends))
			}
		})
	}
	all.Wait()
	for w := range number {
		first[w+1] += first[w]
	}
	return first
}

// cut computes the ends of the window's batches or rows.
func (c *cuts) cut(w int64, s *scratch) {
	c.read(w, s)
	if c.lengths.Pack > 0 {
		s.rows(c.lengths)
		return
	}
	s.sort()
	s.ends = s.ends[:0]
	most := c.lengths.Rows
	if most == 0 {
		most = math.MaxInt64
	}
	var rows int64
	for j, k := range s.keys {
		if length := max(1, int64(k>>32)); (rows+1)*length > c.lengths.Tokens || rows == most {
			s.ends = append(s.ends, int32(j))
			rows = 0
		}
		rows++
	}
	s.ends = append(s.ends, int32(len(s.keys)))
}

// table computes the items of window w.
func (c *cuts) table(w int64) *items {
	var s scratch
	c.cut(w, &s)
	first := w * c.lengths.Window
	t := &items{ends: s.ends, pieces: make([]Piece, len(s.keys))}
	if c.lengths.Pack > 0 {
		s.pieces(c.lengths, first, t)
	} else {
		for j, k := range s.keys {
			t.pieces[j] = Piece{Place: first + int64(uint32(k)), Sample: s.samples[uint32(k)]}
		}
	}
	t.order = newPermutation(s.pack.total()+int64(len(t.ends)), c.key.With(uint64(w)))
	return t
}

// item appends the pieces of the window's item i.
func (t *items) item(i int64, dst []Piece) []Piece {
	row := t.order.at(i)
	if n := len(t.filled); n > 0 {
		if row < t.filled[n-1] {
			place := sort.Search(n, func(j int) bool { return t.filled[j] > row })
			if place > 0 {
				row -= t.filled[place-1]
			}
			return append(dst, Piece{Place: t.row.Place + int64(place), Sample: t.held[place], From: row * t.row.Len, Len: t.row.Len})
		}
		row -= t.filled[n-1]
	}
	var begin int32
	if row > 0 {
		begin = t.ends[row-1]
	}
	return append(dst, t.pieces[begin:t.ends[row]]...)
}
