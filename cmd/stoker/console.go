package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// console is where a command's results, errors and progress go. Progress is
// shown on a terminal only, and on the error stream, so that results can be
// piped; without a terminal no control character is written, and with one none
// that comes out of data.
type console struct {
	ctx      context.Context
	out      *plain    // text for people
	raw      io.Writer // bytes as they are, JSON: the same stream
	results  *results  // what both write to
	err      io.Writer
	json     bool // machines read the results, and the errors
	client   bool // of Python: it has words of its own
	spec     bool // the verb takes a Spec, and no flags that say what a dataset is
	terminal bool // the error stream is one

	told bool // of an interruption
}

// results is the standard output. The first write that fails decides how the
// command ends: what reads the results has not got all of them.
type results struct {
	to  io.Writer
	bad error
}

func (r *results) Write(b []byte) (int, error) {
	n, err := r.to.Write(b)
	if err == nil {
		return n, nil
	}
	e := errs.New(errs.Unreadable, "the results can not be written").Because(err)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		e = errs.New(errs.Space, "the results can not be written: the disk is full").Because(err).Try("make room, or write them elsewhere")
	}
	if r.bad == nil {
		r.bad = e
	}
	return n, e
}

func newConsole(ctx context.Context, to, errOut io.Writer, asJSON bool) *console {
	out := &results{to: to}
	return &console{ctx: ctx, out: &plain{to: out}, raw: out, results: out, err: errOut, json: asJSON, terminal: isTerminal(errOut)}
}

func isTerminal(w io.Writer) bool {
	if r, ok := w.(*results); ok {
		w = r.to
	}
	f, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// writeJSON writes a result for machines.
func (c *console) writeJSON(v any) error {
	b, err := encode(v, "  ")
	if err == nil {
		_, err = c.raw.Write(b)
	}
	return err
}

// interrupted says after Ctrl-C what was done until then, and how to go on. It is
// not called while report is.
func (c *console) interrupted(how string) {
	c.told = true
	if !c.json {
		fmt.Fprintf(c.err, "stoker: interrupted: %s\n", errs.Plain(how))
		return
	}
	b, _ := encode(map[string]any{"interrupted": how}, "")
	_, _ = c.err.Write(b)
}

// report prints an error, as people or as machines read it, and returns its exit
// status.
func (c *console) report(err error) int {
	if c.ctx.Err() != nil && errors.Is(err, context.Canceled) {
		if !c.told {
			fmt.Fprintln(c.err, "stoker: interrupted")
		}
		return interrupted
	}
	e := c.worded(errs.From(err))
	status := errs.Classes[e.Code].Exit
	if c.json {
		b, _ := encode(map[string]any{"error": wire.FromError(e), "exit": status}, "")
		_, _ = c.err.Write(b)
		return status
	}
	fmt.Fprintf(c.err, "stoker: %s\n", e)
	if e.Hint != "" {
		fmt.Fprintf(c.err, "  try: %s\n", errs.Plain(e.Hint))
	}
	return status
}

// worded is an error in the words of the command line.
func (c *console) worded(err *errs.Error) *errs.Error {
	e := *err
	if c.client {
		return &e
	}
	if !c.spec {
		e.What, e.Hint = asFlags(e.What), asFlags(e.Hint)
		return &e
	}
	if hint, found := asKeys(e.Hint); found {
		e.Hint = hint + "; this stands in a Spec, below dataset:"
	}
	return &e
}

// bar is progress on the terminal; nil shows nothing. It is safe for concurrent
// use.
type bar struct {
	all   *mpb.Progress
	one   *mpb.Bar
	begin time.Time
	text  atomic.Pointer[string]
}

// patience is how long something has to take before its progress is shown.
const patience = 300 * time.Millisecond

// progress begins to show how far something is; its end takes that away.
func (c *console) progress(what string) *bar {
	if !c.terminal {
		return nil
	}
	b := &bar{begin: time.Now()}
	b.all = mpb.NewWithContext(c.ctx, mpb.WithOutput(c.err), mpb.WithWidth(30), mpb.WithRefreshRate(120*time.Millisecond), mpb.WithRenderDelay(after(c.ctx, patience)))
	b.one = b.all.New(0, mpb.BarStyle().Lbound("[").Filler("#").Tip("#").Padding(".").Rbound("]"),
		mpb.PrependDecorators(decor.Name(what+" ")), mpb.AppendDecorators(decor.Any(b.describe)), mpb.BarRemoveOnComplete())
	return b
}

// after is closed when d has passed.
func after(ctx context.Context, d time.Duration) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}()
	return done
}

// describe is what stands behind the bar.
func (b *bar) describe(s decor.Statistics) string {
	text := b.text.Load()
	if text == nil {
		return ""
	}
	out := " " + *text
	if s.Current > 0 && s.Total > s.Current {
		left := time.Since(b.begin).Seconds() * float64(s.Total-s.Current) / float64(s.Current)
		out += ", " + show.Time(seconds(left)) + " left"
	}
	return out
}

// set says how far it is; total is 0 where that is not known.
func (b *bar) set(done, total int64, text string) {
	if b == nil {
		return
	}
	b.text.Store(&text)
	if total > 0 {
		b.one.SetTotal(total, false)
	}
	b.one.SetCurrent(done)
}

// count says how many things are done, and at which rate.
func (b *bar) count(done, total int64, things string) {
	if b == nil {
		return
	}
	rate := float64(done) / time.Since(b.begin).Seconds()
	if done == 0 && total == 0 { // what it waits for
		b.set(0, 0, things)
		return
	}
	if things == "bytes" {
		b.set(done, total, show.Size(done)+" at "+show.Size(int64(rate))+"/s")
		return
	}
	b.set(done, total, show.Number(float64(done))+" "+things+" at "+show.Number(rate)+"/s")
}

// packed says how many samples are packed, and how fast they are written.
func (b *bar) packed(done, total, bytes int64) {
	if b == nil {
		return
	}
	spent := time.Since(b.begin).Seconds()
	b.set(done, total, show.Number(float64(done))+" of "+show.Number(float64(total))+" samples at "+
		show.Number(float64(done)/spent)+"/s, "+show.Size(int64(float64(bytes)/spent))+"/s")
}

// lines tells progress as machines read it, a line of JSON ten times a second at
// most and one at the end; not at all unless on. It is safe for concurrent use.
func (c *console) lines(on bool) func(done, total, bytes int64) {
	var mu sync.Mutex
	var told time.Time
	enc := json.NewEncoder(c.err)
	return func(done, total, bytes int64) {
		if !on {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if now := time.Now(); done >= total || now.Sub(told) >= 100*time.Millisecond {
			told = now
			_ = enc.Encode(map[string]any{"progress": map[string]int64{"done": done, "total": total, "bytes": bytes}})
		}
	}
}

// end takes the bar off the terminal.
func (b *bar) end() {
	if b == nil {
		return
	}
	b.one.Abort(true)
	b.all.Wait()
}

// indexing shows the progress of indexing a dataset.
func (c *console) indexing() (tell func(done, total int64, what string), end func()) {
	b := c.progress("indexing")
	return b.count, b.end
}
