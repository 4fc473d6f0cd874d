package loader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/order"
	"github.com/stoker-data/stoker/internal/stage/source"
)

func imageSpec(root string) Spec {
	return Spec{
		Dataset: Dataset{Path: Paths{root}},
		Fields:  []Field{{Name: "image", Decode: "rgb"}, {Name: "label", Decode: "int"}},
		Batch:   BatchSpec{Size: 4},
		Order:   Order{Shuffle: order.Full, Seed: 5},
		Workers: 2,
	}
}

// The augmented chain of training, over pictures of the real kind.
func photoSpec(t *testing.T, root string) Spec {
	s := imageSpec(root)
	s.Fields[0].Transform = ops(t, `[{"op":"RandomResizedCrop","size":[40,32]},{"op":"RandomHorizontalFlip"}]`)
	return s
}

// Every sample once an epoch over all ranks, whatever the world, the tail and
// the format: read from the pixels, not from what the loader says of them.
func TestEverySampleOnce(t *testing.T) {
	const n = 101
	for _, data := range []struct{ name, root, from string }{
		{"folder", pictures(t, n), "image"}, {"tar", shards(t, n, 13), "ppm"},
	} {
		for _, world := range []int{1, 2, 3, 7} {
			for _, tail := range []order.Tail{order.Pad, order.Fill, order.Drop} {
				t.Run(fmt.Sprintf("%s/%d/%s", data.name, world, tail), func(t *testing.T) {
					s := ground(t)
					times := make([]int, n)
					steps := map[int]bool{}
					for rank := range world {
						spec := imageSpec(data.root)
						spec.Fields = []Field{{Name: "image", From: data.from, Decode: "rgb"}}
						spec.Rank, spec.World, spec.Order.Tail = rank, world, tail
						l := open(t, s, spec)
						batches := walk(t, l, 2, 0, 0)
						steps[len(batches)] = true
						for _, b := range batches {
							for r, row := range b.Pixels {
								id := int(row[0]) | int(row[1])<<8
								if int64(id) != b.IDs[r] {
									t.Fatalf("the picture says %d, its id %d", id, b.IDs[r])
								}
								if b.Valid[r] {
									times[id]++
								}
							}
							if tail != order.Pad && len(b.IDs) != 4 {
								t.Errorf("tail %s gives a batch of %d", tail, len(b.IDs))
							}
						}
					}
					if len(steps) != 1 {
						t.Errorf("ranks have unequal steps: %v", steps)
					}
					missing := 0
					for id, k := range times {
						if k > 1 {
							t.Errorf("sample %d came %d times", id, k)
						}
						if k == 0 {
							missing++
						}
					}
					want := 0
					if tail == order.Drop {
						want = n % (4 * world)
					}
					if missing != want {
						t.Errorf("%d samples are missing, want %d", missing, want)
					}
				})
			}
		}
	}
}

// What must not matter: lanes, prefetch, memory, how far the storage is and how far ahead of
// the batches it is read, and the way ranks are put together.
func TestSettingsThatMustNotMatter(t *testing.T) {
	root := photos(t, 61)
	s := ground(t)
	base := photoSpec(t, root)
	want := digest(walk(t, open(t, s, base), 1, 0, 0))
	for _, lanes := range []int{1, 2, 3, 8} {
		for _, prefetch := range []int{1, 2, 5, 16} {
			spec := base
			spec.Workers, spec.Deliver.Prefetch = lanes, prefetch
			if got := digest(walk(t, open(t, s, spec), 1, 0, 0)); got != want {
				t.Errorf("%d lanes, prefetch %d: another digest", lanes, prefetch)
			}
		}
	}
	small := base
	small.Deliver.Memory = 64 << 10
	if got := digest(walk(t, open(t, s, small), 1, 0, 0)); got != want {
		t.Error("with little memory: another digest")
	}

	for _, c := range []struct {
		fetch Fetch
		opt   Options
	}{
		{Fetch{}, Options{Wrap: overLink}},
		{Fetch{}, Options{Wrap: overLink, Near: true}},
		{Fetch{Ahead: 1}, Options{Wrap: overLink}},
		{Fetch{Ahead: 10_000, Connections: 1}, Options{Wrap: overLink}},
		{Fetch{}, Options{Wrap: slowly}},
		{Fetch{Connections: 2}, Options{}},
	} {
		spec := base
		spec.Fetch = c.fetch
		l := open(t, s, spec, c.opt)
		if got := append(walk(t, l, 0, 0, 0), walk(t, l, 1, 0, 0)...); digest(got[len(got)/2:]) != want {
			t.Errorf("%+v, near %v, wrapped %v: another digest", c.fetch, c.opt.Near, c.opt.Wrap != nil)
		}
	}

	byID := map[int64]string{}
	for _, b := range walk(t, open(t, s, base), 1, 0, 0) {
		for r, id := range b.IDs {
			byID[id] = string(b.Pixels[r])
		}
	}
	for _, world := range []int{2, 3, 7} {
		for rank := range world {
			spec := base
			spec.Rank, spec.World = rank, world
			for _, b := range walk(t, open(t, s, spec), 1, 0, 0) {
				for r, id := range b.IDs {
					if b.Valid[r] && byID[id] != string(b.Pixels[r]) {
						t.Fatalf("world %d: sample %d looks different", world, id)
					}
				}
			}
		}
	}
}

// The kernel's targets differ in speed alone. Each runs in a process of its own,
// since the target is chosen once.
func TestKernelTargetsGiveTheSameBytes(t *testing.T) {
	if out := os.Getenv("STOKER_TEST_DIGEST"); out != "" {
		spec := photoSpec(t, os.Getenv("STOKER_TEST_ROOT"))
		fmt.Printf("digest %x\n", digest(walk(t, open(t, ground(t), spec), 0, 0, 0)))
		return
	}
	root := photos(t, 30)
	seen := map[string]string{}
	targets := []string{"go", "base"}
	cpu, _ := os.ReadFile("/proc/cpuinfo")
	for target, flag := range map[string]string{"avx2": " avx2 ", "avx512": " avx512_vbmi "} {
		if strings.Contains(string(cpu), flag) {
			targets = append(targets, target)
		}
	}
	for _, target := range targets {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "STOKER_TEST_DIGEST=1", "STOKER_TEST_ROOT="+root, "STOKER_KERNEL="+target)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), "digest ") {
			t.Fatalf("%s: %v\n%s", target, err, out)
		}
		seen[strings.Fields(string(out))[1]] += " " + target
	}
	if len(seen) != 1 {
		t.Errorf("targets differ: %v", seen)
	}
}

// A state saved at every step and restored gives all that followed, in the same
// world and in others.
func TestGoOnFromEveryStep(t *testing.T) {
	s := ground(t)
	l := open(t, s, photoSpec(t, photos(t, 30)))
	whole := walk(t, l, 3, 0, 0)
	for i := range whole {
		st := l.State(3, whole[i].Position)
		if err := l.Check(st); err != nil {
			t.Fatal(err)
		}
		rest := walk(t, l, st.Epoch, st.Position, whole[i].Step+1)
		if digest(rest) != digest(whole[i+1:]) {
			t.Fatalf("after step %d: another stream", i)
		}
	}
	st := l.State(0, 0)
	st.Order = []byte("{\n  \"shuffle\" : \"full\"\n}") // as other writers of JSON put it
	if err := l.Check(st); err != nil {
		t.Error(err)
	}
	st.Seed++
	if err := l.Check(st); errs.CodeOf(err) != errs.State || !strings.Contains(err.Error(), "seed") {
		t.Errorf("another seed: %v", err)
	}
	if _, err := l.Pass(0, 31, 0); errs.CodeOf(err) != errs.State {
		t.Errorf("a position beyond the end: %v", err)
	}
}

// failing is an arena that cannot allocate a second slot, after a while.
type failing struct {
	batch.Heap
	n     atomic.Int32
	begun chan struct{}
	fail  chan struct{}
}

func (f *failing) Alloc(n int64) (*batch.Slot, error) {
	if f.n.Add(1) == 2 {
		close(f.begun)
		<-f.fail
		return nil, errs.New(errs.Memory, "no memory")
	}
	return f.Heap.Alloc(n)
}

// A pass that is given up while memory for it is being made, in vain.
func TestCancelWhileMemoryFails(t *testing.T) {
	s := ground(t)
	f := &failing{begun: make(chan struct{}), fail: make(chan struct{})}
	s.Arena = f
	l := open(t, s, photoSpec(t, photos(t, 30)))
	p, _ := l.Pass(0, 0, 0)
	<-f.begun
	p.Cancel()
	close(f.fail)
	if n := len(walk(t, l, 0, 0, 0)); n != 8 {
		t.Errorf("%d batches afterwards", n)
	}
}

// Rows of unequal length keep to the memory that was asked for.
func TestUnequalRowsKeepToTheirMemory(t *testing.T) {
	s := ground(t)
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "c"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		if err := os.WriteFile(filepath.Join(root, "c", fmt.Sprintf("%d.ppm", i)), make([]byte, 1000*(i+1)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	spec := Spec{
		Dataset: Dataset{Path: Paths{root}}, Fields: []Field{{Name: "image"}}, Batch: BatchSpec{Size: 4},
		Deliver: Deliver{Prefetch: 16, Memory: 2 << 20}, Workers: 2,
	}
	last := func(l *Loader) (err error) {
		p, _ := l.Pass(0, 0, 0)
		defer p.Cancel()
		for err == nil {
			var b *Batch
			if b, err = p.Next(context.Background(), 20*time.Second); err == nil {
				if now := l.Stats().Memory; now > int64(spec.Deliver.Memory) {
					t.Errorf("%d bytes of slots, %d were allowed", now, spec.Deliver.Memory)
				}
				b.Release()
			}
		}
		return err
	}
	if err := last(open(t, s, spec)); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	spec.Deliver.Memory = 200 << 10
	if err := last(open(t, s, spec)); errs.CodeOf(err) != errs.Memory || !strings.Contains(errs.From(err).Hint, "raise memory") {
		t.Errorf("with too little: %v", err)
	}
}

func TestPassesSideBySide(t *testing.T) {
	s := ground(t)
	root := photos(t, 40)
	train, test := open(t, s, photoSpec(t, root)), open(t, s, imageSpec(pictures(t, 40)))
	want := [2]uint64{digest(walk(t, train, 0, 0, 0)), digest(walk(t, train, 1, 0, 0))}
	a, _ := train.Pass(0, 0, 0)
	b, _ := train.Pass(1, 0, 0)
	given, _ := train.Pass(2, 0, 0) // never asked: holds nobody up
	defer given.Cancel()
	var got [2][]seen
	for x := next(t, train, a); x != nil; x = next(t, train, a) {
		got[0] = append(got[0], *x)
		if y := next(t, train, b); y != nil {
			got[1] = append(got[1], *y)
		}
		if len(got[0]) == 3 {
			if n := len(walk(t, test, 0, 0, 0)); n != 10 {
				t.Errorf("the evaluation gave %d batches", n)
			}
		}
	}
	if [2]uint64{digest(got[0]), digest(got[1])} != want {
		t.Error("passes side by side are not those one after the other")
	}
}

// Little memory, three passes, one consumer in turn: whoever is asked gets on.
func TestIdlePassesGiveTheirSlotsUp(t *testing.T) {
	s := ground(t)
	spec := photoSpec(t, photos(t, 40))
	spec.Deliver.Memory = 3 * 20 << 10
	l := open(t, s, spec)
	var passes []*Pass
	for range 3 {
		p, err := l.Pass(0, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Cancel()
		passes = append(passes, p)
	}
	var got [3][]seen
	for range 10 {
		for i, p := range passes {
			got[i] = append(got[i], *next(t, l, p))
		}
	}
	if digest(got[0]) != digest(got[1]) || digest(got[1]) != digest(got[2]) {
		t.Error("three passes over one epoch differ")
	}
}

func TestEveryBatchHeldIsAnError(t *testing.T) {
	s := ground(t)
	spec := imageSpec(pictures(t, 40))
	spec.Fields[0].Transform = ops(t, `[{"op":"Resize","size":[6,8]}]`)
	spec.Deliver.Memory = 3 * 8 << 10
	l := open(t, s, spec)
	p, _ := l.Pass(0, 0, 0)
	defer p.Cancel()
	var held []*Batch
	for {
		b, err := p.Next(context.Background(), 20*time.Second)
		if err != nil {
			if errs.CodeOf(err) != errs.Held || len(held) < 2 || !strings.Contains(err.Error(), fmt.Sprintf("holds %d batches", len(held))) {
				t.Errorf("after %d batches: %v", len(held), err)
			}
			break
		}
		held = append(held, b)
	}
	for _, b := range held {
		b.Release()
	}
}

// hung is a source whose reads of one file never end until let go.
type hung struct {
	source.Source
	name string
	free chan struct{}
}

func (h hung) ReadAt(ctx context.Context, obj source.Info, p []byte, off int64) error {
	if strings.HasSuffix(obj.Name, h.name) {
		<-h.free
	}
	return h.Source.ReadAt(ctx, obj, p, off)
}

func (h hung) List(ctx context.Context, prefix string) iter.Seq2[source.Info, error] {
	return h.Source.List(ctx, prefix)
}

func TestAHungReadIsNamed(t *testing.T) {
	s := ground(t)
	free := make(chan struct{})
	spec := imageSpec(pictures(t, 40))
	spec.Order.Shuffle = order.None
	l := open(t, s, spec, Options{Wrap: func(src source.Source) source.Source { return hung{src, "000009.ppm", free} }})
	p, _ := l.Pass(0, 0, 0)
	defer p.Cancel()
	for range 2 {
		if next(t, l, p) == nil {
			t.Fatal("the end before the hung batch")
		}
	}
	_, err := p.Next(context.Background(), 300*time.Millisecond)
	e := errs.From(err)
	if e.Code != errs.Stalled || e.Where.Sample.Or(-1) != 9 || !strings.Contains(e.What, "stage read") || !strings.HasSuffix(e.Where.File, "000009.ppm") {
		t.Errorf("the stall is told as %v", err)
	}
	close(free)
	if b := next(t, l, p); b == nil || b.Step != 2 {
		t.Error("the stream does not go on after the stall")
	}
}

func TestBadSpecsAreToldAtOnce(t *testing.T) {
	s := ground(t)
	root := pictures(t, 6)
	for name, c := range map[string]struct {
		change func(*Spec)
		code   errs.Code
		says   []string
	}{
		"no such path":      {func(s *Spec) { s.Dataset.Path = Paths{root + "/class9"} }, errs.NotFound, []string{"class"}},
		"many at once":      {func(s *Spec) { s.Batch.Size, s.World, s.Rank, s.OnBad.Policy = -1, 2, 5, "ignore" }, errs.Config, []string{"batch.size", "rank", "on_bad"}},
		"too little memory": {func(s *Spec) { s.Deliver.Memory = 100 }, errs.Memory, []string{"two must fit"}},
		"bad transform":     {func(s *Spec) { s.Fields[0].Transform = ops(t, `[{"op":"RandomResizedCorp","size":3}]`) }, errs.Config, []string{"RandomResizedCrop"}},
		"no shards":         {func(s *Spec) { s.Dataset.Path = Paths{root + "/{000..002}.tar"} }, errs.NotFound, []string{"000.tar"}},
		"elsewhere":         {func(s *Spec) { s.Dataset.Path = Paths{"hdfs://bucket/{000..009}.tar"} }, errs.Config, []string{"local files"}},
		"no such keys":      {func(s *Spec) { s.Dataset.Samples = 5 }, errs.Config, []string{"dataset.samples"}},
		"not a dataset":     {func(s *Spec) { s.Dataset.Path = Paths{"loader.go"} }, errs.Config, []string{"format"}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := imageSpec(root)
			c.change(&spec)
			_, err := Open(context.Background(), s, spec, Options{})
			if errs.CodeOf(err) != c.code {
				t.Fatalf("%v (code %s), want code %s", err, errs.CodeOf(err), c.code)
			}
			for _, word := range c.says {
				if !strings.Contains(err.Error()+errs.From(err).Hint, word) {
					t.Errorf("%q is not said in: %v", word, err)
				}
			}
		})
	}
}

func TestUnequalImagesNeedATransform(t *testing.T) {
	s := ground(t)
	root := pictures(t, 6)
	if err := os.WriteFile(filepath.Join(root, "class0", "000000.ppm"), append([]byte("P6 4 4 255\n"), make([]byte, 48)...), 0o644); err != nil {
		t.Fatal(err)
	}
	spec := imageSpec(root)
	l := open(t, s, spec)
	p, _ := l.Pass(0, 0, 0)
	defer p.Cancel()
	var err error
	for err == nil {
		var b *Batch
		if b, err = p.Next(context.Background(), 10*time.Second); err == nil {
			b.Release()
		}
	}
	if errs.CodeOf(err) != errs.Config || !strings.Contains(errs.From(err).Hint, "Resize") {
		t.Errorf("got %v", err)
	}
	spec.Batch.Size = 1
	if n := len(walk(t, open(t, s, spec), 0, 0, 0)); n != 6 {
		t.Errorf("one by one: %d samples", n)
	}
}

func TestCancelledNextReturns(t *testing.T) {
	s := ground(t)
	free := make(chan struct{})
	defer close(free)
	l := open(t, s, imageSpec(pictures(t, 9)), Options{Wrap: func(src source.Source) source.Source { return hung{src, ".ppm", free} }})
	p, _ := l.Pass(0, 0, 0)
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := p.Next(ctx, 0); err != context.Canceled { //nolint:errorlint // exactly this
		t.Errorf("got %v", err)
	}
	p.Cancel()
	if _, err := p.Next(context.Background(), 0); err == nil || err == io.EOF { //nolint:errorlint // exactly this
		t.Errorf("a cancelled pass gives %v", err)
	}
}

// 200 loaders opened, walked in part and closed: no goroutine, descriptor or
// buffer more than before.
func TestNothingLeaks(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	s := ground(t)
	root := pictures(t, 12)
	descriptors := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	before := 0
	for i := range 200 {
		l, err := Open(context.Background(), s, imageSpec(root), Options{Wrap: []func(source.Source) source.Source{nil, overLink}[i%2]})
		if err != nil {
			t.Fatal(err)
		}
		p, _ := l.Pass(0, 0, 0)
		for range i % 3 {
			next(t, l, p)
		}
		l.Close()
		waitQuiet(t, l)
		if i == 0 {
			before = descriptors()
		}
	}
	if now := descriptors(); now > before+2 {
		t.Errorf("%d descriptors, %d before", now, before)
	}
	s.Close()
	runtime.GC()
}

func TestPerSampleAllocations(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector allocates")
	}
	s := ground(t)
	spec := photoSpec(t, photos(t, 200))
	spec.Batch.Size = 50
	l := open(t, s, spec)
	walk(t, l, 0, 0, 0)
	p, _ := l.Pass(1, 0, 0)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for {
		b, err := p.Next(context.Background(), time.Minute)
		if err != nil {
			break
		}
		b.Release()
	}
	runtime.ReadMemStats(&after)
	if per := float64(after.Mallocs-before.Mallocs) / 200; per > 2 {
		t.Errorf("%.2f heap allocations a sample, want at most 2", per)
	}
}

// tried is a network whose server is tried again, the first few times that it is looked at.
type tried struct {
	asked, most int // with the lock of the lanes
	counts      map[string]stats.Source
}

func (n *tried) Waits() bool {
	n.asked++
	return n.asked <= n.most
}

func (n *tried) Counts() map[string]stats.Source { return n.counts }

// A stall while the bandwidth of servers is limited names the limit. Without a server, it is
// not the reason.
func TestStallsNameTheBandwidth(t *testing.T) {
	for _, c := range []struct {
		bandwidth string
		counts    map[string]stats.Source
		want      string
	}{
		{"100KiB", map[string]stats.Source{"h": {}}, "fetch.bandwidth allows 100.0 KiB per second: raise it or leave it out, check that the store answers, or raise timeout="},
		{"100KiB", nil, "check that its storage answers (a hung mount shows here as stage read), or raise timeout="},
		{"none", map[string]stats.Source{"h": {}}, "check that its storage answers (a hung mount shows here as stage read), or raise timeout="},
	} {
		free := make(chan struct{})
		s := imageSpec(pictures(t, 8))
		s.Order.Shuffle = order.None
		if err := s.Fetch.Bandwidth.UnmarshalJSON([]byte(c.bandwidth)); err != nil {
			t.Fatal(err)
		}
		l := open(t, ground(t), s, Options{Network: &tried{counts: c.counts}, Wrap: func(src source.Source) source.Source { return hung{src, "000001.ppm", free} }})
		p, _ := l.Pass(0, 0, 0)
		if _, err := p.Next(context.Background(), 20*time.Millisecond); errs.CodeOf(err) != errs.Stalled || errs.From(err).Hint != c.want {
			t.Errorf("%v: %s\nwant %s", err, errs.From(err).Hint, c.want)
		}
		p.Cancel()
		close(free)
	}
}

// While a server is tried again, a read that takes long does not stall; the deadline begins
// anew each time that it would have ended.
func TestWaitingForAServerIsNoStall(t *testing.T) {
	free := make(chan struct{})
	spec := imageSpec(pictures(t, 8))
	spec.Order.Shuffle = order.None
	n := &tried{most: 3}
	l := open(t, ground(t), spec, Options{Network: n, Wrap: func(src source.Source) source.Source { return hung{src, "000001.ppm", free} }})
	p, _ := l.Pass(0, 0, 0)
	defer p.Cancel()
	if _, err := p.Next(context.Background(), 20*time.Millisecond); errs.CodeOf(err) != errs.Stalled || n.asked != 4 {
		t.Errorf("after %d looks at the server: %v", n.asked, err)
	}
	n.most = 1 << 40
	time.AfterFunc(100*time.Millisecond, func() { close(free) })
	if b, err := p.Next(context.Background(), 20*time.Millisecond); err != nil {
		t.Errorf("the server came back: %v", err)
	} else {
		b.Release()
	}
}
