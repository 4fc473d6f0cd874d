package gather

import (
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/doctor/judge"
	"github.com/stoker-data/stoker/internal/tool/doctor/report"
)

// A loader's statistics at two moments, of ten batches of eight samples: 2 lanes
// work 16 ms on a sample, of which a crop takes 4, and wait 4 ms for its bytes.
func snapshots() (a, b stats.Snapshot) {
	at := func(n float64) stats.Snapshot {
		s := stats.Snapshot{Loader: 3, Lanes: 2, Batches: int64(n), Samples: int64(8 * n), Passes: 1, FirstMean: 0.2}
		s.Decode = stats.StageSnapshot{BusySeconds: 8 * n * 0.016, InputSeconds: 8 * n * 0.004, CPUSeconds: 8 * n * 0.008, Items: int64(8 * n), P50: 0.015, P99: 0.030}
		s.Transforms = []stats.StageSnapshot{{Name: "RandomResizedCrop", BusySeconds: 8 * n * 0.004, Items: int64(8 * n)}}
		s.Read = stats.StageSnapshot{BusySeconds: n, Items: int64(8 * n), Bytes: int64(8 * n * 1000)}
		s.Batch = stats.StageSnapshot{BusySeconds: n * 0.001}
		s.Wait = stats.StageSnapshot{BusySeconds: n * 0.06, OutputSeconds: n * 0.02, P99: 0.1, QueueMean: 0.5, Queues: int64(n)}
		return s
	}
	return at(10), at(110)
}

func TestLoopOfAPage(t *testing.T) {
	l := LoopOfPage(snapshots())
	for _, c := range []struct {
		name string
		got  evidence.Figure
		want float64
	}{
		{"batches", l.Batches, 100},
		{"wait", l.Wait, 0.06},
		{"step", l.Step, 0.02},
		{"ready", l.Ready, 0.5},
		{"a batch", l.Cost.Batch, 8*0.020 + 0.001},
		{"a sample", l.Cost.Sample, 0.020},
		{"a sample on a core", l.Cost.SampleCPU, 0.008},
		{"collate", l.Cost.Collate, 0.001},
		{"lanes without a core", l.Cost.Queue, 0.5},
		{"bytes", l.Cost.Read, 1000},
	} {
		if !c.got.Known() || math.Abs(c.got.Value-c.want) > 1e-9 {
			t.Errorf("%s: %g [%s], not %g", c.name, c.got.Value, c.got.Source, c.want)
		}
	}
	if s := l.Cost.Stages; len(s) != 4 || s[0].Name != "decode" || math.Abs(s[0].Wall.Value-0.012) > 1e-9 || math.Abs(s[0].CPU.Value-0.006) > 1e-9 {
		t.Errorf("%+v", s)
	}
	if l.Settings.BatchSize != 8 || l.Settings.Workers != 2 {
		t.Errorf("%+v", l.Settings)
	}
	a, _ := snapshots()
	if same := LoopOfPage(a, a); same.Wait.Known() || same.Cost.Batch.Known() {
		t.Errorf("nothing happened, and it is %+v", same)
	}
}

// Lanes of stoker never wait in a stage: what is not on a core there is no
// reading, as it is in a worker that decodes.
func TestVerdictsOverPages(t *testing.T) {
	a, b := snapshots()
	judged := func() judge.Verdict {
		return judge.Judge(evidence.Evidence{Subject: evidence.Subject{Kind: evidence.OfSpec, Command: []string{"x.yaml"}}, Machine: evidence.Machine{Cores: evidence.Measured(2, "test")}, Loops: []evidence.Loop{LoopOfPage(a, b)}}).Verdict
	}
	if v := judged(); v.Name != judge.TheDecode || v.Changes[0].Code == "stoker.ImageFolder(...)" {
		t.Errorf("%+v", v)
	}
	b.Decode.InputSeconds = 40
	if v := judged(); v.Name != judge.Insufficient || !v.DataBound { // no probe
		t.Errorf("%+v", v)
	}
	b.Wait.BusySeconds = a.Wait.BusySeconds
	if v := judged(); v.Name != judge.NotDataBound {
		t.Errorf("%+v", v)
	}
}

// The page of a process that has one, read as --attach does.
func TestPages(t *testing.T) {
	page, err := stats.NewPage(stats.RoleEngine)
	if err != nil {
		t.Fatal(err)
	}
	s := page.Stream(5, 2, nil)
	defer s.Close()
	p := NewPages()
	defer p.Close()
	pids := []int{os.Getpid(), 1 << 30}
	p.Look(pids, true)
	if p.parents[os.Getpid()] != os.Getppid() {
		t.Errorf("the engine's client is process %d, and not the one that started it, %d", p.parents[os.Getpid()], os.Getppid())
	}
	nowhere := func(int, int64) string { return "" }
	if len(p.Loops(nowhere)) != 0 {
		t.Errorf("no batch came, and there are %d loops", len(p.Loops(nowhere)))
	}
	for i := range 5 {
		s.Delivered(stats.Progress{Step: int64(i), Samples: int64(8 * (i + 1)), Batches: int64(i + 1)})
		p.Look(pids, false)
	}
	if l := p.Loops(func(int, int64) string { return "train.py:3" }); len(l) != 1 || l[0].Batches.Value < 1 || l[0].PID != os.Getpid() || l[0].Settings.Where != "train.py:3" {
		t.Errorf("%+v", l)
	}
}

// The steps of one loader, drawn from its spans: other loaders' and bundles are none.
func TestTimelineOfAPage(t *testing.T) {
	const ms = int64(time.Millisecond)
	var spans []stats.Span
	for i := range int64(20) {
		asked := 5000*ms + i*30*ms // a batch is waited for 10 ms of 30
		spans = append(spans,
			stats.Span{Loader: 4, Step: i, Steps: 1, Asked: asked + ms, Filled: asked + 2*ms},
			stats.Span{Loader: 3, Step: i, Steps: 1, Asked: asked, Filled: asked + 10*ms, Delivered: asked + 13*ms},
			stats.Span{Loader: 5, Step: 16 * i, Steps: 16, Asked: asked, Filled: asked + 10*ms})
	}
	l := LoopOfPage(snapshots())
	l.Recent = stepsOf(spans, 3)
	ev := evidence.Evidence{Schema: evidence.Schema, Subject: evidence.Subject{Kind: evidence.OfProcess, PID: 7}, Loops: []evidence.Loop{l}}
	draw := func() string {
		var b strings.Builder
		if err := report.Shown(judge.Judge(ev)).WriteTimeline(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	head, rows, _ := strings.Cut(draw(), "[statistics page]\n")
	lines := strings.Split(strings.TrimSpace(rows), "\n")
	if len(lines) != 10 || !strings.Contains(head, "the last 10 steps") {
		t.Fatalf("%d lines:\n%s", len(lines), draw())
	}
	for _, line := range lines {
		if !strings.Contains(line, "30 ms ") || strings.Count(line, "w") != 19 || strings.Count(line, "#") != 37 { // of 56
			t.Errorf("%q", line)
		}
	}
	for loader, says := range map[int64]string{5: "several at a time", 6: "several at a time"} {
		if ev.Loops[0].Recent = stepsOf(spans, loader); len(ev.Loops[0].Recent) > 0 || !strings.Contains(draw(), says) {
			t.Errorf("loader %d: %s", loader, draw())
		}
	}
	if ev.Loops = nil; !strings.Contains(draw(), "it has none") {
		t.Error(draw())
	}
}

// Loaders whose lines are not known are told apart by their numbers.
func TestTwoLoadersOfAProcess(t *testing.T) {
	a, b := snapshots()
	p := NewPages()
	for _, id := range []int64{1, 2} {
		a.Loader, b.Loader = id, id
		p.First[pageKey{7, id}], p.Latest[pageKey{7, id}] = a, b
	}
	ev := evidence.Evidence{Schema: evidence.Schema, Subject: evidence.Subject{Kind: evidence.OfProcess, PID: 6}, Loops: Ordered(p.Loops(func(int, int64) string { return "" }))}
	var text strings.Builder
	if err := report.Shown(judge.Judge(ev)).WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"(loader 1)", "other     loader 2: waits"} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("%q is not in\n%s", part, text.String())
		}
	}
	delete(p.Latest, pageKey{7, 2})
	if one := p.Loops(func(int, int64) string { return "" }); len(one) != 1 || one[0].Settings.Where != "" {
		t.Errorf("one loader needs no number: %+v", one)
	}
}

// In less than a microsecond nothing is decoded: numbers are put into their places.
func TestCopyingIsNoDecoding(t *testing.T) {
	a, b := snapshots()
	for _, s := range []*stats.Snapshot{&a, &b} {
		n := float64(s.Samples)
		s.Transforms, s.Decode.BusySeconds, s.Decode.CPUSeconds, s.Decode.InputSeconds = nil, n*0.25e-6, n*0.13e-6, 0
		s.Batch.BusySeconds, s.Read.BusySeconds = float64(s.Batches)*1e-6, 0
		s.Wait.OutputSeconds = 0
	}
	r := judge.Judge(evidence.Evidence{Schema: evidence.Schema, Subject: evidence.Subject{Kind: evidence.OfSpec}, Machine: evidence.Machine{Cores: evidence.Measured(2, "test")}, Loops: []evidence.Loop{LoopOfPage(a, b)}})
	if r.Verdict.Name != judge.Assembly || strings.Contains(r.Verdict.Sentence, "ecod") {
		t.Errorf("%s: %s", r.Verdict.Title(), r.Verdict.Sentence)
	}
}

// Where Python workers make the samples, their code is what a sample costs, and the verdict
// names it.
func TestPythonOfAPage(t *testing.T) {
	a, b := snapshots()
	for i, s := range []*stats.Snapshot{&a, &b} {
		n := []float64{10, 110}[i]
		s.Decode, s.Transforms, s.Read = stats.StageSnapshot{}, nil, stats.StageSnapshot{}
		s.Python = stats.StageSnapshot{BusySeconds: 8 * n * 0.016, CPUSeconds: 8 * n * 0.015, Items: int64(8 * n), P50: 0.014, P99: 0.04}
	}
	l := LoopOfPage(a, b)
	if c := l.Cost; math.Abs(c.Sample.Value-0.016) > 1e-9 || math.Abs(c.SampleCPU.Value-0.015) > 1e-9 || c.P99.Value != 0.04 || c.Stages[0].Kind != evidence.Python {
		t.Errorf("%+v", l.Cost)
	}
	v := judge.Judge(evidence.Evidence{Subject: evidence.Subject{Kind: evidence.OfSpec, Command: []string{"x.yaml"}}, Machine: evidence.Machine{Cores: evidence.Measured(2, "test")}, Loops: []evidence.Loop{l}}).Verdict
	if v.Name != judge.PythonCode {
		t.Errorf("%+v", v)
	}
}
