package crew

import (
	"sync"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/fill"
	"github.com/stoker-data/stoker/internal/stage/worker"
)

// Pictures that workers leave as bytes.
//
// If the last steps of a user's chain only make numbers of bytes, a worker does not run
// them. Its row has room for float32 and begins with the bytes; they become numbers here,
// in place, when the row has been answered and before it is returned. So a row whose
// worker died has bytes of nobody, and is filled again. A row that is held back (odd.go)
// keeps its bytes until it is returned.
//
// The goroutine that read the answer does it, without the crew's lock: there is one for
// each worker, and what the next answer waits for is a fraction of what a sample takes.

// painter is what rows with pictures need. Safe for concurrent use.
type painter struct {
	columns []worker.Picture // set before the first row is handed out
	stage   *stats.Stage     // of the engine's work on batches

	mu     sync.Mutex
	free   []*easel
	closed bool
}

// easel is what one goroutine needs.
type easel struct {
	lane  *kernel.Lane
	bytes []byte // of a row
}

// paint makes the numbers of a row's pictures.
func (p *painter) paint(t *fill.Task) error {
	e := p.take()
	defer p.give(e)
	begin := stats.Monotonic()
	for i := range p.columns {
		c := &p.columns[i]
		row := t.Batch.Layout.Row(t.Batch.Slot.Mem, c.Column, t.Row)
		e.bytes = mem.Sized(e.bytes, len(row)/4)
		copy(e.bytes, row)
		if err := e.paint(row, c); err != nil {
			return errs.New(errs.Memory, "cannot make the numbers of a picture").Because(err).Try("use fewer workers, or smaller pictures")
		}
	}
	p.stage.Add(time.Duration(stats.Monotonic()-begin), 0, 0)
	return nil
}

// paint makes the numbers of one picture from its bytes.
func (e *easel) paint(row []byte, c *worker.Picture) error {
	out := kernel.Output{Float: true, CHW: true, Scale: c.Scale, Bias: c.Bias}
	if !c.Planes {
		return e.lane.Run(&kernel.Job{Src: kernel.Pixels{Pix: e.bytes, W: c.W, H: c.H, C: c.C}, Out: out, Dst: row})
	}
	plane := c.W * c.H
	for i := range c.C {
		out.Scale[0], out.Bias[0] = c.Scale[i], c.Bias[i]
		src := kernel.Pixels{Pix: e.bytes[i*plane : (i+1)*plane], W: c.W, H: c.H, C: 1}
		if err := e.lane.Run(&kernel.Job{Src: src, Out: out, Dst: row[4*i*plane : 4*(i+1)*plane]}); err != nil {
			return err
		}
	}
	return nil
}

func (p *painter) take() *easel {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		e := p.free[n-1]
		p.free = p.free[:n-1]
		return e
	}
	return &easel{lane: kernel.NewLane()}
}

func (p *painter) give(e *easel) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		e.lane.Close()
		return
	}
	mem.Trim(&e.bytes)
	p.free = append(p.free, e)
}

// close frees what is not in use, and what is in use once it is not.
func (p *painter) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, e := range p.free {
		e.lane.Close()
	}
	p.free = nil
}
