package doctor

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// prober reads a little of a file that the script has open, to learn whether its
// storage is slow to begin or slow to go on: from the time of reads of one size
// alone these two can not be told apart. It reads at most a few MiB, once.
type prober struct {
	mu    sync.Mutex
	files map[string]bool // that workers had open
	begun bool
	ended bool
	out   Storage
}

const (
	smallRead = 4 << 10
	largeRead = 4 << 20
	fewFiles  = 16
)

// watch notes which files of data workers have open.
func (p *prober) watch(f *folder, root string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.files == nil {
		p.files = map[string]bool{}
	}
	for pid, process := range f.processes {
		if l := process.last(); l.Worker == nil && !inline(l) {
			continue
		}
		dir := filepath.Join(root, "proc", strconv.Itoa(pid), "fd")
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if path, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && len(p.files) < fewFiles && ofData(path) {
				p.files[path] = true
			}
		}
	}
}

func inline(l line) bool {
	for _, x := range l.Loaders {
		if x.Workers == 0 {
			return true
		}
	}
	return false
}

// ofData says whether a path may be a dataset's: a regular file that is no code
// and no device.
func ofData(path string) bool {
	for _, prefix := range [...]string{"/dev/", "/proc/", "/sys/", "/usr/", "/memfd:"} {
		if strings.HasPrefix(path, prefix) {
			return false
		}
	}
	switch filepath.Ext(path) {
	case ".py", ".pyc", ".so", ".jsonl", ".log", ".out":
		return false
	}
	s, err := os.Stat(path)
	return err == nil && s.Mode().IsRegular() && s.Size() >= 4*smallRead
}

// settled says whether the storage is known as well as the verdict asks: one
// about reading begins the probe, and waits for it.
func (p *prober) settled(r Report) bool {
	switch r.Verdict.Name {
	case SmallFiles, Bandwidth, Latency:
	default:
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.begun && len(p.files) > 0 {
		p.begun = true
		var largest string
		var most int64
		for path := range p.files {
			if s, err := os.Stat(path); err == nil && s.Size() > most {
				largest, most = path, s.Size()
			}
		}
		go p.probe(largest, most)
	}
	return p.ended || len(p.files) == 0
}

func (p *prober) probe(path string, bytes int64) {
	s := Storage{File: path}
	var small, large, opening []float64
	buf := make([]byte, min(largeRead, bytes))
	for range 3 {
		t := now()
		f, err := os.Open(path)
		if err != nil {
			break
		}
		opening = append(opening, now()-t)
		read := func(n int64) float64 {
			at := rand.Int64N(max(1, bytes-n+1)) &^ (smallRead - 1)
			_ = unix.Fadvise(int(f.Fd()), at, n, unix.FADV_DONTNEED)
			_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_RANDOM) // what is timed is this read, and no reading ahead
			t := now()
			if _, err := f.ReadAt(buf[:n], at); err != nil && n == smallRead {
				return -1
			}
			return now() - t
		}
		small = append(small, read(smallRead))
		large = append(large, read(int64(len(buf))))
		_ = f.Close()
	}
	if len(small) == 3 {
		s.Open, s.Latency = figure(middle(opening), "probe"), figure(middle(small), "probe")
		s.Rate = ratio(float64(len(buf)-smallRead), middle(large)-middle(small), "probe")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out, p.ended = s, true
}

func middle(three []float64) float64 {
	a, b, c := three[0], three[1], three[2]
	return max(min(a, b), min(max(a, b), c))
}

func (p *prober) found() Storage {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out
}
