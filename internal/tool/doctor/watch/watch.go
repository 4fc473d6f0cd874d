// Package watch looks at training processes: at a script that it starts with the hook in
// it ([Watch]), at one that runs already ([Attach]), and at one that asks for it ([Beside]).
package watch

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/doctor/gather"
	"github.com/stoker-data/stoker/internal/tool/doctor/judge"
	"github.com/stoker-data/stoker/internal/tool/doctor/system"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// Script is an unchanged script to watch.
type Script struct {
	Command []string
	Stop    bool // end it once there is a verdict

	// The script's standard streams.
	In       io.Reader
	Out, Err io.Writer

	Signals <-chan os.Signal // what we are sent; INT, TERM and HUP are passed on
	Version string

	// Verdict is told once, when the evidence is steady and the script runs on.
	Verdict func(judge.Report)
	// Tell is told what cannot wait, in a sentence: nothing moves.
	Tell func(string)

	hurry float64 // tests: all patience is that many times shorter
}

// patience is how long the script may take to end after SIGTERM.
func (s Script) patience() time.Duration { return time.Duration(s.after(float64(patience))) }

// after is one of the times below.
func (s Script) after(seconds float64) float64 { return seconds / max(1, s.hurry) }

// Outcome is how it went.
type Outcome struct {
	Report  judge.Report
	Status  int  // the script's own exit status, or 128 and the signal
	Stopped bool // it was ended by us
}

const (
	seldom = 500 * time.Millisecond // lines are read, processes are looked at
	rarely = 5 * time.Second        // the same, after the verdict

	soon     = 4.0  // seconds from the first batch to the earliest verdict
	plenty   = 7.5  // and to the earliest after few batches, whose means say little
	deadline = 12.5 // and to the latest, which leaves time within the 15 promised
	stopping = 60.0 // the latest that ends the script, where there is nothing to say yet
	unhooked = 20.0 // seconds from the start in which some process should have the hook
	quiet    = 30.0 // seconds without a batch that are told

	many = 60 // batches whose mean is believed at once
)

// Watch runs a script until it ends, and says what limits it. An error means that
// it could not be started; what becomes of it later is in the Outcome. When ctx
// ends, so does the script.
func Watch(ctx context.Context, s Script) (Outcome, error) {
	if len(s.Command) == 0 {
		return Outcome{}, errs.New(errs.Config, "there is no command to watch").Try("stoker doctor -- python train.py")
	}
	h, err := newHooked()
	if err != nil {
		return Outcome{}, err
	}
	defer h.remove()
	w := &watching{Script: s, pages: gather.NewPages(), folder: gather.NewFolder(h.lines), watched: system.NewWatched("/"), machine: system.Look(ctx), began: system.Now()}
	defer w.pages.Close()
	w.child, err = startChild(s.Command, h.env(), s.In, s.Out, s.Err)
	if err != nil {
		return Outcome{}, err
	}
	out := w.run(ctx)
	_, _ = w.folder.Poll()
	w.ended = w.child.ended()
	if out.Stopped {
		w.ended = "by --stop"
	} else if exit := w.folder.Exit(w.child.pid()); exit != "" && exit != "ok" {
		w.ended += ", " + exit
	}
	out.Report = judge.Judge(w.evidence())
	out.Status = w.child.status()
	return out, nil
}

// watching is a script that is watched. It has one goroutine.
type watching struct {
	Script
	child   *child
	folder  *gather.Folder
	watched *system.Watched
	machine evidence.Machine
	storage system.Prober
	pages   *gather.Pages
	began   float64
	ended   string

	told  bool     // the verdict
	quiet bool     // that nothing moves
	names []string // verdicts of the last looks
	moved float64  // when a batch came last
	count float64  // batches until then
}

func (w *watching) run(ctx context.Context) (out Outcome) {
	slow := time.NewTimer(0)
	defer slow.Stop()
	signals := map[os.Signal]int{}
	for {
		select {
		case <-w.child.done:
			w.watched.Look(w.child.pid(), system.Now())
			return out
		case s := <-w.Signals:
			signals[s]++
			if sig, ok := s.(syscall.Signal); ok {
				w.child.pass(sig, signals[s] == 1)
			}
		case <-ctx.Done():
			w.child.stop(context.Background(), w.watched, w.patience())
			return out
		case <-slow.C:
			if w.look() && w.Stop {
				w.child.stop(ctx, w.watched, w.patience())
				out.Stopped = true
				return out
			}
			next := seldom
			if w.told {
				next = rarely
			}
			slow.Reset(time.Duration(w.after(float64(next))))
		}
	}
}

// look reads what came, and says whether there is a verdict that was told.
func (w *watching) look() bool {
	t := system.Now()
	_, _ = w.folder.Poll()
	w.watched.Look(w.child.pid(), t)
	w.pages.Look(w.pids(), !w.told)
	w.stalled(t)
	if w.told {
		return true
	}
	first, came := w.firstBatch()
	switch {
	case !came && w.folder.Empty() && t-w.began > w.after(unhooked):
		w.tell(judge.Judge(w.evidence()))
		return false // a child of the child may come to load it yet
	case !came || t-first < w.after(soon/2):
		return false
	}
	w.storage.Watch(w.watched.Root, w.folder.Pids(), w.folder.Readers())
	r := judge.Judge(w.evidence())
	w.names = append(w.names, r.Verdict.Title())
	steady := len(w.names) >= recentLooks && len(slices.Compact(slices.Clone(w.names[len(w.names)-recentLooks:]))) == 1 && r.Verdict.Name != judge.Insufficient && t-first >= w.after(soon)
	if t-first < w.after(plenty) && !believed(r.Evidence.Worst(), w.after(plenty)) {
		steady = false
	}
	late := t-first >= w.after(deadline)
	if w.Stop && r.Verdict.Name == judge.Insufficient {
		late = t-first >= w.after(stopping)
	}
	if !w.storage.Settled(judge.Measure(r.Evidence).Reads) {
		steady = false
	}
	r.Verdict.Preliminary = preliminary(r, w.names)
	steady = steady && !draining(r)
	if steady || late {
		w.tell(r)
	}
	return w.told
}

// recentLooks are those whose verdicts have to agree.
const recentLooks = 4

// preliminary says why a longer look may come to another verdict; empty if nothing speaks
// for that. The script runs on, and the report at its end counts.
func preliminary(r judge.Report, names []string) string {
	ev, m := r.Evidence, judge.Measure(r.Evidence)
	loop := ev.Worst()
	last := slices.Compact(slices.Clone(names[max(0, len(names)-recentLooks):]))
	several := 0
	for _, l := range ev.Loops {
		if l.PID == loop.PID && l.Settings.ID != loop.Settings.ID {
			several++
		}
	}
	switch {
	case r.Verdict.Name == judge.Insufficient:
		return ""
	case len(last) > 1:
		return "the last observations did not agree (" + strings.Join(last, ", ") + ")."
	case draining(r):
		return "the number of ready batches is falling: the loop may begin to wait."
	case m.Lost > judge.Threshold/2 && m.Lost < 2*judge.Threshold:
		return fmt.Sprintf("%s of the time is close to the threshold at which waiting matters (%s).", show.Percent(m.Lost), show.Percent(judge.Threshold))
	case several > 0 && loop.Epochs < 2:
		return "only some of the script's loops have run so far."
	case loop.Epochs < 2 && m.Bound && m.Costliest == evidence.Read:
		return "the first epoch reads files that later ones may find in memory."
	case !m.Alone:
		return "other processes use the cores, which changes the costs."
	}
	return ""
}

// draining says whether a loop that does not wait uses up what was made before it began:
// less and less of it is ready.
func draining(r judge.Report) bool {
	steps := r.Evidence.Worst().Recent
	if r.Verdict.Name != judge.NotDataBound || len(steps) < 16 {
		return false
	}
	mean := func(part [][3]float64) (sum float64) {
		for _, s := range part {
			sum += s[2] / float64(len(part))
		}
		return sum
	}
	third := len(steps) / 3
	return mean(steps[:third])-mean(steps[len(steps)-third:]) >= 1
}

// believed says whether the means of a loop are worth ending on: over many batches,
// and without an epoch that reads everything for the first time, if it ends soon.
func believed(l evidence.Loop, soon float64) bool {
	epoch := l.PerEpoch.Value * (l.Wait.Value + l.Step.Value)
	return l.Batches.Value >= many && (!l.PerEpoch.Known() || epoch > soon/2)
}

func (w *watching) tell(r judge.Report) {
	w.told = true
	if w.Verdict != nil {
		w.Verdict(r)
	}
}

// stalled notices that no batch came for long, and says so once each time.
func (w *watching) stalled(t float64) {
	n, begun := w.folder.Batches()
	if n != w.count || !begun || w.moved == 0 {
		w.count, w.moved, w.quiet = n, t, false
		return
	}
	if t-w.moved < max(w.after(quiet), 5*w.folder.Usual()) || w.quiet {
		return
	}
	w.quiet = true
	if w.Tell == nil {
		return
	}
	text := fmt.Sprintf("no batch for %s", show.Took(t-w.moved))
	for i, at := range w.folder.Locations(w.watched.Root) {
		if i < 6 {
			text += "\n    " + at
		}
	}
	w.Tell(text)
}

// evidence is what is known by now.
func (w *watching) evidence() evidence.Evidence {
	ev := evidence.Evidence{
		Schema: evidence.Schema, Stoker: w.Version, When: time.Now().UTC().Truncate(time.Second),
		Subject: evidence.Subject{Kind: evidence.OfScript, Command: errs.ShownWords(w.Command)}, Machine: w.machine,
		Loops: gather.Ordered(append(gather.Loops(w.folder, w.watched), w.pages.Loops(w.lineOf)...)), Storage: w.storage.Found(),
	}
	from := w.began
	if t, ok := w.firstBatch(); ok {
		from = t
	}
	ev.Run = gather.RunOf(w.folder, w.watched, from)
	ev.Run.Ended = w.ended
	if w.quiet {
		ev.Run.Quiet, ev.Run.At = evidence.Measured(system.Now()-w.moved, evidence.FromHook), w.folder.Locations(w.watched.Root)
		ev.Notes = append(ev.Notes, fmt.Sprintf("No batch arrived for %s before this.", show.Took(system.Now()-w.moved)))
	}
	if w.folder.Strange != "" {
		ev.Notes = append(ev.Notes, "Some lines of the hook could not be read: "+w.folder.Strange)
	}
	return ev
}

// lineOf is the line of the script that made a loader of the engine with that PID, which
// its client's process has told; empty where it has not.
func (w *watching) lineOf(engine int, loader int64) string {
	seen := w.watched.Pids[engine]
	if len(seen) == 0 {
		return ""
	}
	return w.folder.Made(seen[0].Parent, loader)
}

// pids are the processes that were seen.
func (w *watching) pids() []int { return slices.Collect(maps.Keys(w.watched.Pids)) }

// firstBatch is when the first batch of all came, from torch or from stoker.
func (w *watching) firstBatch() (t float64, ok bool) {
	t, ok = w.folder.FirstBatch()
	for key, s := range w.pages.Latest {
		if at := s.Opened + w.pages.First[key].First; s.Batches > 0 && (!ok || at < t) {
			t, ok = at, true
		}
	}
	return t, ok
}
