package crew

import (
	"fmt"
	"strings"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/stage/worker"
)

// answering is how long a worker may take to say where its Python code is.
const answering = time.Second

// Stuck is a worker that has been at one piece of work for a long time.
type Stuck struct {
	PID, Place int
	Sample     int64  // -1: none in particular
	What       string // it does
	For        time.Duration
	Stack      string // of its Python code; "": it did not say
	Stopped    bool   // its process is, by somebody else
}

// Stuck returns the worker that has been at one piece of work for longest, if that is
// longer than this, with its Python stack; else nil.
func (c *Crew) Stuck(longer time.Duration) *Stuck {
	x, _ := c.look(longer)
	return x
}

// look is Stuck, with all workers that have been at one piece for longer than this.
func (c *Crew) look(longer time.Duration) (*Stuck, []*member) {
	c.mu.Lock()
	all := c.stuck(longer)
	if len(all) == 0 {
		c.mu.Unlock()
		return nil, nil
	}
	m := all[0]
	x := &Stuck{PID: m.pid, Place: m.place, For: time.Duration(stats.Monotonic() - m.begun), Sample: -1}
	x.What = "between samples"
	at, row, busy := m.conn.At()
	switch doing := m.conn.Doing(); {
	case doing == worker.Starting:
		x.What = "starting (unpickling the dataset, worker_init_fn)"
	case doing == worker.Collating:
		x.What = "in collate_fn"
	case busy && c.opt.Iterates:
		x.What = "iterating the dataset"
	case busy:
		for _, p := range m.pieces {
			for _, t := range p.tasks {
				if p.job.id == at && uint32(t.Row) == row {
					x.Sample = t.Req.Sample
					x.What = fmt.Sprintf("at sample %d", x.Sample)
				}
			}
		}
	}
	c.mu.Unlock()
	x.Stack = m.conn.Stack(answering)
	state := m.conn.State()
	x.Stopped = state == 'T' || state == 't'
	return x, all
}

// stuck is the workers that have been at one piece for longer than this, the longest
// first. c.mu is held.
func (c *Crew) stuck(longer time.Duration) (out []*member) {
	now := stats.Monotonic()
	for _, m := range c.members {
		if m.pid == 0 || m.leaves || m.stuck || len(m.pieces) == 0 || time.Duration(now-m.begun) < longer {
			continue
		}
		if out = append(out, m); m.begun < out[0].begun {
			out[0], out[len(out)-1] = m, out[0]
		}
	}
	return out
}

// Stalled adds to the error of a stall which worker is stuck, and with what, and kills all
// that are; others make their rows once they are dead. The deaths do not count against the
// samples: a storage that hangs is not bad data.
func (c *Crew) Stalled(stall error, deadline time.Duration) error {
	longer := deadline - deadline/8 // a worker got its piece after the last sample was done
	x, all := c.look(longer)
	if x == nil {
		return stall
	}
	e := *errs.From(stall)
	what, _, _ := strings.Cut(e.What, ":")
	named := func(also string) string {
		return fmt.Sprintf("%s: Python worker %d (process %d%s) has been %s for %s", what, x.Place, x.PID, also, x.What, errs.InSeconds(x.For))
	}
	e.What = named("")
	e.Where.Sample, e.Where.Worker = errs.Known(x.Sample), errs.Known(int64(x.Place))
	if x.Stopped {
		e.Hint = fmt.Sprintf("it was stopped by a signal or a debugger: `kill -CONT %d` continues it", x.PID)
		return &e
	}
	c.mu.Lock()
	for _, m := range all { // also if the signal has woken it
		m.stuck = true
	}
	c.mu.Unlock()
	for _, m := range all {
		m.conn.Kill()
	}
	if n := len(all) - 1; n > 0 {
		e.What = named(fmt.Sprintf("; as long: %d more", n))
	}
	e.Hint = "it was killed, and another one takes its place if you go on: see why that line takes so long, or raise timeout="
	if x.Stack == "" {
		e.Hint = "it was killed, and did not say where its Python code was: a hung mount holds a process in the kernel; or raise timeout="
	} else {
		e.Cause = &errs.CodeError{Text: x.Stack}
	}
	return &e
}
