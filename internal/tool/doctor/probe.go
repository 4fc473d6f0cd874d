package doctor

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// prober reads a little of the files that the script has open, to learn whether
// its storage is slow to begin or slow to go on. The time of reads alone does not
// say: a large read goes to the device in pieces, each with its latency. So one
// stream reads, and then many at once: what waits for latency is as many times
// faster then, and what waits for bandwidth is not. It reads for a second and 32 MiB
// at most, once, and pages that the script put into the page cache may have to be read again.
type prober struct {
	mu    sync.Mutex
	root  string
	files map[string]bool // that workers had open
	pids  []int           // of the script's processes
	begun bool
	ended bool
	out   Storage
}

const (
	smallRead = 4 << 10
	piece     = 128 << 10 // that a stream reads at a time: more, the kernel would divide
	streams   = 16
	fewFiles  = 16
	spell     = 0.4      // seconds that streams read
	enough    = 16 << 20 // bytes after which they stop before that
)

// watch notes which files of data the processes that read samples have open, or opened:
// readers are these, each with files that its timed samples opened, which are open only
// for a moment and hardly met in /proc. What all of pids read counts in a probe.
func (p *prober) watch(root string, pids []int, readers map[int][]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.files == nil {
		p.files, p.root = map[string]bool{}, root
	}
	p.pids = append(p.pids[:0], pids...)
	for pid, opened := range readers {
		for _, path := range opened {
			p.note(filepath.Join(root, path))
		}
		dir := filepath.Join(root, "proc", strconv.Itoa(pid), "fd")
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if path, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
				p.note(path)
			}
		}
	}
}

// note keeps a file of data, of which there are a few.
func (p *prober) note(path string) {
	if len(p.files) < fewFiles && ofData(path) {
		p.files[path] = true
	}
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

// settled says whether the storage is known as well as the verdict needs it: where
// reads are what costs, which is for the caller to say, it begins the probe, and waits
// for it.
func (p *prober) settled(reads bool) bool {
	if !reads {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.begun && len(p.files) > 0 {
		p.begun = true
		files := slices.SortedFunc(maps.Keys(p.files), func(a, b string) int {
			return cmp.Or(cmp.Compare(sizeOf(b), sizeOf(a)), cmp.Compare(a, b))
		})
		if most := sizeOf(files[0]); most >= 4*piece { // a small file beside a large one is an index of it
			files = slices.DeleteFunc(files, func(f string) bool { return sizeOf(f) < 4*piece })
		}
		go p.probe(files, slices.Clone(p.pids))
	}
	return p.ended || len(p.files) == 0
}

func (p *prober) probe(files []string, pids []int) {
	s := Storage{File: files[0], Streams: streams}
	if sizeOf(files[0]) < 4*piece { // two streams in one small file would read each other's pages
		files = neighbours(files)
		s.Streams = min(streams, len(files))
	}
	if open, small, ok := firsts(files); ok {
		s.Open, s.Latency = figure(open, "probe"), figure(small, "probe")
		if s.Streams >= 4 {
			s.Alone = p.rate(files, pids, 1)
			s.Rate = p.rate(files, pids, s.Streams)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out, p.ended = s, true
}

// neighbours adds files that lie beside the first: what workers had open when they
// were looked at are few of many.
func neighbours(files []string) []string {
	dir, err := os.Open(filepath.Dir(files[0]))
	if err != nil {
		return files
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(20 * streams)
	for _, name := range names {
		path := filepath.Join(dir.Name(), name)
		if len(files) < 2*streams && filepath.Ext(path) == filepath.Ext(files[0]) && ofData(path) && !slices.Contains(files, path) {
			files = append(files, path)
		}
	}
	return files
}

func sizeOf(path string) int64 {
	s, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return s.Size()
}

// firsts are the seconds of opening a file and of a small read, the middle of
// three.
func firsts(files []string) (open, small float64, ok bool) {
	var opens, smalls []float64
	for i := range 3 {
		t := now()
		f, err := os.Open(files[i%len(files)])
		if err != nil {
			return 0, 0, false
		}
		opens = append(opens, now()-t)
		t = now()
		readPiece(f, smallRead)
		smalls = append(smalls, now()-t)
		_ = f.Close()
	}
	return middle(opens), middle(smalls), true
}

// rate is the bytes a second of n streams and of the script beside them.
func (p *prober) rate(files []string, pids []int, n int) Figure {
	var open []*os.File
	for i := range n {
		if f, err := os.Open(files[i%len(files)]); err == nil {
			defer f.Close()
			open = append(open, f)
		}
	}
	var all sync.WaitGroup
	var sum atomic.Int64
	before, began := p.readBy(pids), now()
	for _, f := range open {
		all.Go(func() {
			for now()-began < spell && sum.Load() < enough {
				got := readPiece(f, piece)
				if got == 0 {
					return
				}
				sum.Add(got)
			}
		})
	}
	all.Wait()
	return ratio(float64(sum.Load())+max(0, p.readBy(pids)-before), now()-began, "probe")
}

// readPiece reads so many bytes somewhere in a file, from its device.
func readPiece(f *os.File, n int64) int64 {
	s, err := f.Stat()
	if err != nil {
		return 0
	}
	at := rand.Int64N(max(1, s.Size()-n+1)) &^ (smallRead - 1)
	_ = unix.Fadvise(int(f.Fd()), at, n, unix.FADV_DONTNEED)
	got, _ := f.ReadAt(make([]byte, n), at)
	return int64(got)
}

// readBy is the bytes that processes have read since they started.
func (p *prober) readBy(pids []int) (sum float64) {
	for _, pid := range pids {
		sum += pairs(text(filepath.Join(p.root, "proc", strconv.Itoa(pid)), "io"))["rchar"]
	}
	return sum
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
