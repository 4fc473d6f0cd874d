package report

import (
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

	"github.com/stoker-data/stoker/internal/tool/doctor/doctortest"
	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/doctor/judge"
	"github.com/stoker-data/stoker/internal/tool/show"
)

var update = flag.Bool("update", false, "write the goldens anew")

// golden compares text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("../testdata", name)
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

// cases are the recorded Evidence, and the verdict and findings that are right.
var cases = []struct {
	name, verdict string
	found         []string
}{
	{"healthy", judge.NotDataBound, nil},
	{"healthy-no-workers", judge.NotDataBound, nil},
	{"too-few-none", judge.TooFew, []string{judge.NoWorkers}},
	{"too-few-iterable", judge.TooFew, []string{judge.NoWorkers}},
	{"none-disturbed", judge.TooFew, []string{judge.NoWorkers}},
	{"too-few", judge.TooFew, nil},
	{"decode", judge.TheDecode, nil},
	{"transform", judge.TheTransform + " GaussianBlur", []string{judge.WrongOrder}},
	{"tokenise", judge.TheTransform + " transformers", []string{judge.TokenisePer, judge.PaddingWaste}},
	{"python-computes", judge.PythonCode, nil},
	{"python-waits", judge.TooFew, nil},
	{"waits-aside", judge.TooFew, nil},
	{"slow-sampler", judge.PythonCode + ": sampler", nil},
	{"one-line", judge.PythonCode, []string{judge.NoWorkers}},
	{"opened-again", judge.Repeated + ": h5py.File", nil},
	{"parsed-again", judge.Repeated + ": json.loads", nil},
	{"query-scans", judge.Repeated + ": query", nil},
	{"query-offset", judge.Repeated + ": query", nil},
	{"archive-again", judge.Repeated + ": zipfile.ZipFile", nil},
	{"files-of-many", judge.Repeated + ": numpy.load", nil},
	{"ranks-on-few-cores", judge.TheDecode, nil},
	{"npz-steps-compete", judge.Repeated + ": numpy.load", nil},
	{"steps-compete", judge.TheTransform + " ColorJitter", []string{judge.WrongOrder}},
	{"opened-seldom", judge.TooFew, []string{judge.Repeated}},
	{"json-each", judge.PythonCode, nil},
	{"lock", judge.Contention, nil},
	{"few-slow", judge.FewSlow, nil},
	{"few-slow-none", judge.TooFew, []string{judge.NoWorkers, judge.FewSlow}},
	{"uneven-steps", judge.NotDataBound, []string{judge.UnevenSteps}},
	{"busy-steps", judge.NotDataBound, nil},
	{"decode-h5py", judge.TheDecode, nil},
	{"two-loops", judge.TooFew, []string{judge.NoWorkers, judge.TornDown}},
	{"small-files", judge.SmallFiles, []string{judge.TinyFiles}},
	{"storage-latency", judge.Latency, nil},
	{"storage-bandwidth", judge.Bandwidth, nil},
	{"storage-unprobed", judge.TooFew, nil},
	{"batch-assembly", judge.Assembly + ": pad_and_stack", []string{judge.PythonCollate}},
	{"own-collate", judge.Assembly + ": collate", []string{judge.PythonCollate, judge.PaddingWaste}},
	{"handing-over", judge.Assembly, nil},
	{"epoch-start", judge.EpochStart, []string{judge.TornDown}},
	{"epoch-start-pickled", judge.EpochStart, []string{judge.TornDown, judge.LargeIndex}},
	{"too-many-start", judge.TooMany, []string{judge.ManyWorkers, judge.TornDown}},
	{"too-many", judge.TooMany, []string{judge.ManyWorkers}},
	{"too-many-starve", judge.TooMany, []string{judge.ManyWorkers}},
	{"prefetch", judge.Shallow, []string{judge.SmallPrefetch}},
	{"prefetch-rare", judge.Shallow, []string{judge.SmallPrefetch}},
	{"cgroup", judge.CPULimit, []string{judge.ManyWorkers}},
	{"cgroup-device", judge.CPULimit, nil},
	{"memory-pressure", judge.Pressure, nil},
	{"threads", judge.Misset + " " + judge.ThreadsInWorkers, []string{judge.ThreadsInWorkers}},
	{"threads-of-numpy", judge.Misset + " " + judge.ThreadsInWorkers, []string{judge.ThreadsInWorkers}},
	{"ranks", judge.Imbalance, nil},
	{"ranks-discard", judge.Repeated + ": samples of others", nil},
	{"pageable", judge.Paged, []string{judge.NotPinned}},
	{"device-copies", judge.ForDevice, nil},
	{"device-transforms", judge.ForDevice, nil},
	{"unexplained", judge.Insufficient, nil},
	{"disturbed", judge.Insufficient, nil},
	{"one-lane-disturbed", judge.TooFew, nil},
	{"ready-disturbed", judge.NotDataBound, []string{judge.SharedHandles}},
	{"decode-large", judge.TheDecode, nil},
	{"dataset", judge.TheDecode, nil},
	{"dataset-on-a-disk", judge.TheDecode, []string{judge.ScatteredReads}},
	{"remote-latency", judge.Latency, []string{judge.ScatteredReads}},
	{"remote-throttled", judge.Throttled, []string{judge.ScatteredReads}},
	{"remote-bandwidth", judge.Bandwidth, []string{judge.ScatteredReads}},
	{"few-batches", judge.Insufficient, nil},
	{"wait-and-start", judge.TooFew, []string{judge.TornDown}},
	{"start-and-wait", judge.EpochStart, []string{judge.TornDown}},
	{"one-batch-epochs", judge.EpochStart, []string{judge.TornDown}},
	{"one-batch-few", judge.Insufficient, []string{judge.TornDown}},
	{"short", judge.TooFew, nil},
	{"short-undecided", judge.Insufficient, nil},
	{"other-user", judge.Insufficient, nil},
	{"no-hook", judge.Insufficient, nil},
	{"no-loader", judge.Insufficient, nil},
	{"machine", judge.Insufficient, []string{judge.SmallShm}},
	{"mistakes", judge.NotDataBound, []string{
		judge.CUDABeforeFork, judge.SharedHandles, judge.StatefulDataset, judge.LargeIndex, judge.SmallShm, judge.SmallShm, judge.TinyFiles, judge.WrongOrder, judge.TokenisePer, judge.PythonCollate, judge.PaddingWaste,
		judge.NotPinned, judge.PinnedBlocking, judge.SetEpochMissing,
	}},
}

func TestVerdicts(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := judge.Judge(doctortest.Recorded(t, c.name))
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
func readable(t *testing.T, r judge.Report) string {
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
}, r judge.Report, report string,
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
		if utf8.RuneCountInString(line) > show.Width && !code {
			t.Errorf("%d columns: %q", utf8.RuneCountInString(line), line)
		}
		if strings.ContainsAny(line, "\x1b\t\r") || strings.HasSuffix(line, " ") {
			t.Errorf("control characters or blanks at the end: %q", line)
		}
	}
}

func fixes(r judge.Report) (out []judge.Change) {
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
		verdicts = append(verdicts, strings.TrimSuffix(v, " "+judge.ThreadsInWorkers))
		found = append(found, c.found...)
	}
	for _, name := range judge.Verdicts() {
		if !slices.Contains(verdicts, name) {
			t.Errorf("no case for the verdict %q", name)
		}
	}
	for _, name := range judge.Mistakes() {
		if !slices.Contains(found, name) {
			t.Errorf("no case for the finding %q", name)
		}
	}
}

// A figure that a rule reads and that was not measured may take the verdict away;
// it may never give another one but that nothing is known.
func TestNoVerdictWithoutItsFigures(t *testing.T) {
	blank := func(ev evidence.Evidence, key string) evidence.Evidence {
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
		var out evidence.Evidence
		if err := json.Unmarshal(b, &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, c := range cases {
		ev := doctortest.Recorded(t, c.name)
		for _, key := range []string{"wait_s", "step_s"} {
			got := judge.Judge(blank(ev, key))
			if got.Verdict.Name != judge.Insufficient {
				t.Errorf("%s without %s: %s", c.name, key, got.Verdict.Name)
			}
		}
		got := judge.Judge(blank(ev, "cost")).Verdict
		switch got.Title() {
		case judge.TooFew, judge.TheDecode, judge.TheTransform, judge.PythonCode, judge.SmallFiles, judge.Bandwidth, judge.Latency, judge.Shallow, judge.TooMany:
			t.Errorf("%s without the cost of a batch: %s", c.name, got.Name)
		}
	}
}

// strip removes a key wherever it is.
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
		r := judge.Judge(doctortest.Recorded(t, c.name))
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var again judge.Report
		if err := json.Unmarshal(b, &again); err != nil {
			t.Fatal(err)
		}
		if again.Schema != evidence.Schema || again.Evidence.Schema != evidence.Schema {
			t.Errorf("%s: schema %d", c.name, again.Schema)
		}
		if diff := cmp.Diff(r, judge.Judge(again.Evidence)); diff != "" {
			t.Errorf("%s:\n%s", c.name, diff)
		}
	}
}

func TestExtras(t *testing.T) {
	for _, name := range []string{"too-few-none", "healthy", "mistakes", "no-loader", "npz-steps-compete"} {
		r := judge.Judge(doctortest.Recorded(t, name))
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

// A worker that waits for a core does so wherever it is: where that happens to
// be is not what costs.
func TestWaitingForACoreIsNobodysCost(t *testing.T) {
	for _, kind := range []string{evidence.Collate, evidence.Python, evidence.Transform, evidence.Decode} {
		ev := doctortest.Recorded(t, "python-computes")
		c := &ev.Loops[0].Cost
		cpu := 0.0
		for i := range c.Stages {
			cpu += c.Stages[i].CPU.Value
			c.Stages[i].Wall = c.Stages[i].CPU
		}
		c.Queue = evidence.Measured(0.6, evidence.FromHook)
		late := cpu * 0.6 / 0.4
		c.Stages = append(c.Stages, evidence.Stage{Name: "unlucky", Kind: kind, Wall: evidence.Measured(late, evidence.FromHook), CPU: evidence.Measured(0, evidence.FromHook)})
		c.Batch.Value = (cpu + late) * float64(ev.Loops[0].Settings.BatchSize)
		if got := judge.Judge(ev).Verdict.Title(); got != judge.PythonCode {
			t.Errorf("%s waits for a core: %s", kind, got)
		}
	}
}

// Every worker of an iterable dataset yields all of it, unless that is dealt out: no
// change may raise the number of workers without the code that does so, above it.
func TestMoreWorkersOfAnIterableDataset(t *testing.T) {
	asked := func(ev evidence.Evidence, kind string) (out []judge.Change) {
		ev.Loops[0].Settings.Kind = kind
		r := judge.Judge(ev)
		for _, c := range append(fixes(r), r.Verdict.Changes...) {
			if strings.Contains(c.Code, "num_workers=") {
				out = append(out, c)
			}
		}
		return out
	}
	for _, name := range []string{"too-few-none", "too-few", "short", "wait-and-start"} {
		changes := asked(doctortest.Recorded(t, name), "iterable")
		if len(changes) == 0 {
			t.Errorf("%s: no change of num_workers", name)
		}
		for _, c := range changes {
			before, _, _ := strings.Cut(c.Code, "num_workers=")
			raises := !strings.Contains(c.Code, fmt.Sprintf("num_workers=%d,", doctortest.Recorded(t, name).Loops[0].Settings.Workers))
			if raises && (!strings.Contains(before, "get_worker_info()") || !strings.Contains(c.Why, "every sample")) {
				t.Errorf("%s: %s (%s)", name, c.Code, c.Why)
			}
		}
		for _, c := range asked(doctortest.Recorded(t, name), "map") {
			if strings.Contains(c.Code, "get_worker_info") {
				t.Errorf("%s: %s, and every worker is given samples of its own", name, c.Code)
			}
		}
	}
	ev := doctortest.Recorded(t, "too-few-none")
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
			ev := doctortest.Recorded(t, "too-few-none")
			ev.Run.Others.Value, ev.Machine.Cores.Value = others, cores
			r := judge.Judge(ev)
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
		ev := doctortest.Recorded(t, "healthy")
		ev.Loops[0].Settings.Pickled = evidence.Measured(bytes, evidence.FromHook)
		found := slices.ContainsFunc(judge.Judge(ev).Findings, func(f judge.Finding) bool { return f.Name == judge.LargeIndex })
		if found != want {
			t.Errorf("%g bytes: found %v", bytes, found)
		}
	}
}

// A Compose is shown as what is left of it beside its own children.
func TestRestOfACompose(t *testing.T) {
	ev := doctortest.Recorded(t, "transform")
	c := &ev.Loops[0].Cost
	c.Stages = append(c.Stages, evidence.Stage{Name: "torchvision.transforms.transforms.Compose", Kind: evidence.Python, Wall: evidence.Measured(0.001, evidence.FromHook), CPU: evidence.Measured(0.001, evidence.FromHook)})
	var b strings.Builder
	if err := Shown(judge.Judge(ev)).WriteText(&b); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "rest of Compose ") {
		t.Error(b.String())
	}
}

// Tiers as they are read, of evidence that was recorded: a folder of pictures
// beside a step; a file of tokens without one, on a machine where much was cut.
func TestTiersThatWereRecorded(t *testing.T) {
	for _, name := range []string{"dataset", "dataset-cut"} {
		ev := doctortest.Recorded(t, name)
		r := judge.Judge(ev)
		var b strings.Builder
		if err := Shown(r).WriteTiers(&b); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if line = strings.TrimSuffix(line, "\n"); utf8.RuneCountInString(line) > show.Width || strings.HasSuffix(line, " ") {
				t.Errorf("%d columns: %q", utf8.RuneCountInString(line), line)
			}
		}
		golden(t, "report/"+name+"-tiers.txt", b.String())

		ev.Tiers = nil // nothing of the verdict is theirs
		if diff := cmp.Diff(r.Verdict, judge.Judge(ev).Verdict); diff != "" {
			t.Errorf("%s: the verdict rests on a tier:\n%s", name, diff)
		}
	}
}
