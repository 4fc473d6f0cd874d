package loader

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/stage/order"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// booked is a ground with a page, and its lanes' books.
func booked(t testing.TB) (*Shared, func() []stats.WorkerSnapshot) {
	s := ground(t)
	s.Page = stats.NewLocal(stats.RoleEngine)
	return s, func() (lanes []stats.WorkerSnapshot) {
		for _, w := range s.Page.Reader().Workers() {
			if w.Kind == "lane" {
				lanes = append(lanes, w)
			}
		}
		return lanes
	}
}

// times is every sample so often, as a sampler would give them: nothing is read
// ahead of a pass over it.
func times(n, often int) (list order.List) {
	for range often {
		for id := range n {
			list.IDs = append(list.IDs, int64(id))
		}
	}
	return list
}

// emptied takes all batches of a pass.
func emptied(t testing.TB, p *Pass) (batches int) {
	for {
		b, err := p.Next(context.Background(), time.Minute)
		if err == io.EOF { //nolint:errorlint // the end of the pass
			return batches
		}
		if err != nil {
			t.Fatal(err)
		}
		sending := b.Sending()
		sending.Done()
		b.Release()
		batches++
	}
}

func sum(lanes []stats.WorkerSnapshot) (all, busy, input, output, idle float64) {
	for _, w := range lanes {
		all, busy, input, output, idle = all+w.Seconds, busy+w.BusySeconds, input+w.InputSeconds, output+w.OutputSeconds, idle+w.IdleSeconds
	}
	return all, busy, input, output, idle
}

// The books agree with the clock, with the kernel, and with the file system.
func TestTheBooks(t *testing.T) {
	const n, often = 48, 30
	root := photos(t, n)
	var stored int64
	if err := filepath.WalkDir(root, func(_ string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			info, _ := d.Info()
			stored += info.Size()
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	s, lanes := booked(t)
	spec := photoSpec(t, root)
	spec.Fields[0].Transform = ops(t, `[{"op":"RandomResizedCrop","size":[40,32]},{"op":"RandomHorizontalFlip"},{"op":"ToTensor"},{"op":"Normalize","mean":[0.5,0.5,0.5],"std":[0.2,0.2,0.2]}]`)
	l := open(t, s, spec)
	for end := time.Now().Add(20 * time.Second); len(lanes()) < 2 && time.Now().Before(end); {
		time.Sleep(time.Millisecond) // until they have begun
	}
	before := time.Now()
	earlier, _, _, _, _ := sum(lanes())
	begin, used := time.Now(), stats.ProcessCPU()
	p, err := l.PassOver(times(n, often), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := emptied(t, p); got != n*often/4 {
		t.Fatalf("%d batches", got)
	}
	waitAsleep(t, s)
	cpu := (stats.ProcessCPU() - used).Seconds()
	wall := time.Since(begin).Seconds()
	got, at := l.Stats(), lanes()
	most := time.Since(before).Seconds()

	// Bytes and counts, exactly.
	if got.Read.Bytes != stored*often || got.Read.Items != n*often {
		t.Errorf("read %d samples, %d bytes; the files have %d times %d", got.Read.Items, got.Read.Bytes, often, stored)
	}
	if got.Decode.Items != n*often || got.Samples != n*often || got.Batches != n*often/4 || got.Batch.Items != n*often/4 || got.Wait.Items != n*often/4 || got.Deliver.Items != n*often/4 || got.Plan.Items != n*often/4 {
		t.Errorf("counts differ: %+v", got)
	}
	if len(got.Transforms) != 4 {
		t.Fatalf("%d transforms", len(got.Transforms))
	}
	parts := 0.0
	for i, name := range []string{"RandomResizedCrop", "RandomHorizontalFlip", "ToTensor", "Normalize"} {
		if tr := got.Transforms[i]; tr.Name != name || tr.Items != n*often {
			t.Errorf("transform %d is %s, %d items", i, tr.Name, tr.Items)
		}
		parts += got.Transforms[i].BusySeconds
	}
	if parts <= 0 || got.Transforms[0].BusySeconds <= 0 || got.Transforms[3].BusySeconds <= 0 {
		t.Errorf("the transforms took %g s", parts)
	}

	// Busy, blocked and idle are all of the lanes' time.
	if len(at) != 2 {
		t.Fatalf("%d lanes", len(at))
	}
	all, busy, input, output, idle := sum(at)
	if books := busy + input + output + idle; books < 0.98*all || books > 1.02*all {
		t.Errorf("lanes of %.4f s have %.4f s in their books", all, books)
	}
	if all-earlier < 0.98*2*wall || all-earlier > 1.02*2*most {
		t.Errorf("two lanes have %.4f s in %.4f to %.4f s", all-earlier, wall, most)
	}
	if inside := got.Decode.BusySeconds + got.Batch.BusySeconds; busy < 0.98*inside {
		t.Errorf("lanes were at work for %.4f s, and did things for %.4f s", busy, inside)
	}
	if in, out := got.Decode.InputSeconds, got.Decode.OutputSeconds; in > input+1e-6 || out > output+1e-6 || in < input*0.98 {
		t.Errorf("lanes were blocked for %.4f and %.4f s, decoding for %.4f and %.4f s", input, output, in, out)
	}

	// The CPU of all stages is the kernel's, less what runs beside them. The margins
	// are wide: this machine may have a race detector and others to serve. What the
	// benchmark measures is within 5 %.
	stages := got.Plan.CPUSeconds + got.Read.CPUSeconds + got.Decode.CPUSeconds + got.Batch.CPUSeconds + got.Deliver.CPUSeconds
	if stages < 0.3*cpu || stages > 2*cpu {
		t.Errorf("the stages used %.4f s of CPU, and the process %.4f s", stages, cpu)
	}
}

// barred holds every read up until it is open.
type barred struct {
	source.Source
	open *sync.WaitGroup
}

func (b barred) ReadAt(ctx context.Context, obj source.Info, p []byte, off int64) error {
	b.open.Wait()
	return b.Source.ReadAt(ctx, obj, p, off)
}

// What lanes wait for is what they say: bytes, then the consumer, then nobody.
func TestWhatLanesWaitFor(t *testing.T) {
	root := pictures(t, 40)
	s, lanes := booked(t)
	var closed sync.WaitGroup
	l := open(t, s, imageSpec(root), Options{Wrap: func(src source.Source) source.Source { return barred{src, &closed} }})
	until := func(state string) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
			got := lanes()
			if len(got) == 2 && got[0].State == state && got[1].State == state {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("lanes are %+v, not %s", got, state)
			}
		}
	}
	until("idle")
	closed.Add(1)
	p, err := l.PassOver(times(40, 1), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	until("blocked on input")
	closed.Done()
	until("blocked on output") // nobody asks, and enough is ready
	if n := emptied(t, p); n != 10 {
		t.Errorf("%d batches", n)
	}
	until("idle")
	got := l.Stats()
	if got.Decode.InputSeconds <= 0 || got.Decode.OutputSeconds <= 0 || got.Wait.Queue < 0 || got.Wait.Queues != 10+1 {
		t.Errorf("in the books: %+v, %+v", got.Decode, got.Wait)
	}
}

// Small samples are read and filled in by readers: their books are kept too.
func TestTheBooksOfSmallSamples(t *testing.T) {
	s, _ := booked(t)
	spec := windows(t, t.TempDir(), 600, nil)
	l := open(t, s, spec)
	p, err := l.PassOver(times(600, 2), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	emptied(t, p)
	waitQuiet(t, l)
	var stored int64
	for id := range int64(600) {
		for _, e := range l.data.Extents(id, nil) {
			stored += e.Len
		}
	}
	var got stats.Snapshot
	// The planner writes down a batch once it has sent its samples, which may be done by then.
	for range 2000 {
		if got = l.Stats(); got.Plan.Items == got.Batches {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if got.Read.Items != 1200 || got.Decode.Items != 1200 || got.Read.Bytes != 2*stored {
		t.Errorf("read %d, %d bytes, decoded %d; extents have %d bytes", got.Read.Items, got.Read.Bytes, got.Decode.Items, stored)
	}
	if got.Read.BusySeconds <= 0 || got.Read.CPUSeconds <= 0 || got.Decode.CPUSeconds <= 0 || got.Read.P99 < got.Read.P50 || got.Decode.P50 <= 0 {
		t.Errorf("times are %+v, %+v", got.Read, got.Decode)
	}
	if got.Plan.Items != got.Batches || got.Plan.BusySeconds <= 0 || got.Plan.CPUSeconds <= 0 {
		t.Errorf("the planner: %+v of %d batches", got.Plan, got.Batches)
	}
	if whole := got.At - got.Opened; got.Plan.BusySeconds+got.Plan.OutputSeconds > whole {
		t.Errorf("the planner has %.6f and %.6f s in its books, of %.6f s", got.Plan.BusySeconds, got.Plan.OutputSeconds, whole)
	}
}

// JPEGs are counted by the decoder that took them; pictures of other kinds are not.
func TestTheBooksOfDecoders(t *testing.T) {
	const n, others, often = 8, 3, 5
	root := photos(t, n)
	for i := range others {
		name := []string{"progressive411", "cmyk", "progressive411"}[i]
		b, err := os.ReadFile("../base/kernel/testdata/" + name + ".jpg")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "class0", fmt.Sprintf("z%d.jpg", i)), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, _ := booked(t)
	l := open(t, s, photoSpec(t, root))
	before := l.Stats()
	p, err := l.PassOver(times(n+others, often), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	emptied(t, p)
	waitAsleep(t, s)
	got := l.Stats()
	// Which of the two others, the build decides.
	if w := got.JPEG; w.Own != n*often || w.Libjpeg+w.Go != others*often || w.Libjpeg*w.Go != 0 || got.Since(before).JPEG != w {
		t.Errorf("%+v, and %+v since it began; want %d, and %d", w, got.Since(before).JPEG, n*often, others*often)
	}
}

// waitAsleep waits until all lanes sleep: what they have done is in the books then.
func waitAsleep(t testing.TB, s *Shared) {
	t.Helper()
	for range 2000 {
		s.mu.Lock()
		asleep := len(s.asleep) == s.lanes
		s.mu.Unlock()
		if asleep {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Error("lanes are at work for 10 s without anything to do")
}
