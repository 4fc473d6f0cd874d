package system

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

	"github.com/stoker-data/stoker/internal/base/procfs"
	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
)

// Prober reads a little of the files that the script has open, to learn whether
// its storage is slow to begin or slow to go on. The time of reads alone does not
// say: a large read goes to the device in pieces, each with its latency. So one
// stream reads, and then many at once: what waits for latency is as many times
// faster then, and what waits for bandwidth is not. It reads for a second and 32 MiB
// at most, once, and pages that the script put into the page cache may have to be read again.
type Prober struct {
	mu    sync.Mutex
	Root  string
	files map[string]bool // that workers had open
	pids  []int           // of the script's processes
	begun bool
	ended bool
	out   evidence.Storage
}

const (
	SmallRead = 4 << 10
	Piece     = 128 << 10 // that a stream reads at a time: more, the kernel would divide
	Streams   = 16
	FewFiles  = 16
	spell     = 0.4      // seconds that streams read
	enough    = 16 << 20 // bytes after which they stop before that
)

// Watch notes which files of data the processes that read samples have open, or opened:
// readers are these, each with files that its timed samples opened, which are open only
// for a moment and hardly met in /proc. What all of pids read counts in a probe.
func (p *Prober) Watch(root string, pids []int, readers map[int][]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.files == nil {
		p.files, p.Root = map[string]bool{}, root
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
func (p *Prober) note(path string) {
	if len(p.files) < FewFiles && OfData(path) {
		p.files[path] = true
	}
}

// OfData says whether a path may be a dataset's: a regular file that is not code
// and no device.
func OfData(path string) bool {
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
	return err == nil && s.Mode().IsRegular() && s.Size() >= 4*SmallRead
}

// Settled says whether the storage is known as well as the verdict needs it: where
// reads are what costs, which is for the caller to say, it begins the probe, and waits
// for it.
func (p *Prober) Settled(reads bool) bool {
	if !reads {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.begun && len(p.files) > 0 {
		p.begun = true
		files := slices.SortedFunc(maps.Keys(p.files), func(a, b string) int {
			return cmp.Or(cmp.Compare(SizeOf(b), SizeOf(a)), cmp.Compare(a, b))
		})
		if most := SizeOf(files[0]); most >= 4*Piece { // a small file beside a large one is an index of it
			files = slices.DeleteFunc(files, func(f string) bool { return SizeOf(f) < 4*Piece })
		}
		go p.Probe(files, slices.Clone(p.pids))
	}
	return p.ended || len(p.files) == 0
}

func (p *Prober) Probe(files []string, pids []int) {
	s := evidence.Storage{File: files[0], Streams: Streams}
	if SizeOf(files[0]) < 4*Piece { // two streams in one small file would read each other's pages
		files = neighbours(files)
		s.Streams = min(Streams, len(files))
	}
	if open, small, ok := firsts(files); ok {
		s.Open, s.Latency = evidence.Measured(open, "probe"), evidence.Measured(small, "probe")
		if s.Streams >= 4 {
			s.Alone = p.Rate(files, pids, 1)
			s.Rate = p.Rate(files, pids, s.Streams)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out, p.ended = s, true
}

// neighbours adds files of the first one's folder: what workers had open when they
// were looked at are few of many.
func neighbours(files []string) []string {
	dir, err := os.Open(filepath.Dir(files[0]))
	if err != nil {
		return files
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(20 * Streams)
	for _, name := range names {
		path := filepath.Join(dir.Name(), name)
		if len(files) < 2*Streams && filepath.Ext(path) == filepath.Ext(files[0]) && OfData(path) && !slices.Contains(files, path) {
			files = append(files, path)
		}
	}
	return files
}

func SizeOf(path string) int64 {
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
		t := Now()
		f, err := os.Open(files[i%len(files)])
		if err != nil {
			return 0, 0, false
		}
		opens = append(opens, Now()-t)
		t = Now()
		readPiece(f, SmallRead)
		smalls = append(smalls, Now()-t)
		_ = f.Close()
	}
	return middle(opens), middle(smalls), true
}

// Rate is the bytes a second of n streams and of the script beside them.
func (p *Prober) Rate(files []string, pids []int, n int) evidence.Figure {
	var open []*os.File
	for i := range n {
		if f, err := os.Open(files[i%len(files)]); err == nil {
			defer f.Close()
			open = append(open, f)
		}
	}
	var all sync.WaitGroup
	var sum atomic.Int64
	before, began := p.readBy(pids), Now()
	for _, f := range open {
		all.Go(func() {
			for Now()-began < spell && sum.Load() < enough {
				got := readPiece(f, Piece)
				if got == 0 {
					return
				}
				sum.Add(got)
			}
		})
	}
	all.Wait()
	return evidence.Ratio(float64(sum.Load())+max(0, p.readBy(pids)-before), Now()-began, "probe")
}

// readPiece reads so many bytes somewhere in a file, from its device.
func readPiece(f *os.File, n int64) int64 {
	s, err := f.Stat()
	if err != nil {
		return 0
	}
	at := rand.Int64N(max(1, s.Size()-n+1)) &^ (SmallRead - 1)
	Forget(f, at, n)
	got, _ := f.ReadAt(make([]byte, n), at)
	return int64(got)
}

// Forget asks the kernel to drop what it holds in memory of n bytes at at.
func Forget(f *os.File, at, n int64) {
	at, n = pages(at, n, int64(PageSize))
	_ = unix.Fadvise(int(f.Fd()), at, n, unix.FADV_DONTNEED)
}

// pages is a range widened to whole pages, of which the kernel drops no other: a page of
// aarch64 may have 64 KiB.
func pages(at, n, page int64) (from, length int64) {
	from = at &^ (page - 1)
	return from, (at + n - from + page - 1) &^ (page - 1)
}

// readBy is the bytes that processes have read since they started.
func (p *Prober) readBy(pids []int) (sum float64) {
	for _, pid := range pids {
		sum += procfs.Pairs(filepath.Join(p.Root, "proc", strconv.Itoa(pid)), "io")["rchar"]
	}
	return sum
}

func middle(three []float64) float64 {
	a, b, c := three[0], three[1], three[2]
	return max(min(a, b), min(max(a, b), c))
}

func (p *Prober) Found() evidence.Storage {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out
}
