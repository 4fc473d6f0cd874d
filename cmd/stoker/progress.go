package main

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/stoker-data/stoker/internal/tool/show"
)

// bar is progress on the terminal; nil shows nothing. It is safe for concurrent
// use.
type bar struct {
	all   *mpb.Progress
	one   *mpb.Bar
	begin time.Time
	text  atomic.Pointer[string]
}

// patience is how long something must take before its progress is shown.
const patience = 300 * time.Millisecond

// progress shows how far something is; end removes it.
func (c *console) progress(what string) *bar {
	if !c.terminal {
		return nil
	}
	b := &bar{begin: time.Now()}
	b.all = mpb.NewWithContext(c.ctx, mpb.WithOutput(c.err), mpb.WithWidth(30), mpb.WithRefreshRate(120*time.Millisecond), mpb.WithRenderDelay(after(c.ctx, patience)))
	b.one = b.all.New(0, mpb.BarStyle().Lbound("[").Filler("#").Tip("#").Padding(".").Rbound("]"),
		mpb.PrependDecorators(decor.Name(what+" ")), mpb.AppendDecorators(decor.Any(b.describe)), mpb.BarRemoveOnComplete())
	c.shown.Store(b)
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

// describe is the text after the bar.
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

// set sets how far it is; total is 0 if it is unknown.
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

// count shows how many things are done, and the rate.
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

// packed shows how many samples are packed, and how fast they are written.
func (b *bar) packed(done, total, bytes int64) {
	if b == nil {
		return
	}
	spent := time.Since(b.begin).Seconds()
	b.set(done, total, show.Number(float64(done))+" of "+show.Number(float64(total))+" samples at "+
		show.Number(float64(done)/spent)+"/s, "+show.Size(int64(float64(bytes)/spent))+"/s")
}

// lines writes progress as lines of JSON, at most ten times a second
// and once at the end; nothing unless on. It is safe for concurrent use.
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

// end removes the bar from the terminal.
func (b *bar) end() {
	if b == nil {
		return
	}
	b.one.Abort(true)
	b.all.Wait()
}

// indexing shows the progress of indexing a dataset, for a verb in which nothing else
// takes long.
func (c *console) indexing() (tell func(done, total int64, what string), end func()) {
	b := c.progress("indexing")
	return b.count, b.end
}

// steps shows the progress of a verb that opens a dataset: a bar for indexing, which the
// bar of the verb's own work replaces. Its methods are safe for concurrent use.
type steps struct {
	con      *console
	what     string
	indexing *bar

	once sync.Once
	own  *bar
}

// steps begins with indexing; what names the verb's own work ("verifying").
func (c *console) steps(what string) *steps {
	return &steps{con: c, what: what, indexing: c.progress("indexing")}
}

// work is the bar of the verb's own work. Its first call ends that of indexing.
func (s *steps) work() *bar {
	s.once.Do(func() {
		s.indexing.end()
		s.own = s.con.progress(s.what)
	})
	return s.own
}

// end removes either bar from the terminal. Later reports show nothing.
func (s *steps) end() {
	s.once.Do(func() { s.indexing.end() })
	s.own.end()
}
