package resume

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/wire"
)

// patience is how long the parent waits for a line: longer than a child waits for a
// batch, so that the child can say what stalled.
const patience = 2 * deadline

// process is a running child.
type process struct {
	cmd    *exec.Cmd
	input  io.WriteCloser
	lines  *bufio.Reader
	stderr bytes.Buffer
	alarm  *time.Timer
	silent atomic.Bool // the alarm killed it
}

// start starts a child with a job.
func (c *Config) start(ctx context.Context, job Job) (*process, error) {
	job.Spec.Dataset = job.Spec.Dataset.AsGiven() // it goes through a pipe
	text, err := json.Marshal(job)
	if err != nil {
		return nil, errs.New(errs.Bug, "cannot write a job").Because(err)
	}
	p := &process{cmd: c.Command(ctx)}
	p.cmd.Stderr = &p.stderr
	if p.input, err = p.cmd.StdinPipe(); err != nil {
		return nil, errs.New(errs.Unreadable, "cannot make a pipe to a child").Because(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return nil, errs.New(errs.Unreadable, "cannot start a child").Because(err)
	}
	p.lines = bufio.NewReader(out)
	p.alarm = time.AfterFunc(patience, func() { p.silent.Store(true); _ = p.cmd.Process.Kill() })
	_, _ = p.input.Write(append(text, '\n')) // if it has died, next reports why
	return p, nil
}

// grant lets the child take steps more steps. It does not wait for it, which would
// be a deadlock if the child waited for its lines to be read.
func (p *process) grant(steps int) {
	go func() { _, _ = p.input.Write(bytes.Repeat([]byte{'.'}, steps)) }()
}

// next is the child's next step; nil if it has ended.
func (p *process) next() (*Step, error) {
	p.alarm.Reset(patience)
	line, err := p.lines.ReadBytes('\n')
	if err != nil {
		return nil, nil //nolint:nilerr,nilnil // wait reports what ended it
	}
	var s Step
	if err := json.Unmarshal(line, &s); err != nil || len(s.IDs) != len(s.Valid) || len(s.IDs) != len(s.Rows) {
		return nil, errs.New(errs.Bug, "a child wrote a line that is not a step: %.80q", line)
	}
	return &s, nil
}

// end lets the child end by itself, and returns its error.
func (p *process) end() error {
	_ = p.input.Close()
	_, _ = io.Copy(io.Discard, p.lines)
	p.alarm.Stop()
	return p.reason(p.cmd.Wait())
}

// kill ends the child with SIGKILL and returns the steps that it wrote before and
// that were not read yet; killed reports whether it died of the signal.
func (p *process) kill() (rest []*Step, killed bool, err error) {
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	for {
		s, err := p.next()
		if err != nil || s == nil {
			break // a truncated line was not written completely: its step is repeated
		}
		rest = append(rest, s)
	}
	_ = p.input.Close()
	p.alarm.Stop()
	err = p.cmd.Wait()
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGKILL && !p.silent.Load() {
		return rest, true, nil
	}
	return rest, false, p.reason(err)
}

// reason is the error that a child reported.
func (p *process) reason(err error) error {
	if err == nil {
		return nil
	}
	if p.silent.Load() {
		return errs.New(errs.Stalled, "a child wrote nothing for %.0f s", patience.Seconds()).Try("check that the storage answers: run stoker bench with the same Spec")
	}
	var told struct {
		Error *wire.Error `json:"error"`
	}
	text := strings.TrimSpace(p.stderr.String())
	if json.Unmarshal([]byte(text), &told) == nil && told.Error != nil {
		e := told.Error
		out := &errs.Error{Code: e.Code, What: e.What, Where: e.Where, Hint: e.Hint}
		if e.Cause != "" {
			out.Cause = errors.New(e.Cause)
		}
		return out
	}
	return errs.New(errs.Died, "a child died: %s", last(text)).Because(err).Try("dmesg says whether the kernel killed it because memory ran out")
}

func last(text string) string {
	lines := strings.Split(text, "\n")
	return fmt.Sprintf("%.200q", lines[len(lines)-1])
}
