package score

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// sandbox is where a job runs: on two cores, in cgroups of its own where it has
// limits. Children are started from a thread that is put there first, and is
// thrown away after: what a child inherits holds from its first instruction.
type sandbox struct {
	cores  unix.CPUSet
	groups []group
}

// group is a cgroup that we made.
type group struct {
	folder string
	tasks  string // the file that takes a thread (v1) or nothing (v2)
}

var sandboxes atomic.Int64 // of this process, for names

// newSandbox makes it; quota is cores, memory bytes, 0: no limit.
func newSandbox(quota float64, memory int64) (*sandbox, error) {
	p := &sandbox{}
	var mine unix.CPUSet
	if err := unix.SchedGetaffinity(0, &mine); err != nil {
		return nil, err
	}
	for c := 0; p.cores.Count() < Cores && c < 1024; c++ {
		if mine.IsSet(c) {
			p.cores.Set(c)
		}
	}
	if p.cores.Count() < Cores {
		return nil, fmt.Errorf("score: scenarios are made for %d cores, and there is one", Cores)
	}
	name := fmt.Sprintf("stoker-score-%d-%d", os.Getpid(), sandboxes.Add(1))
	const period = 100_000 // microseconds, the kernel's own
	settings := map[string][2]string{}
	if quota > 0 {
		settings["cpu"] = [2]string{fmt.Sprint(int64(quota * period)), "cpu.cfs_quota_us"}
	}
	if memory > 0 {
		settings["memory"] = [2]string{fmt.Sprint(memory), "memory.limit_in_bytes"}
	}
	for controller, s := range settings {
		g, err := newGroup(controller, name, s[1], s[0], period)
		if err != nil {
			p.close()
			return nil, fmt.Errorf("score: no cgroup for a limit of %s: %w", controller, err)
		}
		p.groups = append(p.groups, g)
	}
	return p, nil
}

// newGroup makes a cgroup below our own, so that limits above it hold on.
func newGroup(controller, name, file, value string, period int) (group, error) {
	own, v2, err := ownGroup(controller)
	if err != nil {
		return group{}, err
	}
	g := group{folder: filepath.Join(own, name)}
	if v2 { // the keys of v2, and no single threads
		file = map[string]string{"cpu": "cpu.max", "memory": "memory.max"}[controller]
		if controller == "cpu" {
			value += fmt.Sprintf(" %d", period)
		}
	} else {
		g.tasks = filepath.Join(g.folder, "tasks")
	}
	if err := os.Mkdir(g.folder, 0o755); err != nil {
		return group{}, err
	}
	if err := os.WriteFile(filepath.Join(g.folder, file), []byte(value), 0o644); err != nil {
		return group{}, errors.Join(err, os.Remove(g.folder))
	}
	return g, nil
}

// ownGroup is the folder of the cgroup that this process is in.
func ownGroup(controller string) (folder string, v2 bool, err error) {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", false, err
	}
	unified := ""
	for line := range strings.Lines(string(b)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		if slices.Contains(strings.Split(part[1], ","), controller) {
			return firstThatIs("/sys/fs/cgroup/"+part[1]+part[2], "/sys/fs/cgroup/"+controller+part[2], "/sys/fs/cgroup/"+controller), false, nil
		}
		if part[1] == "" {
			unified = "/sys/fs/cgroup" + part[2]
		}
	}
	if unified == "" {
		return "", false, fmt.Errorf("no controller of that name is mounted")
	}
	return unified, true, nil
}

func firstThatIs(paths ...string) string {
	for _, p := range paths {
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	return paths[0]
}

// start starts a command in the sandbox.
func (p *sandbox) start(cmd *exec.Cmd) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() { // the process's first thread never ends: it would stay in the sandbox
			done <- p.start(cmd) // on another, since this one is taken
			runtime.UnlockOSThread()
			return
		}
		done <- p.here(cmd) // never unlocked: the thread ends with the goroutine
	}()
	return <-done
}

func (p *sandbox) here(cmd *exec.Cmd) error {
	if err := unix.SchedSetaffinity(0, &p.cores); err != nil {
		return err
	}
	for _, g := range p.groups {
		if g.tasks != "" {
			if err := os.WriteFile(g.tasks, []byte(strconv.Itoa(unix.Gettid())), 0o644); err != nil {
				return fmt.Errorf("score: a process cannot be put into %s: %w", g.folder, err)
			}
			continue
		}
		f, err := os.Open(g.folder)
		if err != nil {
			return err
		}
		defer f.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(f.Fd())
	}
	return cmd.Start()
}

// close removes the cgroups; what is left in them is killed.
func (p *sandbox) close() error {
	var err error
	for _, g := range p.groups {
		err = errors.Join(err, g.remove())
	}
	p.groups = nil
	return err
}

func (g group) remove() error {
	var err error
	for range 40 {
		if err = os.Remove(g.folder); err == nil || errors.Is(err, os.ErrNotExist) {
			return nil
		}
		b, _ := os.ReadFile(filepath.Join(g.folder, "cgroup.procs"))
		for _, pid := range strings.Fields(string(b)) {
			if n, err := strconv.Atoi(pid); err == nil && n > 1 && n != os.Getpid() {
				_ = unix.Kill(n, unix.SIGKILL)
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}
