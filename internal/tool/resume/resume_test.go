package resume

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/loader"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/order"
)

// The test binary is the child too: the argument after asChild is its fault.
const asChild = "as-child"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == asChild {
		if err := faulty(os.Args[2]); err != nil {
			_ = json.NewEncoder(os.Stderr).Encode(map[string]any{"error": wire.FromError(err)})
			os.Exit(errs.Classes[errs.CodeOf(err)].Exit)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// faulty is Stream, but for one fault. A fault shows only where the child does
// not begin at the start of an epoch.
func faulty(fault string) error {
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	var job Job
	if err == nil {
		err = json.Unmarshal(line, &job)
	}
	if err != nil {
		return err
	}
	st, err := readState(job.State)
	if err != nil {
		return err
	}
	var out io.Writer = os.Stdout
	resumed := st.Epoch > 0 || st.Position > 0
	size := int64(job.Spec.Batch.Size)
	switch {
	case fault == "loses a step" && resumed && st.Position+size <= job.Spec.Dataset.Samples:
		st.Position += size
	case fault == "repeats a step" && resumed && st.Position >= size:
		st.Position -= size
	case fault == "begins anew" && resumed:
		st.Epoch, st.Position = 0, 0
	case fault == "other pixels" && resumed:
		out = altered(func(s *Step) { s.Rows[1]++ })
	case fault == "other padding" && resumed:
		out = altered(func(s *Step) { s.All++ })
	case fault == "other ids" && resumed:
		out = altered(func(s *Step) { s.IDs[0]++ })
	case fault == "not valid" && resumed:
		out = altered(func(s *Step) { s.Valid[0] = false })
	case fault == "every rank is the first":
		job.Spec.Rank = 0
	case fault == "two ranks of three" && job.Spec.World == 3:
		job.Spec.World, job.Spec.Rank = 2, job.Spec.Rank%2
	case fault == "dies" && resumed:
		return errs.New(errs.Damaged, "the picture ends early").At(errs.Where{File: "x.jpg", Offset: errs.Known(3), Sample: errs.Known(7)}).Try("mend it")
	case fault == "says nothing" && resumed:
		fmt.Fprintln(os.Stderr, "panic: oops")
		os.Exit(2)
	case fault == "babbles" && resumed:
		fmt.Println("hello")
	}
	if err := writeState(job.State, st); err != nil {
		return err
	}
	text, err := json.Marshal(job)
	if err != nil {
		return err
	}
	return Stream(context.Background(), io.MultiReader(bytes.NewReader(append(text, '\n')), in), out)
}

// altered passes lines on, each changed.
func altered(change func(*Step)) io.Writer {
	return writerFunc(func(line []byte) (int, error) {
		var s Step
		if err := json.Unmarshal(line, &s); err != nil {
			return 0, err
		}
		change(&s)
		return len(line), json.NewEncoder(os.Stdout).Encode(s)
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func synthetic(samples int64, size int) spec.Spec {
	return spec.Spec{
		Dataset: spec.Dataset{Format: "synthetic", Samples: samples, Shape: []int{2}},
		Order:   spec.Order{Shuffle: order.Full, Seed: 5}, Batch: spec.Batch{Size: size}, Workers: 1,
	}
}

func prove(t *testing.T, c Config, fault string) (*Report, error) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("GORACE", "atexit_sleep_ms=0") // children of a race detector's binary would linger for a second
	c.Command = func(ctx context.Context) *exec.Cmd { return exec.CommandContext(ctx, os.Args[0], asChild, fault) }
	r, err := Run(t.Context(), c)
	if left, _ := os.ReadDir(os.TempDir()); len(left) > 0 {
		t.Errorf("%v is left behind", left)
	}
	return r, err
}

func TestStreamsThatResume(t *testing.T) {
	weights := spec.Numbers{List: []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}}
	for name, spec := range map[string]spec.Spec{
		"pad":    synthetic(11, 2),
		"fill":   func() spec.Spec { s := synthetic(11, 2); s.Order.Tail = order.Fill; return s }(),
		"drop":   func() spec.Spec { s := synthetic(11, 2); s.Order.Tail = order.Drop; return s }(),
		"narrow": func() spec.Spec { s := synthetic(11, 5); s.Order.Tail = order.Drop; return s }(), // three ranks have no step
		"global": func() spec.Spec {
			s := synthetic(23, 0)
			s.Batch.GlobalSize, s.World, s.Rank = 12, 4, 3
			return s
		}(),
		"block":   func() spec.Spec { s := synthetic(500, 3); s.Order.Shuffle = order.BlockWise; return s }(),
		"weights": func() spec.Spec { s := synthetic(11, 2); s.Order.Weights = weights; return s }(),
		"long":    synthetic(5000, 4),
	} {
		for seed := range uint64(2) {
			told := int64(0)
			r, err := prove(t, Config{Spec: spec, Kills: 4, Steps: 30, Seed: seed, Progress: func(done, _ int64) { told = done }}, "")
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if r.Err() != nil || r.Kills != 4 || r.Epochs < 2 || r.Places < 20 || told < 60 {
				t.Errorf("%s: %+v, %d told", name, r, told)
			}
			want := map[string]string{"global": "[1 2 3]", "narrow": "[1 2]"}[name]
			if want != "" && fmt.Sprint(r.Worlds) != want {
				t.Errorf("%s: worlds %v", name, r.Worlds)
			}
		}
	}
	goleak.VerifyNone(t)
}

// Every fault is found, and said where.
func TestStreamsThatDoNot(t *testing.T) {
	for fault, want := range map[string]string{
		"loses a step":            "the step ends at place",
		"repeats a step":          "the step ends at place",
		"begins anew":             "the step ends at place",
		"other pixels":            "row 1: sample",
		"other padding":           "the bytes between the rows differ",
		"other ids":               "row 0: sample",
		"not valid":               "has valid false, but true in the undisturbed run",
		"every rank is the first": "on [1 2 3] ranks: epoch 0: place",
		"two ranks of three":      "on 3 of [1 2 3] ranks",
	} {
		// The run begins at the start of an epoch: only what is resumed is faulty.
		r, err := prove(t, Config{Spec: synthetic(40, 4), Kills: 3, Steps: 24}, fault)
		if err != nil {
			t.Errorf("%s: %v", fault, err)
			continue
		}
		var text bytes.Buffer
		if err := r.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		if len(r.Found) == 0 || errs.CodeOf(r.Err()) != errs.Differs || !strings.Contains(r.Err().Error(), want) || !strings.Contains(text.String(), "this stream does not resume exactly\n") {
			t.Errorf("%s: %+v, %v\n%s", fault, r, r.Err(), text.String())
		}
	}
}

// A child that fails is an error, the child's own where it gave one.
func TestChildrenThatFail(t *testing.T) {
	for fault, want := range map[string]struct {
		code errs.Code
		text string
	}{
		"dies":         {errs.Damaged, "the picture ends early (x.jpg, offset 3, sample 7)"},
		"says nothing": {errs.Died, "panic: oops"},
		"babbles":      {errs.Bug, "a line that is not a step: \"hello"},
	} {
		_, err := prove(t, Config{Spec: synthetic(40, 4), Kills: 1, Steps: 24}, fault)
		if errs.CodeOf(err) != want.code || !strings.Contains(err.Error(), want.text) || fault != "babbles" && errs.From(err).Hint == "" {
			t.Errorf("%s: %v", fault, err)
		}
	}
	goleak.VerifyNone(t)
}

func TestConfigThatCanNotBe(t *testing.T) {
	none := synthetic(3, 4)
	none.Order.Tail = order.Drop
	for _, c := range []Config{{Spec: synthetic(9, 2)}, {Spec: synthetic(9, 2), Kills: 1, Steps: 1}, {Spec: none, Kills: 1}} {
		if _, err := prove(t, c, ""); errs.CodeOf(err) != errs.Config {
			t.Errorf("%v", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := Config{Spec: synthetic(9, 2), Kills: 1, Command: func(ctx context.Context) *exec.Cmd { return exec.CommandContext(ctx, os.Args[0], asChild, "") }}
	if _, err := Run(ctx, c); err == nil {
		t.Error("a context that has ended ends nothing")
	}
}

// A saved state that is torn, of another stream, or of a place that no step ended
// at, is a difference, and no error.
func TestSavedStates(t *testing.T) {
	shared := loader.NewShared(batch.Heap{}, stats.NewBoard(nil, 1))
	defer shared.Close()
	p := &proof{Config: Config{Spec: synthetic(40, 4), Kills: 1, Steps: 8}}
	if err := p.open(t.Context(), shared); err != nil {
		t.Fatal(err)
	}
	defer p.l.Close()
	var steps []*Step
	for i := range int64(6) {
		steps = append(steps, &Step{Epoch: 0, Step: i + 6, Position: 24 + 4*(i+1)})
	}
	p.trace = NewTrace(steps)
	seeded := p.l.State(0, 28)
	seeded.Seed++
	for _, c := range []struct {
		state any
		next  int64
		want  string
	}{
		{p.start, 0, ""},
		{p.l.State(0, 28), 1, ""},
		{p.l.State(0, 36), 3, ""},
		{p.l.State(0, 40), 0, "where no step has ended"}, // it was not seen
		{p.l.State(0, 30), 0, "where no step has ended"},
		{p.l.State(0, 44), 0, "which has 40 places"},
		{seeded, 0, "seed is 6 in the state"},
		{"torn", 0, "the saved state does not belong to this stream"},
	} {
		path := filepath.Join(t.TempDir(), "state.json")
		text, err := json.Marshal(c.state)
		if err == nil {
			err = os.WriteFile(path, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		next, d := p.resumed(path, 3)
		if next != c.next || (d == nil) != (c.want == "") || d != nil && !strings.Contains(d.String(), c.want) {
			t.Errorf("%s: %d, %v", text, next, d)
		}
	}
}
