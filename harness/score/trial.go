package score

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Options of a scoring.
type Options struct {
	Python string // with torch and torchvision
	Stoker string // the command that is scored
	Work   string // a folder for data and jobs; gone afterwards but for what is in Data
	Data   string // where datasets are kept; "": in Work

	Seed    uint64
	Only    func(Scenario) bool // nil: all
	Seconds float64             // that each measured job trains; 0: 6
	Rounds  int                 // of measuring both jobs, of which medians count; 0: 1

	// Trusted leaves ablation out: whether verdicts are right is all that is asked.
	// For tests; what was not measured is not reported.
	Trusted bool

	// Truth leaves the doctor out: only what injections do is measured.
	Truth bool

	// Keep is a folder for the doctor's whole answers, a file a scenario; "": none.
	Keep string
	// Told is told of every outcome as it comes; may be nil.
	Told func(Outcome)
}

// Outcome is one scenario with one seed.
type Outcome struct {
	Scenario string  `json:"scenario"`
	Label    string  `json:"label"`
	Of       string  `json:"of,omitempty"`
	Kind     Kind    `json:"kind"`
	Healthy  bool    `json:"healthy,omitempty"`
	Seed     uint64  `json:"seed"`
	Strength float64 `json:"strength"`

	// The truth: batches a second with the injection and without.
	Sick float64 `json:"batches_per_second,omitempty"`
	Well float64 `json:"batches_per_second_without,omitempty"`
	Gain float64 `json:"gain,omitempty"`
	Void bool    `json:"void,omitempty"` // the injection did not do enough

	Verdict   string   `json:"verdict"`
	VerdictOf string   `json:"verdict_of,omitempty"`
	Bound     bool     `json:"data_bound"`
	Predicted float64  `json:"predicted,omitempty"`
	Findings  []string `json:"findings,omitempty"`

	Right bool   `json:"right"`           // what was asked: the verdict, or that a planted mistake is found
	Finds string `json:"finds,omitempty"` // the mistake that was made
	Found bool   `json:"found,omitempty"`
	Near  bool   `json:"near"`  // predicted within a quarter of what was gained
	Alarm bool   `json:"alarm"` // healthy, and called ill
	Error string `json:"error,omitempty"`

	Took float64 `json:"took_s"` // all of it: both jobs, and the doctor
}

// near is how far a prediction may be from what was gained, as a part of it.
const near = 0.25

// ownMemory is bytes that the doctor and its hook need beside a script.
const ownMemory = 20 << 20

// strengths is how often a scenario is drawn before it is void.
const strengths = 3

// Run runs scenarios with one seed, one after the other. An error means that
// nothing could be run; what goes wrong with a scenario is in its Outcome.
func Run(ctx context.Context, o Options) ([]Outcome, error) {
	if o.Seconds == 0 {
		o.Seconds = 6
	}
	for _, program := range []string{o.Python, o.Stoker} {
		if _, err := os.Stat(program); err != nil {
			return nil, fmt.Errorf("score: %w", err)
		}
	}
	b := bench{python: o.Python, stoker: o.Stoker, work: o.Work, data: o.Data, seconds: o.Seconds, patience: 100 * time.Second}
	if b.data == "" {
		b.data = filepath.Join(o.Work, "datasets")
	}
	for _, folder := range []string{b.data, o.Keep} {
		if folder == "" {
			continue
		}
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, err
		}
	}
	var out []Outcome
	for i, s := range Scenarios() {
		if o.Only != nil && !o.Only(s) {
			continue
		}
		t, began := trial{bench: b, o: o, s: s, i: i}, time.Now()
		outcome := t.run(ctx)
		outcome.Took = math.Round(10*time.Since(began).Seconds()) / 10
		if ctx.Err() != nil {
			return out, ctx.Err()
		}
		out = append(out, outcome)
		if o.Told != nil {
			o.Told(outcome)
		}
	}
	return out, nil
}

// trial is one scenario with one seed.
type trial struct {
	bench
	o Options
	s Scenario
	i int
}

func (t trial) run(ctx context.Context) (out Outcome) {
	s := t.s
	out = Outcome{Scenario: s.Name, Label: s.Label, Of: s.Of, Kind: s.Kind, Finds: s.Finds, Healthy: s.Healthy(), Seed: t.o.Seed}
	fail := func(err error) Outcome {
		out.Error = err.Error()
		return out
	}
	x, err := t.injected(ctx, &out)
	out.Strength = x
	if err != nil {
		return fail(err)
	}
	if t.o.Truth {
		return out
	}
	said, err := t.asked(ctx, x)
	if err != nil {
		return fail(err)
	}
	out.Verdict, out.VerdictOf, out.Bound, out.Predicted = said.Verdict.Name, said.Verdict.Of, said.Verdict.Bound, said.Verdict.Speedup
	for _, f := range said.Findings {
		out.Findings = append(out.Findings, f.Name)
	}
	out.judge()
	return out
}

// judge holds what was said against the label and the truth.
func (o *Outcome) judge() {
	o.Right = o.Verdict == o.Label && (o.Of == "" || o.VerdictOf == o.Of) && !o.Void
	o.Found = o.Finds != "" && slices.Contains(o.Findings, o.Finds)
	if o.Label == "" {
		o.Right = o.Found
	}
	o.Alarm = o.Healthy && (o.Bound || o.Verdict != notDataBound && o.Verdict != insufficient)
	o.Near = o.Gain >= Least && o.Predicted > 0 && math.Abs(o.Predicted-o.Gain) <= near*o.Gain
}

// injected draws strengths until the injection does what it should.
func (t trial) injected(ctx context.Context, out *Outcome) (x float64, err error) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(t.s.Name))
	r := rand.New(rand.NewPCG(t.o.Seed, h.Sum64()))
	low := 0.0
	for range strengths {
		x = low + (1-low)*r.Float64()
		if t.s.Well == nil || t.o.Trusted {
			return x, nil
		}
		if err := t.ablate(ctx, x, out); err != nil {
			return x, err
		}
		if out.Void = out.Gain < Least; !out.Void {
			return x, nil
		}
		low = x
	}
	return x, nil
}

// ablate measures both jobs, in turns.
func (t trial) ablate(ctx context.Context, x float64, out *Outcome) error {
	var sick, well []float64
	for range max(1, t.o.Rounds) {
		for _, m := range []struct {
			job Job
			to  *[]float64
		}{{t.s.Well(x), &well}, {t.s.Sick(x), &sick}} {
			r, err := t.measure(ctx, m.job)
			if err != nil {
				return err
			}
			*m.to = append(*m.to, r)
		}
	}
	out.Sick, out.Well = median(sick), median(well)
	out.Gain = out.Well / out.Sick
	return nil
}

func (t trial) measure(ctx context.Context, j Job) (r float64, err error) {
	s, err := t.setUp(j, fmt.Sprintf("job%d", t.i))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	return s.rate(ctx)
}

func (t trial) asked(ctx context.Context, x float64) (said Said, err error) {
	job := t.s.Sick(x)
	if job.Memory > 0 && job.Script != nil { // it runs beside the script in its cgroup, and that should have what it had without
		job.Memory += ownMemory
	}
	s, err := t.setUp(job, fmt.Sprintf("job%d", t.i))
	if err != nil {
		return said, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	said, err = s.doctor(ctx)
	if err == nil && t.o.Keep != "" {
		err = os.WriteFile(filepath.Join(t.o.Keep, fmt.Sprintf("%d-%02d.json", t.o.Seed, t.i)), said.Report, 0o644)
	}
	return said, err
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}
