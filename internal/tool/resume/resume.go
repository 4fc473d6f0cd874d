// Package resume proves that a stream can be resumed: it runs it once undisturbed,
// once in processes that are killed at random steps and resume from the last saved
// state, and once over worlds of several sizes, and compares ids and bytes.
package resume

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/loader"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/order"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stream"
	"github.com/stoker-data/stoker/internal/tool/bench"
)

// Config is one proof.
type Config struct {
	// Spec is what is loaded; its rank and world do not matter. If it has no
	// fields, pictures go through bench.Chain.
	Spec    spec.Spec
	Sources []source.Scheme // of this process; nil: dataset.Sources
	Kills   int             // at least 1; fewer if there are fewer steps
	Steps   int64           // of the undisturbed run; 0: as many as make 20,000 samples, from 20 to 200
	Seed    uint64          // of the steps at which children are killed

	// Command makes a child that has not been started: a process that calls Stream
	// with its standard input and output, and writes an error as JSON.
	Command func(ctx context.Context) *exec.Cmd

	Indexing func(done, total int64, what string) // may be nil
	Progress func(done, total int64)              // steps; may be nil
}

const (
	usualSamples = 20_000
	fewestSteps  = 20
	mostSteps    = 200
)

// Report is the result.
type Report struct {
	Path     []string     `json:"path"`
	Epoch    int64        `json:"epoch"`    // where the run began
	Position int64        `json:"position"` // likewise
	Steps    int64        `json:"steps"`
	Epochs   int64        `json:"epochs"`   // begun, in the undisturbed run
	Samples  int64        `json:"samples"`  // valid ones of the undisturbed run
	Kills    int64        `json:"kills"`    // by SIGKILL
	Repeated int64        `json:"repeated"` // steps that were repeated after a kill
	Worlds   []int        `json:"worlds"`   // one after the other
	Places   int64        `json:"places"`   // compared over all ranks
	Found    []Difference `json:"differences"`
	Seconds  float64      `json:"seconds"`
}

// Err is nil if the stream resumes exactly.
func (r *Report) Err() error {
	if len(r.Found) == 0 {
		return nil
	}
	return errs.New(errs.Differs, "the resumed stream differs from the undisturbed one: %s", &r.Found[0]).
		Try("files that change while they are read cause this; if yours did not, please report it with the Spec")
}

// proof is a Config in progress.
type proof struct {
	Config
	l      *loader.Loader
	dir    string // for saved states
	start  stream.State
	trace  *Trace
	report Report
	done   int64 // steps, for Progress
	total  int64
}

// Run carries out a proof. Differences are in the Report; an error means that there
// is no Report.
func Run(ctx context.Context, c Config) (*Report, error) {
	begin := time.Now()
	shared := loader.NewShared(batch.Heap{}, stats.NewBoard(nil, 1))
	defer shared.Close()
	p := &proof{Config: c}
	if err := p.open(ctx, shared); err != nil {
		return nil, err
	}
	defer p.l.Close()
	var err error
	if p.dir, err = os.MkdirTemp("", "stoker-resume-"); err != nil {
		return nil, errs.New(errs.Unreadable, "cannot make a folder for states").Because(err).Try("set TMPDIR to another folder")
	}
	defer func() { _ = os.RemoveAll(p.dir) }()
	for _, run := range []func(context.Context) error{p.undisturbed, p.killed, p.worlds} {
		if err := run(ctx); err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, err
		}
	}
	p.report.Seconds = time.Since(begin).Seconds()
	return &p.report, nil
}

// open indexes the dataset, and decides where the run begins and how long it is.
func (p *proof) open(ctx context.Context, shared *loader.Shared) error {
	spec := alone(p.Spec, 1, 0)
	spec.BatchTransform = nil                // rows are compared, and in another world they have other partners
	if d := &spec.DecodeDevice; d.By != "" { // so all rows are made here
		d.By, d.Share, d.Repeats = "", 0, false
	}
	l, err := loader.Open(ctx, shared, spec, loader.Options{Sources: p.Sources, Progress: p.Indexing})
	if err != nil {
		return err
	}
	if len(spec.Fields) == 0 && spec.Dataset.Mixed == nil && !l.Every(func(f format.Format) bool { return f.Made }) {
		spec.Fields = bench.Chain{}.Fields(l.Spec().Fields)
		l.Close()
		if l, err = loader.Open(ctx, shared, spec, loader.Options{Sources: p.Sources}); err != nil {
			return err
		}
	}
	p.l, p.Spec = l, spec
	each := l.Stride()
	if e := l.Epoch(0); e.Batches() || e.Rows() {
		each = (each*e.Places() + e.Len() - 1) / e.Len()
	}
	if p.Steps == 0 {
		p.Steps = min(max(usualSamples/each, fewestSteps), mostSteps)
	}
	all := l.Steps(0, 0)
	switch {
	case p.Kills < 1 || p.Steps < 2:
		err = errs.New(errs.Config, "%s in %s: a run needs at least 1 kill and 2 steps", errs.Many(p.Kills, "kill"), errs.Many(p.Steps, "step"))
	case all == 0:
		err = errs.New(errs.Config, "an epoch of %s has no batch of %d with tail %q", errs.Many(l.Len(), "sample"), spec.Batch.Size, l.Spec().Order.Tail).
			Try("lower batch_size, or set tail to pad")
	}
	if err != nil {
		l.Close()
		return err
	}
	p.start = l.State(0, 0)
	if all > p.Steps/2 { // so that the run passes the end of an epoch
		p.start = l.State(0, (all-p.Steps/2)*l.Stride())
	}
	p.total = 3 * p.Steps // about
	p.report = Report{Path: spec.Dataset.Path, Position: p.start.Position, Steps: p.Steps, Found: []Difference{}}
	return nil
}

// alone is the Spec with this world and rank.
func alone(s spec.Spec, world, rank int) spec.Spec {
	s.World, s.Rank = world, rank
	if s.Batch.GlobalSize > 0 {
		s.Batch.Size = 0
	}
	return s
}

func (p *proof) told(*Step) {
	p.done++
	if p.Progress != nil {
		p.Progress(p.done, max(p.total, p.done))
	}
}

func (p *proof) found(during string, d *Difference) {
	d.During = during
	p.report.Found = append(p.report.Found, *d)
}

// undisturbed makes the trace that everything else is compared with.
func (p *proof) undisturbed(ctx context.Context) error {
	steps, _, err := p.leg(ctx, 1, 0, p.Steps, p.start)
	if err != nil {
		return err
	}
	p.trace = NewTrace(steps)
	p.report.Epochs = steps[len(steps)-1].Epoch - p.start.Epoch + 1
	for _, s := range steps {
		for _, valid := range s.Valid {
			if valid {
				p.report.Samples++
			}
		}
	}
	return nil
}

// leg runs one rank for steps steps from a state on, and returns the state that it
// saved last.
func (p *proof) leg(ctx context.Context, world, rank int, steps int64, from stream.State) (got []*Step, last stream.State, err error) {
	path := filepath.Join(p.dir, fmt.Sprintf("%d-of-%d.json", rank, world))
	if err := writeState(path, from); err != nil {
		return nil, last, err
	}
	child, err := p.Config.start(ctx, Job{Spec: alone(p.Spec, world, rank), State: path})
	if err != nil {
		return nil, last, err
	}
	child.grant(int(steps))
	for range steps {
		s, err := child.next()
		if err != nil || s == nil {
			if end := child.end(); end != nil {
				err = end
			}
			if err == nil {
				err = errs.New(errs.Died, "a child ended after %d of %d steps", len(got), steps)
			}
			return nil, last, err
		}
		p.told(s)
		got = append(got, s)
	}
	if err := child.end(); err != nil {
		return nil, last, err
	}
	last, err = readState(path)
	return got, last, err
}

// killed runs the same steps in children that are killed.
func (p *proof) killed(ctx context.Context) error {
	r := rand.New(rand.NewPCG(p.Seed, 1))
	path := filepath.Join(p.dir, "killed.json")
	if err := writeState(path, p.start); err != nil {
		return err
	}
	var kills []int64 // after so many steps
	for _, at := range r.Perm(int(p.Steps - 1))[:min(p.Kills, int(p.Steps-1))] {
		kills = append(kills, int64(at)+1)
	}
	slices.Sort(kills)
	during := func() string { return fmt.Sprintf("after %s", errs.Many(p.report.Kills, "kill")) }
	seen := int64(0) // steps of the trace so far
	for {
		next, d := p.resumed(path, seen)
		if d != nil {
			p.found(during(), d)
			return nil
		}
		target, last := p.Steps, len(kills) == 0
		if !last {
			target, kills = kills[0], kills[1:]
		}
		over := int64(0) // more steps that the child may take before it dies
		if !last {
			over = 1 + r.Int64N(overrunSteps)
		}
		must := max(0, target-next)
		got, killed, err := p.child(ctx, path, must, min(must+over, p.Steps-next), !last, float64(over)*r.Float64())
		if err != nil {
			return err
		}
		if killed {
			p.report.Kills++
		}
		for i, s := range got {
			want := next + int64(i)
			if d := p.trace.Compare(s, int(want)); d != nil {
				p.found(during(), d)
				return nil
			}
			if want < seen {
				p.report.Repeated++
			}
			seen = max(seen, want+1)
		}
		if last {
			return nil
		}
	}
}

// resumed reads the saved state, and returns which step of the trace is next.
func (p *proof) resumed(path string, seen int64) (next int64, d *Difference) {
	st, err := readState(path)
	if err == nil {
		err = p.l.Check(st)
	}
	if err != nil {
		return 0, &Difference{Step: -1, What: "the saved state does not belong to this stream: " + errs.From(err).Error()}
	}
	if st.Epoch == p.start.Epoch && st.Position == p.start.Position {
		return 0, nil
	}
	at, known := p.trace.at[[2]int64{st.Epoch, st.Position}]
	if !known || int64(at) >= seen {
		return 0, &Difference{Epoch: st.Epoch, Step: -1, What: fmt.Sprintf("the saved state is at place %d, where no step has ended", st.Position)}
	}
	return int64(at) + 1, nil
}

// overrunSteps is how many steps a child may take between the one after which it is
// to be killed and its death. The kill comes at a random moment of that time, so
// that it hits decoding, the writing of a line and the saving of a state, and not a
// child that waits.
const overrunSteps = 3

// child runs a child that must take must steps and may take up to may, and kills it
// late steps' time after the last one that it must take, or lets it end.
func (p *proof) child(ctx context.Context, path string, must, may int64, kill bool, late float64) (got []*Step, killed bool, err error) {
	child, err := p.Config.start(ctx, Job{Spec: p.Spec, State: path})
	if err != nil {
		return nil, false, err
	}
	child.grant(int(may))
	var wrong error
	var first time.Time
	for range must {
		var s *Step
		if s, wrong = child.next(); s == nil {
			break
		}
		if len(got) == 0 {
			first = time.Now()
		}
		p.told(s)
		got = append(got, s)
	}
	if kill {
		if n := len(got) - 1; n > 0 {
			time.Sleep(time.Duration(late * float64(time.Since(first)) / float64(n)))
		}
		var rest []*Step
		rest, killed, err = child.kill()
		got = append(got, rest...)
	} else {
		err = child.end()
	}
	if wrong != nil {
		err = wrong
	}
	if err == nil && int64(len(got)) < must {
		err = errs.New(errs.Died, "a child ended after %d of %d steps", len(got), must)
	}
	return got, killed, err
}

// mostRanks bounds the sizes of worlds that are tried.
const mostRanks = 8

// worlds runs the steps on one rank, on two, on three, or on other numbers by which
// the global batch can be divided.
func (p *proof) worlds(ctx context.Context) error {
	sizes := []int{1}
	for w := 2; w <= mostRanks && len(sizes) < 3; w++ {
		if p.Spec.Batch.GlobalSize%w == 0 && p.hasSteps(w) {
			sizes = append(sizes, w)
		}
	}
	p.report.Worlds = sizes
	ref, all := NewUnion(p.l.Epoch), NewUnion(p.l.Epoch)
	if d := ref.Add(p.start.Epoch, p.start.Position, [][]*Step{p.trace.steps}); d != nil {
		p.found("undisturbed", d)
		return nil
	}
	at := p.start
	for _, world := range sizes {
		during := fmt.Sprintf("on %d of %v ranks", world, sizes)
		steps := p.Steps / int64(len(sizes))
		if p.Spec.Batch.GlobalSize == 0 {
			steps /= int64(world)
		}
		ranks, last, d, err := p.world(ctx, world, max(1, steps), at)
		if err != nil {
			return err
		}
		if d == nil {
			d = all.Add(at.Epoch, at.Position, ranks)
		}
		if d != nil {
			p.found(during, d)
			return nil
		}
		at = last
	}
	var d *Difference
	if p.report.Places, d = all.Compare(ref); d != nil {
		p.found(fmt.Sprintf("on %v ranks", sizes), d)
	}
	return nil
}

// hasSteps reports whether a world has any steps: with tail drop, a large one may
// have none.
func (p *proof) hasSteps(world int) bool {
	stride := p.l.Stride() // for one rank, or for all
	if p.Spec.Batch.GlobalSize == 0 {
		stride *= int64(world)
	}
	return p.l.Spec().Order.Tail != order.Drop || p.l.Epoch(0).Len() >= stride
}

// world runs all ranks of a world, and compares the states that they save.
func (p *proof) world(ctx context.Context, world int, steps int64, from stream.State) (ranks [][]*Step, last stream.State, d *Difference, err error) {
	for rank := range world {
		got, st, err := p.leg(ctx, world, rank, steps, from)
		if err != nil {
			return nil, last, nil, err
		}
		ranks = append(ranks, got)
		if rank == 0 {
			last = st
		} else if st.Epoch != last.Epoch || st.Position != last.Position {
			d = &Difference{Epoch: st.Epoch, Step: -1, Rank: rank, What: fmt.Sprintf("this rank saved place %d, and rank 0 place %d", st.Position, last.Position)}
		}
	}
	return ranks, last, d, nil
}
