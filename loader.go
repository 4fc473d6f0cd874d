package stoker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/loader"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
	"github.com/stoker-data/stoker/internal/stream"
)

// stallDeadline is how long one batch may take, unless SetDeadline changes it. It
// is the Python client's default too.
const stallDeadline = 60 * time.Second

// boardEntries is the number of workers that an error about a stall can name.
const boardEntries = 320

// Loader is an open stream of batches over one dataset, with its own lanes
// (goroutines that decode). It is safe for concurrent use. Close it after use.
type Loader struct {
	shared *loader.Shared
	inner  *loader.Loader
	fields []Column
	net    *remote.Net
	quiet  func() // ends Options.Waiting

	mu       sync.Mutex
	deadline time.Duration
	next     place   // where the next pass begins
	current  *cursor // the pass begun last; nil if none since Open or Restore
	skipped  []stream.Skipped
	parts    []*ReceiptPart // of the receipt
}

// place is a position in a stream.
type place struct{ epoch, position int64 }

// cursor is how far a pass was received. Guarded by Loader.mu.
type cursor struct {
	place
	start  place // where it began
	step   int64 // number of its first step
	part   *ReceiptPart
	jumped bool // Skip moved it: what is prefetched is not what comes next
	ended  bool // nothing more will be received
}

// Column describes one column of a batch.
type Column struct {
	Name  string
	Kind  string // image, array, number, bytes, text or json
	DType string // NumPy's name: uint8, float32, int64, ...; object for bytes, text and json
	Shape []int  // of one sample in memory; nil if it depends on the samples; begins with -1 if the first axis differs
	Batch string // for an array whose samples differ: padded or ragged
	Axes  string // for an image: "hwc" or "chw"
}

// State is a position in a stream: plain JSON, below 1 KiB, equal on every rank.
type State = stream.State

// Options are what OpenWith needs besides the Spec; the zero value is every default.
type Options struct {
	// Waiting is told, about every ten seconds, what requests to a server wait for that
	// does not answer, while opening and until Close; nil: nobody is. It is called from
	// another goroutine, and not concurrently.
	Waiting func(line string)
	// Notice is told what the user should know, such as a dataset whose index cannot be kept:
	// some lines while opening, others when they turn up, until Close; nil: nobody is. It may
	// be called from another goroutine, and not concurrently.
	Notice func(line string)
}

// Open opens a stream of batches. It indexes the dataset if that has not been done
// before; ctx can cancel it. An error names every problem of the Spec.
func Open(ctx context.Context, spec Spec) (*Loader, error) {
	return OpenWith(ctx, spec, Options{})
}

// OpenWith is Open with Options.
func OpenWith(ctx context.Context, spec Spec, opt Options) (*Loader, error) {
	net, quiet := remote.NewNet(remote.Options{}), func() {}
	if opt.Waiting != nil {
		watching, cancel := context.WithCancel(context.WithoutCancel(ctx)) // Close ends it
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			net.Watch(watching, opt.Waiting)
		}()
		quiet = func() { cancel(); <-ended }
	}
	shared := loader.NewShared(batch.Heap{}, stats.NewBoard(nil, boardEntries))
	notice := opt.Notice
	if notice != nil {
		var one sync.Mutex
		notice = func(line string) {
			one.Lock()
			defer one.Unlock()
			opt.Notice(line)
		}
	}
	inner, err := loader.Open(ctx, shared, spec, loader.Options{Sources: dataset.Sources(net), Network: net, Notice: notice})
	if err != nil {
		quiet()
		shared.Close()
		return nil, err
	}
	if notice != nil {
		for _, line := range inner.Notes() {
			notice(line)
		}
	}
	l := &Loader{shared: shared, inner: inner, net: net, quiet: quiet, deadline: stallDeadline}
	for _, f := range inner.Fields() {
		l.fields = append(l.fields, Column{Name: f.Name, Kind: f.Kind, DType: f.DType, Shape: f.Shape, Batch: f.Batch, Axes: f.Axes})
	}
	return l, nil
}

// Len is the number of samples of the dataset.
func (l *Loader) Len() int { return int(l.inner.Len()) }

// Steps is the number of batches of a whole epoch, on every rank. If batches are
// made by length, it is that of epoch 0.
func (l *Loader) Steps() int { return int(l.inner.Steps(0, 0)) }

// Classes are the names of the classes in the order of their labels; nil if the
// dataset has none.
func (l *Loader) Classes() []string { return l.inner.Classes() }

// Columns describes the columns of batches, in the order of the Spec's fields.
func (l *Loader) Columns() []Column {
	return append([]Column(nil), l.fields...)
}

// Spec is the Spec in use, with every default filled in.
func (l *Loader) Spec() Spec { return l.inner.Spec() }

// Stats returns the statistics at this moment.
func (l *Loader) Stats() Stats { return l.inner.Stats() }

// SetDeadline sets how long a pass waits for one batch before it ends with an error
// that names the stage and the sample that hang. The default is 60 s; 0 waits for
// ever. While a read of a server is tried again (Fetch.Deadline says for how long), the
// time begins anew.
func (l *Loader) SetDeadline(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline = d
}

// SetEpoch sets the epoch of the next pass. Without it, that is the epoch after the
// pass begun last, or 0. Between Restore and the first pass after it, SetEpoch of
// the restored epoch keeps the restored position, so that a loop over epochs may
// always call it.
func (l *Loader) SetEpoch(epoch int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current != nil || l.next.epoch != epoch {
		l.next = place{epoch: epoch}
	}
}

// State is the position of the pass begun last: its epoch, and the place after the
// last batch that its loop received. The batch whose loop body runs counts as
// received.
func (l *Loader) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.next
	if c := l.current; c != nil {
		at = c.place
	}
	st := l.inner.State(at.epoch, at.position)
	st.Skipped = slices.Clone(l.skipped)
	return st
}

// Restore makes the next pass continue where a State was taken, whatever the world
// size was there. It rejects a State of another dataset, pipeline, seed or order.
// Passes that are running are not affected. A pass that is restored at its very end
// yields nothing, once.
func (l *Loader) Restore(s State) error {
	var order bytes.Buffer // compact, however the file that kept it was formatted
	if json.Compact(&order, s.Order) == nil {
		s.Order = order.Bytes()
	}
	if err := l.inner.Check(s); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next, l.current = place{s.Epoch, s.Position}, nil
	l.skipped = slices.Clone(s.Skipped)
	return nil
}

// Batches is one pass through an epoch. Every range over it is a separate pass,
// which begins when the range does and takes the next epoch (see SetEpoch). Leaving
// the range ends the pass and drops what it had read ahead. Concurrent passes are
// independent of each other.
//
// A batch is valid until its loop body ends; see Batch. An error comes with a nil
// batch and is the last value that is yielded.
func (l *Loader) Batches(ctx context.Context) iter.Seq2[*Batch, error] {
	return func(yield func(*Batch, error) bool) {
		pass, at, deadline, err := l.begin()
		if err != nil {
			yield(nil, err)
			return
		}
		ended := false
		defer func() {
			if !ended {
				pass.Cancel()
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			at.ended = true
		}()
		for {
			if pass, err = l.jump(pass, at); err != nil {
				yield(nil, err)
				return
			}
			in, err := pass.Next(ctx, deadline)
			if err == io.EOF { //nolint:errorlint // the end of the pass; a wrapped one is a failure
				ended = true
				return
			}
			if err != nil {
				yield(nil, failure(err))
				return
			}
			l.received(at, in)
			if !l.give(in, yield) {
				return
			}
		}
	}
}

// give yields one batch and takes it back unless the body retained it, even if the
// body panics.
func (l *Loader) give(in *loader.Batch, yield func(*Batch, error) bool) bool {
	b := newBatch(l, in)
	defer b.Release()
	return yield(b, nil)
}

// begin starts the next pass.
func (l *Loader) begin() (*loader.Pass, *cursor, time.Duration, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := &cursor{place: l.next, start: l.next, step: l.inner.StepOf(l.next.position)}
	pass, err := l.inner.Pass(at.epoch, at.position, at.step)
	if err != nil {
		return nil, nil, 0, err
	}
	l.newPart(at)
	l.current, l.next = at, place{epoch: l.next.epoch + 1}
	return pass, at, l.deadline, nil
}

// failure is err as the package returns it.
func failure(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return errs.From(err)
}

// Close ends all passes. Batches that are retained stay valid until they are
// released. Closing again does nothing.
func (l *Loader) Close() error {
	l.inner.Close()
	l.shared.Close()
	l.quiet()
	l.net.Close()
	return nil
}
