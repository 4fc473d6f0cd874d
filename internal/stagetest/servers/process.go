package servers

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds how long a server may take to listen: only one that hangs takes as long.
const patience = time.Minute

// process is a server that runs, the leader of a process group of its own. It ends with
// its test, and with the test's process, however that ends.
type process struct {
	pid   int
	said  *output
	ended chan struct{} // closed once it has ended
}

// start runs a server on a free port of 127.0.0.1, and returns once it listens there.
// Another process may take the port first; the server then ends, and gets another one.
func start(t testing.TB, command func(port int) *exec.Cmd) (p *process, port int) {
	t.Helper()
	for range 5 {
		port = freePort(t)
		p = launch(t, command(port))
		if p.listens(port, time.Now().Add(patience)) {
			t.Cleanup(p.end)
			return p, port
		}
		p.end()
	}
	t.Fatalf("the server does not listen on a free port; it said:\n%s", p.said)
	return nil, 0
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// launch starts a command that is killed when this process ends. The kernel sends that
// signal when the thread ends that has started it, so that one waits for it, too.
func launch(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{said: &output{}, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.said, p.said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Second // for a grandchild that keeps the pipe open
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it is killed, which Wait calls an error
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	p.pid = cmd.Process.Pid
	return p
}

func (p *process) end() {
	_ = syscall.Kill(-p.pid, syscall.SIGKILL) // it may have ended
	<-p.ended
}

// listens waits until the process itself listens on the port: an answer on the port would
// not tell whose it is. What connects from then on is served, if only after a moment.
func (p *process) listens(port int, until time.Time) bool {
	for wait := time.Millisecond; time.Now().Before(until); wait = min(2*wait, 50*time.Millisecond) {
		for _, inode := range listeners(p.pid, port) {
			if owns(p.pid, inode) {
				return true
			}
		}
		select {
		case <-p.ended:
			return false
		case <-time.After(wait):
		}
	}
	return false
}

// listeners are the inodes of the sockets that listen on a port, as a process sees them.
func listeners(pid, port int) (inodes []string) {
	const listen = "0A"
	local := fmt.Sprintf(":%04X", port)
	for _, table := range []string{"tcp", "tcp6"} {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 9 && f[3] == listen && strings.HasSuffix(f[1], local) {
				inodes = append(inodes, f[9])
			}
		}
	}
	return inodes
}

func owns(pid int, inode string) bool {
	links, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/fd/*")
	for _, link := range links {
		if to, _ := os.Readlink(link); to == "socket:["+inode+"]" {
			return true
		}
	}
	return false
}

// output is the end of what a server says. Safe for concurrent use.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	const kept = 1 << 16
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.text.Len() > kept {
		o.text.Next(o.text.Len() - kept/2)
	}
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
