package doctor

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
)

// The lines of a training process and of its worker, cumulative, two seconds and
// more. Between the first line after the queue is filled and the last the loop
// takes 40 batches of 10 ms wait and 20 ms step; what came before is dearer.
func recordedLines(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	main := func(at float64, batches int, wait, step float64) string {
		return fmt.Sprintf(`{"v":1,"pid":10,"ppid":1,"role":"main","t":%g,"started":100,"python":"3.11.7","libraries":{"torch":"2.15.0"},"rank":null,"world":null,"exit":null,"loaders":[`+
			`{"id":7,"class":"torch.utils.data.dataloader.DataLoader","where":"train.py:40","kind":"map","length":1000,"per_epoch":100,"batch_size":10,"workers":1,"prefetch":2,"passes":1,"collate":"default","context":"fork",`+
			`"epochs":[{"begin":101,"first":2.5,"end":null,"batches":%d}],"batches":%d,"wait":%g,"wait_first":2,"step":%g,"ready":0.25,"bytes":1000,"wait_hist":{"p50":0.01,"p99":0.03,"max":2},`+
			`"recent":[[105,105.010,0],[105.030,105.031,1],[105.051,105.0515,2],[105.07,105.0705,1],[105.1,null,null]]}]}`, at, batches, batches, wait, step)
	}
	worker := func(at float64, batches int, each float64) string {
		s := each * float64(batches)
		return fmt.Sprintf(`{"v":1,"pid":11,"ppid":10,"role":"worker","t":%g,"started":101,"exit":null,"loaders":[],"worker":{"loader":7,"index":0,"batches":%d,"samples":%d,"timed_samples":20,"fetch":%g,"sample":%g,"sample_cpu":%g,`+
			`"sample_hist":{"p50":0.001,"p99":0.004,"max":0.01,"of":"sample"},"collate":%g,"collate_cpu":%g,"idle":%g,"blocked":0,`+
			`"calls":{"PIL":{"n":%d,"s":%g,"cpu":%g},"sleep":{"n":%d,"s":%g,"cpu":0}},"stacks":[["data.py:load:7",0.75],["data.py:get:3",0.25]],"waits":{"read":0.1,"sleep":0.2},"looks":100,"on_cpu":0.5,"delay":%g,"cpu":%g,`+
			`"io":{"rchar":%d,"read_bytes":0,"syscr":%d},"faults":0,"threads":{"torch":2},"stateful":["seen"]}}`,
			at, batches, 10*batches, s, 0.9*s, 0.5*s, 0.1*s, 0.1*s, s/4, 10*batches, 0.4*s, 0.3*s, 10*batches, 0.2*s, 0.1*s, 0.7*s, 5000*batches, 30*batches)
	}
	write := func(name string, lines ...string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.Join(lines, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("10.jsonl", main(101, 0, 0, 0), main(103.6, 1, 2, 0), main(104, 10, 2.9, 0.5), main(105.2, 50, 3.3, 1.3)+"\n", `{"v":1,"pid":10,"loade`)
	write("11.jsonl", worker(103.9, 10, 0.05), worker(105.3, 50, 0.05)+"\n")
	write("notes.txt", "not a line")
	write("12.jsonl", "")
	return dir
}

func TestGather(t *testing.T) {
	f := newFolder(recordedLines(t))
	if news, err := f.poll(); !news || err != nil {
		t.Fatal(news, err)
	}
	if news, err := f.poll(); news || err != nil {
		t.Fatalf("nothing came, and it says so: %v %v", news, err)
	}
	loops := gather(f, newWatched(t.TempDir()))
	if len(loops) != 1 {
		t.Fatalf("%d loops", len(loops))
	}
	l := loops[0]
	for _, c := range []struct {
		name string
		got  Figure
		want float64
	}{
		{"batches", l.Batches, 40},
		{"wait", l.Wait, 0.01},
		{"step", l.Step, 0.02},
		{"seconds", l.Seconds, 1.2},
		{"first", l.First, 2.5},
		{"an epoch", l.PerEpoch, 100},
		{"ready", l.Ready, 0.25},
		{"what is ready is taken in", l.Hand, 0.0005},
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
	if news, _ := f.poll(); !news || len(f.processes[10].last().Loaders) != 0 || f.strange != "nonsense" {
		t.Errorf("the rest of a line is lost: %+v, %q", f.processes[10].last(), f.strange)
	}
}

// An epoch that reads everything for the first time is left out, once enough of
// another was seen; the first batch of that other is no wait in its middle.
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
		f := newFolder(dir)
		if _, err := f.poll(); err != nil {
			t.Fatal(err)
		}
		if got := gather(f, newWatched(dir))[0].Wait.Value; math.Abs(got-c.want) > 1e-3 {
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
	f := newFolder(dir)
	if _, err := f.poll(); err != nil {
		t.Fatal(err)
	}
	r := Judge(Evidence{Schema: Schema, Subject: Subject{Kind: OfScript}, Machine: Machine{Cores: figure(4, "test")}, Loops: gather(f, newWatched(dir))})
	if v := r.Verdict; v.Name != EpochStart || !strings.Contains(v.Sentence, "Every epoch is one batch, and 75 %") {
		t.Errorf("%s: %s", v.Name, v.Sentence)
	}
}

// A step that hung is no step, once it is over: the mean is of the others, and the report
// says what is left out. Long steps that are usual stay.
func TestAStepThatHung(t *testing.T) {
	report := func(step, long float64) Report {
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
		f := newFolder(dir)
		if _, err := f.poll(); err != nil {
			t.Fatal(err)
		}
		return Judge(Evidence{Schema: Schema, Subject: Subject{Kind: OfScript}, Machine: Machine{Cores: figure(4, "test")}, Loops: gather(f, newWatched(dir))})
	}
	hung := report(0.02, 40)
	if l := hung.Evidence.Loops[0]; math.Abs(l.Step.Value-0.02) > 1e-6 || l.Hangs != 1 || math.Abs(l.Seconds.Value-0.02*49-0.001*49) > 0.01 {
		t.Errorf("steps of %g s, %d hung, %g s in all", l.Step.Value, l.Hangs, l.Seconds.Value)
	}
	if text := readable(t, hung); !strings.Contains(text, "left out") || !strings.Contains(text, "1 step of 40.0 s in all") {
		t.Error(text)
	}
	if l := report(1, 30).Evidence.Loops[0]; math.Abs(l.Step.Value-(49+30)/50.) > 1e-6 || l.Hangs != 0 {
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
			if st.Kind != Collate {
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
		f := newFolder(dir)
		if _, err := f.poll(); err != nil {
			t.Fatal(err)
		}
		w := newWatched(dir)
		r := Judge(Evidence{Schema: Schema, Subject: Subject{Kind: OfScript}, Machine: Machine{Cores: figure(4, "test")}, Loops: gather(f, w), Run: runOf(f, w, 0)})
		if _, err := json.Marshal(r); err != nil {
			t.Fatalf("%v: %+v", err, r)
		}
		for _, write := range []func() error{
			func() error { return Shown(r).WriteText(&strings.Builder{}) }, func() error { return Shown(r).WriteTimeline(&strings.Builder{}) },
			func() error { return Shown(r).WriteChecklist(&strings.Builder{}) }, func() error { return Shown(r).WriteCost(&strings.Builder{}, 1) },
		} {
			if err := write(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
