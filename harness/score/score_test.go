package score

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/harness/slowfs"
	"github.com/stoker-data/stoker/internal/tool/doctor/judge"
)

func TestTheTableIsWhatWasPromised(t *testing.T) {
	names := map[string]bool{}
	labels := map[string]int{}
	finds := map[string]bool{}
	ill, well, scripts, short := 0, 0, 0, 0
	for _, s := range Scenarios() {
		if names[s.Name] {
			t.Errorf("%q twice", s.Name)
		}
		names[s.Name] = true
		if s.Short {
			short++
		}
		if s.Finds != "" {
			finds[s.Finds] = true
		}
		if s.Planted() {
			if s.Label != "" {
				t.Errorf("%q is planted, and labelled %q", s.Name, s.Label)
			}
		} else if s.Healthy() {
			well++
			if s.Label != notDataBound {
				t.Errorf("%q is healthy, and labelled %q", s.Name, s.Label)
			}
		} else {
			ill++
			labels[s.Label]++
			if s.Kind == Torch {
				scripts++
			}
		}
		for _, x := range []float64{0, 0.5, 1} {
			sick := s.Sick(x)
			if err := sick.check(); err != nil || (sick.Script != nil) != (s.Kind == Torch) {
				t.Errorf("%q is not a job of its kind: %v", s.Name, err)
			}
			if s.Well != nil && reflect.DeepEqual(sick, s.Well(x)) {
				t.Errorf("%q is the same without its injection", s.Name)
			}
		}
	}
	if ill != wantIll || well != wantHealthy || scripts < ill/2 || short != 11 || len(finds) != wantPlanted {
		t.Errorf("%d ill (%d of them scripts), %d healthy, %d short, %d mistakes", ill, scripts, well, short, len(finds))
	}
	for _, label := range Labels() {
		if labels[label] < 2 {
			t.Errorf("%d scenarios of %q", labels[label], label)
		}
		delete(labels, label)
	}
	if len(labels) > 0 {
		t.Errorf("labels that are none: %v", labels)
	}
}

// A label that the doctor cannot say would be wrong for ever.
func TestLabelsAreTheDoctorsWords(t *testing.T) {
	want := []string{
		judge.EpochStart, judge.Latency, judge.SmallFiles, judge.Bandwidth, judge.Throttled, judge.CPULimit, judge.TheDecode, judge.TheTransform, judge.PythonCode,
		judge.TooFew, judge.TooMany, judge.Assembly, judge.Shallow, judge.Pressure, judge.Imbalance, judge.Paged, judge.Misset, judge.Insufficient,
	}
	mistakes := []string{
		judge.NoWorkers, judge.ManyWorkers, judge.StatefulDataset, judge.SharedHandles, judge.LargeIndex, judge.PythonCollate, judge.PaddingWaste,
		judge.WrongOrder, judge.TinyFiles, judge.SmallPrefetch, judge.SetEpochMissing, judge.ThreadsInWorkers, judge.SmallShm, judge.TornDown, judge.TokenisePer,
		judge.NotPinned, judge.PinnedBlocking, judge.CUDABeforeFork,
	}
	for _, s := range Scenarios() {
		if s.Finds != "" && !slices.Contains(mistakes, s.Finds) {
			t.Errorf("%q is not a mistake that the doctor knows", s.Finds)
		}
	}
	if diff := cmp.Diff(want, Labels()); diff != "" || judge.NotDataBound != notDataBound {
		t.Error(diff)
	}
}

// Every script is Python, whatever the strength, and says nothing of its label.
func TestScriptsArePython(t *testing.T) {
	dir := t.TempDir()
	for i, s := range Scenarios() {
		for _, x := range []float64{0, 1} {
			jobs := []Job{s.Sick(x)}
			if s.Well != nil {
				jobs = append(jobs, s.Well(x))
			}
			for k, j := range jobs {
				if j.Script == nil {
					continue
				}
				text, err := j.Script.text(j, "/data")
				if err != nil {
					t.Fatal(err)
				}
				if s.Label != "" && strings.Contains(text, s.Name) || len(strings.Fields(s.Label)) > 2 && strings.Contains(text, s.Label) {
					t.Errorf("%q is written into its script", s.Name)
				}
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d-%v-%d.py", i, x, k)), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	out, err := exec.Command("python3", "-c", "import ast, pathlib, sys\nfor p in pathlib.Path(sys.argv[1]).glob('*.py'): ast.parse(p.read_text(), p.name)", dir).CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestSteadyRates(t *testing.T) {
	for name, c := range map[string]struct {
		log  string
		want float64
	}{
		"inside an epoch":     {"0.5 s: 1 batches, last of 8\n2.0 s: 30 batches, last of 8\n3.0 s: 50 batches, last of 8\n4.0 s: 70 batches, over\n", 20},
		"over whole epochs":   {"1.5 s: 10 batches, epoch 1 done\n2.5 s: 20 batches, epoch 2 done\n3.5 s: 30 batches, epoch 3 done\n3.9 s: 38 batches, last of 8\n4.0 s: 40 batches, over\n", 10},
		"other words between": {"hello\n1.0 s: 0 batches, last of 8\nWARNING: x s: y batches\n2.0 s: 7 batches, over\n", 7},
		"nothing after warm":  {"0.2 s: 4 batches, last of 8\n0.3 s: 5 batches, over\n", 0},
		"no batch":            {"1.0 s: 3 batches, last of 8\n2.0 s: 3 batches, over\n", 0},
		"empty":               {"", 0},
	} {
		got, ok := steady(c.log, 1)
		if ok != (c.want > 0) || ok && got != c.want {
			t.Errorf("%s: %v, %v; want %v", name, got, ok, c.want)
		}
	}
}

// Sums against sums that are written down otherwise.
func TestSums(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []Outcome
		var right, alarms, nears []int
		seeds := rapid.SampledFrom([]int{1, 3, 5}).Draw(t, "seeds")
		for seed := range seeds {
			r, a, n := 0, 0, 0
			for range rapid.IntRange(1, 12).Draw(t, "scenarios") {
				o := Outcome{
					Seed: uint64(seed), Healthy: rapid.Bool().Draw(t, "healthy"), Label: "decode", Verdict: rapid.SampledFrom([]string{"decode", notDataBound, insufficient, "other"}).Draw(t, "said"),
					Gain: rapid.Float64Range(0.5, 6).Draw(t, "gain"), Predicted: rapid.Float64Range(0, 6).Draw(t, "predicted"),
				}
				o.Void = !o.Healthy && o.Gain < Least
				if o.Healthy {
					o.Label, o.Gain = notDataBound, 0
				}
				o.Bound = o.Verdict == "decode" || o.Verdict == "other"
				o.judge()
				all = append(all, o)
				switch {
				case o.Healthy && o.Bound:
					a++
				case !o.Healthy && o.Verdict == "decode" && !o.Void:
					r++
				}
				if q := o.Predicted / o.Gain; !o.Healthy && o.Gain >= 1.3 && o.Predicted > 0 && q >= 0.75 && q <= 1.25 {
					n++
				}
			}
			right, alarms, nears = append(right, r), append(alarms, a), append(nears, n)
		}
		got := Sum(all).Median
		middle := func(v []int) int { // the value that as many are below as above
			for _, x := range v {
				below, above := 0, 0
				for _, y := range v {
					if y < x {
						below++
					} else if y > x {
						above++
					}
				}
				if below <= len(v)/2 && above <= len(v)/2 {
					return x
				}
			}
			return -1
		}
		if got.Right != middle(right) || got.Alarms != middle(alarms) || got.Near != middle(nears) {
			t.Fatalf("%+v of %v right, %v alarms, %v near", got, right, alarms, nears)
		}
	})
}

// isolated is a job with a storage and limits of its own. A machine without them is a
// skip, which CI refuses.
func isolated(t *testing.T) *set {
	dir := t.TempDir()
	b := bench{python: "python3", stoker: "/nowhere", work: filepath.Join(dir, "work"), data: filepath.Join(dir, "data"), patience: time.Minute}
	s, err := b.setUp(Job{Data: Files, Script: &Script{Batch: 1, Epoch: 1}, Storage: slowfs.Delays{Open: time.Millisecond}, Quota: 0.5, Memory: 64 << 20}, "job1")
	if err != nil {
		t.Skipf("FUSE or cgroups cannot be used here: %v", err)
	}
	return s
}

// A job meets its storage, its cores and its limits, and nothing is left of them.
func TestJobsRunWhereTheyShould(t *testing.T) {
	s := isolated(t)
	var groups []string
	for _, g := range s.sandbox.groups {
		groups = append(groups, g.folder)
	}
	out, err := s.run(context.Background(), []string{"python3", "-c", `
import os
print(len(os.sched_getaffinity(0)))
print(sum(len(open(os.path.join(at, n), "rb").read()) for at, _, names in os.walk("data") for n in names))
print(open("/proc/self/cgroup").read())`})
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitN(string(out), "\n", 3)
	if lines[0] != fmt.Sprint(Cores) || lines[1] != fmt.Sprint(1600*8192) {
		t.Errorf("ran with %q cores, and read %q bytes", lines[0], lines[1])
	}
	if got := s.fs.Served(); got.Opens != 1600 || got.Bytes != 1600*8192 {
		t.Errorf("%+v were served", got)
	}
	if len(groups) != 2 || strings.Count(lines[2], filepath.Base(groups[0])) != 2 {
		t.Errorf("it ran in %s, and not in %v", lines[2], groups)
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
	for _, path := range append(groups, s.folder) {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
}

// What cannot be run fails, and is counted as that.
func TestAJobThatFailsIsNotSkipped(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken")
	if err := os.WriteFile(broken, []byte("#!/bin/sh\necho no such thing >&2\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	one := func(s Scenario) bool { return s.Name == "parsing in Python" }
	out, err := Run(context.Background(), Options{Python: broken, Stoker: broken, Work: filepath.Join(dir, "work"), Only: one})
	if err != nil || len(out) != 1 {
		t.Fatalf("%v, %v", out, err)
	}
	if o := out[0]; !strings.Contains(o.Error, "no such thing") || o.Right {
		t.Errorf("%+v", o)
	}
	if c := Sum(out).Median; c.Failed != 1 || c.Ill != 1 || c.Right != 0 {
		t.Errorf("%+v", c)
	}
}

// TestShort asks the doctor about eleven scenarios, and trusts that injections do
// what make doctor-score has measured. It needs a Python with torch and the
// command, which make names. A verdict is a measurement, and other work on the
// machine can spoil one: a scenario that comes out wrong is tried twice more,
// and has to be right both times.
func TestShort(t *testing.T) {
	python, stoker := os.Getenv("STOKER_SCORE_PYTHON"), os.Getenv("STOKER_SCORE_COMMAND")
	if python == "" || stoker == "" {
		t.Skip("make doctor-score-short runs this: STOKER_SCORE_PYTHON and STOKER_SCORE_COMMAND name what it needs")
	}
	if err := isolated(t).close(); err != nil {
		t.Fatal(err)
	}
	try := func(only func(Scenario) bool) map[string]string {
		wrong := map[string]string{} // what was said, by scenario
		_, err := Run(context.Background(), Options{
			Python: python, Stoker: stoker, Work: t.TempDir(), Seed: 1, Trusted: true, Only: only,
			Told: func(o Outcome) {
				t.Log(o.Line())
				switch {
				case o.Error != "":
					wrong[o.Scenario] = o.Error
				case !o.Right || o.Alarm:
					wrong[o.Scenario] = fmt.Sprintf("%s %s, and %q was said", o.Label, o.Of, o.Verdict+" "+o.VerdictOf)
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return wrong
	}
	first := try(func(s Scenario) bool { return s.Short })
	if len(first) == 0 {
		return
	}
	for range 2 {
		for name, said := range try(func(s Scenario) bool { return s.Short && first[s.Name] != "" }) {
			t.Errorf("%s: %s; at first: %s", name, said, first[name])
		}
	}
}
