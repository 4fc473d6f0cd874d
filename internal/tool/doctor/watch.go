package doctor

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
)

// Script is an unchanged script to watch.
type Script struct {
	Command []string
	Stop    bool // end it once there is a verdict

	// The script's standard streams.
	In       io.Reader
	Out, Err io.Writer

	Signals <-chan os.Signal // what we are sent; INT, TERM and HUP are handed on
	Version string

	// Verdict is told once, when the evidence is steady and the script runs on.
	Verdict func(Report)
	// Tell is told what can not wait, in a sentence: nothing moves.
	Tell func(string)

	hurry float64 // tests: all patience is that many times shorter
}

// patience is how long the script may take to end after SIGTERM.
func (s Script) patience() time.Duration { return time.Duration(s.after(float64(patience))) }

// after is one of the times below.
func (s Script) after(seconds float64) float64 { return seconds / max(1, s.hurry) }

// Outcome is how it went.
type Outcome struct {
	Report  Report
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
	w := &watching{Script: s, pages: newPages(), folder: newFolder(h.lines), watched: newWatched("/"), machine: Look(ctx), began: now()}
	defer w.pages.close()
	w.child, err = startChild(s.Command, h.env(), s.In, s.Out, s.Err)
	if err != nil {
		return Outcome{}, err
	}
	out := w.run(ctx)
	_, _ = w.folder.poll()
	w.ended = w.child.ended()
	if out.Stopped {
		w.ended = "by --stop"
	} else if p := w.folder.processes[w.child.pid()]; p != nil && p.last().Exit != nil && *p.last().Exit != "ok" {
		w.ended += ", " + *p.last().Exit
	}
	out.Report = Judge(w.evidence())
	out.Status = w.child.status()
	return out, nil
}

// watching is a script that is watched. It has one goroutine.
type watching struct {
	Script
	child   *child
	folder  *folder
	watched *watched
	machine Machine
	storage prober
	pages   *pages
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
			w.watched.look(w.child.pid(), now())
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
	t := now()
	_, _ = w.folder.poll()
	w.watched.look(w.child.pid(), t)
	w.pages.look(w.pids(), !w.told)
	w.stalled(t)
	if w.told {
		return true
	}
	first, came := w.firstBatch()
	switch {
	case !came && w.folder.empty() && t-w.began > w.after(unhooked):
		w.tell(Judge(w.evidence()))
		return false // a child of the child may come to load it yet
	case !came || t-first < w.after(soon/2):
		return false
	}
	w.storage.watch(w.watched.root, w.folder.pids(), w.folder.readers())
	r := Judge(w.evidence())
	w.names = append(w.names, r.Verdict.Title())
	steady := len(w.names) >= recentLooks && len(slices.Compact(slices.Clone(w.names[len(w.names)-recentLooks:]))) == 1 && r.Verdict.Name != Insufficient && t-first >= w.after(soon)
	if t-first < w.after(plenty) && !believed(r.Evidence.Worst(), w.after(plenty)) {
		steady = false
	}
	late := t-first >= w.after(deadline)
	if w.Stop && r.Verdict.Name == Insufficient {
		late = t-first >= w.after(stopping)
	}
	if !w.storage.settled(Measure(r.Evidence).Reads) {
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
func preliminary(r Report, names []string) string {
	ev, m := r.Evidence, Measure(r.Evidence)
	loop := ev.Worst()
	last := slices.Compact(slices.Clone(names[max(0, len(names)-recentLooks):]))
	several := 0
	for _, l := range ev.Loops {
		if l.PID == loop.PID && l.Settings.ID != loop.Settings.ID {
			several++
		}
	}
	switch {
	case r.Verdict.Name == Insufficient:
		return ""
	case len(last) > 1:
		return "the last observations did not agree (" + strings.Join(last, ", ") + ")."
	case draining(r):
		return "the number of ready batches is falling: the loop may begin to wait."
	case m.Lost > threshold/2 && m.Lost < 2*threshold:
		return fmt.Sprintf("%s of the time is close to the threshold at which waiting matters (%s).", percent(m.Lost), percent(threshold))
	case several > 0 && loop.Epochs < 2:
		return "only some of the script's loops have run so far."
	case loop.Epochs < 2 && m.Bound && m.Costliest == Read:
		return "the first epoch reads files that later ones may find in memory."
	case !m.Alone:
		return "other processes use the cores, which changes the costs."
	}
	return ""
}

// draining says whether a loop that does not wait uses up what was made before it began:
// less and less of it is ready.
func draining(r Report) bool {
	steps := r.Evidence.Worst().Recent
	if r.Verdict.Name != NotDataBound || len(steps) < 16 {
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
func believed(l Loop, soon float64) bool {
	epoch := l.PerEpoch.Value * (l.Wait.Value + l.Step.Value)
	return l.Batches.Value >= many && (!l.PerEpoch.Known() || epoch > soon/2)
}

func (w *watching) tell(r Report) {
	w.told = true
	if w.Verdict != nil {
		w.Verdict(r)
	}
}

// stalled notices that no batch came for long, and says so once each time.
func (w *watching) stalled(t float64) {
	n, begun := w.folder.batches()
	if n != w.count || !begun || w.moved == 0 {
		w.count, w.moved, w.quiet = n, t, false
		return
	}
	if t-w.moved < max(w.after(quiet), 5*w.usual()) || w.quiet {
		return
	}
	w.quiet = true
	if w.Tell == nil {
		return
	}
	text := fmt.Sprintf("no batch for %s", took(t-w.moved))
	for i, at := range w.places() {
		if i < 6 {
			text += "\n    " + at
		}
	}
	w.Tell(text)
}

// usual is the longest that a batch took so far, of those that are remembered.
func (w *watching) usual() (longest float64) {
	for _, p := range w.folder.processes {
		for _, l := range p.last().Loaders {
			for i := 1; i < len(l.Recent); i++ {
				if a, b := l.Recent[i-1], l.Recent[i]; len(a) > 1 && len(b) > 1 && a[1] != nil && b[1] != nil {
					longest = max(longest, *b[1]-*a[1])
				}
			}
		}
	}
	return longest
}

// places are where the processes of the script stand.
func (w *watching) places() (out []string) {
	for pid, p := range w.folder.processes {
		at := standing(w.watched.root, pid)
		if at == "" {
			continue
		}
		l := p.last()
		if l.Worker != nil {
			at = fmt.Sprintf("worker %d: %s", l.Worker.Index, at)
			if len(l.Worker.Stacks) > 0 {
				at += ", last seen mostly at " + l.Worker.Stacks[0].At
			}
		}
		out = append(out, at)
	}
	slices.Sort(out)
	return out
}

// evidence is what is known by now.
func (w *watching) evidence() Evidence {
	ev := Evidence{
		Schema: Schema, Stoker: w.Version, When: time.Now().UTC().Truncate(time.Second),
		Subject: Subject{Kind: OfScript, Command: w.Command}, Machine: w.machine,
		Loops: ordered(append(gather(w.folder, w.watched), w.pages.loops(w.lineOf)...)), Storage: w.storage.found(),
	}
	from := w.began
	if t, ok := w.firstBatch(); ok {
		from = t
	}
	ev.Run = runOf(w.folder, w.watched, from)
	ev.Run.Ended = w.ended
	if w.quiet {
		ev.Run.Quiet, ev.Run.At = figure(now()-w.moved, fromHook), w.places()
		ev.Notes = append(ev.Notes, fmt.Sprintf("No batch arrived for %s before this.", took(now()-w.moved)))
	}
	if w.folder.strange != "" {
		ev.Notes = append(ev.Notes, "Some lines of the hook could not be read: "+w.folder.strange)
	}
	return ev
}

// lineOf is the line of the script that made a loader of the engine with that PID, which
// its client's process has told; empty where it has not.
func (w *watching) lineOf(engine int, loader int64) string {
	seen := w.watched.pids[engine]
	if len(seen) == 0 {
		return ""
	}
	p := w.folder.processes[seen[0].ppid]
	if p == nil {
		return ""
	}
	for _, s := range p.last().Stoker {
		if s.Loader == loader {
			return s.Where
		}
	}
	return ""
}

// pids are the processes that were seen.
func (w *watching) pids() []int { return slices.Collect(maps.Keys(w.watched.pids)) }

// firstBatch is when the first batch of all came, from torch or from stoker.
func (w *watching) firstBatch() (t float64, ok bool) {
	t, ok = w.folder.firstBatch()
	for key, s := range w.pages.latest {
		if at := s.Opened + w.pages.first[key].First; s.Batches > 0 && (!ok || at < t) {
			t, ok = at, true
		}
	}
	return t, ok
}
