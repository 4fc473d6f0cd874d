package worker

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/procfs"
)

// stackSignal asks a worker for its Python stack, SIGRTMAX - 2 in python/src/stoker/_inside.py:
// its faulthandler writes it after the page, also while C code has the interpreter.
const stackSignal = unix.Signal(62)

// settled is how long nothing is added to a stack that is complete.
const settled = 50 * time.Millisecond

// maxStack is how much of a stack is read, in bytes.
const maxStack = 1 << 20

// Stack asks the worker for its Python stack, and waits for it: all threads, the innermost
// call first. "": it does not answer.
func (c *Conn) Stack(wait time.Duration) string {
	c.mu.Lock()
	if !c.ready || c.page == nil || c.process == nil {
		c.mu.Unlock()
		return ""
	}
	from := size(c.file)
	file, err := unix.FcntlInt(uintptr(c.file), unix.F_DUPFD_CLOEXEC, 3)
	if err == nil {
		defer unix.Close(file)
		err = c.process.signal(stackSignal)
	}
	c.mu.Unlock()
	if err != nil {
		return ""
	}
	begin, last, to := time.Now(), time.Now(), from
	for time.Since(begin) < wait && (to == from || time.Since(last) < settled) {
		time.Sleep(5 * time.Millisecond)
		if now := size(file); now != to {
			to, last = now, time.Now()
		}
	}
	text := make([]byte, min(to-from, maxStack))
	n, err := unix.Pread(file, text, from)
	if err != nil {
		return ""
	}
	return string(text[:n])
}

func size(file int) int64 {
	var stat unix.Stat_t
	if unix.Fstat(file, &stat) != nil {
		return 0
	}
	return stat.Size
}

// State is that of the worker's process, as the kernel says in /proc: 'T' and 't' are
// stopped, 'D' waits in the kernel; 0: not known.
func (c *Conn) State() byte {
	if c.pid == 0 {
		return 0
	}
	stat, _ := procfs.Of("/proc", c.pid)
	return stat.State
}
