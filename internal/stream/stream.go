// Package stream is the meaning of a Spec without delivery: which samples come in which
// order, which of them this rank gets, what a saved state says about that, and what
// receipts must add up to. It reads no samples except those that Explain is asked about.
//
// A stream is a function of its Spec, the epoch and the position: it remembers nothing
// that a question could change, and starts no goroutine.
package stream

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/order"
)

// Stream is an open dataset, the order of its epochs, and this rank's share of them. A
// Loader is a Stream with lanes and slots. Safe for concurrent use until Close.
type Stream struct {
	data *dataset.Collection
	spec spec.Spec // with all defaults filled in

	plan       order.Plan
	orderState json.RawMessage
	blocks     string  // digest of the block sizes, for states; "": the order has no blocks
	lens       []int32 // of every sample, if batches are made by length

	epochMu sync.Mutex
	epochs  [2]knownEpoch // even and odd
}

// Open opens the dataset of a Spec and plans its epochs. Its errors name
// every problem of the Spec at once.
func Open(ctx context.Context, spec spec.Spec, opt dataset.Options) (*Stream, error) {
	data, err := dataset.Open(ctx, spec, opt)
	if err != nil {
		return nil, err
	}
	l, err := New(data)
	if err != nil {
		data.Close()
		return nil, err
	}
	return l, nil
}

// New plans the epochs of an open dataset, by the Spec that it was opened with. The
// Stream owns the dataset from then on, unless there is an error.
func New(data *dataset.Collection) (*Stream, error) {
	l := &Stream{data: data, spec: data.Spec()}
	if err := l.newPlan(); err != nil {
		return nil, err
	}
	return l, nil
}

// Close closes the dataset. The Stream must not be in use.
func (l *Stream) Close() { l.data.Close() }

// Len is the number of samples.
func (l *Stream) Len() int64 { return l.data.Len() }

// Digest identifies the contents of the dataset.
func (l *Stream) Digest() string { return l.data.Digest() }

// Contents describes each dataset as it was when it was indexed.
func (l *Stream) Contents() []dataset.Contents { return l.data.Contents() }

// Pipeline identifies what is done to a sample.
func (l *Stream) Pipeline() string { return l.data.Pipeline() }

// Spec is the Spec with every default filled in.
func (l *Stream) Spec() spec.Spec { return l.spec }

// Classes are the names of the classes, if the dataset has them.
func (l *Stream) Classes() []string { return l.data.Classes() }

// Format is the name of the dataset's format; for a mixture, of its members'
// formats.
func (l *Stream) Format() string { return l.data.Format() }

// Every reports whether is holds for the format of every part of the dataset.
func (l *Stream) Every(is func(format.Format) bool) bool {
	return !slices.ContainsFunc(l.data.Parts, func(p *dataset.Part) bool { return !is(p.Format()) })
}

// Draw appends the runs of one step of a slice, including the unused end of a
// row of runs. Some orders sort thousands of lengths for it.
func (l *Stream) Draw(e order.Epoch, slice order.Slice, step int64, pieces []order.Piece) []order.Piece {
	for i := range slice.Rows(step) {
		begin := len(pieces)
		pieces = e.Item(slice.Place(step, i), pieces)
		if !e.Rows() {
			continue
		}
		left := l.spec.Batch.Pack
		for _, piece := range pieces[begin:] {
			left -= piece.Len
		}
		if left > 0 {
			pieces = append(pieces, order.Piece{Place: -1, Sample: -1, Len: left})
		}
	}
	return pieces
}
