package worker

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/procfs"
)

// process is a worker's process, never another one that has got its PID: through a pidfd,
// or, where a kernel before 5.3 or a sandbox refuses that, by the time at which it began.
type process struct {
	pid   int
	fd    int // pidfd; -1: none
	began float64
}

var pidfdOpen = unix.PidfdOpen // tests refuse it

// between are the looks at a process without a pidfd.
const between = 20 * time.Millisecond

// find returns the process with a PID; nil if there is none.
func find(pid int) *process {
	if pid <= 0 {
		return nil
	}
	fd, err := pidfdOpen(pid, 0)
	if err == nil {
		return &process{pid: pid, fd: fd}
	}
	stat, ok := procfs.Of("/proc", pid)
	if !ok || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return &process{pid, -1, stat.Start}
}

// signal sends a signal, if the process has not ended.
func (p *process) signal(number unix.Signal) error {
	switch {
	case p.fd >= 0:
		return unix.PidfdSendSignal(p.fd, number, nil, 0)
	case !p.lives():
		return unix.ESRCH
	}
	return unix.Kill(p.pid, number)
}

// wait returns when the process has ended.
func (p *process) wait() {
	for p.fd < 0 {
		if !p.lives() {
			return
		}
		time.Sleep(between)
	}
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}, -1)
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// lives looks at a process without a pidfd.
func (p *process) lives() bool {
	stat, ok := procfs.Of("/proc", p.pid)
	return ok && stat.Start == p.began && stat.State != 'Z' && stat.State != 'X'
}

func (p *process) close() {
	if p.fd >= 0 {
		_ = unix.Close(p.fd)
	}
}
