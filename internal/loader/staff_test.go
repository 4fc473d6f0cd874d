package loader

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/crew"
	"github.com/stoker-data/stoker/internal/stage/deliver"
	"github.com/stoker-data/stoker/internal/stage/order"
)

// staff are workers in this process, at the other ends of real sockets, which fill slots
// through mappings of their own. A sample is two columns: 16 bytes (its number and its
// key), and a text of some length.
type staff struct {
	t     testing.TB
	l     *Loader
	whole bool

	bad     func(sample int64) bool // raises
	native  map[int64][]byte        // what the engine makes of each sample; nil: nothing
	ends    func(sample int64) bool // the worker ends there
	holds   func(sample int64) bool // the worker stays there until it is killed
	pid     func() int              // the process of a worker; nil: none
	late    bool                    // workers with a process do not say hello when they are hired
	pause   time.Duration           // for each sample
	batches func(place int) uint64  // of a worker's iteration
	scale   func(sample int64) int  // samples of another one have another structure; nil: all are alike
	first   atomic.Int64            // scale of the first sample of all
	named   bool                    // samples are what a sampler gave: "item 5" for place 5
	painted bool                    // the 16 bytes are a picture, of which the engine makes numbers

	made   atomic.Int64 // samples
	mu     sync.Mutex
	hands  []*hand
	closed sync.WaitGroup
}

func newStaff(t testing.TB, l *Loader, whole bool) *staff {
	s := &staff{t: t, l: l, whole: whole, bad: func(int64) bool { return false }, ends: func(int64) bool { return false }}
	t.Cleanup(func() { s.fire(-1); s.closed.Wait() })
	return s
}

// hire starts workers.
func (s *staff) hire(n int) {
	s.t.Helper()
	for range n {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			s.t.Fatal(err)
		}
		file := os.NewFile(uintptr(pair[0]), "worker")
		conn, err := net.FileConn(file)
		file.Close()
		if err != nil {
			s.t.Fatal(err)
		}
		sock := conn.(*net.UnixConn) //nolint:forcetypeassert // of AF_UNIX
		s.mu.Lock()
		place := 0
		for slices.ContainsFunc(s.hands, func(h *hand) bool { return h.place == place }) {
			place++
		}
		h := &hand{staff: s, place: place, sock: sock, slots: map[uint32][]byte{}, kept: map[string][]byte{}, wholes: map[uint64]map[uint32][]byte{}, alike: map[uint64]bool{}, others: map[uint64]map[uint32]bool{}, walks: map[uint64]uint64{}, told: map[uint64][]byte{}}
		s.hands = append(s.hands, h)
		s.mu.Unlock()
		pid := 0
		if s.pid != nil {
			pid = s.pid()
			if !s.late {
				h.send(1, uint32(pid))
			}
		}
		s.closed.Go(h.work)
		if err := s.l.Workers().Hire(pair[1], pid, h.place); err != nil {
			s.t.Fatal(err)
		}
	}
}

// fire ends a worker, as kill does; -1: all of them.
func (s *staff) fire(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i < 0 {
		for _, h := range s.hands {
			h.kill()
		}
		s.hands = nil
	} else if n := len(s.hands); n > 0 {
		s.hands[i%n].kill()
		s.hands = slices.Delete(s.hands, i%n, i%n+1)
	}
}

// replace keeps the number of workers until stop is called. After that it hires none, so
// that whoever then fires all of them has fired the last one.
func (s *staff) replace() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			news := s.l.Workers().News()
			if missing, _ := s.l.Workers().Wanted(); missing > 0 {
				s.hire(missing)
				continue
			}
			select {
			case <-news:
			case <-ctx.Done():
			}
		}
	})
	return func() { cancel(); done.Wait() }
}

// hand is one worker.
type hand struct {
	*staff
	sock   *net.UnixConn
	fds    []int
	slots  map[uint32][]byte
	page   []byte
	offs   []uint64
	kept   map[string][]byte
	wholes map[uint64]map[uint32][]byte
	alike  map[uint64]bool            // wholes whose samples need a scale in common
	others map[uint64]map[uint32]bool // their rows that replace others
	items  [][]byte                   // of the tasks that follow

	place  int
	passes []int64 // epochs, as it was told of them
	steps  []int64 // of the tasks that it got

	given   map[uint32]given     // by number
	sources map[uint32][2]uint32 // of the rows of the next tasks: input, its row

	walks map[uint64]uint64 // by pass: the batch of an iteration that comes next
	told  map[uint64][]byte // by batch of an iteration

	life sync.Mutex // held while it writes to a slot
	dead bool
}

// kill ends it: from now on it writes nothing.
func (h *hand) kill() {
	h.life.Lock()
	defer h.life.Unlock()
	h.dead = true
	_ = h.sock.Close()
}

// write copies to a slot, unless the worker was killed.
func (h *hand) write(slot uint32, at uint64, b []byte) {
	h.life.Lock()
	defer h.life.Unlock()
	if !h.dead {
		copy(h.slots[slot][at:], b)
	}
}

// Read implements io.Reader, and keeps descriptors.
func (h *hand) Read(b []byte) (int, error) {
	oob := make([]byte, 64)
	n, oobn, _, _, err := h.sock.ReadMsgUnix(b, oob)
	if oobn > 0 {
		all, _ := unix.ParseSocketControlMessage(oob[:oobn])
		for i := range all {
			fds, _ := unix.ParseUnixRights(&all[i])
			h.fds = append(h.fds, fds...)
		}
	}
	if n == 0 && err == nil {
		return 0, io.EOF
	}
	return n, err
}

func (h *hand) mapped(n int) []byte {
	fd := h.fds[0]
	h.fds = h.fds[1:]
	m, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	_ = unix.Close(fd)
	if err != nil {
		h.t.Error(err)
	}
	return m
}

var le = binary.LittleEndian

func (h *hand) send(kind byte, parts ...any) {
	b := []byte{0, 0, 0, 0, kind}
	for _, p := range parts {
		switch p := p.(type) {
		case uint32:
			b = le.AppendUint32(b, p)
		case uint64:
			b = le.AppendUint64(b, p)
		case []byte:
			b = append(b, p...)
		default:
			panic(fmt.Sprintf("%T", p))
		}
	}
	le.PutUint32(b, uint32(len(b)-4))
	_, _ = h.sock.Write(b)
}

func (h *hand) work() {
	defer h.sock.Close()
	for {
		var head [5]byte
		if _, err := io.ReadFull(h, head[:]); err != nil {
			return
		}
		b := make([]byte, le.Uint32(head[:])-1)
		if _, err := io.ReadFull(h, b); err != nil {
			return
		}
		if !h.frame(head[4], b) {
			return
		}
	}
}

// sample is what a sample has; false: the worker has ended.
func (h *hand) sample(row []byte, batch []byte) (fixed, text []byte, ok bool, bad bool) {
	n, key := int64(le.Uint64(row[12:])), row[20:28]
	copy(h.page, batch)
	le.PutUint32(h.page[8:], le.Uint32(row)+1)
	time.Sleep(h.pause)
	if h.holds != nil && h.holds(n) {
		for _, err := h.Read(make([]byte, 1<<16)); err == nil; _, err = h.Read(make([]byte, 1<<16)) {
		}
		return nil, nil, false, false
	}
	if h.ends(n) {
		return nil, nil, false, false
	}
	le.PutUint32(h.page[8:], 0)
	h.made.Add(1)
	if h.bad(n) {
		return nil, nil, true, true
	}
	fixed = append(le.AppendUint64(nil, uint64(n)), key...)
	return fixed, fmt.Appendf(nil, "%*d", n%6+3, n), true, false
}

var wrong, _ = json.Marshal(map[string]any{"what": "the dataset raised ValueError: no", "kind": "ValueError", "text": "Traceback", "pickle": base64.StdEncoding.EncodeToString([]byte("p")), "retry": true})

const rowBytes = 32

func (h *hand) frame(kind byte, b []byte) bool {
	switch kind {
	case 1:
		h.slots[le.Uint32(b)] = h.mapped(int(le.Uint64(b[4:])))
	case 2:
		_ = unix.Munmap(h.slots[le.Uint32(b)])
		delete(h.slots, le.Uint32(b))
	case 3:
		h.offs = []uint64{le.Uint64(b[8:]), le.Uint64(b[24:])}
		if size := int64(le.Uint64(b[32:])); le.Uint32(b[4:]) != 2 || size != -1 {
			h.t.Errorf("a layout of %d columns, of %d bytes", le.Uint32(b[4:]), size)
		}
	case 4:
		return h.tasks(b)
	case 5:
		h.collated(le.Uint64(b), func(i int) uint32 { return le.Uint32(b[12+4*i:]) }, int(le.Uint32(b[8:])))
	case 6:
		id, n := le.Uint64(b), len(h.kept[fmt.Sprint(le.Uint64(b))])
		h.write(le.Uint32(b[8:]), le.Uint64(b[12:]), h.kept[fmt.Sprint(id)])
		delete(h.kept, fmt.Sprint(id))
		if told, turn := h.told[id]; turn {
			h.send(7, id, uint64(n), uint64(1e6), uint32(3), uint32(len(told)), told)
		} else {
			h.send(5, id, uint64(n), uint64(1e6))
		}
	case 7:
		delete(h.kept, fmt.Sprint(le.Uint64(b)))
		delete(h.wholes, le.Uint64(b))
	case 8:
		b, n := b[4:], le.Uint32(b)
		for range n {
			size := 4 + le.Uint32(b)
			h.items, b = append(h.items, b[4:size]), b[size:]
		}
	case 15, 16, 17:
		return h.turns(kind, b)
	case 11, 12, 13, 14:
		h.inputs(kind, b)
	case 10:
		h.mu.Lock()
		h.passes = append(h.passes, int64(le.Uint64(b)))
		h.mu.Unlock()
	case 9:
		h.page = h.mapped(16)
	default:
		h.t.Errorf("a frame of type %d", kind)
	}
	return true
}

// scaled is the scale of a sample.
func (h *hand) scaled(n int64) int64 {
	if h.scale == nil {
		return 0
	}
	return int64(h.scale(n))
}

// unlike returns the rows of a whole batch whose samples do not fit: to the first sample of
// all if any does, otherwise to that of the first row. Samples that replace others do not
// decide.
func (h *hand) unlike(id uint64) (rows []uint32) {
	all := h.wholes[id]
	scale := func(row uint32) int64 { return h.scaled(int64(le.Uint64(all[row]))) }
	order := slices.Sorted(maps.Keys(all))
	want := h.first.Load()
	first := slices.DeleteFunc(slices.Clone(order), func(r uint32) bool { return h.others[id][r] })
	if len(first) == 0 {
		first = order
	}
	if !slices.ContainsFunc(first, func(r uint32) bool { return scale(r) == want }) {
		want = scale(first[0])
	}
	return slices.DeleteFunc(order, func(r uint32) bool { return scale(r) == want })
}

// collated puts the samples of a whole batch together, and says how much that is.
func (h *hand) collated(id uint64, from func(int) uint32, n int) {
	if h.alike[id] {
		if rows := h.unlike(id); len(rows) > 0 {
			done := []any{id, uint64(1e5), uint32(len(rows))}
			for _, r := range rows {
				done = append(done, r, []byte{1}, uint32(len(wrong)), wrong)
				delete(h.wholes[id], r)
			}
			h.send(3, done...)
			return
		}
	}
	var all []byte
	for i := range n {
		all = append(all, h.wholes[id][from(i)]...)
	}
	delete(h.wholes, id)
	h.kept[fmt.Sprint(id)] = all
	h.send(4, id, uint64(len(all)))
}

func (h *hand) tasks(b []byte) bool {
	id, slot, layout, how, n := le.Uint64(b), le.Uint32(b[8:]), le.Uint32(b[12:]), b[16], int(le.Uint32(b[33:]))
	rows := b[37:]
	if how > 0 && h.wholes[id] == nil {
		h.wholes[id] = map[uint32][]byte{}
		h.alike[id] = how == 3
		h.others[id] = map[uint32]bool{}
	}
	h.mu.Lock()
	h.steps = append(h.steps, int64(le.Uint64(b[25:])))
	h.mu.Unlock()
	for i, item := range h.items {
		if want := fmt.Sprint("item ", le.Uint64(rows[rowBytes*i+12:])); i >= n || string(item) != want {
			h.t.Errorf("%d tasks, and item %d is %q, want %q", n, i, item, want)
		}
	}
	if h.named != (h.items != nil) {
		h.t.Errorf("%d items", len(h.items))
	}
	h.items = nil
	var done []any
	badRows := 0
	for i := range n {
		row := rows[rowBytes*i : rowBytes*(i+1)]
		h.checkInput(id, le.Uint32(row), int64(le.Uint64(row[12:])))
		fixed, text, ok, bad := h.sample(row, b[:8])
		number := le.Uint32(row)
		switch {
		case !ok:
			return false
		case bad:
			badRows++
			done = append(done, number, []byte{1}, uint32(len(wrong)), wrong)
		case how > 0:
			h.others[id][number] = le.Uint32(row[28:]) > 0
			h.wholes[id][number] = append(append([]byte{}, fixed...), fmt.Sprintf("%8s", text)...)
		case layout == 0:
			h.first.Store(h.scaled(int64(le.Uint64(row[12:]))))
			h.send(2, append([]any{id, number, uint32(2), uint64(h.fixedBytes()), ^uint64(0), uint32(9), []byte("structure")}, h.pictures()...)...)
			return true
		case h.scaled(int64(le.Uint64(row[12:]))) != h.first.Load():
			done = append(done, number, []byte{2}, uint32(len(wrong)), wrong)
		default:
			fixed, status := h.paints(fixed)
			h.write(slot, h.offs[0]+h.fixedBytes()*uint64(number), fixed)
			done = append(done, number, []byte{status}, uint32(1), uint32(1), uint32(len(text)), text)
		}
	}
	if how == 1 && badRows == 0 {
		h.collated(id, func(i int) uint32 { return uint32(i) }, n)
		return true
	}
	if how > 0 {
		n = badRows
	}
	h.send(3, append([]any{id, uint64(1e5) * uint64(n), uint32(n)}, done...)...)
	return true
}

// workersGround is loaders whose slots other processes could map.
func workersGround(t testing.TB) *Shared {
	arena, err := deliver.NewArena()
	if err != nil {
		t.Fatal(err)
	}
	s := NewShared(arena, stats.NewBoard(arena.Work(), 0))
	t.Cleanup(s.Close)
	return s
}

func workersSpec(n int64) Spec {
	return Spec{
		Dataset: Dataset{Format: "python", Samples: n, Digest: "numbers"},
		Batch:   BatchSpec{Size: 8}, Order: Order{Shuffle: order.Full, Seed: 3}, Deliver: Deliver{Prefetch: 3},
	}
}

func openWorkers(t testing.TB, spec Spec, whole bool) (*Loader, *staff) {
	t.Helper()
	return openCrew(t, spec, crew.Options{Workers: 2, Whole: whole})
}

func openCrew(t testing.TB, spec Spec, opt crew.Options) (*Loader, *staff) {
	t.Helper()
	l := open(t, workersGround(t), spec, Options{Workers: &opt})
	return l, newStaff(t, l, opt.Whole)
}
