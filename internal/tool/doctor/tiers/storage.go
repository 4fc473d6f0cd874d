package tiers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/doctor/system"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// What storage gives is measured on files of the dataset, by one thread unless said,
// each for a second at most. Before a read the kernel is asked to drop its pages from
// the page cache (posix_fadvise); it does not have to, and so a look says whether it
// did. What is below the kernel, such as a cache of the host, is not seen.
const (
	spellTwo  = 100 * time.Millisecond // after which what has few files ends when all were read
	settling  = 100 * time.Millisecond
	wholeRead = 1 << 20   // that a sequential reader asks for at a time
	smallFile = 64 << 10  // read of a small file at most
	mostBytes = 256 << 20 // that a tier reads
	mostReads = 4000
	mostFiles = 256
)

// storage is what the files of the dataset give, sequentially, at random, by many at
// once, and one small file after another.
func (m *measuring) storage(ctx context.Context) {
	if m.main != nil && m.main.far != nil { // measured for the verdict
		m.out = append(m.out, m.main.far...)
		return
	}
	var files []string
	for _, f := range m.files {
		if s, err := os.Stat(f); err == nil && s.Mode().IsRegular() && s.Size() > 0 && len(files) < mostFiles {
			files = append(files, f)
		}
	}
	if len(files) == 0 {
		m.out = append(m.out, evidence.Tier{Of: evidence.OfStorage, Name: "reads", Cut: "no file was read for samples"})
		return
	}
	stateOf(files) // pages that were written a moment ago begin to be stored, and can be dropped then
	sleep(ctx, settling)
	before := stateOf(files)
	on := disk{files: files, source: "reads " + before}
	begin := len(m.out)
	for _, t := range []struct {
		name string
		of   func(t *evidence.Tier, d time.Duration) error
	}{
		{"sequential, 1 MiB", on.sequential},
		{"random, 4 KiB", on.random},
		{atOnce(on.most()), on.together},
		{"small files", on.small},
	} {
		tier := evidence.Tier{Of: evidence.OfStorage, Name: t.name}
		if d, ok := m.left(forStorage, 0); !ok {
			tier.Cut = m.noTime()
		} else {
			tier = answered(ctx, tier, d, m.patience(), t.of)
		}
		m.out = append(m.out, tier)
	}
	if stateOf(files) != before {
		for i := range m.out[begin:] {
			readFrom(&m.out[begin+i], "reads partly from the page cache")
		}
	}
}

// readFrom sets the source of a tier's figures: where they were read from.
func readFrom(t *evidence.Tier, source string) {
	for _, f := range [...]*evidence.Figure{&t.Mean, &t.P99, &t.Count, &t.Bytes} {
		if f.Known() {
			f.Source = source
		}
	}
}

func atOnce(threads int) string {
	if threads == 1 {
		return "random, many at once"
	}
	return fmt.Sprintf("random, %d at once", threads)
}

// answered is a tier that may hang, as reads from a server that is gone do: nothing
// ends such a thread but the process.
func answered(ctx context.Context, t evidence.Tier, d, patience time.Duration, of func(t *evidence.Tier, d time.Duration) error) evidence.Tier {
	done := make(chan evidence.Tier, 1)
	go func(t evidence.Tier) {
		if err := of(&t, d); err != nil {
			t = evidence.Tier{Of: t.Of, Name: t.Name, Cut: err.Error()}
		}
		done <- t
	}(t)
	late := time.NewTimer(d + patience)
	defer late.Stop()
	select {
	case t = <-done:
	case <-late.C:
		t.Cut = "no answer within " + show.Took((d + patience).Seconds())
	case <-ctx.Done():
		t.Cut = "interrupted"
	}
	return t
}

// disk is some files of a dataset, and what is said of where their bytes come from.
type disk struct {
	files  []string
	source string
}

// sequential reads files from their starts on.
func (d disk) sequential(t *evidence.Tier, most time.Duration) error {
	buf := make([]byte, wholeRead)
	bytes, began := 0.0, time.Now()
	for i := 0; bytes < mostBytes && time.Since(began) < most; i++ {
		if i >= len(d.files) && time.Since(began) > spellTwo {
			break
		}
		f, err := dropped(d.files[i%len(d.files)])
		if err != nil {
			return err
		}
		for err == nil && bytes < mostBytes && time.Since(began) < most {
			var n int
			n, err = f.Read(buf)
			bytes += float64(n)
		}
		_ = f.Close()
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	t.Bytes = evidence.Ratio(bytes, time.Since(began).Seconds(), d.source)
	return nil
}

// random reads pages anywhere, one after another.
func (d disk) random(t *evidence.Tier, most time.Duration) error {
	open, err := d.open(system.Streams)
	if err != nil {
		return err
	}
	defer closeAll(open)
	var took []float64
	buf := make([]byte, system.SmallRead)
	for began := time.Now(); len(took) < mostReads && time.Since(began) < most; {
		f := open[rand.IntN(len(open))]
		at := rand.Int64N(max(1, f.size-system.SmallRead+1)) &^ (system.SmallRead - 1)
		system.Forget(f.File, at, system.SmallRead)
		from := time.Now()
		if _, err := f.ReadAt(buf, at); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		took = append(took, time.Since(from).Seconds())
	}
	*t = spread(*t, took, d.source)
	t.Bytes = evidence.Ratio(system.SmallRead, t.Mean.Value, d.source)
	return nil
}

// together reads larger pieces anywhere by many threads: what waits for latency is
// as many times faster than one thread.
func (d disk) together(t *evidence.Tier, _ time.Duration) error {
	if d.most() == 1 {
		return errors.New("threads in one small file would read each other's pages")
	}
	p := system.Prober{Root: "/"}
	t.Bytes = p.Rate(d.files, nil, d.most())
	t.Bytes.Source = d.source
	return nil
}

// most is how many threads can read without finding each other's pages in memory.
func (d disk) most() int {
	for _, f := range d.files {
		if system.SizeOf(f) >= 4*system.Piece {
			return system.Streams
		}
	}
	return min(system.Streams, len(d.files))
}

// small opens, reads and closes files, or the first bytes of larger ones. Their
// names are known to the kernel by now.
func (d disk) small(t *evidence.Tier, most time.Duration) error {
	var took []float64
	buf := make([]byte, smallFile)
	bytes, sum := 0.0, 0.0
	for i, began := 0, time.Now(); len(took) < mostReads && time.Since(began) < most; i++ {
		if i >= len(d.files) && time.Since(began) > spellTwo {
			break
		}
		path := d.files[i%len(d.files)]
		f, err := dropped(path)
		if err != nil {
			return err
		}
		_ = f.Close()
		from := time.Now()
		if f, err = os.Open(path); err != nil {
			return err
		}
		n, err := io.ReadFull(f, buf)
		_ = f.Close()
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		took = append(took, time.Since(from).Seconds())
		bytes, sum = bytes+float64(n), sum+took[len(took)-1]
	}
	*t = spread(*t, took, d.source)
	t.Bytes = evidence.Ratio(bytes, sum, d.source)
	return nil
}

// opened is an open file and its size.
type opened struct {
	*os.File
	size int64
}

// open opens up to n files for reads at random.
func (d disk) open(n int) (out []opened, err error) {
	for _, path := range d.files[:min(n, len(d.files))] {
		f, err := os.Open(path)
		if err != nil {
			closeAll(out)
			return nil, err
		}
		_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_RANDOM)
		out = append(out, opened{f, system.SizeOf(path)})
	}
	return out, nil
}

func closeAll(files []opened) {
	for _, f := range files {
		_ = f.Close()
	}
}

// dropped opens a file whose pages the kernel was asked to drop.
func dropped(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	return f, nil
}

// stateOf says where reads of files come from once the kernel was asked to drop
// their pages: from the page cache in spite of that, if it has kept most.
func stateOf(files []string) string {
	var fs unix.Statfs_t
	if unix.Statfs(files[0], &fs) == nil && fs.Type == unix.TMPFS_MAGIC {
		return "from memory, where these files are"
	}
	var kept, gone int
	for _, path := range files[:min(len(files), system.Streams)] {
		f, err := dropped(path)
		if err != nil {
			continue
		}
		switch in, known := inCache(f, 0); {
		case known && in:
			kept++
		case known:
			gone++
		}
		_ = f.Close()
	}
	switch {
	case kept+gone == 0:
		return "that the page cache may have answered"
	case kept > gone:
		return "from the page cache, which kept its pages"
	}
	return "past the page cache"
}

// inCache says whether a page of a file is in the page cache; not known where its
// file system cannot read without waiting.
func inCache(f *os.File, at int64) (in, known bool) {
	n, err := unix.Preadv2(int(f.Fd()), [][]byte{make([]byte, 1)}, at, unix.RWF_NOWAIT)
	return n > 0, n > 0 || errors.Is(err, unix.EAGAIN)
}
