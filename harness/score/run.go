package score

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/stoker-data/stoker/harness/slowfs"
)

// bench runs jobs: where programs, data and what jobs write are.
type bench struct {
	python, stoker string
	data, work     string
	seconds        float64 // that a measured job trains
	patience       time.Duration
}

// set is a job that is set up: its data are mounted, its files written, its
// cgroups made.
type set struct {
	bench
	job     Job
	folder  string
	root    string
	fs      *slowfs.FS
	served  *served
	sandbox *sandbox
}

// setUp makes everything that a job needs. Names say nothing of what is wrong.
func (b bench) setUp(j Job, name string) (s *set, err error) {
	if err := j.check(); err != nil {
		return nil, err
	}
	s = &set{bench: b, job: j, folder: filepath.Join(b.work, name)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if err := os.MkdirAll(s.folder, 0o755); err != nil {
		return s, err
	}
	if j.Data != Nothing {
		of, err := j.Data.make(b.data)
		if err != nil {
			return s, err
		}
		s.root = filepath.Join(s.folder, "data")
		if err := os.Mkdir(s.root, 0o755); err != nil {
			return s, err
		}
		if s.fs, err = slowfs.Mount(of, s.root, slowfs.Options{Delays: j.Storage, Cache: j.Cache}); err != nil {
			return s, err
		}
	}
	if j.Link != nil {
		if s.served, err = serve(s.root, *j.Link); err != nil {
			return s, err
		}
		s.root = s.served.url()
	}
	if s.sandbox, err = newSandbox(j.Quota, j.Memory); err != nil {
		return s, err
	}
	return s, s.write()
}

func (s *set) write() error {
	if s.job.Loader != nil {
		spec := strings.ReplaceAll(s.job.Loader.Spec, "DATA", s.root)
		return os.WriteFile(filepath.Join(s.folder, "train.yaml"), []byte(spec), 0o644)
	}
	text, err := s.job.Script.text(s.job, s.root)
	if err != nil {
		return err
	}
	if s.job.Device {
		if err := os.WriteFile(filepath.Join(s.folder, "simulated_cuda.py"), simulated, 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(s.folder, "train.py"), []byte(text), 0o644)
}

func (s *set) close() error {
	var err error
	if s.sandbox != nil {
		err = s.sandbox.close()
	}
	if s.served != nil {
		err = errors.Join(err, s.served.close())
	}
	if s.fs != nil {
		err = errors.Join(err, s.fs.Close())
	}
	return errors.Join(err, os.RemoveAll(s.folder))
}

// command is the job as its user starts it, training for so long.
func (s *set) command(seconds float64) []string {
	long := strconv.FormatFloat(seconds, 'f', -1, 64)
	if s.job.Ranks > 1 {
		return []string{
			s.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", strconv.Itoa(s.job.Ranks), "train.py", long,
		}
	}
	if s.job.Alone {
		return []string{s.python, "-I", "train.py", long}
	}
	return []string{s.python, "train.py", long}
}

// rate runs the job without a doctor: batches a second, once it is under way.
// What is read for the first time is left out of both kinds of jobs.
func (s *set) rate(ctx context.Context) (float64, error) {
	if s.job.Loader != nil {
		if s.job.Cache == slowfs.Keep { // a process of its own would do: what it read stays in memory
			if _, err := s.benched(ctx, s.seconds/3); err != nil {
				return 0, err
			}
		}
		return s.benched(ctx, 2*s.seconds/3)
	}
	out, err := s.run(ctx, s.command(s.seconds))
	if err != nil {
		return 0, err
	}
	r, ok := steady(string(out), s.seconds/3)
	if !ok {
		return 0, fmt.Errorf("score: the script said %q, and not how far it came", tail(string(out), 300))
	}
	return r, nil
}

// benched loads a Spec for a time: batches a second, after the first.
func (s *set) benched(ctx context.Context, seconds float64) (float64, error) {
	step := float64(s.job.Loader.Step) / float64(time.Millisecond)
	out, err := s.run(ctx, []string{
		s.stoker, "bench", "--spec", "train.yaml", "--json", "--seconds", fmt.Sprint(seconds), "--step-ms", fmt.Sprint(step),
	})
	if err != nil {
		return 0, err
	}
	var r struct {
		Batches int64   `json:"batches"`
		Seconds float64 `json:"seconds"`
		First   float64 `json:"first_batch_s"`
	}
	if err := json.Unmarshal(out, &r); err != nil || r.Batches < 2 || r.Seconds <= r.First {
		return 0, fmt.Errorf("score: stoker bench said %q, and not how far it came", out)
	}
	return float64(r.Batches-1) / (r.Seconds - r.First), nil
}

// steady is the rate that a script's log shows once it has run for warm seconds:
// between the ends of epochs where there are some, so that their starts are in
// it as often as they should be.
func steady(log string, warm float64) (perSecond float64, ok bool) {
	type moment struct{ at, batches float64 }
	var all, ends []moment
	for line := range strings.Lines(log) {
		m := progress.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		at, _ := strconv.ParseFloat(m[1], 64)
		n, _ := strconv.ParseFloat(m[2], 64)
		if at < warm {
			continue
		}
		all = append(all, moment{at, n})
		if strings.HasSuffix(m[3], "done") {
			ends = append(ends, moment{at, n})
		}
	}
	if len(ends) >= 3 {
		all = ends
	}
	if len(all) < 2 {
		return 0, false
	}
	first, last := all[0], all[len(all)-1]
	return (last.batches - first.batches) / (last.at - first.at), last.batches > first.batches
}

var progress = regexp.MustCompile(`^([0-9.]+) s: ([0-9]+) batches, (.*)$`)

// Said is what the doctor said: the parts of its JSON that are scored, and all of
// it.
type Said struct {
	Verdict struct {
		Name    string  `json:"name"`
		Of      string  `json:"of"`
		Bound   bool    `json:"data_bound"`
		Says    string  `json:"sentence"`
		Speedup float64 `json:"speedup"`
	} `json:"verdict"`
	Findings []struct {
		Name string `json:"name"`
	} `json:"findings"`
	Report json.RawMessage `json:"-"`
}

// doctor has the job looked at. It is told what its user would tell it, and is
// stopped when it has a verdict.
func (s *set) doctor(ctx context.Context) (said Said, err error) {
	asked := []string{s.stoker, "doctor", "--json", "--stop", "--"}
	if l := s.job.Loader; l != nil {
		asked = []string{s.stoker, "doctor", "--json", "--quick", "--spec", "train.yaml", "--step-ms", fmt.Sprint(float64(l.Step) / float64(time.Millisecond))}
	} else {
		asked = append(asked, s.command(4*s.patience.Seconds())...)
	}
	out, err := s.run(ctx, asked)
	if err != nil {
		return said, fmt.Errorf("the doctor: %w", err)
	}
	if err := json.Unmarshal(out, &said); err != nil {
		return said, fmt.Errorf("the doctor said no JSON: %q", out)
	}
	said.Report = out
	return said, nil
}

// run runs a command in the job's sandbox until it ends or patience does; whatever
// it started ends with it.
func (s *set) run(ctx context.Context, command []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	if s.job.Shm > 0 {
		const mounted = `mount -t tmpfs -o size="$0" tmpfs /dev/shm && exec "$@"`
		command = append([]string{"unshare", "--mount", "sh", "-c", mounted, strconv.FormatInt(s.job.Shm, 10)}, command...)
	}
	cmd := exec.Command(command[0], command[1:]...)
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.folder, &out, &errs
	cmd.Env = append(os.Environ(), "STOKER_CACHE="+filepath.Join(s.folder, "cache"), "STOKER_ENGINE="+s.stoker, "PYTHONDONTWRITEBYTECODE=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 10 * time.Second
	if err := s.sandbox.start(cmd); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		_ = cmd.Process.Signal(syscall.SIGTERM) // the doctor ends its script
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
		}
		err = fmt.Errorf("%s did not end: %w", filepath.Base(command[0]), ctx.Err())
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, crash(errs.String()))
	}
	return out.Bytes(), nil
}

// crash is what a command said last, or the words that a Go program dies with: a script
// that outlives its doctor goes on talking after them.
func crash(s string) string {
	for _, sign := range []string{"panic: ", "fatal error: ", "SIGQUIT: ", "unexpected fault address"} {
		if at := strings.Index(s, sign); at >= 0 {
			return s[at:min(len(s), at+4000)]
		}
	}
	return tail(s, 600)
}

func tail(s string, n int) string {
	s = strings.TrimSpace(s)
	return s[max(0, len(s)-n):]
}
