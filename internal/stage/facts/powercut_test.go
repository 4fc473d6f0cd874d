package facts

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// A power cut leaves what was synced. Of what was not, it may leave anything: writes of
// which a part, or zeros, or what was on the disk before reached it; files that are
// shorter than they were; and names of which some changed and others did not.

// inode is a file as the disk may have it.
type inode struct {
	data   []byte
	synced int   // bytes that are durable
	writes []int // ends of the others
}

func (n *inode) copied() *inode {
	return &inode{slices.Clone(n.data), n.synced, slices.Clone(n.writes)}
}

type change struct {
	op, name, to string
	data         []byte
	sure         map[int]int // flushed: the versions of keys that are durable
}

// journal records changes in their order.
type journal struct {
	mu      sync.Mutex
	changes []change
}

func (j *journal) before(op, name, to string, data []byte) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.changes = append(j.changes, change{op: op, name: name, to: to, data: slices.Clone(data)})
	return nil
}

func (j *journal) flushed(sure map[int]int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.changes = append(j.changes, change{op: "flushed", sure: maps.Clone(sure)})
}

// machine is a disk, and what is in memory of it.
type machine struct {
	now     map[string]*inode // names as processes see them
	durable map[string]*inode
	pending []func(names map[string]*inode) // changes of names since the last sync of the folder
	sure    map[int]int
}

func (m *machine) do(c change) {
	named := func(f func(names map[string]*inode)) {
		f(m.now)
		m.pending = append(m.pending, f)
	}
	switch c.op {
	case "create":
		n := &inode{}
		named(func(names map[string]*inode) { names[c.name] = n })
	case "write":
		n := m.now[c.name]
		n.data = append(n.data, c.data...)
		n.writes = append(n.writes, len(n.data))
	case "sync":
		n := m.now[c.name]
		n.synced, n.writes = len(n.data), nil
	case "rename":
		n := m.now[c.name]
		named(func(names map[string]*inode) { delete(names, c.name); names[c.to] = n })
	case "remove":
		named(func(names map[string]*inode) { delete(names, c.name) })
	case "syncdir":
		m.durable, m.pending = maps.Clone(m.now), nil
	case "flushed":
		m.sure = c.sure
	}
}

// cut is the disk after a power cut.
func (m *machine) cut(r *rand.Rand) map[string]*inode {
	names := maps.Clone(m.durable)
	how := r.IntN(4)
	upTo := r.IntN(len(m.pending) + 1)
	for i, f := range m.pending {
		if how == 0 || how == 1 && i < upTo || how == 2 && r.IntN(2) == 0 {
			f(names)
		}
	}
	other := []byte("what was on the disk before")
	for _, n := range m.now {
		other = append(other, n.data...)
	}
	image := make(map[string]*inode)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		n := names[name].copied()
		from := n.synced
		kind := r.IntN(3)
		for _, to := range n.writes {
			switch torn := n.data[from+r.IntN(to-from+1)&^15 : to]; { // sectors are whole, or not
			case kind == 0 && r.IntN(2) == 0:
				clear(n.data[from:to])
			case kind == 1 && r.IntN(2) == 0:
				clear(torn)
			case kind == 2 && r.IntN(2) == 0:
				copy(torn, other[r.IntN(len(other)):])
			}
			from = to
		}
		if len(n.data) > n.synced && r.IntN(3) == 0 {
			n.data = n.data[:n.synced+r.IntN(len(n.data)-n.synced)]
		}
		image[name] = n
	}
	return image
}

// recorded is what two processes do to a folder, one after the other.
func recorded(t *testing.T, lim limits) *journal {
	j := &journal{}
	dir := t.TempDir()
	sure := map[int]int{}
	r := rand.New(rand.NewPCG(5, 6))
	for range 2 {
		s := openWith(t, disk{dir: dir, before: j.before}, Options{Limit: plenty}, lim)
		for step := range 25 {
			put := map[int]int{}
			for range r.IntN(12) {
				n := r.IntN(60)
				put[n] = max(sure[n], 1) + r.IntN(2)
			}
			for n, v := range put {
				s.Put(key(n), fact(key(n), v))
			}
			if r.IntN(3) > 0 {
				s.flush()
				maps.Copy(sure, put)
				j.flushed(sure)
			} else {
				time.Sleep(time.Millisecond)
				s.flush()
				maps.Copy(sure, put)
			}
			if step%10 == 9 {
				if err := s.Merge(ctx); err != nil {
					t.Fatal(err)
				}
			}
		}
		s.close()
		j.flushed(sure)
	}
	return j
}

// look opens an image: all that is found is right, and what was flushed is found.
func (m *machine) look(t *testing.T, image map[string]*inode, dir string, lim limits, merge bool) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for name, n := range image {
		if err := os.WriteFile(filepath.Join(dir, name), n.data, 0o600); err != nil {
			return err
		}
	}
	var told []string
	s, err := open(disk{dir: dir}, "test", Options{Limit: plenty, Notice: func(text string) { told = append(told, text) }}, lim)
	if err != nil {
		return err
	}
	defer s.Close()
	check := func() error {
		for n := range 60 {
			f, ok := s.Append(nil, key(n))
			if ok && (len(f) == 0 || !bytes.Equal(f, fact(key(n), int(f[len(f)-1])))) {
				return fmt.Errorf("fact %d: %q", n, f)
			}
			if sure := m.sure[n]; sure > 0 && (!ok || int(f[len(f)-1]) < sure) {
				return fmt.Errorf("fact %d was flushed in version %d: %v", n, sure, ok)
			}
		}
		return nil
	}
	if err := check(); err != nil {
		return err
	}
	if merge {
		if err := s.Merge(ctx); err != nil {
			return err
		}
		if err := check(); err != nil {
			return fmt.Errorf("after a merge: %w", err)
		}
	}
	_ = s.Close()
	if len(told) > 0 {
		return fmt.Errorf("notices: %q", told)
	}
	return nil
}

// STOKER_POWERCUTS is the number of images; make facts-powercuts has 40,000.
func TestPowerCuts(t *testing.T) {
	images := 2000
	if n, err := strconv.Atoi(os.Getenv("STOKER_POWERCUTS")); err == nil {
		images = n
	}
	lim := small
	lim.facts, lim.age, lim.look = 6, time.Hour, time.Hour
	j := recorded(t, lim)
	dir := filepath.Join(memory(t), "image")
	still := quiet
	rescuing := quiet
	rescuing.orphan = 0
	m := &machine{now: map[string]*inode{}, durable: map[string]*inode{}}
	made := 0
	for i, c := range j.changes {
		m.do(c)
		for made*len(j.changes) < images*(i+1) {
			r := rand.New(rand.NewPCG(uint64(made), 7))
			made++
			with, merge := still, made%4 == 0
			if merge {
				with = rescuing
			}
			if err := m.look(t, m.cut(r), dir, with, merge); err != nil {
				t.Fatalf("image %d, after change %d of %d (%s %s): %v", made, i, len(j.changes), c.op, c.name, err)
			}
		}
	}
	if len(j.changes) < 300 || made < images {
		t.Errorf("%d changes, %d images", len(j.changes), made)
	}
}
