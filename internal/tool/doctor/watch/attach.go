package watch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/doctor/gather"
	"github.com/stoker-data/stoker/internal/tool/doctor/judge"
	"github.com/stoker-data/stoker/internal/tool/doctor/system"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// Alone is the evidence of a machine on which nothing was run.
func Alone(ctx context.Context, version string) evidence.Evidence {
	return evidence.Evidence{Schema: evidence.Schema, Stoker: version, When: time.Now().UTC().Truncate(time.Second), Subject: evidence.Subject{Kind: evidence.OfMachine}, Machine: system.Look(ctx)}
}

// attached is how long a process is looked at from outside.
const attached = 4 * time.Second

// Attach looks at a process that runs already: at the statistics of stoker's
// loaders in it or in what it started, and by /proc, from outside, at any other.
func Attach(ctx context.Context, pid int, version string) (judge.Report, error) {
	w := system.NewWatched("/")
	switch s, ok := system.Sight(w.Root, pid, 0); {
	case !ok:
		return judge.Report{}, errs.New(errs.NotFound, "there is no process %d", pid).Because(fs.ErrNotExist).Try("ps -ef | grep python")
	case s.Over():
		return judge.Report{}, errs.New(errs.NotFound, "process %d (%s) has ended; only its parent, process %d, has not asked how yet", pid, s.Name, s.Parent).Because(fs.ErrNotExist).Try("ps -ef | grep python")
	}
	ev := evidence.Evidence{
		Schema: evidence.Schema, Stoker: version, When: time.Now().UTC().Truncate(time.Second),
		Subject: evidence.Subject{Kind: evidence.OfProcess, PID: pid, Command: errs.ShownWords(system.CommandOf(w.Root, pid))}, Machine: system.Look(ctx),
	}
	where, began := map[string]int{}, system.Now()
	p := gather.NewPages()
	defer p.Close()
	ticks := time.NewTicker(200 * time.Millisecond)
	defer ticks.Stop()
	looks := 0
	for end := began + attached.Seconds(); system.Now() < end; looks++ {
		if s, ok := system.Sight(w.Root, pid, system.Now()); !ok || s.Over() {
			ev.Notes = append(ev.Notes, fmt.Sprintf("The process ended after %s.", show.Took(system.Now()-began)))
			break
		}
		w.Look(pid, system.Now())
		p.Look(slices.Collect(maps.Keys(w.Pids)), true)
		where[system.Standing(w.Root, pid)]++
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return judge.Report{}, errors.Join(ctx.Err(), context.Canceled)
		}
	}
	ev.Loops = gather.Ordered(p.Loops(func(int, int64) string { return "" }))
	ev.Run = gather.RunOf(gather.NewFolder(""), w, began)
	ev.Run.Denied = system.Denied(w.Root, pid)
	if a, b, ok := w.Between(pid, began); ok && b.RChar > 0 {
		ev.Run.ReadRate = evidence.Measured((b.RChar-a.RChar)/(b.T-a.T), "/proc/PID/io")
	}
	delete(where, "")
	for at, n := range where {
		if n*4 >= len(where) && len(ev.Run.At) < 5 {
			ev.Run.At = append(ev.Run.At, fmt.Sprintf("%s (%d of %d looks)", at, n, looks))
		}
	}
	return judge.Judge(ev), nil
}
