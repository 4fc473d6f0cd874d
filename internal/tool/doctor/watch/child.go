package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/tool/doctor/hook"
	"github.com/stoker-data/stoker/internal/tool/doctor/system"
)

// hooked is a folder of this run: the hook, what it writes, and a lock for as long
// as we live. It goes with the run; that of a doctor that was killed goes when the
// next one begins.
type hooked struct {
	dir   string
	lines string // where processes write
	code  string // what leads PYTHONPATH
	held  *os.File
}

// prefix begins the names of such folders.
const prefix = "stoker-doctor-"

// newHooked makes the folder where temporary files go, or in memory if that cannot
// be written.
func newHooked() (h hooked, err error) {
	parents := [...]string{os.TempDir(), "/dev/shm"}
	for _, parent := range parents {
		sweep(parent)
	}
	for _, parent := range parents {
		h.dir, err = os.MkdirTemp(parent, prefix)
		if err == nil {
			break
		}
	}
	if err != nil {
		return h, errs.New(errs.Space, "there is no folder to write measurements to").Because(err).Try("TMPDIR=/a/folder/that/can/be/written stoker doctor -- ...")
	}
	h.lines, h.code = filepath.Join(h.dir, "lines"), filepath.Join(h.dir, "hook")
	if err = h.fill(); err != nil {
		h.remove()
		return h, errs.New(errs.Space, "the hook cannot be written").At(errs.Where{File: h.dir}).Because(err).Try("TMPDIR=/a/folder/with/room stoker doctor -- ...")
	}
	return h, nil
}

func (h *hooked) fill() (err error) {
	if h.held, err = hold(h.dir); err != nil {
		return err
	}
	if err := os.Mkdir(h.lines, 0o700); err != nil {
		return err
	}
	return hook.Write(h.code)
}

// remove takes the folder away. A process that outlives its parent may write
// into it meanwhile, so that it is tried again.
func (h hooked) remove() {
	if h.held != nil {
		defer h.held.Close()
	}
	for range 10 {
		if os.RemoveAll(h.dir) == nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// env is the script's environment.
func (h hooked) env() []string { return hook.Env(h.code, h.lines, os.Environ()) }

// child is the script. Its standard streams are what Start is given; it is not
// altered otherwise.
//
// On a terminal it stays in our process group, so that it may read from there
// and Ctrl-C and Ctrl-Z reach it as without us. Elsewhere it leads one of its
// own, and signals are passed on.
type child struct {
	cmd   *exec.Cmd
	own   bool // a group of its own
	done  chan struct{}
	state *os.ProcessState // after done
}

func startChild(command []string, env []string, in io.Reader, out, errOut io.Writer) (*child, error) {
	c := &child{cmd: exec.Command(command[0], command[1:]...), own: !terminal(in), done: make(chan struct{})}
	c.cmd.Env, c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = env, in, out, errOut
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: c.own}
	c.cmd.WaitDelay = 2 * time.Second // what it started may hold its output open
	if err := c.cmd.Start(); err != nil {
		e := errs.New(errs.NotFound, "%s cannot be started", command[0]).Because(err)
		if errors.Is(err, fs.ErrPermission) {
			return nil, e.Try("stoker doctor -- python %s", strings.Join(command, " "))
		}
		if filepath.Ext(command[0]) == ".py" { // a script in this folder, without the word that runs it
			if _, found := os.Stat(command[0]); found == nil {
				return nil, e.Try("stoker doctor -- python %s", strings.Join(command, " "))
			}
		}
		return nil, e.Try("is it installed, and in PATH? Put the command after --, as in stoker doctor -- python train.py")
	}
	go func() {
		_ = c.cmd.Wait()
		c.state = c.cmd.ProcessState
		close(c.done)
	}()
	return c, nil
}

func terminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// pass passes a signal on. On a terminal the kernel has sent the first Ctrl-C to
// the script itself.
func (c *child) pass(s syscall.Signal, first bool) {
	switch {
	case c.own:
		_ = syscall.Kill(-c.pid(), s)
	case s != syscall.SIGINT || !first:
		_ = c.cmd.Process.Signal(s)
	}
}

// patience is how long a script may take to end after SIGTERM.
const patience = 5 * time.Second

// stop ends the script and all that came of it, also what others have taken over,
// such as ranks in sessions of their own: w has seen them. What does not end in
// time, or when ctx does, is killed.
func (c *child) stop(ctx context.Context, w *system.Watched, patience time.Duration) {
	w.Look(c.pid(), system.Now())
	late := time.NewTimer(patience)
	defer late.Stop()
	if c.own {
		_ = syscall.Kill(-c.pid(), syscall.SIGTERM)
	}
	w.Signal(syscall.SIGTERM)
	for tries := time.NewTicker(50 * time.Millisecond); ; {
		select {
		case <-tries.C:
			if !c.running() && !w.Alive() {
				tries.Stop()
				return
			}
		case <-late.C:
			tries.Stop()
			w.Signal(syscall.SIGKILL)
			if c.own {
				_ = syscall.Kill(-c.pid(), syscall.SIGKILL)
			}
			<-c.done
			return
		case <-ctx.Done():
			late.Reset(0)
			ctx = context.Background()
		}
	}
}

func (c *child) running() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// status is the exit status that the script ended with, as a shell has it.
func (c *child) status() int {
	w, ok := c.state.Sys().(syscall.WaitStatus)
	switch {
	case !ok:
		return 1
	case w.Signaled():
		return 128 + int(w.Signal())
	}
	return w.ExitStatus()
}

// ended is how it ended, in words.
func (c *child) ended() string {
	if w, ok := c.state.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return fmt.Sprintf("killed by signal %d, %s", w.Signal(), w.Signal())
	}
	return fmt.Sprintf("exit status %d", c.status())
}
