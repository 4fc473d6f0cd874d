package watch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/doctor/gather"
	"github.com/stoker-data/stoker/internal/tool/doctor/hook"
	"github.com/stoker-data/stoker/internal/tool/doctor/judge"
	"github.com/stoker-data/stoker/internal/tool/doctor/system"
)

// asScript makes the test binary a script with the hook in it: it writes the
// lines that the hook would, of a loop that waits 39 ms and steps 1 ms: no machine has the cores for its workers.
const asScript = "STOKER_TEST_AS_SCRIPT"

func TestMain(m *testing.M) {
	if how := os.Getenv(asScript); how != "" {
		pretend(how)
	}
	os.Exit(m.Run())
}

// pretend is a training script: "for ever", or "short" and then exit status 3.
// The worker is a line too; it has the script's own PID as its parent.
func pretend(how string) {
	dir := os.Getenv(hook.OutVariable)
	fmt.Println("training in", filepath.Dir(dir))
	begin := system.Now()
	wrote := func(pid int, l map[string]any) {
		l["v"], l["pid"], l["t"], l["started"] = 1, pid, system.Now(), begin
		b, _ := json.Marshal(l)
		f, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(pid)+".jsonl"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			os.Exit(9) // the folder went before the script did
		}
		_, _ = f.Write(append(b, '\n'))
		_ = f.Close()
	}
	for i := 0; how != "short" || i < 5; i++ {
		n := float64(20 * i)
		wrote(os.Getpid(), map[string]any{"role": "main", "python": "3.11.7", "libraries": map[string]string{"torch": "2.15.0"}, "loaders": []any{map[string]any{
			"id": 1, "where": "train.py:9", "workers": 1, "prefetch": 2, "batch_size": 8, "length": 100000, "passes": 1, "batches": n,
			"wait": 0.1 + 0.039*n, "wait_first": 0.1, "step": 0.001 * n, "epochs": []any{map[string]any{"begin": begin, "first": 0.1, "batches": n}},
		}}})
		wrote(1<<30+7, map[string]any{"ppid": os.Getpid(), "role": "worker", "worker": map[string]any{
			"loader": 1, "batches": n, "samples": 8 * n, "timed_samples": n, "fetch": 0.04 * n, "sample": 0.0395 * n, "sample_cpu": 0.0005 * n, "collate": 0.0005 * n,
			"calls": map[string]any{"sleep": map[string]any{"n": 8 * n, "s": 0.038 * n, "cpu": 0}}, "looks": n, "waits": map[string]float64{"sleep": 0.9}, "delay": 0, "cpu": 0.001 * n,
			"sample_hist": map[string]any{"p50": 0.005, "p99": 0.006, "max": 0.007},
		}})
		time.Sleep(100 * time.Millisecond)
	}
	os.Exit(3)
}

// script watches the test binary as a script.
func script(t *testing.T, how string, change func(*Script)) (Outcome, string) {
	t.Helper()
	t.Setenv(asScript, how)
	var out bytes.Buffer
	s := Script{Command: []string{os.Args[0]}, Out: &out, Err: &out, hurry: 10}
	if change != nil {
		change(&s)
	}
	o, err := Watch(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return o, out.String()
}

// gone fails if the folder that the script named is still there.
func gone(t *testing.T, out string) {
	t.Helper()
	_, dir, _ := strings.Cut(strings.TrimSpace(out), "training in ")
	if _, err := os.Stat(dir); dir == "" || !os.IsNotExist(err) {
		t.Errorf("%q is left behind: %v", dir, err)
	}
}

func TestAScriptThatEnds(t *testing.T) {
	o, out := script(t, "short", nil)
	if o.Status != 3 || o.Stopped {
		t.Errorf("%+v", o)
	}
	if v := o.Report.Verdict; v.Name != judge.TooFew || v.Loader != "train.py:9" || !v.DataBound || v.Speedup < 2 {
		t.Errorf("verdict %+v", v)
	}
	if strings.Count(out, "\n") != 1 {
		t.Errorf("the script's output is %q", out)
	}
	if r := o.Report.Evidence.Run; r.Ended != "exit status 3" || r.Hooked != 2 {
		t.Errorf("%+v", r)
	}
	gone(t, out)
}

// A verdict comes while the script runs; it goes on until it is told to stop.
func TestVerdictWhileItRuns(t *testing.T) {
	signals := make(chan os.Signal, 1)
	var early []judge.Report
	o, out := script(t, "for ever", func(s *Script) {
		s.Signals = signals
		s.Verdict = func(r judge.Report) {
			early = append(early, r)
			signals <- syscall.SIGTERM // as it would reach us
		}
	})
	if len(early) != 1 || early[0].Verdict.Name != judge.TooFew {
		t.Errorf("verdicts while it ran: %+v", early)
	}
	if o.Status != 128+15 || o.Stopped || o.Report.Verdict.Name != judge.TooFew || !strings.Contains(o.Report.Evidence.Run.Ended, "signal 15") {
		t.Errorf("status %d, %q", o.Status, o.Report.Evidence.Run.Ended)
	}
	gone(t, out)
}

// With Stop everything that came of the script ends, also what has a session of
// its own and ignores SIGTERM.
func TestStop(t *testing.T) {
	t.Setenv("SELF", os.Args[0])
	pid := filepath.Join(t.TempDir(), "pid")
	t.Setenv("PIDFILE", pid)
	o, _ := script(t, "for ever", func(s *Script) {
		s.Stop = true
		s.Command = []string{"/bin/sh", "-c", `setsid /bin/sh -c 'trap "" TERM; echo $$ >"$PIDFILE"; while :; do sleep 0.1; done' & exec "$SELF"`}
	})
	if !o.Stopped || o.Report.Verdict.Name != judge.TooFew || o.Report.Evidence.Run.Ended != "by --stop" {
		t.Errorf("%+v", o.Report.Verdict)
	}
	b, err := os.ReadFile(pid)
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	for range 100 { // whoever took it over has to see that it is dead
		if s, ok := system.Sight("/", child, 0); !ok || s.State == 'Z' {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("process %d is left behind", child)
}

func TestScriptsWithoutTheHook(t *testing.T) {
	for _, c := range []struct {
		name    string
		command []string
		status  int
		says    string
	}{
		{"not Python", []string{"/bin/sh", "-c", "exit 5"}, 5, "No Python process loaded the hook"},
		{"killed", []string{"/bin/sh", "-c", "kill -9 $$"}, 137, "No Python process loaded the hook"},
		{"prints a lot", []string{"/bin/sh", "-c", "i=0; while [ $i -lt 3000 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); done"}, 0, "No Python process loaded the hook"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			o, err := Watch(t.Context(), Script{Command: c.command, Out: &out, Err: &out})
			if err != nil {
				t.Fatal(err)
			}
			if v := o.Report.Verdict; o.Status != c.status || v.Name != judge.Insufficient || !strings.Contains(v.Sentence, c.says) {
				t.Errorf("status %d, %s: %s", o.Status, v.Name, v.Sentence)
			}
			if c.name == "prints a lot" && out.Len() != 3000*41 {
				t.Errorf("%d bytes of its output arrived", out.Len())
			}
		})
	}
	if v := judge.Judge(evidence.Evidence{Subject: evidence.Subject{Kind: evidence.OfScript, Command: []string{"python", "-I", "x.py"}}}).Verdict; !strings.Contains(v.Changes[0].Why, "without -I") {
		t.Errorf("%+v", v)
	}
}

func TestScriptsThatDoNotStart(t *testing.T) {
	for _, c := range []struct {
		command []string
		code    errs.Code
	}{{nil, errs.Config}, {[]string{"no-such-command-anywhere"}, errs.NotFound}, {[]string{"/etc/passwd"}, errs.NotFound}} {
		if _, err := Watch(t.Context(), Script{Command: c.command}); errs.CodeOf(err) != c.code || errs.From(err).Hint == "" {
			t.Errorf("%q: %v", c.command, err)
		}
	}
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	if o, err := Watch(t.Context(), Script{Command: []string{"/bin/true"}}); err != nil || o.Status != 0 {
		t.Errorf("without a temporary folder: %v", err)
	}
}

// A loop that stops is told once, with what its processes wait for.
func TestNothingMoves(t *testing.T) {
	dir := t.TempDir()
	sleeper := exec.Command("sleep", "60")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = sleeper.Process.Kill()
		_ = sleeper.Wait()
	}()
	line := fmt.Sprintf(`{"v":1,"pid":%d,"t":5,"loaders":[{"id":1,"where":"a.py:1","batches":7,"epochs":[{"begin":1,"first":1,"end":null,"batches":7}]}],"worker":{"loader":1,"index":4,"stacks":[["a.py:get:9",1]]}}`+"\n", sleeper.Process.Pid)
	path := filepath.Join(dir, strconv.Itoa(sleeper.Process.Pid)+".jsonl")
	if err := os.WriteFile(path, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	var told []string
	w := &watching{Script: Script{Tell: func(s string) { told = append(told, s) }}, folder: gather.NewFolder(dir), watched: system.NewWatched("/")}
	if _, err := w.folder.Poll(); err != nil {
		t.Fatal(err)
	}
	for at := range 100 {
		w.stalled(10 + float64(at))
	}
	if len(told) != 1 || !strings.HasPrefix(told[0], "no batch for 30.0 s") || !strings.Contains(told[0], "worker 4: sleep") || !strings.Contains(told[0], "a.py:get:9") {
		t.Errorf("told %q", told)
	}
	if err := os.WriteFile(path, []byte(line+strings.ReplaceAll(line, `"batches":7`, `"batches":8`)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := w.folder.Poll(); err != nil {
		t.Fatal(err)
	}
	for at := range 100 {
		w.stalled(200 + float64(at))
	}
	if len(told) != 2 {
		t.Errorf("after another batch it stopped again, and was told %d times", len(told)-1)
	}
}

func TestAttach(t *testing.T) {
	if testing.Short() {
		t.Skip("looks for four seconds")
	}
	cmd := exec.Command("/bin/sh", "-c", "while :; do :; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	r, err := Attach(t.Context(), cmd.Process.Pid, "test")
	if err != nil {
		t.Fatal(err)
	}
	if v := r.Verdict; v.Name != judge.Insufficient || r.Evidence.Run.CPU.Value < 0.02 || r.Evidence.Subject.Command[0] != "/bin/sh" {
		t.Errorf("%+v %+v", v, r.Evidence.Run)
	}
	dead := exec.Command("true")
	if err := dead.Start(); err != nil {
		t.Fatal(err)
	}
	for { // until it has ended: nobody asks how before the Wait below
		if s, ok := system.Sight("/", dead.Process.Pid, 0); !ok || s.Over() {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if _, err := Attach(t.Context(), dead.Process.Pid, "test"); errs.CodeOf(err) != errs.NotFound || !strings.Contains(err.Error(), "(true) has ended") {
		t.Error(err)
	}
	_ = dead.Wait()
	if _, err := Attach(t.Context(), 1<<30, "test"); errs.CodeOf(err) != errs.NotFound {
		t.Error(err)
	}
}

// A script without the word that runs it is offered with that word.
func TestAScriptIsOfferedWithPython(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("short.py", []byte("pass\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := Watch(t.Context(), Script{Command: []string{"short.py", "--fast"}})
	var e *errs.Error
	if !errors.As(err, &e) || e.Hint != "stoker doctor -- python short.py --fast" {
		t.Errorf("%v", err)
	}
}
