package deliver_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/deliver"
)

// client is what a client has of an arena: the two descriptors, and its own mapping
// of the control page.
type client struct {
	page  []byte
	event int
}

func newArena(t *testing.T) (*deliver.Arena, client) {
	t.Helper()
	a, err := deliver.NewArena()
	if err != nil {
		t.Fatal(err)
	}
	page, err := unix.Mmap(a.PageFD, 0, wire.PageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(page) })
	return a, client{page, a.EventFD}
}

// giveBack is what a client does when the last array over a slot is gone.
func (c client) giveBack(slot int, how byte) { c.page[wire.PageSlots+slot] = how }

func (c client) kick(t *testing.T) {
	if _, err := unix.Write(c.event, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		t.Error(err)
	}
}

func alloc(t *testing.T, a *deliver.Arena, n int64) *batch.Slot {
	t.Helper()
	s, err := a.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A client maps the control page before anything else: what it finds there says
// whether both sides speak of the same page.
func TestControlPage(t *testing.T) {
	a, c := newArena(t)
	if got := string(c.page[:4]); got != "STK1" {
		t.Errorf("the page begins with %q", got)
	}
	if v, n := binary.LittleEndian.Uint32(c.page[4:]), binary.LittleEndian.Uint32(c.page[8:]); v != wire.Protocol || n != wire.MaxWork {
		t.Errorf("protocol %d, %d workers", v, n)
	}
	if len(bytes.Trim(c.page[wire.PageSlots:], "\x00")) > 0 {
		t.Error("a new page has slots or work")
	}
	work := a.Work()
	if len(work) != wire.MaxWork {
		t.Fatalf("%d entries of work", len(work))
	}
	work[2].Begin(wire.StageDecode, 7, 41)
	at := c.page[wire.PageWork+2*wire.WorkBytes:]
	if binary.LittleEndian.Uint32(at) != wire.StageDecode || binary.LittleEndian.Uint32(at[4:]) != 7 || binary.LittleEndian.Uint64(at[8:]) != 41 {
		t.Errorf("the client sees % x", at[:wire.WorkBytes])
	}
}

// A slot is memory that another process sees through its descriptor, and that nobody
// can resize while it is mapped.
func TestSlotIsSharedAndSealed(t *testing.T) {
	a, _ := newArena(t)
	s := alloc(t, a, 3*4096)
	defer a.Free(s)
	if len(s.Mem) != 3*4096 || !s.Fresh || len(bytes.Trim(s.Mem, "\x00")) > 0 {
		t.Fatalf("%d bytes, fresh %v", len(s.Mem), s.Fresh)
	}
	other, err := unix.Mmap(s.FD, 0, len(s.Mem), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(other) }()
	copy(s.Mem[5000:], "a row")
	if string(other[5000:5005]) != "a row" {
		t.Error("the client's mapping is other memory")
	}
	for _, size := range []int64{0, 4096, 1 << 20} {
		if unix.Ftruncate(s.FD, size) == nil {
			t.Errorf("the slot was resized to %d bytes", size)
		}
	}
	if flags, err := unix.FcntlInt(uintptr(s.FD), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Error("children of the engine inherit the slot")
	}
}

// Free gives the memory and the descriptor back. The client is told of slots that it
// knew of, once, and of no others.
func TestFreedSlotsAreTold(t *testing.T) {
	a, _ := newArena(t)
	known, unknown := alloc(t, a, 4096), alloc(t, a, 4096)
	known.Fresh = false // the client was sent its descriptor
	fd := known.FD
	a.Free(known)
	a.Free(unknown)
	if known.Mem != nil || known.FD != -1 {
		t.Errorf("a freed slot is %+v", known)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0); err == nil {
		t.Error("the descriptor of a freed slot is open")
	}
	if gone := a.Gone(); !slices.Equal(gone, []int{known.ID}) {
		t.Errorf("gone: %v, want %d", gone, known.ID)
	}
	if gone := a.Gone(); gone != nil {
		t.Errorf("told twice: %v", gone)
	}
}

// What cannot be had is an error that says what to do, and takes no slot number.
func TestNoMemory(t *testing.T) {
	a, _ := newArena(t)
	_, err := a.Alloc(1 << 50)
	if e := errs.From(err); err == nil || e.Code != errs.Memory || !strings.Contains(e.Hint, "batch_size") {
		t.Errorf("%v | %s", err, e.Hint)
	}
	for range wire.MaxSlots + 10 {
		if _, err := a.Alloc(1 << 50); err == nil || errs.CodeOf(err) != errs.Memory {
			t.Fatal(err)
		}
	}
	a.Free(alloc(t, a, 4096))
}

// Under any calls of either side: numbers of live slots differ, a number is used
// again as late as possible, and a scan reports exactly the leased slots whose byte the
// client has set, once, with what it asked for.
func TestSlotsUnderAnyCalls(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		a, err := deliver.NewArena()
		if err != nil {
			r.Fatal(err)
		}
		page, err := unix.Mmap(a.PageFD, 0, wire.PageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			r.Fatal(err)
		}
		c := client{page, a.EventFD}
		live := map[int]*batch.Slot{}
		set := map[int]byte{}
		last := -1
		ids := func() []int {
			var all []int
			for id := range live {
				all = append(all, id)
			}
			slices.Sort(all)
			return all
		}
		defer func() {
			for _, s := range live {
				a.Free(s)
			}
			_ = unix.Munmap(page)
			_ = unix.Close(a.PageFD)
			_ = unix.Close(a.EventFD)
		}()
		r.Repeat(map[string]func(*rapid.T){
			"alloc": func(r *rapid.T) {
				s, err := a.Alloc(4096)
				if err != nil {
					r.Fatal(err)
				}
				if live[s.ID] != nil {
					r.Fatalf("slot %d is used twice", s.ID)
				}
				if s.ID <= last {
					r.Fatalf("slot %d after %d: an old number came back before all others were used", s.ID, last)
				}
				if page[wire.PageSlots+s.ID] != wire.SlotLeased {
					r.Fatalf("slot %d is new, and its byte is %d", s.ID, page[wire.PageSlots+s.ID])
				}
				live[s.ID], last = s, s.ID
			},
			"client gives back": func(r *rapid.T) {
				if len(live) == 0 {
					r.Skip()
				}
				id := rapid.SampledFrom(ids()).Draw(r, "slot")
				set[id] = rapid.SampledFrom([]byte{wire.SlotFree, wire.SlotDrop}).Draw(r, "how")
				c.giveBack(id, set[id])
			},
			"scan": func(r *rapid.T) {
				leased := map[int]bool{}
				for _, id := range ids() {
					leased[id] = rapid.Bool().Draw(r, "leased")
				}
				got := map[int]byte{}
				a.Scan(func(yield func(int) bool) {
					for _, id := range ids() {
						if leased[id] && !yield(id) {
							return
						}
					}
				}, func(id int, drop bool) {
					got[id] = map[bool]byte{false: wire.SlotFree, true: wire.SlotDrop}[drop]
				})
				for _, id := range ids() {
					want := byte(0)
					if leased[id] {
						want = set[id]
						delete(set, id)
					}
					if got[id] != want {
						r.Fatalf("slot %d came back as %d, want %d", id, got[id], want)
					}
				}
			},
			"free": func(r *rapid.T) {
				if len(live) == 0 {
					r.Skip()
				}
				id := rapid.SampledFrom(ids()).Draw(r, "slot")
				a.Free(live[id])
				delete(live, id)
				delete(set, id)
			},
		})
	})
}

// Released hears of every slot that the client gives back, however many kicks fall
// into one.
func TestReleasedHearsOfAll(t *testing.T) {
	a, c := newArena(t)
	const slots = 40
	var mu sync.Mutex
	leased := map[int]bool{}
	var all []int
	for range slots {
		s := alloc(t, a, 4096)
		leased[s.ID] = true
		all = append(all, s.ID)
	}
	done := make(chan struct{})
	go a.Released(func(yield func(int) bool) {
		mu.Lock()
		ids := []int{}
		for id := range leased {
			ids = append(ids, id)
		}
		mu.Unlock()
		for _, id := range ids {
			if !yield(id) {
				return
			}
		}
	}, func(id int, drop bool) {
		mu.Lock()
		defer mu.Unlock()
		if !leased[id] || drop != (id%3 == 0) {
			t.Errorf("slot %d came back, drop %v", id, drop)
		}
		if delete(leased, id); len(leased) == 0 {
			close(done)
		}
	})
	for _, id := range all {
		c.giveBack(id, map[bool]byte{false: wire.SlotFree, true: wire.SlotDrop}[id%3 == 0])
		if id%4 == 0 {
			c.kick(t)
		}
	}
	c.kick(t)
	select {
	case <-done:
	case <-time.After(time.Minute):
		mu.Lock()
		defer mu.Unlock()
		t.Fatalf("%d slots never came back", len(leased))
	}
}

// pair is the engine's connection and the client's end of the socket.
func pair(t *testing.T) (*deliver.Conn, *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := deliver.NewConn(fds[0])
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "client")
	t.Cleanup(func() { _ = conn.Close(); _ = theirs.Close() })
	return conn, theirs
}

// A message arrives with its descriptors, which stay open at the engine's end.
func TestDescriptorsTravel(t *testing.T) {
	conn, theirs := pair(t)
	a, _ := newArena(t)
	s := alloc(t, a, 4096)
	copy(s.Mem, "the batch")
	if err := conn.Write(deliver.Envelope{Message: &wire.Message{Type: wire.TypeSlot, Slot: int64(s.ID), Bytes: 4096}, FDs: []int{s.FD}}); err != nil {
		t.Fatal(err)
	}
	b, oob := make([]byte, 4096), make([]byte, 256)
	n, on, _, _, err := unix.Recvmsg(int(theirs.Fd()), b, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	m, _, err := wire.Read(bytes.NewReader(b[:n]), nil)
	if err != nil || m.Type != wire.TypeSlot || m.Bytes != 4096 {
		t.Fatalf("%+v, %v", m, err)
	}
	cms, err := unix.ParseSocketControlMessage(oob[:on])
	if err != nil || len(cms) != 1 {
		t.Fatalf("%d control messages, %v", len(cms), err)
	}
	fds, err := unix.ParseUnixRights(&cms[0])
	if err != nil || len(fds) != 1 {
		t.Fatal(fds, err)
	}
	defer func() { _ = unix.Close(fds[0]) }()
	got, err := unix.Mmap(fds[0], 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil || string(got[:9]) != "the batch" {
		t.Fatalf("%q, %v", got[:9], err)
	}
	_ = unix.Munmap(got)
	if _, err := unix.FcntlInt(uintptr(s.FD), unix.F_GET_SEALS, 0); err != nil {
		t.Errorf("the engine's own descriptor: %v", err)
	}
}

// What a client hands over is queued, and no process that the engine starts inherits it.
func TestDescriptorsOfAClient(t *testing.T) {
	conn, theirs := pair(t)
	for range 3 {
		b, err := wire.Append(nil, &wire.Message{Type: wire.TypeWorker})
		if err != nil {
			t.Fatal(err)
		}
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Sendmsg(int(theirs.Fd()), b, unix.UnixRights(int(read.Fd())), nil, 0); err != nil {
			t.Fatal(err)
		}
		if m, err := conn.Read(); err != nil || m.Type != wire.TypeWorker {
			t.Fatalf("%+v, %v", m, err)
		}
		_ = read.Close()
		fd, ok := conn.Take()
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); !ok || err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("%t, flags %#x, %v", ok, flags, err)
		}
		_ = unix.Close(fd)
		_ = write.Close()
	}
	if fd, ok := conn.Take(); ok {
		t.Errorf("one too many: %d", fd)
	}
}

// Many writers at once: every call's messages arrive whole and next to each other,
// also those that are larger than the socket takes in one piece.
func TestWritersDoNotMix(t *testing.T) {
	conn, theirs := pair(t)
	const writers, calls, each = 6, 20, 3
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for c := range calls {
				var messages []deliver.Envelope
				for i := range each {
					long := strings.Repeat("x", (w*c*977)%300_000)
					messages = append(messages, deliver.Envelope{Message: &wire.Message{Type: wire.TypeProgress, Req: int64(w), Done: int64(c), Total: int64(i), What: long}})
				}
				if err := conn.Write(messages...); err != nil {
					t.Error(err)
				}
			}
		})
	}
	next := make([]int64, writers)
	var buf []byte
	for range writers * calls {
		var first *wire.Message
		for i := range int64(each) {
			m, grown, err := wire.Read(theirs, buf)
			if err != nil {
				t.Fatal(err)
			}
			buf = grown
			if first == nil {
				first = m
			}
			if m.Req != first.Req || m.Done != first.Done || m.Total != i {
				t.Fatalf("message %d of call %d of writer %d came within call %d of writer %d", m.Total, m.Done, m.Req, first.Done, first.Req)
			}
			if len(m.What) != int(m.Req*m.Done*977)%300_000 {
				t.Fatalf("a text of %d bytes", len(m.What))
			}
		}
		if first.Done != next[first.Req] {
			t.Fatalf("writer %d: call %d came in place of %d", first.Req, first.Done, next[first.Req])
		}
		next[first.Req]++
	}
	all.Wait()
}

// Requests are read one by one; the client's end is the end of the stream.
func TestReadUntilTheClientIsGone(t *testing.T) {
	conn, theirs := pair(t)
	var frames []byte
	for i := range int64(3) {
		frames, _ = wire.Append(frames, &wire.Message{Type: wire.TypeNext, Req: i})
	}
	frames = append(frames, 2, 0, 0, 0, '{', '{') // a whole frame that is not JSON
	frames, _ = wire.Append(frames, &wire.Message{Type: wire.TypeClose, Req: 4})
	if _, err := theirs.Write(frames); err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close()
	var got []string
	for {
		m, err := conn.Read()
		var bad *wire.BadMessage
		switch {
		case errors.Is(err, io.EOF):
			if want := "next 0, next 1, next 2, bad, close 4"; strings.Join(got, ", ") != want {
				t.Errorf("read %s, want %s", strings.Join(got, ", "), want)
			}
			return
		case errors.As(err, &bad):
			got = append(got, "bad")
		case err != nil:
			t.Fatal(err)
		default:
			got = append(got, fmt.Sprint(m.Type, " ", m.Req))
		}
	}
}

// Writing to a client that is gone is an error, and no signal.
func TestWriteToNobody(t *testing.T) {
	conn, theirs := pair(t)
	_ = theirs.Close()
	if err := conn.Write(deliver.Envelope{Message: &wire.Message{Type: wire.TypeEnd}}); err == nil {
		t.Error("written to nobody")
	}
}

func TestNotASocket(t *testing.T) {
	if _, err := deliver.NewConn(1 << 20); err == nil {
		t.Error("a descriptor that is not open was taken")
	}
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := deliver.NewConn(fd); err == nil {
		t.Error("a file was taken for a socket")
	}
}
