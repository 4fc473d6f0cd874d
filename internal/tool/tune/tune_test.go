package tune

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/spec"
)

func tables() *rapid.Generator[[]Measurement] {
	return rapid.Custom(func(t *rapid.T) []Measurement {
		var table []Measurement
		for i := range rapid.IntRange(1, 12).Draw(t, "rows") {
			m := Measurement{
				Settings: Settings{Workers: rapid.IntRange(0, 8).Draw(t, "workers"), Prefetch: rapid.IntRange(1, 4).Draw(t, "prefetch"), Batch: 8},
				Figures:  Figures{Samples: float64(rapid.IntRange(80, 110).Draw(t, "rate"))},
			}
			if i > 0 && rapid.IntRange(0, 9).Draw(t, "fails") == 0 {
				m = Measurement{Settings: m.Settings, Failed: "out of memory"}
			}
			table = append(table, m)
		}
		return table
	})
}

// The rule, said once more in other words: among rows at 95 % or more of the largest
// there is none with fewer workers, nor with as many and less prefetch.
func TestChooseKeepsTheRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := tables().Draw(t, "table")
		choice, best, ok := Choose(table)
		largest := 0.0
		for _, m := range table {
			largest = math.Max(largest, m.Samples)
		}
		if !ok || best.Samples != largest || choice.Samples < 0.95*largest-1e-9 {
			t.Fatalf("chose %+v, best %+v", choice, best)
		}
		for _, m := range table {
			if m.Samples < 0.95*largest {
				continue
			}
			if m.Workers < choice.Workers || m.Workers == choice.Workers && m.Prefetch < choice.Prefetch {
				t.Fatalf("chose %+v, and %+v is good enough", choice, m)
			}
		}
	})
	if _, _, ok := Choose([]Measurement{{Failed: "no"}}); ok {
		t.Error("something was chosen out of nothing")
	}
}

// recorded is a table of a search over a whole grid, as it was measured: samples a
// second of a torch loader on four cores, by workers, at prefetch 2, 4 and 8.
var recorded = map[int][3]float64{
	0: {118, 118, 118}, 1: {109, 110, 109}, 2: {214, 216, 215}, 3: {305, 309, 311},
	4: {371, 380, 381}, 5: {377, 379, 383}, 6: {374, 376, 372}, 8: {362, 365, 364},
}

func TestRecorded(t *testing.T) {
	var table []Measurement
	for w, rates := range recorded {
		for i, p := range []int{2, 4, 8} {
			table = append(table, Measurement{Settings: Settings{Workers: w, Prefetch: p}, Figures: Figures{Samples: rates[i]}})
		}
	}
	choice, best, _ := Choose(table)
	if choice.Workers != 4 || choice.Prefetch != 2 || best.Workers != 5 || best.Prefetch != 8 {
		t.Errorf("%+v, best %+v", choice, best)
	}
}

// machine is a loader whose throughput follows from what a batch costs: a naive
// machine, not the model of the search.
type machine struct {
	cpu, blocked float64 // seconds a batch
	cores        float64
	shared       float64 // batches a second that all workers can have together; 0: no limit
	loss         float64 // of throughput, a worker beyond the cores
	hunger       float64 // of prefetch: what is lost at 1
}

func (m *machine) rate(s Settings) float64 {
	if s.Workers == 0 {
		return 1 / (m.cpu + m.blocked)
	}
	rate := float64(s.Workers) / (m.cpu + m.blocked)
	rate = math.Min(rate, m.cores/m.cpu)
	if m.shared > 0 {
		rate = math.Min(rate, m.shared)
	}
	if over := float64(s.Workers) - m.cores; over > 0 {
		rate *= math.Max(0.3, 1-m.loss*over)
	}
	return rate * (1 - m.hunger/float64(s.Prefetch))
}

func (m *machine) Measure(_ context.Context, s Settings, _ time.Duration) (Figures, error) {
	rate := m.rate(s)
	return Figures{Samples: 8 * rate, Batches: rate, Cores: rate * m.cpu}, nil
}

// The search, which leaves out what the model rules out, comes as close to the best
// as the one that measures everything, and takes no more workers; when it is done
// everything it would need is measured.
func TestSearchAgainstAll(t *testing.T) {
	for _, cores := range []float64{1, 2, 4, 8, 16, 32} {
		for _, blocked := range []float64{0, 0.1, 1, 4} { // of the processor time
			for _, shared := range []float64{0, 0.3, 0.8, 1.5} { // of what the cores can do
				for _, loss := range []float64{0, 0.01, 0.03} {
					for _, hunger := range []float64{0, 0.05, 0.2} {
						for _, loader := range []string{Own, Torch} {
							m := &machine{cpu: 0.02, blocked: 0.02 * blocked, cores: cores, shared: shared * cores / 0.02, loss: loss, hunger: hunger}
							againstAll(t, m, loader)
						}
					}
				}
			}
		}
	}
}

func againstAll(t *testing.T, m *machine, loader string) {
	space := Space{Batch: []int{8}}.Complete(loader, m.cores, m.loss > 0)
	run := func(space Space) *Report {
		r, err := Run(t.Context(), Config{Subject: Subject{Loader: loader}, Space: space, Budget: time.Hour}, m)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	some := run(space)
	space.All = true
	all := run(space)
	switch {
	case len(all.Table) != len(space.every()) || len(all.LeftOut) > 0:
		t.Errorf("%s on %+v: %d of %d measured", loader, *m, len(all.Table), len(space.every()))
	case some.Choice.Samples < all.Best.Samples*(1-Slack)-1e-9:
		t.Errorf("%s on %+v: chose %+v, the best is %+v", loader, *m, some.Choice, all.Best)
	case some.Choice.Workers > all.Choice.Workers:
		t.Errorf("%s on %+v: chose %+v, and %+v is good enough", loader, *m, some.Choice, all.Choice)
	case len(some.Table) > len(all.Table):
		t.Errorf("%s on %+v: more was measured than there is", loader, *m)
	}
}

// A search on many cores measures a part of what there is.
func TestSearchIsShort(t *testing.T) {
	m := &machine{cpu: 0.05, blocked: 0.01, cores: 32}
	space := Space{Batch: []int{8}}.Complete(Torch, 32, false)
	r, err := Run(t.Context(), Config{Subject: Subject{Loader: Torch}, Space: space, Budget: time.Hour}, m)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Table) > len(space.every())/3 || len(r.LeftOut) == 0 {
		t.Errorf("%d of %d measured, %v workers left out", len(r.Table), len(space.every()), r.LeftOut)
	}
}

// If workers wait and do not work, the largest number that was tried is not the
// limit.
func TestMoreMayBeFaster(t *testing.T) {
	for blocked, want := range map[float64]int{5: 1, 0: 0} {
		space := Space{Workers: []int{1, 2, 4}, Prefetch: []int{2}, Batch: []int{8}}.Complete(Torch, 4, false)
		r, err := Run(t.Context(), Config{Space: space, Budget: time.Hour}, &machine{cpu: 0.01, blocked: blocked, cores: 4})
		if err != nil || r.Choice.Workers != 4 || len(r.Notes) != want {
			t.Errorf("%v: %+v %v", blocked, r, err)
		}
	}
}

// With a training step, no more is looked for than feeds it.
func TestStepIsALimit(t *testing.T) {
	space := Space{Batch: []int{8}}.Complete(Torch, 16, false)
	m := &machine{cpu: 0.01, blocked: 0.1, cores: 16, shared: 20} // 0.05 s a step
	r, err := Run(t.Context(), Config{Subject: Subject{Loader: Torch, Step: 0.05}, Space: space, Budget: time.Hour}, m)
	if err != nil {
		t.Fatal(err)
	}
	if r.Choice.Workers != 3 || slices.ContainsFunc(r.Table, func(m Measurement) bool { return m.Workers > 6 }) {
		t.Errorf("%+v", r)
	}
}

// lucky is a machine on which one setting is fast the first time only.
type lucky struct {
	machine
	seen int
}

func (l *lucky) Measure(ctx context.Context, s Settings, d time.Duration) (Figures, error) {
	f, err := l.machine.Measure(ctx, s, d)
	if s.Workers == 1 {
		if l.seen++; l.seen == 1 {
			f.Samples *= 2
		}
	}
	return f, err
}

func TestLuckDoesNotHold(t *testing.T) {
	l := &lucky{machine: machine{cpu: 0.05, cores: 2}}
	space := Space{Workers: []int{1, 2}, Prefetch: []int{2}, Batch: []int{8}}.Complete(Own, 2, false)
	r, err := Run(t.Context(), Config{Subject: Subject{Loader: Own}, Space: space, Budget: time.Hour}, l)
	if err != nil {
		t.Fatal(err)
	}
	if r.Choice.Workers != 2 {
		t.Errorf("%+v", r)
	}
}

// broken fails with two workers, and always if all is set.
type broken struct {
	machine
	all bool
}

func (b *broken) Measure(ctx context.Context, s Settings, d time.Duration) (Figures, error) {
	if b.all || s.Workers == 2 {
		return Figures{}, errors.New("/dev/shm is full")
	}
	return b.machine.Measure(ctx, s, d)
}

func TestSettingsThatFail(t *testing.T) {
	space := Space{Batch: []int{8}}.Complete(Own, 4, false)
	r, err := Run(t.Context(), Config{Space: space, Budget: time.Hour}, &broken{machine: machine{cpu: 0.05, cores: 4}})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(r.Table, func(m Measurement) bool { return m.Workers == 2 })
	if r.Choice.Workers != 4 || i >= 0 && r.Table[i].Failed == "" {
		t.Errorf("%+v", r)
	}
	if _, err := Run(t.Context(), Config{Space: space}, &broken{all: true}); err == nil || !strings.Contains(err.Error(), "/dev/shm") {
		t.Errorf("%v", err)
	}
}

// silent is a loader that gives too few batches to tell a rate.
type silent struct{}

func (silent) Measure(context.Context, Settings, time.Duration) (Figures, error) {
	return Figures{}, nil
}

func TestTooFewBatches(t *testing.T) {
	space := Space{Workers: []int{1}, Batch: []int{5000}}.Complete(Own, 1, false)
	_, err := Run(t.Context(), Config{Subject: Subject{Samples: 1000}, Space: space}, silent{})
	if got := fmt.Sprint(err); errs.CodeOf(err) != errs.Config || !strings.Contains(got, "with batches of 5000 and 1000 samples in all") {
		t.Error(got)
	}
}

func TestNoPrefetchIsADash(t *testing.T) {
	a := Entry{Loader: Torch, Settings: Settings{Workers: 1, Prefetch: 2}}
	b := Entry{Loader: Torch}
	want := []Change{{"settings", "num_workers", "1", "0"}, {"settings", "prefetch_factor", "2", "-"}}
	if diff := cmp.Diff(want, Changes(a, b)); diff != "" {
		t.Error(diff)
	}
}

func TestBudgetEnds(t *testing.T) {
	space := Space{Batch: []int{8}}.Complete(Own, 8, false)
	r, err := Run(t.Context(), Config{Space: space, Budget: time.Nanosecond}, &machine{cpu: 0.05, cores: 8})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Cut || len(r.Table) != 1 {
		t.Errorf("%+v", r)
	}
}

func TestSpaceIsChecked(t *testing.T) {
	for _, s := range []Space{
		{},
		{Workers: []int{-1}, Prefetch: []int{2}, Batch: []int{1}},
		{Workers: []int{1}, Prefetch: []int{0}, Batch: []int{1}},
		{Workers: []int{1}, Prefetch: []int{1}, Batch: []int{0}},
		{Workers: []int{1}, Prefetch: []int{1}, Batch: []int{1}},
		{Workers: []int{1}, Prefetch: []int{1}, Batch: []int{1}, Shares: []int{0, 17}},
	} {
		if _, err := Run(t.Context(), Config{Space: s}, &machine{}); errs.CodeOf(err) != errs.Config {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

func TestWorkerCounts(t *testing.T) {
	for _, c := range []struct {
		loader string
		cores  float64
		want   []int
	}{
		{Own, 1, []int{1}},
		{Own, 4, []int{1, 2, 3, 4}},
		{Own, 13.5, []int{1, 2, 3, 4, 6, 8, 12, 13}},
		{Torch, 1, []int{0, 1, 2, 3, 4, 6, 8, 12, 16}},
		{Torch, 8, []int{0, 1, 2, 3, 4, 6, 8, 12, 16}},
	} {
		if diff := cmp.Diff(c.want, workerCounts(c.loader, c.cores)); diff != "" {
			t.Errorf("%s on %v cores: %s", c.loader, c.cores, diff)
		}
	}
}

func TestOwnLoader(t *testing.T) {
	own := OwnLoader{Spec: spec.Spec{Dataset: spec.Dataset{Format: "synthetic", Samples: 400, Shape: []int{8, 8, 3}}, Batch: spec.Batch{Size: 4}}}
	subject, err := own.Subject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	space := Space{Workers: []int{1, 2}, Prefetch: []int{2, 4}, Batch: []int{4}}.Complete(Own, 2, false)
	r, err := Run(t.Context(), Config{Subject: subject, Space: space, Budget: 2 * time.Second}, own)
	if err != nil {
		t.Fatal(err)
	}
	if r.Choice.Samples <= 0 || math.Abs(r.Choice.Batches*4/r.Choice.Samples-1) > 0.01 || r.Choice.Cores <= 0 || r.Dataset == "" {
		t.Errorf("%+v", r)
	}
}

func TestWindows(t *testing.T) {
	var w windows
	at := time.Unix(0, 0)
	for i := range 100 { // ten times as fast in the first tenth
		if i > 10 {
			at = at.Add(10 * time.Millisecond)
		} else {
			at = at.Add(time.Millisecond)
		}
		w.add(at, int64(8*(i+1)))
	}
	if f := w.figures(); math.Abs(f.Samples-800) > 1 || f.Spread > 0.01 {
		t.Errorf("%+v", f)
	}
	if f := (&windows{}).figures(); f != (Figures{}) {
		t.Errorf("%+v", f)
	}
}

func example() *Report {
	r := &Report{
		Subject:  Subject{Loader: Torch, Dataset: "5d41402abc4b2a76", Name: "data/train <&>", Samples: 1000, Step: 0.08},
		Hardware: Hardware{CPU: "Imaginary 9000: 4 cores", Online: 8, Cores: 4, Quota: 4, Memory: 32, GPUs: []string{"NVIDIA H100"}},
	}
	for w, rates := range recorded {
		r.Table = append(r.Table, Measurement{
			Settings: Settings{Workers: w, Prefetch: 2, Batch: 64},
			Figures:  Figures{Samples: rates[0], Batches: rates[0] / 64, Cores: math.Min(4, rates[0]/95), First: 0.2 + float64(w)/10, Spread: 0.02},
		})
	}
	slices.SortFunc(r.Table, func(a, b Measurement) int { return a.Workers - b.Workers })
	r.Table[0].Prefetch = 0
	r.Choice, r.Best, _ = Choose(r.Table)
	r.Pairs = []Pair{{371, 377}, {369, 380}, {372, 375}}
	return r
}

const reportText = `data/train <&>: torch loader on Imaginary 9000: 4 cores, 4 cores usable
with a training step of 80 ms

  workers  prefetch    samples/s   of best  cores busy  first batch
        0         -          118       31%        1.24       200 ms
        1         2          109       29%        1.15       300 ms
        2         2          214       57%        2.25       400 ms
        3         2          305       81%        3.21       500 ms
>       4         2          371       98%        3.91       600 ms
        5         2          377      100%        3.97       700 ms
        6         2          374       99%        3.94       800 ms
        8         2          362       96%        3.81        1.0 s

use num_workers=4, prefetch_factor=2
  371 samples/s, within 5 % of the best (377 with num_workers=5, prefetch_factor=2)
  measured again in turn: 371 against 377, 369 against 380, 372 against 375
`

func TestText(t *testing.T) {
	var b strings.Builder
	if err := example().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(reportText, b.String()); diff != "" {
		t.Error(diff)
	}
}

const playbookText = heading + `version: 1
entries:
  - machine: "MACHINE"
    dataset: "5d41402abc4b2a76"
    name: "data/train <&>"
    samples: 1000
    loader: "torch"
    date: "2026-11-21T18:00:00Z"
    step_s: 0.08
    settings:
      num_workers: 4
      prefetch: 2
      pin_memory: false
      batch_size: 64
    figures:
      samples_per_second: 371
      batches_per_second: 5.797
      cores_busy: 3.905
      first_batch_s: 0.6
      spread: 0.02
    hardware:
      cpu: "Imaginary 9000: 4 cores"
      cores: 8
      usable_cores: 4
      cgroup_cores: 4
      memory_gib: 32
      gpus:
        - "NVIDIA H100"
`

func TestKeep(t *testing.T) {
	dir := t.TempDir()
	book, plot := filepath.Join(dir, File), filepath.Join(dir, "plot")
	now := time.Date(2026, 11, 21, 18, 0, 0, 0, time.UTC)
	r := example()
	if err := r.Keep(book, plot, now); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(book)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.ReplaceAll(playbookText, "MACHINE", r.Hardware.Digest())
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Error(diff)
	}
	svg, err := os.ReadFile(plot + ".svg")
	if err != nil || !strings.Contains(string(svg), "data/train &lt;&amp;&gt;") || !strings.Contains(string(svg), "chosen: num_workers=4") {
		t.Errorf("%v: %s", err, svg)
	}
	b, err := os.ReadFile(plot + ".png")
	if err != nil {
		t.Fatal(err)
	}
	m, err := png.Decode(bytes.NewReader(b))
	if err != nil || m.Bounds().Dx() != plotWidth || m.Bounds().Dy() != plotHeight {
		t.Errorf("%v", err)
	}
	if r.Before != "" || len(r.Files) != 3 {
		t.Errorf("%q %v", r.Before, r.Files)
	}
	left, err := filepath.Glob(filepath.Join(dir, ".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}

	again := example() // noise is not a change
	again.Choice.Samples *= 1.03
	if err := again.Keep(book, "", now.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if again.Before != "2026-11-21T18:00:00Z" || len(again.Changes) > 0 {
		t.Errorf("%+v", again.Changes)
	}
	other := example()
	other.Hardware.Cores, other.Hardware.GPUs, other.Choice.Workers, other.Choice.Samples = 8, nil, 8, 740
	if err := other.Keep(book, "", now.Add(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	want2 := []Change{
		{"hardware", "usable cores", "4", "8"},
		{"hardware", "gpus", "NVIDIA H100", "none"},
		{"settings", "num_workers", "4", "8"},
		{"figures", "samples a second", "382", "740"},
		{"figures", "CPU seconds per 1,000 samples", "10.2", "5.28"},
	}
	if diff := cmp.Diff(want2, other.Changes); diff != "" {
		t.Error(diff)
	}
	p, found, err := Read(book)
	if err != nil || !found || len(p.Entries) != 2 {
		t.Errorf("%v %v", p, err)
	}
	if e, ok := p.Find(Entry{Machine: r.Hardware.Digest(), Dataset: r.Dataset, Loader: Torch}); !ok || e.Date != "2026-11-21T19:00:00Z" {
		t.Errorf("%+v", e)
	}
	if _, ok := p.Find(Entry{Machine: r.Hardware.Digest(), Dataset: r.Dataset, Loader: Own}); ok {
		t.Error("an entry of torch is none of stoker's")
	}
}

func TestNearest(t *testing.T) {
	here := Entry{Machine: "m", Loader: Own, Dataset: "d1", Name: "data/train", Date: "2026-11-20T00:00:00Z", Samples: 10}
	there := Entry{Machine: "other", Loader: Own, Dataset: "d2", Name: "data/train", Date: "2026-11-21T00:00:00Z"}
	p := &Playbook{Version: playbookVersion, Entries: []Entry{here, there}}
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		about string
		ask   Entry
		want  string // dataset
		found bool
	}{
		{"another machine", Entry{Machine: "m", Loader: Own, Dataset: "d2", Name: "x"}, "d2", true},
		{"this machine before another", Entry{Machine: "m", Loader: Own, Dataset: "d3", Name: "data/train"}, "d1", true},
		{"the same path, absolute", Entry{Machine: "m", Loader: Own, Dataset: "d3", Name: filepath.Join(wd, "data", "train")}, "d1", true},
		{"the youngest elsewhere", Entry{Machine: "m", Loader: Own, Dataset: "d3", Name: "/mnt/train"}, "d2", true},
		{"nothing alike", Entry{Machine: "m", Loader: Own, Dataset: "d3", Name: "data/test"}, "", false},
		{"of torch", Entry{Machine: "m", Loader: Torch, Dataset: "d1", Name: "data/train"}, "", false},
		{"no name", Entry{Machine: "m", Loader: Own, Dataset: "d3"}, "", false},
	} {
		if e, ok := p.Nearest(c.ask); e.Dataset != c.want || ok != c.found {
			t.Errorf("%s: %+v", c.about, e)
		}
	}
	if _, ok := p.Previous(Entry{Machine: "m", Loader: Own, Dataset: "d3", Name: "/mnt/train"}); ok {
		t.Error("what only ends alike is another dataset")
	}
	now := here
	now.Samples, now.Dataset, now.Name = 11, "d3", filepath.Join(wd, "data", "train")
	want := []Change{{"dataset", "digest", "d1", "d3"}, {"dataset", "samples", "10", "11"}}
	if diff := cmp.Diff(want, Changes(here, now)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"data/train"}, p.Names(Own)); diff != "" {
		t.Error(diff)
	}
}

func entries() *rapid.Generator[Entry] {
	return rapid.Custom(func(t *rapid.T) Entry {
		text := rapid.String().Filter(func(s string) bool { return s != "" })
		number := rapid.Float64Range(0, 1e9)
		h := Hardware{CPU: text.Draw(t, "cpu"), Online: rapid.IntRange(1, 512).Draw(t, "online"), Cores: number.Draw(t, "cores"), Quota: number.Draw(t, "quota"), Memory: 7}
		if rapid.Bool().Draw(t, "gpu") {
			h.GPUs = rapid.SliceOfN(text, 1, 3).Draw(t, "gpus")
		}
		device := rapid.SampledFrom([]string{"", "cpu", "cuda"}).Draw(t, "device")
		share := rapid.IntRange(0, min(len(device), 1)*Sixteenths).Draw(t, "share")
		return Entry{
			Device: device, Machine: h.Digest(), Dataset: text.Draw(t, "dataset"), Name: text.Draw(t, "name"), Loader: rapid.SampledFrom([]string{Own, Torch, "no"}).Draw(t, "loader"),
			Date: time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "date"), 0).UTC().Format(time.RFC3339), Step: number.Draw(t, "step"), Hardware: h,
			Settings: Settings{Workers: rapid.IntRange(0, 99).Draw(t, "workers"), Prefetch: 2, Pin: rapid.Bool().Draw(t, "pin"), Batch: 64, Share: share},
			Figures:  Figures{Samples: number.Draw(t, "samples"), Cores: number.Draw(t, "busy")},
		}
	})
}

func TestPlaybookRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := &Playbook{Version: playbookVersion}
		for _, e := range rapid.SliceOfN(entries(), 1, 3).Draw(t, "entries") {
			want.Put(e)
		}
		text := want.text()
		got, err := parse(text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s\n%s", diff, text)
		}
	})
}

func TestPlaybooksThatAreNone(t *testing.T) {
	good := strings.ReplaceAll(playbookText, "MACHINE", "m")
	own := strings.ReplaceAll(good, `loader: "torch"`, `loader: "stoker"`)
	heads := strings.Count(heading, "\n")
	for _, c := range []struct {
		text string
		line int // 0: of no one
		want string
	}{
		{strings.ReplaceAll(good, "version: 1", "version: 2"), 0, "its version is 2, but this release reads 1"},
		{strings.ReplaceAll(good, "torch", "t\xff"), 0, "it is not UTF-8"},
		{strings.ReplaceAll(good, "version: 1\n", ""), 1, "the file has no version"},
		{strings.ReplaceAll(good, "prefetch: 2", "prefetchh: 2"), 12, "unknown key prefetchh; there is prefetch"},
		{strings.ReplaceAll(good, "prefetch: 2", "ahead: 2"), 12, "unknown key ahead; there are num_workers, prefetch, pin_memory, batch_size, decode_sixteenths"},
		{strings.ReplaceAll(good, "prefetch: 2", "num_workers: 2"), 12, "duplicate key num_workers"},
		{strings.ReplaceAll(good, "prefetch: 2", "prefetch: -2"), 12, "prefetch is -2; it should be a whole number from 0 on"},
		{strings.ReplaceAll(good, "prefetch: 2", "prefetch: many"), 12, "prefetch is many; it should be a whole number"},
		{strings.ReplaceAll(good, "prefetch: 2", "prefetch:"), 12, "prefetch is empty; it should be a whole number"},
		{strings.ReplaceAll(good, "prefetch: 2", "prefetch: 99999999999999999999"), 12, "prefetch is 99999999999999999999; it should"},
		{strings.ReplaceAll(good, "num_workers: 4", "num_workers: 2.5"), 11, "num_workers is 2.5; it should be a whole number from 0 on"},
		{strings.ReplaceAll(good, "num_workers: 4", "num_workers: '4'"), 11, `num_workers is the text "4"; it should be a whole number`},
		{strings.ReplaceAll(good, "num_workers: 4", "num_workers: [4]"), 11, "num_workers is a list; it should"},
		{strings.ReplaceAll(good, "      num_workers: 4\n", ""), 11, "settings has no num_workers"},
		{strings.ReplaceAll(good, "pin_memory: false", "pin_memory: 0"), 13, "pin_memory is 0; it should be true or false"},
		{strings.ReplaceAll(good, "step_s: 0.08", "step_s: .inf"), 9, "step_s is .inf; it should be a number from 0 on"},
		{strings.ReplaceAll(good, `"NVIDIA H100"`, "5"), 28, `one of gpus is 5; it should be a text in "quotes"`},
		{own[:strings.Index(own, "entries:")] + "entries: 5\n", 2, "entries is 5; it should be a list, each item on a line that begins with -"},
		{own[:strings.Index(own, "entries:")] + "entries:\n  - 7\n", 3, "entry 1 is 7; it should be lines of keys and values"},
		{good + "---\n" + good, 32, "a second document begins"},
		{good[:strings.Index(good, "NVIDIA")], 0, "the line before it is incomplete"},
		{regexp.MustCompile("num_workers: [0-9]+").ReplaceAllString(own, "num_workers: 99999"), 0, "has num_workers 99999: a loader has at most 256 lanes"},
		{strings.ReplaceAll(good, "2026-11-21T18", "yesterday"), 0, "date"},
		{strings.ReplaceAll(good, `machine: "m"`, `machine: ""`), 0, "entry 1: machine, dataset or loader is empty"},
		{"", 0, "it is empty"},
		{heading, 0, "it is empty"},
		{"[1, 2", 0, "[1, 2"},
		{"just text", 0, "the file is just text; it should be lines of keys and values"},
		{"\x00\xff", 0, ""},
	} {
		path := filepath.Join(t.TempDir(), File)
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		want := c.want
		if c.line > 0 {
			want = fmt.Sprintf("line %d: %s", heads+c.line, c.want)
		}
		_, _, err := Read(path)
		said := fmt.Sprint(err)
		if errs.CodeOf(err) != errs.Config || !strings.Contains(said, want) || !strings.Contains(said, File+" is not a playbook") {
			t.Errorf("%q: %v", want, err)
		}
		for _, foreign := range []string{"cannot", "struct", "unmarshal", "Go ", "EOF", "mapping"} {
			if strings.Contains(said, foreign) {
				t.Errorf("%q of a library: %v", foreign, err)
			}
		}
	}
	if p, err := parse([]byte("version: 1\nentries:\n")); err != nil || len(p.Entries) > 0 {
		t.Errorf("%v %v", p, err)
	}
	if p, found, err := Read(filepath.Join(t.TempDir(), File)); err != nil || found || len(p.Entries) > 0 {
		t.Errorf("%v %v %v", p, found, err)
	}
	pipe := filepath.Join(t.TempDir(), File) // nobody waits for its writer
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Read(pipe); errs.CodeOf(err) != errs.Unreadable || !strings.Contains(err.Error(), "named pipe") {
		t.Errorf("%v", err)
	}
}

func TestPlotsOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &Report{Subject: Subject{Name: rapid.String().Draw(t, "name"), Loader: Torch}, Table: tables().Draw(t, "table")}
		var ok bool
		if r.Choice, r.Best, ok = Choose(r.Table); !ok {
			t.Skip()
		}
		if _, err := SVG(r); err != nil {
			t.Fatal(err)
		}
		upto, step := axis(rapid.Float64Range(1e-6, 1e9).Draw(t, "most"), 5)
		if n := upto / step; n < 1 || n > 7 || math.Abs(n-math.Round(n)) > 1e-6 {
			t.Fatalf("an axis to %v by %v", upto, step)
		}
	})
}

func TestLine(t *testing.T) {
	answers := `{"loader": "torch", "dataset": "d", "name": "n", "step_s": 0, "budget_s": 5, "space": {"workers": [0, 1]}, "playbook": "", "plot": ""}
{"figures": {"samples_per_second": 5, "batches_per_second": 1, "cores_busy": 1, "first_batch_s": 0.1, "spread": 0}}
{"failed": "no memory"}
`
	var out strings.Builder
	l, ask, err := Listen(strings.NewReader(answers), &out)
	if err != nil || ask.Loader != Torch || !slices.Equal(ask.Space.Workers, []int{0, 1}) {
		t.Fatalf("%+v %v", ask, err)
	}
	f, err := l.Measure(t.Context(), Settings{Workers: 3, Prefetch: 2, Batch: 8}, 1500*time.Millisecond)
	if err != nil || f.Samples != 5 {
		t.Errorf("%+v %v", f, err)
	}
	if _, err = l.Measure(t.Context(), Settings{}, time.Second); err == nil || err.Error() != "no memory" {
		t.Errorf("%v", err)
	}
	var gone *LineError
	if _, err = l.Measure(t.Context(), Settings{}, time.Second); !errors.As(err, &gone) {
		t.Errorf("%v", err)
	}
	first, _, _ := strings.Cut(out.String(), "\n")
	if want := `{"measure":{"num_workers":3,"prefetch":2,"pin_memory":false,"batch_size":8},"seconds":1.5}`; first != want {
		t.Errorf("%s", first)
	}
}
