package watch

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/tool/doctor/doctortest"
	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/doctor/judge"
	"github.com/stoker-data/stoker/internal/tool/doctor/report"
)

// asked begins to watch this process, and gives what it was told, where to answer,
// and what comes of it.
func asked(ctx context.Context, t *testing.T) (told map[string]string, in *io.PipeWriter, done <-chan error, report *judge.Report) {
	t.Helper()
	inRead, inWrite := io.Pipe()
	outRead, outWrite := io.Pipe()
	ended := make(chan error, 1)
	report = new(judge.Report)
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
	told, in, done, judged := asked(t.Context(), t)
	if _, err := os.Stat(filepath.Join(told["hook"], "stoker_watch_guest.py")); err != nil {
		t.Fatal(err)
	}
	from := doctortest.Lines(t)
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
	if err := errors.Join(report.Shown(*judged).WriteText(&text), report.Shown(*judged).WriteTiers(&text)); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"stoker doctor: torch.DataLoader over Cats\n", "(train.py:40)",
		"with steps of 20 ms [loop]", "batches out of nothing           500       20 ms", "the dataset                      333       30 ms", "No loader could gain more than 1.50 x here",
	} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("%q is not in\n%s", part, text.String())
		}
	}
	if s := judged.Evidence.Subject; s.Kind != evidence.OfLoader || s.PID != os.Getpid() || !judged.Verdict.DataBound {
		t.Errorf("%+v: %+v", s, judged.Verdict)
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
	if err := wait(t, done); err == nil || !strings.Contains(err.Error(), "not JSON") {
		t.Errorf("nonsense: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, _, done, _ = asked(ctx, t)
	cancel()
	if err := wait(t, done); !errors.Is(err, context.Canceled) {
		t.Errorf("Ctrl-C: %v", err)
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
		{"a slower step", 0.0487, 0.030, 0, []string{"would be 1.62 x as fast: a step takes 49 ms", "more than 1.62 x here"}},
		{"a little waiting", 0.030, 0.030, 0.0024, []string{"gains at most 1.08 x", "more than 1.08 x here"}},
		{"nothing", 0.030, 0.030, 0.0003, []string{"would not be faster", "There is nothing to gain"}},
	} {
		ev := doctortest.Recorded(t, "healthy")
		l := &ev.Loops[0]
		l.Step.Value, l.Wait.Value, l.Take, l.First = c.steps, c.wait, evidence.Figure{}, evidence.Figure{}
		ev.Subject = evidence.Subject{Kind: evidence.OfLoader, Command: []string{"a loader"}}
		Aside{Step: true, Loop: Counted{100, 3200, 100 * (c.steps + c.wait)}, Synthetic: Counted{100, 3200, 100 * c.none}}.add(&ev)
		r := judge.Judge(ev)
		var b strings.Builder
		if err := errors.Join(report.Shown(r).WriteText(&b), report.Shown(r).WriteTiers(&b)); err != nil {
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
	ev := doctortest.Recorded(t, "too-few-none") // predicts 4.5 x
	ev.Subject = evidence.Subject{Kind: evidence.OfLoader, Command: []string{"a loader"}}
	Aside{Step: true, Loop: Counted{10, 640, 5.37}, Synthetic: Counted{10, 640, 2.685}}.add(&ev)
	if v := judge.Judge(ev).Verdict; v.Name != judge.TooFew || v.Speedup != 2 || v.Then != v.Now/2 {
		t.Errorf("batches that cost nothing are 2 x as fast, and a change %g x: %g s and not %g s", v.Speedup, v.Then, v.Now)
	}
}
