// Package worker is the engine's end of the sockets to Python workers: processes of the
// trainer that fill rows of slots. It sends them tasks and the memory of slots, and reads
// what they answer. It knows nothing about what a sample means, and not which worker
// should do what: package crew does.
//
// A frame is a length (uint32: the bytes that follow), a type (uint8) and its payload. All
// numbers are little endian, without padding. python/src/stoker/_frames.py is the other end.
//
//	engine                                          worker
//	slot     number, bytes           (+ memfd)  ->  maps it
//	free     number                             ->  unmaps it
//	page     (+ memfd)                          ->  where the worker says which row it is at
//	layout   number, columns, structure         ->
//	pass     epoch                              ->  the tasks that follow are of a pass that begins
//	fields   JSON                               ->  what samples have that the engine begins; one for each kind
//	input    number, slot, rows, JSON           ->  such samples
//	sources  batch, (row, input, its row)       ->  what rows of the next tasks are made from; input 0: none
//	used     input                              ->  forgets it
//	items    what samples are, one for each     ->  of the rows in the tasks frame that follows
//	tasks    batch, slot, layout, how, rows     ->
//	                                            <-  shape    the first sample: sizes, structure, pictures
//	                                            <-  done     rows: filled, with their loose values, bad, or odd
//	collate  batch, source rows, key            ->
//	                                            <-  need     bytes of a whole batch
//	fits     batch, slot, place                 ->
//	                                            <-  wrote    bytes
//	drop     batch                              ->  forgets it
//	                                            <-  hello, failed
package worker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Types of frames to a worker.
const (
	toSlot = 1 + iota
	toFree
	toLayout
	toTasks
	toCollate
	toFits
	toDrop
	toItems
	toPage
	toPass
	toFields
	toInput
	toSources
	toUsed
	toWalk
	toTurn
	toOver
)

// Types of frames from a worker.
const (
	fromHello = 1 + iota
	fromShape
	fromDone
	fromNeed
	fromWrote
	fromFailed
	fromMade
	fromEnded
)

// How the rows of a tasks frame are made.
const (
	rows  = 0 // each is a row of the slot
	Whole = 1 // all rows of a batch that the worker collates
	More  = 2 // other samples for rows of such a batch
	Alike = 3 // as Whole, but stacked as rows are: the samples need a structure in common
)

// The status of a row.
const (
	filled = iota
	bad    // there is no sample
	odd    // the sample is not like the first one of all
	ready  // filled, and its pictures are numbers already
)

// maxFrame is the longest frame that is read, in bytes: loose values travel in frames.
const maxFrame = 1 << 30

// maxSample is the most bytes that the fixed columns of a sample may have: those of all rows
// of a batch can be added up.
const maxSample = 1 << 36

// Loose is the size of a column whose rows differ in size.
const Loose = -1

// AnyRow is the row of an error that belongs to a whole batch: collating failed.
const AnyRow = 1<<32 - 1

// Task is a row to make.
type Task struct {
	Row     uint32
	Place   int64 // in the order
	Sample  int64
	Key     uint64 // for everything random about it
	Attempt uint32 // replacements so far
	Item    []byte // what a sampler gave in place of an id; nil: Sample is an id
}

// Shape is what a worker found in the first sample.
type Shape struct {
	Batch     uint64
	Row       uint32
	Sizes     []int64 // of each column's rows in bytes, or Loose
	Structure []byte  // for the trainer
	Pictures  []Picture
}

// Picture is a column whose rows are float32, in planes. A worker fills such a row with
// bytes, from its beginning on, and they become numbers: byte*Scale + Bias of the channel.
type Picture struct {
	Column      int
	W, H, C     int
	Planes      bool // the bytes are in planes too; else interleaved
	Scale, Bias [3]float32
}

// Done are rows that a worker has finished. Without Rows, all rows of the oldest tasks are
// filled, and there are no loose values.
type Done struct {
	Batch uint64
	Nanos int64 // spent on them
	Rows  []Row
}

// Row is one finished row.
type Row struct {
	Row    uint32
	Values []Value // loose ones
	Bad    []byte  // JSON of what is wrong with the sample; nil: nothing
	Odd    bool    // what is wrong is only that it is not like the first sample of all
	Ready  bool    // its pictures are numbers already
}

// Value is a loose value of a row.
type Value struct {
	Column uint32
	Data   []byte
}

// Need is how many bytes a whole batch takes.
type Need struct {
	Batch uint64
	Bytes int64
}

// Wrote says that a whole batch is in its slot.
type Wrote struct {
	Batch uint64
	Bytes int64
	Nanos int64
}

// Failed is the JSON of what keeps a worker from working at all.
type Failed []byte

// Hello is a worker's first frame: its process.
type Hello uint32

// errShort is a frame that ends within a value.
var errShort = errors.New("worker: a frame ends too early")

// reader takes values off a frame.
type reader struct {
	b   []byte
	err error
}

func (r *reader) bytes(n uint64) []byte {
	if r.err != nil || n > uint64(len(r.b)) {
		r.err = errShort
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) u8() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) u32() uint32 {
	if b := r.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if b := r.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// count is a number of things that take at least size bytes each.
func (r *reader) count(size int) int {
	n := r.u32()
	if uint64(n)*uint64(size) > uint64(len(r.b)) {
		r.err = errShort
		return 0
	}
	return int(n)
}

// decode reads a frame's payload. What it returns refers to b.
func decode(kind byte, b []byte) (any, error) {
	r := &reader{b: b}
	var out any
	switch kind {
	case fromHello:
		out = Hello(r.u32())
	case fromShape:
		s := Shape{Batch: r.u64(), Row: r.u32()}
		s.Sizes = make([]int64, r.count(8))
		left := int64(maxSample)
		for i := range s.Sizes {
			if s.Sizes[i] = int64(r.u64()); s.Sizes[i] < Loose || s.Sizes[i] > left {
				r.err = fmt.Errorf("worker: a column of %d bytes", s.Sizes[i])
				break
			}
			left -= max(s.Sizes[i], 0)
		}
		s.Structure = r.bytes(uint64(r.u32()))
		s.Pictures = r.pictures(s.Sizes)
		out = s
	case fromDone:
		out = r.done()
	case fromNeed:
		out = Need{r.u64(), int64(r.u64())}
	case fromWrote:
		out = Wrote{r.u64(), int64(r.u64()), int64(r.u64())}
	case fromFailed:
		out = Failed(b)
		r.b = nil
	case fromMade:
		out = Made{Wrote{r.u64(), int64(r.u64()), int64(r.u64())}, r.u32(), r.bytes(uint64(r.u32()))}
	case fromEnded:
		out = Ended{r.u64()}
	default:
		return nil, fmt.Errorf("worker: a frame of type %d", kind)
	}
	if r.err == nil && len(r.b) > 0 {
		r.err = fmt.Errorf("worker: a frame of type %d has %d bytes too many", kind, len(r.b))
	}
	return out, r.err
}

func (r *reader) done() Done {
	d := Done{Batch: r.u64(), Nanos: int64(r.u64())}
	d.Rows = make([]Row, 0, r.count(9))
	for range cap(d.Rows) {
		row := Row{Row: r.u32()}
		status := r.u8()
		row.Ready = status == ready
		if status == bad || status == odd {
			row.Odd = status == odd
			row.Bad = r.bytes(uint64(r.u32()))
			if row.Bad == nil {
				row.Bad = []byte{}
			}
			d.Rows = append(d.Rows, row)
			continue
		}
		row.Values = make([]Value, 0, r.count(8))
		for range cap(row.Values) {
			row.Values = append(row.Values, Value{r.u32(), r.bytes(uint64(r.u32()))})
		}
		d.Rows = append(d.Rows, row)
	}
	return d
}

// readFrame reads one frame; its memory is its own.
func readFrame(in io.Reader) (byte, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n < 1 || n > maxFrame {
		return 0, nil, fmt.Errorf("worker: a frame of %d bytes", n)
	}
	b := make([]byte, n-1)
	_, err := io.ReadFull(in, b)
	return head[4], b, err
}

// writer makes a frame.
type writer []byte

func begin(kind byte) writer { return room(kind, 59) }

// room is begin for a frame of about so many bytes.
func room(kind byte, bytes int) writer { return append(make(writer, 4, 5+bytes), kind) }

func (w *writer) u32(v uint32) { *w = binary.LittleEndian.AppendUint32(*w, v) }
func (w *writer) u64(v uint64) { *w = binary.LittleEndian.AppendUint64(*w, v) }

func (w writer) end() []byte {
	binary.LittleEndian.PutUint32(w, uint32(len(w)-4))
	return w
}
