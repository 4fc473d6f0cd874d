package doctor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// asked begins to watch this process, and gives what it was told, where to answer,
// and what comes of it.
func asked(ctx context.Context, t *testing.T) (told map[string]string, in *io.PipeWriter, done <-chan error, report *Report) {
	t.Helper()
	inRead, inWrite := io.Pipe()
	outRead, outWrite := io.Pipe()
	ended := make(chan error, 1)
	report = new(Report)
	go func() {
		var err error
		*report, err = Beside{PID: os.Getpid(), In: inRead, Out: outWrite, Version: "test"}.Watch(ctx)
		ended <- err
	}()
	line, err := bufio.NewReader(outRead).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(line, &told); err != nil {
		t.Fatal(err)
	}
	return told, inWrite, ended, report
}

func wait(t *testing.T, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
		return nil
	}
}

// A process that runs its own loop writes what scripts write, and says what the
// step takes alone: the report is of both, and the folder goes.
func TestBeside(t *testing.T) {
	told, in, done, report := asked(t.Context(), t)
	if _, err := os.Stat(filepath.Join(told["hook"], "stoker_watch_guest.py")); err != nil {
		t.Fatal(err)
	}
	from := recordedLines(t)
	for _, name := range []string{"10.jsonl", "11.jsonl"} {
		b, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(told["lines"], name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Fprintln(in, `{"over": true}`)
	fmt.Fprintln(in, `{"name": "torch.DataLoader over Cats", "step": true, "loop": {"batches": 40, "samples": 400, "seconds": 1.2}, "synthetic": {"batches": 10, "samples": 100, "seconds": 0.2}}`)
	if err := wait(t, done); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := errors.Join(Shown(*report).WriteText(&text), Shown(*report).WriteTiers(&text)); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"stoker doctor: torch.DataLoader over Cats\n", "(train.py:40)",
		"beside steps of 20 ms [loop]", "batches out of nothing           500       20 ms", "the dataset                      333       30 ms", "1.50 x is all that any loader could gain here",
	} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("%q is not in\n%s", part, text.String())
		}
	}
	if s := report.Evidence.Subject; s.Kind != OfLoader || s.PID != os.Getpid() || !report.Verdict.DataBound {
		t.Errorf("%+v: %+v", s, report.Verdict)
	}
	if _, err := os.Stat(told["lines"]); !os.IsNotExist(err) {
		t.Errorf("the folder stays: %v", err)
	}
}

// Who asked may go: its step failed, or it was killed.
func TestBesideAlone(t *testing.T) {
	for _, before := range []string{"", `{"over": true}` + "\n"} {
		_, in, done, _ := asked(t.Context(), t)
		fmt.Fprint(in, before)
		in.Close()
		if err := wait(t, done); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("after %q: %v", before, err)
		}
	}
	_, in, done, _ := asked(t.Context(), t)
	fmt.Fprint(in, "{}\nnonsense\n")
	if err := wait(t, done); err == nil || !strings.Contains(err.Error(), "no JSON") {
		t.Errorf("nonsense: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, _, done, _ = asked(ctx, t)
	cancel()
	if err := wait(t, done); !errors.Is(err, context.Canceled) {
		t.Errorf("Ctrl-C: %v", err)
	}
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
			f := newFolder(dir)
			if _, err := f.poll(); err != nil {
				t.Fatal(err)
			}
			stages := gather(f, newWatched(t.TempDir()))[0].Cost.Stages
			if len(stages) < 2 || stages[0].Name != "PIL" || math.Abs(stages[0].Wall.Value-c.want) > 1e-9 || math.Abs(stages[1].Wall.Value-c.want/4) > 1e-9 {
				t.Errorf("%+v", stages)
			}
		})
	}
}

// A report has one figure for what is to be gained, whatever took the time: waiting, or
// a step that making batches slows down.
func TestOneFigureOfWhatIsToGain(t *testing.T) {
	for _, c := range []struct {
		name        string
		steps, none float64 // seconds a batch of the step: in the loop, and alone
		wait        float64
		says        []string
	}{
		{"a slower step", 0.0487, 0.030, 0, []string{"would be 1.62 x as fast: a step takes 49 ms", "1.62 x is all"}},
		{"a little waiting", 0.030, 0.030, 0.0024, []string{"gains at most 1.08 x", "1.08 x is all"}},
		{"nothing", 0.030, 0.030, 0.0003, []string{"no faster", "Nothing is to gain"}},
	} {
		ev := recorded(t, "healthy")
		l := &ev.Loops[0]
		l.Step.Value, l.Wait.Value, l.Hand, l.First = c.steps, c.wait, Figure{}, Figure{}
		ev.Subject = Subject{Kind: OfLoader, Command: []string{"a loader"}}
		Aside{Step: true, Loop: Counted{100, 3200, 100 * (c.steps + c.wait)}, Synthetic: Counted{100, 3200, 100 * c.none}}.add(&ev)
		r := Judge(ev)
		var b strings.Builder
		if err := errors.Join(Shown(r).WriteText(&b), Shown(r).WriteTiers(&b)); err != nil {
			t.Fatal(err)
		}
		text := strings.Join(strings.Fields(b.String()), " ")
		for _, part := range c.says {
			if !strings.Contains(text, part) {
				t.Errorf("%s: %q is not in\n%s", c.name, part, b.String())
			}
		}
		if figures := regexp.MustCompile(`\d\.\d\d x`).FindAllString(text, -1); len(slices.Compact(figures)) > 1 {
			t.Errorf("%s: %v in\n%s", c.name, figures, b.String())
		}
	}
	ev := recorded(t, "too-few-none") // predicts 4.5 x
	ev.Subject = Subject{Kind: OfLoader, Command: []string{"a loader"}}
	Aside{Step: true, Loop: Counted{10, 640, 5.37}, Synthetic: Counted{10, 640, 2.685}}.add(&ev)
	if v := Judge(ev).Verdict; v.Name != TooFew || v.Speedup != 2 || v.Then != v.Now/2 {
		t.Errorf("batches that cost nothing are 2 x as fast, and a change %g x: %g s and not %g s", v.Speedup, v.Then, v.Now)
	}
}
