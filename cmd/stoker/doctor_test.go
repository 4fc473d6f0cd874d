package main

import (
	"bufio"
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

	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/doctor/judge"
)

const recordedEvidence = "../../internal/tool/doctor/testdata/evidence/"

func TestDoctorJudgesWhatWasRecorded(t *testing.T) {
	got := command(t, "doctor", "--from", recordedEvidence+"too-few-none.json", "--timeline", "--checklist", "--gpu-cost", "2.5")
	if got.status != 0 || got.err != "" {
		t.Fatalf("%d %s", got.status, got.err)
	}
	for _, part := range []string{"verdict   too few workers (train.py:40)", "num_workers=4", "timeline  the last 10 steps", "checklist\n", "at 2.50 an hour"} {
		if !strings.Contains(got.out, part) {
			t.Errorf("%q is not in\n%s", part, got.out)
		}
	}
	for _, c := range []struct {
		name   string
		status int
	}{{"too-few-none", 4}, {"healthy", 0}, {"no-hook", 0}} {
		asJSON := command(t, "doctor", "--from", recordedEvidence+c.name+".json", "--check", "--json")
		var r judge.Report
		if err := json.Unmarshal([]byte(asJSON.out), &r); err != nil || asJSON.status != c.status || r.Schema != evidence.Schema {
			t.Errorf("%s: status %d, %v", c.name, asJSON.status, err)
		}
		report := filepath.Join(t.TempDir(), "report.json") // a report is evidence again
		write(t, report, []byte(asJSON.out))
		if again := command(t, "doctor", "--from", report, "--check", "--json"); again != asJSON {
			t.Errorf("%s: judged again it is\n%s", c.name, again.out)
		}
	}
}

// The verdict on a dataset comes first, then what was asked for, then the tiers; the
// same again from the report as JSON.
func TestDoctorOfADataset(t *testing.T) {
	root := t.TempDir()
	photos, err := filepath.Glob("../../testdata/photos/*.jpg")
	if err != nil || len(photos) == 0 {
		t.Fatal(photos, err)
	}
	for _, path := range photos {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(root, "train", "things", filepath.Base(path)), b)
	}
	t.Setenv("STOKER_CACHE", filepath.Join(root, "cache"))
	data := filepath.Join(root, "train")

	parts := []string{"stoker doctor: ", "verdict   ", "timeline  ", "possible gain, with steps of 1.0 ms", "cost of a sample", "effect of lanes", "speed of the storage", "memory in use"}
	inOrder := func(out string) {
		t.Helper()
		for i, part := range parts {
			_, after, found := strings.Cut(out, part)
			if !found {
				t.Fatalf("part %d, %q, is not there, or not in its place:\n%s", i, part, out)
			}
			out = after
		}
	}
	got := command(t, "doctor", data, "--step-ms", "1", "--timeline", "--seconds", "0.4")
	if got.status != 0 || got.err != "" {
		t.Fatalf("%d %s", got.status, got.err)
	}
	inOrder(got.out)

	asJSON := command(t, "doctor", data, "--step-ms", "1", "--json", "--seconds", "0.4")
	var r judge.Report
	if err := json.Unmarshal([]byte(asJSON.out), &r); err != nil || asJSON.status != 0 || len(r.Evidence.Tiers) < 8 {
		t.Fatalf("%d %v %s", asJSON.status, err, asJSON.out)
	}
	if asJSON.err != "stoker doctor: "+r.Verdict.Title()+"\n" {
		t.Errorf("%q", asJSON.err)
	}
	report := filepath.Join(root, "report.json")
	write(t, report, []byte(asJSON.out))
	inOrder(command(t, "doctor", "--from", report, "--timeline").out)

	if quick := command(t, "doctor", data, "--quick", "--seconds", "0.4"); quick.status != 0 || !strings.Contains(quick.out, "verdict   ") || strings.Contains(quick.out, "what there is") {
		t.Errorf("%+v", quick)
	}
}

// One broken image of a folder does not end the look at it: the report names it.
func TestDoctorGoesOnAfterABrokenImage(t *testing.T) {
	root := t.TempDir()
	b, err := os.ReadFile("../../testdata/photos/rocket.jpg")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		write(t, filepath.Join(root, "train", "things", fmt.Sprintf("%d.jpg", i)), b)
	}
	write(t, filepath.Join(root, "train", "things", "broken.jpg"), b[:len(b)/2])
	t.Setenv("STOKER_CACHE", filepath.Join(root, "cache"))
	data := filepath.Join(root, "train")
	got := command(t, "doctor", data, "--quick", "--seconds", "0.4", "--json")
	var r judge.Report
	if err := json.Unmarshal([]byte(got.out), &r); err != nil || got.status != 0 || r.Verdict.Title() == "" {
		t.Fatalf("%d %v %s", got.status, err, got.err)
	}
	if notes := strings.Join(r.Evidence.Notes, "\n"); !strings.Contains(notes, "1 sample cannot be read") || !strings.Contains(notes, "things/broken.jpg") {
		t.Errorf("notes: %s", notes)
	}
	if got := command(t, "doctor", data, "--quick", "--seconds", "0.4", "--on-bad", "fail"); got.status != 3 || !strings.Contains(got.err, "broken.jpg") {
		t.Errorf("%d %s", got.status, got.err)
	}
	if got := command(t, "doctor", "--on-bad", "skip"); got.status != 2 {
		t.Errorf("without a dataset: %d %s", got.status, got.err)
	}
}

func TestDoctorErrors(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "x.json"), []byte("{"))
	write(t, filepath.Join(dir, "types.json"), []byte(`{"evidence": {"machine": {"cores": {"value": "x"}}}}`))
	write(t, filepath.Join(dir, "pid.json"), []byte(`{"evidence": {"subject": {"pid": "x"}}}`))
	write(t, filepath.Join(dir, "list.json"), []byte(`[1, 2]`))
	write(t, filepath.Join(dir, "new.json"), []byte(`{"evidence": {"schema": 99}}`))
	for _, c := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"--from", filepath.Join(dir, "none.json")}, 2, "cannot read the evidence"},
		{[]string{"--from", filepath.Join(dir, "x.json")}, 3, "this is not a report or evidence"},
		{[]string{"--from", filepath.Join(dir, "new.json")}, 7, "schema 99"},
		{[]string{"--attach", "1073741824"}, 2, "there is no process 1073741824"},
		{[]string{"--attach", "1", "--from", "x"}, 2, "exclude each other"},
		{[]string{"--from", filepath.Join(dir, "types.json")}, 3, `a figure is {"value": a number, "source": text}, and not {"value": "x"}`},
		{[]string{"--from", filepath.Join(dir, "pid.json")}, 3, "evidence.subject.pid, at byte 36, is text but should be a number that fits"},
		{[]string{"--from", filepath.Join(dir, "list.json")}, 3, "the whole, at byte 1, is a list but should be an object"},
		{[]string{"--attach", "0"}, 2, "--attach is 0: give the PID of a running process"},
		{[]string{"--attach=-4711"}, 2, "--attach is -4711: give the PID of a running process"},
		{[]string{"--attach", "-5"}, 2, "--attach is -5: give the PID of a running process"},
		{[]string{"--gpu-cost", "-3", "--from", "x"}, 2, "--gpu-cost is -3: give the price of an hour"},
		{[]string{"--step-ms", "-1.5", dir}, 2, "--step-ms is -1.5: give milliseconds"},
		{[]string{"--gpu-cost=-1", "--from", "x"}, 2, "--gpu-cost is -1: give the price of an hour"},
		{[]string{"--gpu-cost=nan", "--from", "x"}, 2, "--gpu-cost is NaN"},
		{[]string{"--gpu-cost=inf", "--from", "x"}, 2, "--gpu-cost is +Inf"},
		{[]string{"--gpu-cost=0", "--from", "x"}, 2, "--gpu-cost is 0"},
		{[]string{"--step-ms=nan", dir}, 2, "--step-ms is NaN: give milliseconds"},
		{[]string{"--step-ms=inf", dir}, 2, "--step-ms is +Inf"},
		{[]string{"--step-ms=-1", dir}, 2, "--step-ms is -1"},
		{[]string{"--step-ms=1e300", dir}, 2, "--step-ms is 1e+300"},
		{[]string{"--seconds=nan", dir}, 2, "--seconds is NaN"},
		{[]string{"--stop"}, 2, "stoker doctor --stop -- python train.py"},
		{[]string{"--stop", dir}, 2, "--stop ends a script"},
		{[]string{"--timeline"}, 2, "--timeline draws the steps of a loop"},
		{[]string{"--gpu-cost", "2"}, 2, "--gpu-cost puts a price on the waiting"},
		{[]string{"--check"}, 2, "--check asks whether a loop is data-bound"},
		{[]string{"--step-ms", "20", "--", "true"}, 2, "stoker doctor --step-ms 20 data/train"},
		{[]string{"--quick"}, 2, "--quick leaves out the tiers"},
		{[]string{dir, "--quick"}, 2, "no class folder"},
		{[]string{"sh", "train.sh"}, 2, "stoker doctor -- sh train.sh"},
		{[]string{"--", "no-such-command-anywhere"}, 2, "cannot be started"},
		{[]string{"--"}, 2, "no command to watch"},
	} {
		got := command(t, append([]string{"doctor"}, c.args...)...)
		if got.status != c.status || !strings.Contains(got.err, c.says) {
			t.Errorf("%q: status %d, %s", c.args, got.status, got.err)
		}
	}
}

// Arguments after -- are the script's, whatever they look like; its output and
// its exit status are its own.
func TestDoctorLeavesTheScriptAlone(t *testing.T) {
	got := command(t, "doctor", "--", "/bin/sh", "-c", `echo "$@"; exit 5`, "sh", "--json", "--stop", "--", "x")
	if got.status != 5 || got.out != "--json --stop -- x\n" || !strings.Contains(got.err, "verdict   insufficient evidence") {
		t.Errorf("%+v", got)
	}
	got = command(t, "doctor", "--json", "--", "/bin/sh", "-c", "echo out; echo err >&2")
	var r judge.Report
	if err := json.Unmarshal([]byte(got.out), &r); err != nil || got.status != 0 || r.Verdict.Name != judge.Insufficient {
		t.Errorf("%v %+v", err, got)
	}
	if !strings.Contains(got.err, "out\n") || !strings.Contains(got.err, "err\n") {
		t.Errorf("the script's output is not on standard error: %q", got.err)
	}
}

// The first Ctrl-C is the script's: it may take its time to end, longer than a
// command of ours may, and the report comes then.
func TestDoctorHandsCtrlCOn(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "doctor", "--", "/bin/sh", "-c", `trap 'sleep 1.5; echo saved; exit 7' INT; echo ready; while :; do sleep 0.1; done`)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	var errOut strings.Builder
	cmd.Stderr = &errOut
	pipe, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = pipe
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	written := func() string { b, _ := os.ReadFile(pipe.Name()); return string(b) }
	for range 500 {
		if strings.Contains(written(), "ready") {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if cmd.ProcessState.ExitCode() != 7 || !strings.Contains(written(), "saved") || !strings.Contains(errOut.String(), "verdict   ") {
		t.Errorf("status %d, %q, %q", cmd.ProcessState.ExitCode(), written(), errOut.String())
	}
}

// A doctor that is killed leaves its folder, and the next one of the same user removes
// it: not that of one that lives, and nothing else of that name.
func TestDoctorRemovesWhatAKilledOneLeft(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	other := filepath.Join(temp, "stoker-doctor-of-an-older-one")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	begin := func() (*exec.Cmd, string) {
		t.Helper()
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), self, "doctor", "--", "/bin/sh", "-c", `echo "$STOKER_DOCTOR_DIR $$"; exec sleep 60`)
		cmd.Env = append(os.Environ(), asCommand+"=1")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		lines, pid, _ := strings.Cut(strings.TrimSpace(line), " ")
		script, err := strconv.Atoi(pid)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Kill(script, syscall.SIGKILL) })
		return cmd, filepath.Dir(lines)
	}
	killed, left := begin()
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.Wait()
	if _, err := os.Stat(left); err != nil {
		t.Fatalf("nothing is left to remove: %v", err)
	}
	alive, used := begin()
	if got := command(t, "doctor", "--", "true"); got.status != 0 {
		t.Fatalf("%+v", got)
	}
	for dir, stays := range map[string]bool{left: false, used: true, other: true} {
		if _, err := os.Stat(dir); (err == nil) != stays {
			t.Errorf("%s, which should stay: %v; %v", dir, stays, err)
		}
	}
	if err := alive.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = alive.Wait()
	if _, err := os.Stat(used); !os.IsNotExist(err) {
		t.Errorf("%s is left behind: %v", used, err)
	}
}

// Of a process of another user the doctor says that it may not look, and how it might.
func TestDoctorOfAnotherUsersProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("looks for four seconds")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	pid, who := os.Getpid(), &syscall.Credential{Uid: 65534, Gid: 65534}
	if os.Geteuid() != 0 { // then root's is another's
		pid, who = 1, nil
		if _, err := os.ReadDir("/proc/1/fd"); err == nil {
			t.Skip("every process here is ours")
		}
	}
	dir, err := os.MkdirTemp("", "stoker-other-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	b, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(dir, "stoker")
	if err := errors.Join(os.WriteFile(copied, b, 0o755), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), copied, "doctor", "--attach", strconv.Itoa(pid))
	cmd.Env = append(os.Environ(), asCommand+"=1", "HOME="+dir)
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: who}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v %s", err, out)
	}
	for _, part := range []string{"verdict   insufficient evidence", "and we may not look into it", fmt.Sprintf("permission to read /proc/%d/fd", pid), fmt.Sprintf("change    sudo stoker doctor --attach %d", pid)} {
		if !strings.Contains(string(out), part) {
			t.Errorf("%q is not in\n%s", part, out)
		}
	}
}
