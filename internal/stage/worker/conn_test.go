package worker

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// start starts a worker that runs a line of shell, with the socket as descriptor 3. gone gets
// whether the process had ended when the connection said so.
func start(t *testing.T, line string) (conn *Conn, gone chan bool) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "worker")
	cmd := exec.Command("sh", "-c", line)
	cmd.ExtraFiles = []*os.File{theirs}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	_ = theirs.Close()
	gone = make(chan bool, 1)
	var c *Conn
	made := make(chan struct{})
	c, err = New(pair[0], cmd.Process.Pid, func(any) error { return nil }, func(error) {
		<-made
		gone <- c.State() == 'Z' || c.State() == 0
	})
	close(made)
	if err != nil {
		t.Fatal(err)
	}
	return c, gone
}

// A worker whose socket is closed, but which lives, could still write to slots: it is dead
// before its rows are given to others.
func TestGoneIsDead(t *testing.T) { goneIsDead(t) }

// The same where the kernel has no pidfds.
func TestGoneIsDeadWithoutPidfd(t *testing.T) {
	pidfdOpen = func(int, int) (int, error) { return -1, unix.EPERM }
	t.Cleanup(func() { pidfdOpen = unix.PidfdOpen })
	t.Run("gone", goneIsDead)
	t.Run("kill", TestKill)
	t.Run("leave", TestLeave)
	t.Run("stack", TestStack)
}

func goneIsDead(t *testing.T) {
	for name, line := range map[string]string{
		"it closes its socket":         "exec 3>&-; exec sleep 60",
		"it sends what cannot be read": "head -c 100 /dev/zero >&3; exec sleep 60",
		"a child of it has the socket": "sleep 60 & kill -9 $$",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, gone := start(t, line)
			select {
			case dead := <-gone:
				if !dead {
					t.Errorf("its process is in state %c", conn.State())
				}
			case <-time.After(20 * time.Second):
				t.Fatal("nobody noticed")
			}
		})
	}
}

func TestKill(t *testing.T) {
	conn, gone := start(t, "exec sleep 60")
	if doing := conn.Doing(); doing != Starting {
		t.Errorf("before it says hello it does %d", doing)
	}
	if text := conn.Stack(time.Second); text != "" {
		t.Errorf("it has no Python, and said %q", text)
	}
	conn.Kill()
	if !<-gone {
		t.Errorf("its process is in state %c", conn.State())
	}
	conn.Kill()
}

// A worker that is sent home ends by itself, when it has done what it is at.
func TestLeave(t *testing.T) {
	file := t.TempDir() + "/done"
	conn, gone := start(t, `while IFS= read -r x; do :; done <&3; exec 3>&-; sleep 0.3; echo x >`+file)
	conn.Leave()
	select {
	case <-gone:
	case <-time.After(20 * time.Second):
		t.Fatal("it did not end")
	}
	if _, err := os.Stat(file); err != nil {
		t.Error("it was killed while it was ending:", err)
	}
}

// The signal writes after the page, and may come again.
func TestStack(t *testing.T) {
	line := `exec python3 -c '
import array, faulthandler, os, signal, socket, struct, time
sock = socket.socket(fileno=3)
_, extra, _, _ = sock.recvmsg(5, 64)
fd = array.array("i", extra[0][2])[0]
os.lseek(fd, 16, os.SEEK_SET)
faulthandler.register(signal.SIGRTMAX - 2, file=fd)
sock.sendall(struct.pack("<IBI", 5, 1, os.getpid()))
def stuck_here(): time.sleep(60)
stuck_here()
'`
	conn, gone := start(t, line)
	for begin := time.Now(); conn.Doing() == Starting; time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > 20*time.Second {
			t.Fatal("it did not start")
		}
	}
	for range 2 {
		text := ""
		for begin := time.Now(); text == "" && time.Since(begin) < 20*time.Second; {
			text = conn.Stack(5 * time.Second)
		}
		if n := len(text); n < 50 || n > 1000 {
			t.Errorf("%q", text)
		}
	}
	conn.Kill()
	<-gone
}
