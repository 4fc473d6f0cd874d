package stats

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrNone says that a process has no page: stoker does not run in it.
var ErrNone = errors.New("stats: the process has no statistics page")

// linkName is how /proc/PID/fd shows a page.
const linkName = "/memfd:" + Name + " (deleted)"

// Reader is another process's page, or this one's, mapped read-only. It remains
// readable after its writer's death. One goroutine at a time uses it.
type Reader struct {
	mem   []byte
	words []atomic.Int64
}

// Open maps the page of a process of the same user. It returns ErrNone if the
// process has none, an fs.ErrPermission if it belongs to another user, and an
// fs.ErrNotExist if there is no such process.
func Open(pid int) (*Reader, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("stats: %w", err)
	}
	found := ErrNone
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if to, err := os.Readlink(path); err != nil || to != linkName {
			continue
		}
		r, err := OpenFile(path)
		if err == nil && !r.of(pid) { // a forked child has its parent's page open
			_ = r.Close()
			continue
		}
		if err == nil {
			return r, nil
		}
		found = err
	}
	return nil, found
}

// of reports whether a process wrote the page. A writer knows its number only in
// its own namespace, which is the innermost.
func (r *Reader) of(pid int) bool {
	own := r.Header().PID
	if own == pid {
		return true
	}
	status, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	for line := range strings.Lines(string(status)) {
		if ids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			all := strings.Fields(ids)
			return len(all) > 1 && all[len(all)-1] == strconv.Itoa(own)
		}
	}
	return false
}

// OpenFile maps a page in a file: a descriptor of another process under /proc, or a
// copy of a page.
func OpenFile(path string) (*Reader, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO would wait for its writer
	if err != nil {
		return nil, fmt.Errorf("stats: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("stats: %w", err)
	}
	const most = 64 << 20
	if info.Size() < headerWords*word || info.Size() > most {
		return nil, fmt.Errorf("stats: a page of %d bytes", info.Size())
	}
	m, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("stats: mmap: %w", err)
	}
	r := &Reader{mem: m, words: unsafe.Slice((*atomic.Int64)(unsafe.Pointer(unsafe.SliceData(m))), len(m)/word)}
	if err := r.check(); err != nil {
		_ = r.Close()
		return nil, err
	}
	return r, nil
}

// Close unmaps the page.
func (r *Reader) Close() error {
	m := r.mem
	r.mem, r.words = nil, nil
	if m == nil {
		return nil
	}
	return unix.Munmap(m)
}

// check rejects a page whose tables are not inside it. No offset of a header is
// used before this check.
func (r *Reader) check() error {
	if magic := r.words[hMagic].Load(); magic != Magic {
		return fmt.Errorf("stats: not a statistics page (it begins with %#x)", uint64(magic))
	}
	if v := r.words[hVersion].Load(); v < 1 {
		return fmt.Errorf("stats: a statistics page of version %d", v)
	}
	size := int64(len(r.mem))
	for _, t := range []struct {
		name  string
		at    int
		bytes int64 // the smallest size of an entry in any version
	}{{"workers", hWorkers, wEnd * word}, {"loaders", hLoaders, lEnd * word}, {"spans", hSpans, pEnd * word}} {
		at, n, each := r.words[t.at].Load(), r.words[t.at+1].Load(), r.words[t.at+2].Load()
		if !within(at, n, each, size) || each < t.bytes {
			return fmt.Errorf("stats: %d %s of %d bytes at %d do not fit into a page of %d", n, t.name, each, at, size)
		}
	}
	loader, stage := r.words[hLoaderBytes].Load(), r.words[hStageBytes].Load()
	if !within(r.words[hStages].Load(), r.words[hStageCount].Load(), stage, loader) || stage < sBuckets*word {
		return fmt.Errorf("stats: the stages do not fit into a loader's entry of %d bytes", loader)
	}
	if !within(r.words[hBuckets].Load(), r.words[hBucketCount].Load(), word, stage) {
		return fmt.Errorf("stats: the buckets do not fit into a stage's entry of %d bytes", stage)
	}
	return nil
}

// within reports whether n entries of each bytes, at offset at, are whole words and
// inside size bytes.
func within(at, n, each, size int64) bool {
	const most = 1 << 31
	return at >= 0 && n >= 0 && each > 0 && at <= size && n < most && each < most &&
		at%word == 0 && each%word == 0 && at+n*each <= size
}

// Header describes the process of a page.
type Header struct {
	Version int
	PID     int // in its own namespace
	Role    int // RoleEngine, RoleClient
	// CLOCK_MONOTONIC, seconds.
	Started, Updated float64
	Written          int64 // spans, ever
	Unseen           int64 // loaders that are not in the page
	CPUSeconds       float64
}

// Header reads the header.
func (r *Reader) Header() Header {
	h := row{r.words[:headerWords]}
	return Header{
		Version: int(h.at(hVersion)), PID: int(h.at(hPID)), Role: int(h.at(hRole)),
		Started: seconds(h.at(hStarted)), Updated: seconds(h.at(hUpdated)),
		Written: h.at(hWritten), Unseen: h.at(hUnseen), CPUSeconds: seconds(h.at(hCPU)),
	}
}

// entry is entry i of the table whose offset is in a word of the header.
func (r *Reader) entry(table int, i int64) row {
	at, each := r.words[table].Load()/word, r.words[table+2].Load()/word
	return row{r.words[at+i*each : at+(i+1)*each]}
}

// Workers reads the times of all workers up to now.
func (r *Reader) Workers() []WorkerSnapshot { return r.workers(Monotonic()) }

func (r *Reader) workers(now int64) (out []WorkerSnapshot) {
	for i := range r.words[hWorkerCount].Load() {
		w := r.entry(hWorkers, i)
		var s WorkerSnapshot
		var kind int64
		if w.steady(wSeq, func() { kind, s = w.at(wKind), w.worker(now) }) && kind != 0 {
			out = append(out, s)
		}
	}
	return out
}

// Loaders reads the numbers of all loaders, also of closed ones until their entry is
// reused, in the order in which they were opened.
func (r *Reader) Loaders() []Snapshot { return r.loaders(Monotonic()) }

func (r *Reader) loaders(now int64) (out []Snapshot) {
	g := geometry{
		int(r.words[hStages].Load() / word), int(r.words[hStageBytes].Load() / word), int(r.words[hStageCount].Load()),
		int(r.words[hBuckets].Load() / word), int(r.words[hBucketCount].Load()),
	}
	for i := range r.words[hLoaderCount].Load() {
		if s, ok := r.entry(hLoaders, i).loader(g, now); ok {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b Snapshot) int { return int(a.Loader - b.Loader) })
	return out
}

// Spans reads the last batches, the oldest first.
func (r *Reader) Spans() (out []Span) {
	n := r.words[hSpanCount].Load()
	if n == 0 {
		return nil
	}
	end := r.words[hWritten].Load()
	for i := max(end-n, 0); i < end; i++ {
		e := r.entry(hSpans, i%n)
		var s Span
		if e.steady(pSeq, func() {
			s = Span{
				Loader: e.at(pLoader), Epoch: e.at(pEpoch), Step: e.at(pStep), Steps: e.at(pSteps),
				Begun: e.at(pBegun), Filled: e.at(pFilled), Delivered: e.at(pDelivered), Asked: e.at(pAsked), Got: e.at(pGot),
				Rows: e.at(pRows),
			}
		}) {
			out = append(out, s)
		}
	}
	return out
}
