package doctor

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the goldens anew")

// golden compares text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (go test -update writes it anew):\n%s", path, diff)
	}
}

// recorded is the Evidence of a file of testdata. A key that is not ours would be
// a figure that the test means and the rules do not see.
func recorded(t *testing.T, name string) (ev Evidence) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata/evidence", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&ev); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return ev
}

// cases are the recorded Evidence, and the verdict and findings that are right.
var cases = []struct {
	name, verdict string
	found         []string
}{
	{"healthy", NotDataBound, nil},
	{"healthy-no-workers", NotDataBound, nil},
	{"too-few-none", TooFew, []string{NoWorkers}},
	{"too-few-iterable", TooFew, []string{NoWorkers}},
	{"none-disturbed", TooFew, []string{NoWorkers}},
	{"too-few", TooFew, nil},
	{"decode", TheDecode, nil},
	{"transform", TheTransform + " GaussianBlur", []string{WrongOrder}},
	{"tokenise", TheTransform + " transformers", []string{TokenisePer, PaddingWaste}},
	{"python-computes", PythonCode, nil},
	{"python-waits", TooFew, nil},
	{"waits-aside", TooFew, nil},
	{"slow-sampler", PythonCode + ": sampler", nil},
	{"one-line", PythonCode, []string{NoWorkers}},
	{"opened-again", Repeated + ": h5py.File", nil},
	{"parsed-again", Repeated + ": json.loads", nil},
	{"query-scans", Repeated + ": query", nil},
	{"files-of-many", Repeated + ": numpy.load", nil},
	{"ranks-on-few-cores", TheDecode, nil},
	{"steps-compete", TheTransform + " ColorJitter", []string{WrongOrder}},
	{"opened-seldom", TooFew, []string{Repeated}},
	{"json-each", PythonCode, nil},
	{"lock", Contention, nil},
	{"few-slow", FewSlow, nil},
	{"few-slow-none", TooFew, []string{NoWorkers, FewSlow}},
	{"uneven-steps", NotDataBound, []string{UnevenSteps}},
	{"busy-steps", NotDataBound, nil},
	{"decode-h5py", TheDecode, nil},
	{"two-loops", TooFew, []string{NoWorkers, TornDown}},
	{"small-files", SmallFiles, []string{TinyFiles}},
	{"storage-latency", Latency, nil},
	{"storage-bandwidth", Bandwidth, nil},
	{"storage-unprobed", TooFew, nil},
	{"batch-assembly", Assembly + ": pad_and_stack", []string{PythonCollate}},
	{"own-collate", Assembly + ": collate", []string{PythonCollate, PaddingWaste}},
	{"handing-over", Assembly, nil},
	{"epoch-start", EpochStart, []string{TornDown}},
	{"epoch-start-pickled", EpochStart, []string{TornDown, LargeIndex}},
	{"too-many-start", TooMany, []string{ManyWorkers, TornDown}},
	{"too-many", TooMany, []string{ManyWorkers}},
	{"too-many-starve", TooMany, []string{ManyWorkers}},
	{"prefetch", Shallow, []string{SmallPrefetch}},
	{"prefetch-rare", Shallow, []string{SmallPrefetch}},
	{"cgroup", CPULimit, []string{ManyWorkers}},
	{"cgroup-device", CPULimit, nil},
	{"memory-pressure", Pressure, nil},
	{"threads", Misset + " " + ThreadsInWorkers, []string{ThreadsInWorkers}},
	{"threads-of-numpy", Misset + " " + ThreadsInWorkers, []string{ThreadsInWorkers}},
	{"ranks", Imbalance, nil},
	{"pageable", Paged, []string{NotPinned}},
	{"unexplained", Insufficient, nil},
	{"disturbed", Insufficient, nil},
	{"one-lane-disturbed", TooFew, nil},
	{"ready-disturbed", NotDataBound, []string{SharedHandles}},
	{"decode-large", TheDecode, nil},
	{"dataset", TheDecode, nil},
	{"few-batches", Insufficient, nil},
	{"wait-and-start", TooFew, []string{TornDown}},
	{"start-and-wait", EpochStart, []string{TornDown}},
	{"one-batch-epochs", EpochStart, []string{TornDown}},
	{"one-batch-few", Insufficient, []string{TornDown}},
	{"short", TooFew, nil},
	{"short-undecided", Insufficient, nil},
	{"other-user", Insufficient, nil},
	{"no-hook", Insufficient, nil},
	{"no-loader", Insufficient, nil},
	{"machine", Insufficient, []string{SmallShm}},
	{"mistakes", NotDataBound, []string{
		CUDABeforeFork, SharedHandles, StatefulDataset, LargeIndex, SmallShm, SmallShm, TinyFiles, WrongOrder, TokenisePer, PythonCollate, PaddingWaste,
		NotPinned, PinnedBlocking, SetEpochMissing,
	}},
}

func TestVerdicts(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := Judge(recorded(t, c.name))
			if got := r.Verdict.Title(); got != c.verdict {
				t.Errorf("verdict %q, not %q", got, c.verdict)
			}
			var found []string
			for _, f := range r.Findings {
				found = append(found, f.Name)
			}
			slices.Sort(found)
			want := slices.Sorted(slices.Values(c.found))
			if diff := cmp.Diff(want, found); diff != "" {
				t.Errorf("findings:\n%s", diff)
			}
			golden(t, "report/"+c.name+".txt", readable(t, r))
		})
	}
}

// readable is a report with everything that can be asked for; it has to fit a
// terminal, code to paste aside, and name a source for every figure.
func readable(t *testing.T, r Report) string {
	t.Helper()
	var b strings.Builder
	if err := Shown(r).WriteText(&b); err != nil {
		t.Fatal(err)
	}
	fits(t, r, b.String())
	for _, l := range r.Verdict.Lines {
		if l.Source == "" {
			t.Errorf("%s: %s: measured where?", l.What, l.Text)
		}
	}
	return b.String()
}

// fits fails where a line of a report is wider than a terminal, code to paste aside, or
// does something to one.
func fits(t interface {
	Helper()
	Errorf(format string, a ...any)
}, r Report, report string,
) {
	t.Helper()
	for line := range strings.Lines(report) {
		line = strings.TrimSuffix(line, "\n")
		code := false
		for _, c := range append(fixes(r), r.Verdict.Changes...) {
			for pasted := range strings.SplitSeq(c.Code, "\n") {
				code = code || strings.HasSuffix(line, strings.TrimRight(visible(pasted), " "))
			}
		}
		if utf8.RuneCountInString(line) > width && !code {
			t.Errorf("%d columns: %q", utf8.RuneCountInString(line), line)
		}
		if strings.ContainsAny(line, "\x1b\t\r") || strings.HasSuffix(line, " ") {
			t.Errorf("control characters or blanks at the end: %q", line)
		}
	}
}

func fixes(r Report) (out []Change) {
	for _, f := range r.Findings {
		out = append(out, f.Fix)
	}
	return out
}

// Every verdict and every finding has a recorded case, and every case a rule.
func TestEveryVerdictAndFindingHasACase(t *testing.T) {
	var verdicts, found []string
	for _, c := range cases {
		v, _, _ := strings.Cut(c.verdict, " GaussianBlur")
		v, _, _ = strings.Cut(v, ": ")
		verdicts = append(verdicts, strings.TrimSuffix(v, " "+ThreadsInWorkers))
		found = append(found, c.found...)
	}
	for _, r := range rules() {
		if !slices.Contains(verdicts, r.verdict) {
			t.Errorf("no case for the verdict %q", r.verdict)
		}
	}
	for _, c := range checks() {
		if !slices.Contains(found, c.name) {
			t.Errorf("no case for the finding %q", c.name)
		}
	}
}

// A figure that a rule reads and that was not measured may take the verdict away;
// it may never give another one but that nothing is known.
func TestNoVerdictWithoutItsFigures(t *testing.T) {
	blank := func(ev Evidence, key string) Evidence {
		b, err := json.Marshal(ev)
		if err != nil {
			t.Fatal(err)
		}
		var tree map[string]any
		if err := json.Unmarshal(b, &tree); err != nil {
			t.Fatal(err)
		}
		strip(tree, key)
		if b, err = json.Marshal(tree); err != nil {
			t.Fatal(err)
		}
		var out Evidence
		if err := json.Unmarshal(b, &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, c := range cases {
		ev := recorded(t, c.name)
		for _, key := range []string{"wait_s", "step_s"} {
			got := Judge(blank(ev, key))
			if got.Verdict.Name != Insufficient {
				t.Errorf("%s without %s: %s", c.name, key, got.Verdict.Name)
			}
		}
		got := Judge(blank(ev, "cost")).Verdict
		switch got.Title() {
		case TooFew, TheDecode, TheTransform, PythonCode, SmallFiles, Bandwidth, Latency, Shallow, TooMany:
			t.Errorf("%s without the cost of a batch: %s", c.name, got.Name)
		}
	}
}

// strip removes a key wherever it stands.
func strip(v any, key string) {
	switch v := v.(type) {
	case map[string]any:
		delete(v, key)
		for _, inner := range v {
			strip(inner, key)
		}
	case []any:
		for _, inner := range v {
			strip(inner, key)
		}
	}
}

// A report is JSON that says the same when it is judged again.
func TestReportIsEvidenceAgain(t *testing.T) {
	for _, c := range cases {
		r := Judge(recorded(t, c.name))
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var again Report
		if err := json.Unmarshal(b, &again); err != nil {
			t.Fatal(err)
		}
		if again.Schema != Schema || again.Evidence.Schema != Schema {
			t.Errorf("%s: schema %d", c.name, again.Schema)
		}
		if diff := cmp.Diff(r, Judge(again.Evidence)); diff != "" {
			t.Errorf("%s:\n%s", c.name, diff)
		}
	}
}

func TestExtras(t *testing.T) {
	for _, name := range []string{"too-few-none", "healthy", "mistakes", "no-loader"} {
		r := Judge(recorded(t, name))
		var b strings.Builder
		for _, write := range []func() error{
			func() error { return Shown(r).WriteTimeline(&b) }, func() error { return Shown(r).WriteChecklist(&b) }, func() error { return Shown(r).WriteCost(&b, 10) },
		} {
			if err := write(); err != nil {
				t.Fatal(err)
			}
		}
		golden(t, "report/"+name+"-extras.txt", b.String())
	}
}

// A worker that waits for a core does so wherever it stands: where that happens to
// be is not what costs.
func TestWaitingForACoreIsNobodysCost(t *testing.T) {
	for _, kind := range []string{Collate, Python, Transform, Decode} {
		ev := recorded(t, "python-computes")
		c := &ev.Loops[0].Cost
		cpu := 0.0
		for i := range c.Stages {
			cpu += c.Stages[i].CPU.Value
			c.Stages[i].Wall = c.Stages[i].CPU
		}
		c.Queue = figure(0.6, fromHook)
		late := cpu * 0.6 / 0.4
		c.Stages = append(c.Stages, Stage{Name: "unlucky", Kind: kind, Wall: figure(late, fromHook), CPU: figure(0, fromHook)})
		c.Batch.Value = (cpu + late) * float64(ev.Loops[0].Settings.BatchSize)
		if got := Judge(ev).Verdict.Title(); got != PythonCode {
			t.Errorf("%s waits for a core: %s", kind, got)
		}
	}
}

// Every worker of an iterable dataset yields all of it, unless that is dealt out: no
// change may raise the number of workers without the code that does so, above it.
func TestMoreWorkersOfAnIterableDataset(t *testing.T) {
	asked := func(ev Evidence, kind string) (out []Change) {
		ev.Loops[0].Settings.Kind = kind
		r := Judge(ev)
		for _, c := range append(fixes(r), r.Verdict.Changes...) {
			if strings.Contains(c.Code, "num_workers=") {
				out = append(out, c)
			}
		}
		return out
	}
	for _, name := range []string{"too-few-none", "too-few", "short", "wait-and-start"} {
		changes := asked(recorded(t, name), "iterable")
		if len(changes) == 0 {
			t.Errorf("%s: no change of num_workers", name)
		}
		for _, c := range changes {
			before, _, _ := strings.Cut(c.Code, "num_workers=")
			raises := !strings.Contains(c.Code, fmt.Sprintf("num_workers=%d,", recorded(t, name).Loops[0].Settings.Workers))
			if raises && (!strings.Contains(before, "get_worker_info()") || !strings.Contains(c.Why, "every sample")) {
				t.Errorf("%s: %s (%s)", name, c.Code, c.Why)
			}
		}
		for _, c := range asked(recorded(t, name), "map") {
			if strings.Contains(c.Code, "get_worker_info") {
				t.Errorf("%s: %s, and every worker is given samples of its own", name, c.Code)
			}
		}
	}
	ev := recorded(t, "too-few-none")
	ev.Loops[0].Settings.Dataset = "datasets.iterable_dataset.IterableDataset"
	for _, c := range asked(ev, "iterable") {
		if strings.Contains(c.Code, "get_worker_info") || !strings.Contains(c.Why, "shards") {
			t.Errorf("a dataset that deals out its shards: %s (%s)", c.Code, c.Why)
		}
	}
}

// A report asks for one number of workers, however busy the machine is with others.
func TestOneNumberOfWorkers(t *testing.T) {
	number := regexp.MustCompile(`num_workers=\d+`)
	for _, others := range []float64{0, 1, 3, 6, 8} {
		for _, cores := range []float64{1, 2, 4, 8} {
			ev := recorded(t, "too-few-none")
			ev.Run.Others.Value, ev.Machine.Cores.Value = others, cores
			r := Judge(ev)
			seen := map[string]bool{}
			for _, c := range append(fixes(r), r.Verdict.Changes...) {
				for _, n := range number.FindAllString(c.Code, -1) {
					seen[n] = true
				}
			}
			if len(seen) > 1 {
				t.Errorf("%g cores, %g of them used by others, %s: %v", cores, others, r.Verdict.Title(), slices.Sorted(maps.Keys(seen)))
			}
		}
	}
}

// A list of a million paths is a large index.
func TestAMillionPathsAreALargeIndex(t *testing.T) {
	for bytes, want := range map[float64]bool{37.6e6: true, 4e6: false} {
		ev := recorded(t, "healthy")
		ev.Loops[0].Settings.Pickled = figure(bytes, fromHook)
		found := slices.ContainsFunc(Judge(ev).Findings, func(f Finding) bool { return f.Name == LargeIndex })
		if found != want {
			t.Errorf("%g bytes: found %v", bytes, found)
		}
	}
}

// A Compose is shown as what is left of it beside its own children.
func TestRestOfACompose(t *testing.T) {
	ev := recorded(t, "transform")
	c := &ev.Loops[0].Cost
	c.Stages = append(c.Stages, Stage{Name: "torchvision.transforms.transforms.Compose", Kind: Python, Wall: figure(0.001, fromHook), CPU: figure(0.001, fromHook)})
	var b strings.Builder
	if err := Shown(Judge(ev)).WriteText(&b); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "rest of Compose ") {
		t.Error(b.String())
	}
}
