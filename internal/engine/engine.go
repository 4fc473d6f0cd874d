// Package engine is the process that serves one trainer: it starts and ends with
// its client, reads requests from the inherited socket, and shares lanes and
// memory between the client's loaders.
package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/loader"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/deliver"
)

// Run serves the client at the other end of fd until it is gone. It returns an
// error only if it could not begin; the end of the client ends the process. parent
// is the client's process if its main thread started this one; otherwise 0.
func Run(fd, parent int, version, kernel string) error {
	if parent > 0 {
		dieWith(parent)
	}
	// The trainer may be saving a checkpoint when the terminal or the scheduler
	// signals the whole process group: the engine ends with its client, and not
	// before.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	cores := spec.Cores()
	// Lanes spend most of their time in C; two more threads run Go code meanwhile.
	runtime.GOMAXPROCS(cores + 2)

	conn, err := deliver.NewConn(fd)
	if err != nil {
		return err
	}
	hello, err := conn.Read()
	if err != nil && ended(err) {
		return nil // the client ended before its first message
	}
	if err != nil {
		return err
	}
	if hello.Type != wire.TypeHello || hello.Protocol != wire.Protocol || hello.Version != version {
		e := errs.New(errs.Incompatible, "client %s speaks protocol %d, engine %s speaks %d", hello.Version, hello.Protocol, version, wire.Protocol).
			Try("install one version of stoker: `pip install --force-reinstall stoker`, and unset STOKER_ENGINE")
		_ = conn.Write(deliver.Envelope{Message: &wire.Message{Type: wire.TypeError, Req: hello.Req, Error: wire.FromError(e)}})
		return e
	}
	watchClient(hello.PID)

	arena, err := deliver.NewArena()
	if err != nil {
		return err
	}
	shared := loader.NewShared(arena, stats.NewBoard(arena.Work(), 0))
	shared.Poison = os.Getenv("STOKER_POISON") != ""
	if shared.Page, err = stats.NewPage(stats.RoleEngine); err != nil {
		return err
	}
	go shared.Page.Beat()
	s := newSession(conn, arena, shared, hello.Suspects)
	answer := &wire.Message{Type: wire.TypeHello, Req: hello.Req, Protocol: wire.Protocol, Version: version, PID: os.Getpid(), Lanes: cores, Kernel: kernel}
	if err := conn.Write(deliver.Envelope{Message: answer, FDs: []int{arena.PageFD, arena.EventFD}}); err != nil {
		return err
	}
	go arena.Released(s.leasedIDs, s.back)
	if err := s.serve(); !ended(err) {
		return err
	}
	s.keep(keeping)
	// The client is gone, and all memory of this process is anonymous.
	os.Exit(0)
	return nil
}

// dieWith makes the kernel kill this process when the parent dies. That also
// reaches a stopped process, which neither the socket nor watchClient does. The
// kernel sends the signal when the thread that started this process ends, even if
// the parent lives on, so only a parent whose main thread did that may ask for it.
func dieWith(parent int) {
	_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
	if os.Getppid() != parent { // the parent died before the call
		os.Exit(0)
	}
}

// ended reports whether a read failed because the client is gone, and not because
// of what it sent.
func ended(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}

// watchClient ends this process with the client's. The socket alone does not tell:
// a forked child of the client may keep the other end open.
func watchClient(pid int) {
	if pid <= 0 {
		return
	}
	fd, err := unix.PidfdOpen(pid, 0)
	switch {
	case err == nil:
		go awaitEnd(fd)
	case errors.Is(err, unix.ESRCH):
		os.Exit(0)
	default: // a kernel before 5.3, or a sandbox that refuses the call
		go askForEnd(pid)
	}
}

// awaitEnd ends this process with the one that fd stands for.
func awaitEnd(fd int) {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
		if n > 0 || (err != nil && !errors.Is(err, unix.EINTR)) {
			os.Exit(0)
		}
	}
}

// between are the looks of askForEnd.
const between = 500 * time.Millisecond

// askForEnd ends this process soon after another. A client is usually the parent, and
// a process whose parent ends gets another one. Of any other process only its number
// is known, which a later process may take.
func askForEnd(pid int) {
	gone := func() bool { return errors.Is(unix.Kill(pid, 0), unix.ESRCH) }
	if os.Getppid() == pid {
		gone = func() bool { return os.Getppid() != pid }
	}
	for range time.Tick(between) {
		if gone() {
			os.Exit(0)
		}
	}
}

// keeping is how long an engine without a client writes entry points.
const keeping = time.Second

// keep writes the entry points that the loaders' lanes have found, for at most so long.
func (s *session) keep(most time.Duration) {
	until := time.Now().Add(most)
	ctx, stop := context.WithDeadline(context.Background(), until)
	defer stop()
	s.mu.Lock()
	loaders := slices.Collect(maps.Values(s.loaders))
	s.mu.Unlock()
	for _, l := range loaders {
		l.Keep(ctx)
	}
	s.shared.Settle(time.Until(until))
}

// noticed are the lines that notice has written.
var noticed sync.Map

// notice writes a line for the user, once. The standard error of the engine is its client's.
func notice(line string) {
	if _, told := noticed.LoadOrStore(line, true); !told {
		fmt.Fprintln(os.Stderr, "stoker: "+line)
	}
}
