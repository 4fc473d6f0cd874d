package tune

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// noisy is a machine whose measurements go up and down by a share, of each other's rate.
type noisy struct {
	machine
	share float64
	rand  *rand.Rand
}

func (n *noisy) Measure(ctx context.Context, s Settings, d time.Duration) (Figures, error) {
	f, err := n.machine.Measure(ctx, s, d)
	up := 1 + n.share*(n.rand.Float64()-0.5)
	f.Samples, f.Batches, f.Spread = f.Samples*up, f.Batches*up, n.share
	return f, err
}

func tuned(t testing.TB, m Meter, others float64) *Report {
	t.Helper()
	r, err := Run(t.Context(), Config{
		Subject: Subject{Loader: Own, Name: "data"}, Space: Space{Batch: []int{8}}.Complete(Own, 4, false), Budget: time.Hour,
		Watch: func() func() (float64, bool) { return func() (float64, bool) { return others, others >= 0 } },
	}, m)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// On a quiet machine there is a recommendation, and it is right; where measurements of
// one setting differ by more than settings do, there is none, or a right one.
func TestNoiseThatDecidesIsNoRecommendation(t *testing.T) {
	refused := 0
	rapid.Check(t, func(rt *rapid.T) {
		m := machine{cpu: 0.02, blocked: 0.02 * rapid.SampledFrom([]float64{0, 0.5, 2}).Draw(rt, "blocked"), cores: 4}
		share := rapid.SampledFrom([]float64{0, 0.01, 0.03, 0.3, 0.6, 1.2}).Draw(rt, "noise")
		r := tuned(t, &noisy{m, share, rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))}, 0)
		best := m.rate(Settings{Workers: 4, Prefetch: 8})
		right := m.rate(r.Choice.Settings) >= 0.85*best
		switch {
		case share <= 0.03 && (r.Doubt != "" || !right):
			rt.Fatalf("noise of %g: %q, %+v", share, r.Doubt, r.Choice)
		case share <= 0.6 && r.Doubt == "" && m.rate(r.Choice.Settings) < 0.6*best:
			rt.Fatalf("noise of %g, and %d workers were recommended: %v", share, r.Choice.Workers, r.Table)
		case r.Doubt != "":
			refused++
			if !strings.Contains(r.Doubt, "differ by") || r.Noise < 0.05 {
				rt.Fatalf("noise of %g: %q, %g", share, r.Doubt, r.Noise)
			}
		}
	})
	for seed := range uint64(100) { // rapid may draw no loud one of a short run
		if m := (machine{cpu: 0.02, cores: 4}); tuned(t, &noisy{m, 0.6, rand.New(rand.NewPCG(seed, 1))}, 0).Doubt != "" {
			refused++
		}
	}
	if refused == 0 {
		t.Error("nothing was refused")
	}
}

// Machines on which all workers are alike, because others take the cores, tell nothing
// of how many are enough.
func TestBesideOtherWorkThereIsNoRecommendation(t *testing.T) {
	flat := &machine{cpu: 0.02, cores: 1}
	for _, c := range []struct {
		others float64
		doubt  string
		note   string
	}{
		{3, "other processes kept 3.0 of 4.0 cores busy", ""},
		{1.1, "other processes kept 1.1 of 4.0 cores busy", ""},
		{0.9, "", "other processes kept 0.9 of 4.0 cores busy meanwhile"},
		{0.1, "", ""},
		{-1, "", ""},
	} {
		r := tuned(t, flat, c.others)
		if !strings.HasPrefix(r.Doubt, c.doubt) || (r.Doubt == "") != (c.doubt == "") || (r.Others == nil) != (c.others < 0) {
			t.Errorf("%g cores of others: %q", c.others, r.Doubt)
		}
		if got := strings.Join(r.Notes, "\n"); !strings.Contains(got, c.note) || c.note == "" && strings.Contains(got, "other processes") {
			t.Errorf("%g cores of others: notes %q", c.others, got)
		}
	}
}

// A table as it was measured beside seven other jobs: one worker came out best.
func TestDoubtOfTables(t *testing.T) {
	set := func(workers int) Settings { return Settings{Workers: workers, Prefetch: 4, Batch: 8} }
	for name, c := range map[string]struct {
		rates map[int][]float64
		doubt string
	}{
		"noise":         {map[int][]float64{1: {300, 210, 340}, 2: {290, 350, 180}, 4: {310, 150, 280}}, "it cannot be told which number is enough"},
		"quiet":         {map[int][]float64{1: {300, 302, 299}, 2: {303, 301, 304}, 4: {298, 303, 301}}, ""},
		"steps":         {map[int][]float64{1: {100}, 2: {200}, 4: {395, 401, 399}}, ""},
		"burst":         {map[int][]float64{1: {100}, 2: {200}, 4: {395, 401, 399, 130, 398, 400}}, ""},
		"single":        {map[int][]float64{1: {300, 100, 200}}, ""},
		"fewer":         {map[int][]float64{1: {290, 410, 350}, 4: {395, 401, 399}}, "it cannot be told which number is enough"},
		"noisy but far": {map[int][]float64{1: {100, 120, 110}, 4: {395, 361, 399}}, ""},
	} {
		var table []Measurement
		rates := map[Settings][]float64{}
		for w, all := range c.rates {
			var ms []Measurement
			for _, x := range all {
				ms = append(ms, Measurement{Settings: set(w), Figures: Figures{Samples: x}})
			}
			table, rates[set(w)] = append(table, median(ms)), all
		}
		choice, _, _ := Choose(table)
		if why, _ := doubt(table, rates, choice, 0, 4); (why == "") != (c.doubt == "") || !strings.Contains(why, c.doubt) {
			t.Errorf("%s: %q", name, why)
		}
	}
}

func TestADoubtedChoiceIsNotKept(t *testing.T) {
	r := example()
	r.Doubt = "other processes kept 3.0 of 4.0 cores busy: the measurements are of a loader on the remaining cores"
	path := filepath.Join(t.TempDir(), "playbook.yaml")
	if err := r.Keep(path, "", time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err == nil || len(r.Files) > 0 {
		t.Errorf("written: %v", r.Files)
	}
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	if text := b.String(); !strings.Contains(text, "\nno recommendation: "+r.Doubt+"\n") || strings.Contains(text, "use num_workers") || strings.Contains(text, "\n>") {
		t.Error(text)
	}
}

// Others are whoever is not below the process: their time counts as far as it is on
// cores that the process could have had.
func TestBesideCountsOthers(t *testing.T) {
	proc := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(proc, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cpus := Beside{PID: 1}
	_, n, ok := cpus.busy()
	if !ok {
		t.Skip("the machine does not tell")
	}
	machine := func(busy, own, child, other int) {
		var b strings.Builder
		fmt.Fprintf(&b, "cpu  9 9 9 9 9 9 9 9 0 0\n")
		for i := range 1024 {
			fmt.Fprintf(&b, "cpu%d %d 0 0 500 70 0 0 0 0 0\n", i, busy)
		}
		write("stat", b.String())
		// All of the fields that procfs asks for: a shorter line is not a process.
		write("10/stat", fmt.Sprintf("10 (a) b) R 1 0 0 0 0 0 0 0 0 0 %d 0 0 0 20 0 1 0 5", own))
		write("11/stat", fmt.Sprintf("11 (worker) S 10 0 0 0 0 0 0 0 0 0 0 %d 0 0 20 0 1 0 5", child))
		write("12/stat", fmt.Sprintf("12 (other) S 1 0 0 0 0 0 0 0 0 0 0 %d 0 0 20 0 1 0 5", other))
	}
	machine(0, 0, 0, 0)
	before := time.Now()
	end := Beside{PID: 10, Cores: float64(n), Proc: proc}.Begin()
	begun := time.Now()
	time.Sleep(50 * time.Millisecond)
	machine(1000, 300, 200, 4000)
	least := time.Since(begun) // between its two looks, however slow this machine is
	got, known := end()
	most := time.Since(before)
	used := (1000*float64(n) - 500) / 100
	if !known || got < used/most.Seconds()*0.999 || got > used/least.Seconds()*1.001 {
		t.Errorf("%g cores, want %g to %g", got, used/most.Seconds(), used/least.Seconds())
	}
	machine(0, 0, 0, 0)
	end = Beside{PID: 10, Cores: 0, Proc: proc}.Begin()
	machine(0, 0, 0, 4000)
	if got, _ := end(); got != 0 {
		t.Errorf("%g cores, and none was busy", got)
	}
	if _, known := (Beside{PID: 10, Proc: t.TempDir()}).Begin()(); known {
		t.Error("a machine that tells nothing is known")
	}
}

// What this process and its children do is not others'.
func TestBesideOfThisMachine(t *testing.T) {
	b := Beside{PID: os.Getpid(), Cores: 1}
	before := b.own()
	if before <= 0 {
		t.Skip("there is no /proc")
	}
	work := exec.CommandContext(t.Context(), "sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")
	if err := work.Run(); err != nil {
		t.Fatal(err)
	}
	if after := b.own(); after <= before {
		t.Errorf("the time of a child is not counted: %g and %g", before, after)
	}
}
