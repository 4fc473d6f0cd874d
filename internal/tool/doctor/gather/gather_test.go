package gather

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/tool/doctor/doctortest"
	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/doctor/judge"
	"github.com/stoker-data/stoker/internal/tool/doctor/report"
	"github.com/stoker-data/stoker/internal/tool/doctor/system"
)

func TestGather(t *testing.T) {
	f := NewFolder(doctortest.Lines(t))
	if news, err := f.Poll(); !news || err != nil {
		t.Fatal(news, err)
	}
	if news, err := f.Poll(); news || err != nil {
		t.Fatalf("nothing came, and it says so: %v %v", news, err)
	}
	loops := Loops(f, system.NewWatched(t.TempDir()))
	if len(loops) != 1 {
		t.Fatalf("%d loops", len(loops))
	}
	l := loops[0]
	for _, c := range []struct {
		name string
		got  evidence.Figure
		want float64
	}{
		{"batches", l.Batches, 40},
		{"wait", l.Wait, 0.01},
		{"step", l.Step, 0.02},
		{"seconds", l.Seconds, 1.2},
		{"first", l.First, 2.5},
		{"an epoch", l.PerEpoch, 100},
		{"ready", l.Ready, 0.25},
		{"what is ready is taken in", l.Take, 0.0005},
		{"a batch", l.Cost.Batch, 0.05},
		{"a batch on a core", l.Cost.CPU, 0.03},
		{"a sample", l.Cost.Sample, 0.0045},
		{"collate", l.Cost.Collate, 0.005},
		{"idle", l.Cost.Idle, 0.2},
		{"waiting for a core", l.Cost.Queue, 0.1 / 0.7},
		{"the process", l.Cost.Process, 0.035},
		{"bytes", l.Cost.Read, 500},
		{"threads", l.Cost.Threads, 2},
		{"held", l.Cost.Held, 0.3},
	} {
		if !c.got.Known() || math.Abs(c.got.Value-c.want) > 1e-9 {
			t.Errorf("%s: %g [%s], not %g", c.name, c.got.Value, c.got.Source, c.want)
		}
	}
	var stages []string
	for _, s := range l.Cost.Stages {
		stages = append(stages, fmt.Sprintf("%s %s %.1f ms, %.1f on a core", s.Kind, s.Name, s.Wall.Value*1e3, s.CPU.Value*1e3))
	}
	want := []string{"decode PIL 2.0 ms, 1.5 on a core", "python Python code 1.5 ms, 1.0 on a core", "python sleep 1.0 ms, 0.0 on a core", "collate collate 0.5 ms, 0.5 on a core"}
	if diff := cmp.Diff(want, stages); diff != "" {
		t.Error(diff)
	}
	if l.Settings.Stateful == nil || l.Cost.Frames[0].At != "data.py:load:7" || len(l.Recent) != 4 {
		t.Errorf("%v %v %v", l.Settings.Stateful, l.Cost.Frames, l.Recent)
	}
	// What is torn now is whole later.
	file, err := os.OpenFile(filepath.Join(f.dir, "10.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(file, `rs":[]}`+"\nnonsense\n")
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if news, _ := f.Poll(); !news || len(f.processes[10].last().Loaders) != 0 || f.Strange != "nonsense" {
		t.Errorf("the rest of a line is lost: %+v, %q", f.processes[10].last(), f.Strange)
	}
}

// An epoch that reads everything for the first time is left out, once enough of
// another was seen; the first batch of that other is not a wait in its middle.
func TestAColdEpoch(t *testing.T) {
	line := func(at float64, passes, batches int, wait, first float64) string {
		return fmt.Sprintf(`{"v":1,"pid":10,"t":%g,"started":100,"loaders":[{"id":1,"workers":1,"passes":%d,"batches":%d,"wait":%g,"wait_first":%g,"step":%g,`+
			`"epochs":[{"begin":101,"first":0.5,"end":104,"batches":30},{"begin":104,"first":0.3,"end":null,"batches":%d}]}]}`, at, passes, batches, wait, first, 0.01*float64(batches), max(0, batches-30))
	}
	cold := []string{line(101.6, 1, 2, 0.6, 0.5), line(103, 1, 20, 2.4, 0.5)}
	for _, c := range []struct {
		name  string
		after []string
		want  float64
	}{
		{"too little of the second", []string{line(104.5, 2, 34, 3.72, 0.8), line(105, 2, 40, 3.84, 0.8)}, (3.84 - 0.8 - 0.1) / 37},
		{"enough of it", []string{line(103.9, 2, 30, 3.4, 0.5), line(106, 2, 50, 4.1, 0.8), line(107, 2, 60, 4.3, 0.8)}, 0.02},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "10.jsonl"), []byte(strings.Join(append(cold, c.after...), "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		f := NewFolder(dir)
		if _, err := f.Poll(); err != nil {
			t.Fatal(err)
		}
		if got := Loops(f, system.NewWatched(dir))[0].Wait.Value; math.Abs(got-c.want) > 1e-3 {
			t.Errorf("%s: waits %g s a batch, not %g", c.name, got, c.want)
		}
	}
}

// A dataset of one batch has no middle of an epoch: all that is waited for is a start.
func TestEpochsOfOneBatch(t *testing.T) {
	line := func(at float64, n int) string {
		return fmt.Sprintf(`{"v":1,"pid":10,"t":%g,"started":100,"loaders":[{"id":1,"workers":1,"passes":%d,"batches":%d,"wait":%g,"wait_first":%g,"step":%g,`+
			`"epochs":[{"begin":101,"first":0.5,"end":102,"batches":1},{"begin":102,"first":0.3,"end":103,"batches":1},{"begin":103,"first":0.3,"end":104,"batches":1}]}]}`, at, n, n, 0.3*float64(n), 0.3*float64(n), 0.1*float64(n))
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "10.jsonl"), []byte(line(101.6, 1)+"\n"+line(103, 3)+"\n"+line(110, 20)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := NewFolder(dir)
	if _, err := f.Poll(); err != nil {
		t.Fatal(err)
	}
	r := judge.Judge(evidence.Evidence{Schema: evidence.Schema, Subject: evidence.Subject{Kind: evidence.OfScript}, Machine: evidence.Machine{Cores: evidence.Measured(4, "test")}, Loops: Loops(f, system.NewWatched(dir))})
	if v := r.Verdict; v.Name != judge.EpochStart || !strings.Contains(v.Sentence, "Every epoch is one batch, and 75 %") {
		t.Errorf("%s: %s", v.Name, v.Sentence)
	}
}

// A step that hung does not count as one, once it is over: the mean is of the others, and the report
// says what is left out. Long steps that are usual stay.
func TestAStepThatHung(t *testing.T) {
	judged := func(step, long float64) judge.Report {
		const n = 50
		recent := ""
		for i := range 20 {
			at := 200 + float64(i)*(step+0.001)
			recent += fmt.Sprintf("[%g,%g,1],", at, at+0.001)
		}
		line := `{"v":1,"pid":10,"t":100,"started":100,"loaders":[]}` + "\n" + fmt.Sprintf(`{"v":1,"pid":10,"t":%g,"started":100,"loaders":[{"id":1,"workers":0,"passes":1,"batches":%d,"wait":%g,"wait_first":0.001,"step":%g,"long_steps":[[%g,150]],`+
			`"recent":[%s],"epochs":[{"begin":101,"first":0.5,"end":null,"batches":%d}]}]}`, 300.0, n, 0.001*n, step*(n-1)+long, long, strings.TrimSuffix(recent, ","), n)
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "10.jsonl"), []byte(line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		f := NewFolder(dir)
		if _, err := f.Poll(); err != nil {
			t.Fatal(err)
		}
		return judge.Judge(evidence.Evidence{Schema: evidence.Schema, Subject: evidence.Subject{Kind: evidence.OfScript}, Machine: evidence.Machine{Cores: evidence.Measured(4, "test")}, Loops: Loops(f, system.NewWatched(dir))})
	}
	hung := judged(0.02, 40)
	if l := hung.Evidence.Loops[0]; math.Abs(l.Step.Value-0.02) > 1e-6 || l.Hangs != 1 || math.Abs(l.Seconds.Value-0.02*49-0.001*49) > 0.01 {
		t.Errorf("steps of %g s, %d hung, %g s in all", l.Step.Value, l.Hangs, l.Seconds.Value)
	}
	var b strings.Builder
	if err := report.Shown(hung).WriteText(&b); err != nil {
		t.Fatal(err)
	}
	if text := b.String(); !strings.Contains(text, "left out") || !strings.Contains(text, "1 step of 40.0 s in all") {
		t.Error(text)
	}
	if l := judged(1, 30).Evidence.Loops[0]; math.Abs(l.Step.Value-(49+30)/50.) > 1e-6 || l.Hangs != 0 {
		t.Errorf("a step of 30 s among those of 1 s: %g s, %d hung", l.Step.Value, l.Hangs)
	}
}

// Parts of a sample are never more than the sample, however few had theirs timed.
func TestPartsAreNoMoreThanTheWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seconds := rapid.Float64Range(0, 3)
		s := workerLine{Samples: 100, Batches: 10, Sample: seconds.Draw(t, "sample"), Collate: seconds.Draw(t, "collate"), Calls: map[string]call{}}
		s.SampleCPU, s.CollateCPU = s.Sample*rapid.Float64Range(0, 1).Draw(t, "cpu"), s.Collate
		for _, name := range []string{"PIL", "open", "sleep", "torchvision.transforms.Resize"} {
			wall := seconds.Draw(t, name)
			s.Calls[name] = call{N: 100, S: wall, CPU: wall * rapid.Float64Range(0, 1).Draw(t, name+" cpu")}
		}
		plain := rapid.Bool().Draw(t, "plain")
		whole, wholeCPU := s.Sample+s.Collate, s.SampleCPU+s.CollateCPU
		var c cost
		s.fit(plain)
		c.divide(s, procSum{})
		wall, cpu, parts := 0.0, 0.0, 0.0
		for _, st := range c.Stages {
			wall, cpu = wall+100*st.Wall.Value, cpu+100*st.CPU.Value
			if st.Kind != evidence.Collate {
				parts += 100 * st.Wall.Value
			}
		}
		if wall > whole+1e-6 || cpu > wholeCPU+1e-6 || plain && parts > s.Sample+1e-6 {
			t.Fatalf("parts of %g s (%g on a core) are %g and %g; those of samples %g of %g", whole, wholeCPU, wall, cpu, parts, s.Sample)
		}
	})
}

// Whatever processes write, reading it ends, and what is said of it is JSON: no
// panic, no number that is none.
func TestAnyLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := func(name string) string {
			return rapid.SampledFrom([]string{"0", "1", "-1", "1e300", "1e-300", "null", "17.5", "3"}).Draw(t, name)
		}
		var lines []string
		for range rapid.IntRange(1, 6).Draw(t, "lines") {
			inner := fmt.Sprintf(`{"loader":1,"batches":%s,"samples":%s,"fetch":%s,"sample":%s,"sample_cpu":%s,"collate":%s,"idle":%s,"calls":{"open":{"n":%s,"s":%s,"cpu":%s}},"stacks":[["x",%s]],"waits":{"read":%s},"looks":%s}`,
				number("a"), number("b"), number("c"), number("d"), number("e"), number("f"), number("g"), number("h"), number("i"), number("j"), number("k"), number("l"), number("m"))
			lines = append(lines, fmt.Sprintf(`{"v":1,"t":%s,"loaders":[{"id":1,"workers":%s,"batch_size":%s,"length":3,"per_epoch":2,"batches":%s,"wait":%s,"wait_first":%s,"step":%s,"ready":%s,"recent":[[%s,%s,%s],[1],[]],"epochs":[{"begin":%s,"first":%s,"batches":%s}],"inline":%s}],"worker":%s}`,
				number("t"), rapid.SampledFrom([]string{"0", "1", "4"}).Draw(t, "workers"), rapid.SampledFrom([]string{"0", "null", "8", "-3"}).Draw(t, "size"), number("n"), number("o"), number("p"), number("q"), number("r"),
				number("s"), number("u"), number("v"), number("w"), number("x"), number("y"), inner, inner))
		}
		dir, err := os.MkdirTemp("", "stoker-lines-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		for _, name := range []string{"5.jsonl", "6.jsonl"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		f := NewFolder(dir)
		if _, err := f.Poll(); err != nil {
			t.Fatal(err)
		}
		w := system.NewWatched(dir)
		r := judge.Judge(evidence.Evidence{Schema: evidence.Schema, Subject: evidence.Subject{Kind: evidence.OfScript}, Machine: evidence.Machine{Cores: evidence.Measured(4, "test")}, Loops: Loops(f, w), Run: RunOf(f, w, 0)})
		if _, err := json.Marshal(r); err != nil {
			t.Fatalf("%v: %+v", err, r)
		}
		for _, write := range []func() error{
			func() error { return report.Shown(r).WriteText(&strings.Builder{}) }, func() error { return report.Shown(r).WriteTimeline(&strings.Builder{}) },
			func() error { return report.Shown(r).WriteChecklist(&strings.Builder{}) }, func() error { return report.Shown(r).WriteCost(&strings.Builder{}, 1) },
		} {
			if err := write(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Workers that timed no call, as those of short epochs do, cost what the others
// cost: their time is not Python's. Where the others ended before what is measured
// began, calls keep their shares of a sample.
func TestWorkersThatTimedNothing(t *testing.T) {
	main := `{"v":1,"pid":10,"role":"main","t":104,"loaders":[{"id":7,"workers":1,"batch_size":10,"batches":40,"passes":4,"wait":2,"step":1}]}`
	worker := func(pid int, at, each float64, timed int, calls string) string {
		return fmt.Sprintf(`{"v":1,"pid":%d,"ppid":10,"role":"worker","t":%g,"worker":{"loader":7,"batches":10,"samples":100,"timed_samples":%d,"fetch":%g,"sample":%g,"sample_cpu":%g,"calls":{%s}}}`, pid, at, timed, each, each, each, calls)
	}
	for _, c := range []struct {
		name    string
		timedAt float64
		want    float64 // seconds of PIL a sample
	}{{"within", 105, 0.008}, {"before", 103, 0.004}} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			each := 1.0 // seconds of a hundred samples in those that timed nothing
			if c.timedAt < 104 {
				each = 0.5
			}
			lines := map[string]string{
				"10": main, "11": worker(11, c.timedAt, 1, 20, `"PIL":{"n":100,"s":0.8,"cpu":0.8}`),
				"12": worker(12, 105, each, 0, ""), "13": worker(13, 106, each, 0, ""),
			}
			for name, line := range lines {
				if err := os.WriteFile(filepath.Join(dir, name+".jsonl"), []byte(line+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			f := NewFolder(dir)
			if _, err := f.Poll(); err != nil {
				t.Fatal(err)
			}
			stages := Loops(f, system.NewWatched(t.TempDir()))[0].Cost.Stages
			if len(stages) < 2 || stages[0].Name != "PIL" || math.Abs(stages[0].Wall.Value-c.want) > 1e-9 || math.Abs(stages[1].Wall.Value-c.want/4) > 1e-9 {
				t.Errorf("%+v", stages)
			}
		})
	}
}
