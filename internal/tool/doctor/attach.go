package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// Alone is the evidence of a machine on which nothing was run.
func Alone(ctx context.Context, version string) Evidence {
	return Evidence{Schema: Schema, Stoker: version, When: time.Now().UTC().Truncate(time.Second), Subject: Subject{Kind: OfMachine}, Machine: Look(ctx)}
}

// attached is how long a process is looked at from outside.
const attached = 4 * time.Second

// Attach looks at a process that runs already: at the statistics of stoker's
// loaders in it or in what it started, and by /proc, from outside, at any other.
func Attach(ctx context.Context, pid int, version string) (Report, error) {
	w := newWatched("/")
	switch s, ok := sight(w.root, pid, 0); {
	case !ok:
		return Report{}, errs.New(errs.NotFound, "there is no process %d", pid).Because(fs.ErrNotExist).Try("ps -ef | grep python")
	case s.over():
		return Report{}, errs.New(errs.NotFound, "process %d (%s) has ended; only its parent, process %d, has not asked how yet", pid, s.name, s.ppid).Because(fs.ErrNotExist).Try("ps -ef | grep python")
	}
	ev := Evidence{
		Schema: Schema, Stoker: version, When: time.Now().UTC().Truncate(time.Second),
		Subject: Subject{Kind: OfProcess, PID: pid, Command: commandOf(w.root, pid)}, Machine: Look(ctx),
	}
	where, began := map[string]int{}, now()
	p := newPages()
	defer p.close()
	ticks := time.NewTicker(200 * time.Millisecond)
	defer ticks.Stop()
	looks := 0
	for end := began + attached.Seconds(); now() < end; looks++ {
		if s, ok := sight(w.root, pid, now()); !ok || s.over() {
			ev.Notes = append(ev.Notes, fmt.Sprintf("The process ended after %s.", took(now()-began)))
			break
		}
		w.look(pid, now())
		p.look(slices.Collect(maps.Keys(w.pids)), true)
		where[standing(w.root, pid)]++
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return Report{}, errors.Join(ctx.Err(), context.Canceled)
		}
	}
	ev.Loops = ordered(p.loops(func(int, int64) string { return "" }))
	ev.Run = runOf(newFolder(""), w, began)
	ev.Run.Denied = denied(w.root, pid)
	if a, b, ok := w.between(pid, began); ok && b.rchar > 0 {
		ev.Run.ReadRate = figure((b.rchar-a.rchar)/(b.t-a.t), "/proc/PID/io")
	}
	delete(where, "")
	for at, n := range where {
		if n*4 >= len(where) && len(ev.Run.At) < 5 {
			ev.Run.At = append(ev.Run.At, fmt.Sprintf("%s (%d of %d looks)", at, n, looks))
		}
	}
	return Judge(ev), nil
}
