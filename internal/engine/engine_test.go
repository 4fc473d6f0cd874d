package engine

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/wire"
)

const testVersion = "test"

// TestMain is the engine's process when the tests start themselves as one.
func TestMain(m *testing.M) {
	if os.Getenv("STOKER_TEST_ENGINE") != "" {
		if err := Run(3, 0, testVersion, "test"); err != nil {
			os.Exit(7)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// patience is only there so that a failure ends: an engine may get little of
// its processor.
const patience = 20 * time.Second

// client is the other side of a real engine process, in plain Go.
type client struct {
	t      *testing.T
	sock   *net.UnixConn
	engine *exec.Cmd
	gone   chan error
	fds    []int
	buf    []byte
	req    int64
	page   []byte
	event  int
	slots  map[int64][]byte
}

// start begins an engine that watches the process pid, and says hello.
func start(t *testing.T, pid int, version string) (*client, *wire.Message) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "engine's end")
	ours := os.NewFile(uintptr(pair[0]), "client's end")
	c := &client{t: t, engine: exec.Command(os.Args[0]), gone: make(chan error, 1), slots: map[int64][]byte{}}
	c.engine.Env = append(os.Environ(), "STOKER_TEST_ENGINE=1", "STOKER_CACHE="+t.TempDir())
	c.engine.ExtraFiles = []*os.File{theirs}
	c.engine.Stderr = os.Stderr
	if err := c.engine.Start(); err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close()
	go func() { c.gone <- c.engine.Wait() }()
	t.Cleanup(func() { _ = c.engine.Process.Kill() })
	conn, err := net.FileConn(ours)
	if err != nil {
		t.Fatal(err)
	}
	_ = ours.Close()
	c.sock = conn.(*net.UnixConn)
	t.Cleanup(func() { _ = c.sock.Close() })
	m := c.ask(&wire.Message{Type: wire.TypeHello, Protocol: wire.Protocol, Version: version, PID: pid})
	if m.Type == wire.TypeHello {
		c.page, err = unix.Mmap(c.fds[0], 0, wire.PageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		c.event, c.fds = c.fds[1], nil
	}
	return c, m
}

func (c *client) send(m *wire.Message) {
	b, err := wire.Append(nil, m)
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.sock.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// ask sends a request and returns its answer; slots on the way are mapped.
func (c *client) ask(m *wire.Message) *wire.Message {
	c.t.Helper()
	c.req++
	m.Req = c.req
	c.send(m)
	for {
		a := c.read()
		if a.Type == wire.TypeSlot && a.Bytes == 0 {
			if err := unix.Munmap(c.slots[a.Slot]); err != nil {
				c.t.Errorf("slot %d is gone, and was not known: %v", a.Slot, err)
			}
			delete(c.slots, a.Slot)
		} else if a.Type == wire.TypeSlot {
			mem, err := unix.Mmap(c.fds[0], 0, int(a.Bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			if err != nil {
				c.t.Fatal(err)
			}
			checkSeals(c.t, c.fds[0])
			_ = unix.Close(c.fds[0])
			c.fds = c.fds[1:]
			c.slots[a.Slot] = mem
		}
		if a.Req == m.Req && a.Type != wire.TypeProgress {
			return a
		}
	}
}

// checkSeals holds that nobody can shrink a batch under its reader.
func checkSeals(t *testing.T, fd int) {
	want := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0); err != nil || seals != want {
		t.Errorf("seals are %#x (%v), want %#x", seals, err, want)
	}
	if unix.Ftruncate(fd, 0) == nil {
		t.Error("a slot can be truncated")
	}
}

func (c *client) read() *wire.Message {
	c.t.Helper()
	for {
		if len(c.buf) >= 4 {
			n := 4 + int(binary.LittleEndian.Uint32(c.buf))
			if len(c.buf) >= n {
				var m wire.Message
				if err := json.Unmarshal(c.buf[4:n], &m); err != nil {
					c.t.Fatal(err)
				}
				c.buf = c.buf[n:]
				return &m
			}
		}
		in, oob := make([]byte, 1<<16), make([]byte, 256)
		_ = c.sock.SetReadDeadline(time.Now().Add(patience))
		n, on, _, _, err := c.sock.ReadMsgUnix(in, oob)
		if err != nil || n == 0 {
			c.t.Fatalf("the engine's socket: %d bytes, %v", n, err)
		}
		c.buf = append(c.buf, in[:n]...)
		if cms, err := unix.ParseSocketControlMessage(oob[:on]); err == nil {
			for _, cm := range cms {
				fds, err := unix.ParseUnixRights(&cm)
				if err != nil {
					c.t.Fatal(err)
				}
				c.fds = append(c.fds, fds...)
			}
		}
	}
}

// giveBack releases a slot as a client does: a byte, and a kick.
func (c *client) giveBack(slot int64, how byte) {
	c.page[wire.PageSlots+slot] = how
	if _, err := unix.Write(c.event, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		c.t.Fatal(err)
	}
}

// ended waits for the engine's end.
func (c *client) ended(after string) {
	c.t.Helper()
	select {
	case <-c.gone:
	case <-time.After(patience):
		c.t.Errorf("the engine lives on after %s", after)
	}
}

func folder(t *testing.T, n int) string {
	root := t.TempDir()
	for i := range n {
		dir := filepath.Join(root, "class"+string(rune('a'+i%2)))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		body := []byte("P5 4 4 255\n")
		for range 16 {
			body = append(body, byte(i))
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%03d.pgm", i)), body, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func (c *client) open(root string) *wire.Message {
	spec, _ := json.Marshal(map[string]any{
		"dataset": map[string]any{"path": root},
		"fields": []any{
			map[string]any{"name": "image", "decode": "rgb", "transform": []any{map[string]any{"op": "Resize", "size": []int{4, 4}}}},
			map[string]any{"name": "label", "decode": "int"},
		},
		"order": map[string]any{"shuffle": "full", "seed": 3}, "batch": map[string]any{"size": 8}, "workers": 2,
	})
	return c.ask(&wire.Message{Type: wire.TypeOpen, Spec: spec})
}

func TestAnEpochOverTheWire(t *testing.T) {
	c, hello := start(t, os.Getpid(), testVersion)
	if hello.Protocol != wire.Protocol || hello.PID != c.engine.Process.Pid || hello.Lanes < 1 {
		t.Fatalf("hello is %+v", hello)
	}
	opened := c.open(folder(t, 50))
	if opened.Type != wire.TypeOpened || opened.Samples != 50 || len(opened.Classes) != 2 || len(opened.Fields) != 2 {
		t.Fatalf("opened is %+v", opened)
	}
	for epoch := range int64(3) {
		passed := c.ask(&wire.Message{Type: wire.TypePass, Loader: opened.Loader, Epoch: epoch})
		if passed.Type != wire.TypePassed || passed.Steps != 7 {
			t.Fatalf("passed is %+v", passed)
		}
		seen := map[byte]bool{}
		for {
			b := c.ask(&wire.Message{Type: wire.TypeNext, Pass: passed.Pass, Timeout: 20000})
			if b.Type == wire.TypeEnd {
				break
			}
			if b.Type != wire.TypeBatch {
				t.Fatalf("next is %+v", b.Error)
			}
			for r := range b.Rows {
				seen[c.slots[b.Slot][int(b.Data[0].Off)+r*48]] = true
			}
			how := byte(wire.SlotFree)
			if b.Step == 2 {
				how = wire.SlotDrop // as after a fork
			}
			c.giveBack(b.Slot, how)
		}
		if len(seen) != 50 {
			t.Errorf("epoch %d: %d different pictures of 50", epoch, len(seen))
		}
	}
	if e := c.ask(&wire.Message{Type: wire.TypeNext, Pass: 99}); e.Error == nil || e.Error.Code != errs.Config {
		t.Errorf("a pass that does not exist: %+v", e)
	}
	if e := c.ask(&wire.Message{Type: "dance"}); e.Error == nil || e.Error.Exception != "EngineError" {
		t.Errorf("a message that does not exist: %+v", e)
	}
	_ = c.sock.Close()
	c.ended("its client closed the socket")
}

func TestOtherVersionsAreRefused(t *testing.T) {
	c, m := start(t, os.Getpid(), "another")
	if m.Error == nil || m.Error.Code != errs.Incompatible || m.Error.Hint == "" {
		t.Fatalf("got %+v", m)
	}
	c.ended("refusing its client")
}

// The socket may be held open by a forked child of a client that was killed.
func TestTheClientsDeathIsNoticedWithoutTheSocket(t *testing.T) {
	trainer := exec.Command("sleep", "60")
	if err := trainer.Start(); err != nil {
		t.Fatal(err)
	}
	c, _ := start(t, trainer.Process.Pid, testVersion)
	c.open(folder(t, 10))
	_ = trainer.Process.Kill()
	_ = trainer.Wait()
	c.ended("the trainer was killed")
}

func TestSignalsForTheTrainerPassBy(t *testing.T) {
	c, _ := start(t, os.Getpid(), testVersion)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		_ = c.engine.Process.Signal(sig)
	}
	if m := c.open(folder(t, 10)); m.Type != wire.TypeOpened {
		t.Errorf("after the signals: %+v", m)
	}
}

func TestMemoryComesBackFromDroppedSlots(t *testing.T) {
	c, _ := start(t, os.Getpid(), testVersion)
	opened := c.open(folder(t, 50))
	count := func() int {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", c.engine.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	// The engine takes slots back beside its answers: news of the last ones may
	// come any time later.
	settle := func() {
		for end := time.Now().Add(patience); len(c.slots) > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d slots are mapped: nobody says that the dropped ones are gone", len(c.slots))
			}
			c.ask(&wire.Message{Type: wire.TypeStats, Loader: opened.Loader})
		}
	}
	before := 0
	for epoch := range int64(40) {
		passed := c.ask(&wire.Message{Type: wire.TypePass, Loader: opened.Loader, Epoch: epoch})
		for b := c.ask(&wire.Message{Type: wire.TypeNext, Pass: passed.Pass}); b.Type == wire.TypeBatch; b = c.ask(&wire.Message{Type: wire.TypeNext, Pass: passed.Pass}) {
			c.giveBack(b.Slot, wire.SlotDrop)
		}
		settle()
		if epoch == 3 {
			before = count()
		}
	}
	const ahead = 16 // batches of the next epoch may be on their way, now or then
	if now := count(); now > before+ahead {
		t.Errorf("the engine has %d descriptors, %d before", now, before)
	}
}
