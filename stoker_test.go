package stoker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	stoker "github.com/stoker-data/stoker"
	"github.com/stoker-data/stoker/internal/stagetest"
)

func TestMain(m *testing.M) {
	status := stagetest.OwnCache(m)
	if status == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = 1
		}
	}
	os.Exit(status)
}

// photos is a folder of n pictures, copies of the smallest of those that ship, a
// class each.
func photos(tb testing.TB, n int) string {
	tb.Helper()
	root := tb.TempDir()
	names := []string{"chelsea", "coffee", "rocket"}
	for i := range n {
		name := names[i%len(names)]
		raw, err := os.ReadFile("testdata/photos/" + name + ".jpg")
		if err != nil {
			tb.Fatal(err)
		}
		to := filepath.Join(root, name, fmt.Sprintf("%03d.jpg", i))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(to, raw, 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	return root
}

// train is a small training chain over root.
func train(root string, batch int) stoker.Spec {
	return stoker.Spec{
		Dataset: stoker.Dataset{Path: stoker.Paths{root}},
		Fields: []stoker.Field{
			{Name: "image", Decode: "rgb", Transform: []stoker.Op{
				stoker.Transform("RandomResizedCrop", stoker.Args{"size": []int{24, 32}, "scale": []float64{0.05, 0.3}}),
				stoker.Transform("RandomHorizontalFlip", nil),
			}},
			{Name: "label", Decode: "int"},
			{Name: "key", From: "__key__", Decode: "text"},
		},
		Order:   stoker.Order{Shuffle: stoker.ShuffleFull, Seed: 7},
		Batch:   stoker.BatchSpec{Size: batch},
		Workers: 2,
	}
}

func open(tb testing.TB, spec stoker.Spec) *stoker.Loader {
	tb.Helper()
	l, err := stoker.Open(context.Background(), spec)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	return l
}

// step is all that a batch holds, copied.
type step struct {
	Epoch, Step, Position int64
	IDs                   []int64
	Valid                 []bool
	Labels                []int64
	Keys                  []string
	Pixels                []byte
	Shape                 []int
}

func read(tb testing.TB, b *stoker.Batch) step {
	tb.Helper()
	images, err := b.Uint8("image")
	if err != nil {
		tb.Fatal(err)
	}
	labels, err := b.Int64("label")
	if err != nil {
		tb.Fatal(err)
	}
	keys, err := b.Bytes("key")
	if err != nil {
		tb.Fatal(err)
	}
	out := step{
		Epoch: b.Epoch, Step: b.Step, Position: b.Position, IDs: slices.Clone(b.IDs()), Valid: slices.Clone(b.Valid()),
		Labels: slices.Clone(labels.Data), Pixels: slices.Clone(images.Data), Shape: images.Shape,
	}
	for _, k := range keys {
		out.Keys = append(out.Keys, string(k))
	}
	return out
}

// pass reads one pass, up to most batches if that is not 0.
func pass(tb testing.TB, l *stoker.Loader, most int) (out []step) {
	tb.Helper()
	for b, err := range l.Batches(context.Background()) {
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, read(tb, b))
		if len(out) == most {
			break
		}
	}
	return out
}

func TestEverySampleOnceAnEpoch(t *testing.T) {
	l := open(t, train(photos(t, 32), 5))
	if l.Len() != 32 || l.Steps() != 7 {
		t.Fatalf("%d samples, %d steps", l.Len(), l.Steps())
	}
	want := []stoker.Column{
		{Name: "image", Kind: "image", DType: "uint8", Shape: []int{24, 32, 3}, Axes: "hwc"},
		{Name: "label", Kind: "number", DType: "int64", Shape: []int{}},
		{Name: "key", Kind: "text", DType: "object"},
	}
	if diff := cmp.Diff(want, l.Columns()); diff != "" {
		t.Fatal(diff)
	}
	classes := l.Classes()
	var first []int64
	for epoch := range int64(2) {
		var ids []int64
		for i, b := range pass(t, l, 0) {
			if b.Epoch != epoch || b.Step != int64(i) || !cmp.Equal(b.Shape, []int{len(b.IDs), 24, 32, 3}) {
				t.Fatalf("epoch %d, batch %d is epoch %d, step %d, shape %v", epoch, i, b.Epoch, b.Step, b.Shape)
			}
			for r, key := range b.Keys {
				if class, _, _ := strings.Cut(key, "/"); classes[b.Labels[r]] != class {
					t.Fatalf("sample %s has label %d, which is %s", key, b.Labels[r], classes[b.Labels[r]])
				}
			}
			if slices.Contains(b.Valid, false) {
				t.Fatal("a row is not valid")
			}
			ids = append(ids, b.IDs...)
		}
		if epoch == 0 {
			first = slices.Clone(ids)
		} else if slices.Equal(first, ids) {
			t.Fatal("two epochs have one order")
		}
		slices.Sort(ids)
		for i, id := range ids {
			if id != int64(i) {
				t.Fatalf("epoch %d gave samples %v", epoch, ids)
			}
		}
	}
}

// A state taken after any step, written as JSON and restored in a loader of its
// own, gives all that followed, to the byte.
func TestStateRestoredAtEveryStep(t *testing.T) {
	spec := train(photos(t, 32), 5)
	l := open(t, spec)
	var all []step
	states := [][]byte{save(t, l)}
	for range 2 {
		for b, err := range l.Batches(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, read(t, b))
			states = append(states, save(t, l))
		}
	}
	other := open(t, spec)
	for i, raw := range states {
		var pretty bytes.Buffer
		if err := json.Indent(&pretty, raw, "", "  "); err != nil {
			t.Fatal(err)
		}
		var s stoker.State
		if err := json.Unmarshal(pretty.Bytes(), &s); err != nil {
			t.Fatal(err)
		}
		if err := other.Restore(s); err != nil {
			t.Fatal(err)
		}
		if got := save(t, other); !bytes.Equal(got, raw) {
			t.Fatalf("restored %s, saved again %s", raw, got)
		}
		other.SetEpoch(s.Epoch) // what loops over epochs do: keeps the position
		want := all[i : 7*((i+6)/7)]
		if i == 0 {
			want = all[:7]
		}
		if diff := cmp.Diff(want, pass(t, other, 0), cmp.Comparer(bytes.Equal), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("after step %d: %s", i, diff)
		}
		if next := pass(t, other, 1); next[0].Epoch != s.Epoch+1 || next[0].Step != 0 {
			t.Fatalf("after epoch %d came epoch %d, step %d", s.Epoch, next[0].Epoch, next[0].Step)
		}
	}
}

func save(tb testing.TB, l *stoker.Loader) []byte {
	tb.Helper()
	raw, err := json.Marshal(l.State())
	if err != nil {
		tb.Fatal(err)
	}
	if len(raw) >= 1024 {
		tb.Fatalf("a state of %d bytes", len(raw))
	}
	return raw
}

func TestSetEpoch(t *testing.T) {
	l := open(t, train(photos(t, 12), 5))
	l.SetEpoch(4)
	if s := l.State(); s.Epoch != 4 || s.Position != 0 {
		t.Fatalf("before the first pass the state is %+v", s)
	}
	if got := pass(t, l, 0); got[0].Epoch != 4 {
		t.Fatalf("epoch %d, not 4", got[0].Epoch)
	}
	end := l.State()
	if end.Epoch != 4 || end.Position != 12 {
		t.Fatalf("after a pass the state is %+v", end)
	}
	if err := l.Restore(end); err != nil {
		t.Fatal(err)
	}
	if got := pass(t, l, 0); len(got) != 0 {
		t.Fatalf("a pass restored at its end gave %d batches", len(got))
	}
	if got := pass(t, l, 1); got[0].Epoch != 5 || got[0].Step != 0 {
		t.Fatalf("then came epoch %d, step %d", got[0].Epoch, got[0].Step)
	}
	half := l.State()
	if err := l.Restore(half); err != nil {
		t.Fatal(err)
	}
	l.SetEpoch(6) // another epoch: from its start
	if got := pass(t, l, 1); got[0].Epoch != 6 || got[0].Step != 0 {
		t.Fatalf("epoch %d, step %d", got[0].Epoch, got[0].Step)
	}
	l.SetEpoch(6) // after a pass has begun, the same epoch is a new pass
	if got := pass(t, l, 1); got[0].Epoch != 6 || got[0].Step != 0 {
		t.Fatalf("epoch %d, step %d", got[0].Epoch, got[0].Step)
	}
}

// What one rank of three had read when it stopped, two ranks carry on.
func TestResumeInAnotherWorld(t *testing.T) {
	spec := train(photos(t, 32), 4)
	var want []int64
	for _, b := range pass(t, open(t, spec), 0) {
		want = append(want, b.IDs...)
	}
	world := func(rank, of int) *stoker.Loader {
		s := spec
		s.Rank, s.World = rank, of
		return open(t, s)
	}
	got := make([]int64, 0, 32)
	var state stoker.State
	var three [3][]int64
	for r := range 3 {
		l := world(r, 3)
		three[r] = pass(t, l, 1)[0].IDs
		if r > 0 && !cmp.Equal(state, l.State()) {
			t.Fatalf("ranks disagree: %+v, %+v", state, l.State())
		}
		state = l.State()
	}
	for i := range 4 {
		for r := range 3 {
			got = append(got, three[r][i])
		}
	}
	var two [2][]int64
	for r := range 2 {
		l := world(r, 2)
		if err := l.Restore(state); err != nil {
			t.Fatal(err)
		}
		for _, b := range pass(t, l, 0) {
			two[r] = append(two[r], b.IDs...)
		}
	}
	for i := range two[0] {
		got = append(got, two[0][i], two[1][i])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
}

func TestAbandonedIteration(t *testing.T) {
	l := open(t, train(photos(t, 18), 4))
	whole := pass(t, l, 0)
	for i := range 8 {
		l.SetEpoch(0)
		got := pass(t, l, 1+i%2)
		if diff := cmp.Diff(whole[:len(got)], got, cmp.Comparer(bytes.Equal)); diff != "" {
			t.Fatal(diff)
		}
	}
	func() {
		defer func() {
			if recover() != "body" {
				t.Error("the panic of a loop body did not come through")
			}
		}()
		for range l.Batches(t.Context()) {
			panic("body")
		}
	}()
	if s := l.Stats(); s.Leased != 0 {
		t.Fatalf("%d batches are still held", s.Leased)
	}
}

func TestPassesSideBySide(t *testing.T) {
	spec := train(photos(t, 18), 4)
	l := open(t, spec)
	var want [3][]step
	for i := range want {
		want[i] = pass(t, l, 0)
	}
	l.SetEpoch(0)
	var all sync.WaitGroup
	var mu sync.Mutex
	got := map[int64][]step{}
	for range 3 {
		all.Go(func() {
			one := pass(t, l, 0)
			mu.Lock()
			defer mu.Unlock()
			got[one[0].Epoch] = one
		})
	}
	all.Wait()
	for e := range want {
		if diff := cmp.Diff(want[e], got[int64(e)], cmp.Comparer(bytes.Equal)); diff != "" {
			t.Fatalf("epoch %d: %s", e, diff)
		}
	}
	// Within one goroutine, one inside the other.
	l.SetEpoch(1)
	n := 0
	for outer, err := range l.Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		o := read(t, outer)
		if n == 0 {
			if inner := pass(t, l, 0); !cmp.Equal(inner, want[2], cmp.Comparer(bytes.Equal)) {
				t.Fatal("the inner pass differs")
			}
		}
		if !cmp.Equal(o, want[1][n], cmp.Comparer(bytes.Equal)) {
			t.Fatalf("the outer pass differs at step %d", n)
		}
		n++
	}
}

func TestRetainedBatches(t *testing.T) {
	l := open(t, train(photos(t, 18), 4))
	want := pass(t, l, 0)
	l.SetEpoch(0)
	var kept []*stoker.Batch
	var last *stoker.Batch
	for b, err := range l.Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if last != nil {
			if _, err := last.Uint8("image"); stoker.CodeOf(err) != stoker.Config {
				t.Fatalf("a batch that was let go can be read: %v", err)
			}
		}
		if len(kept) < 3 {
			b.Retain()
			kept = append(kept, b)
		} else {
			last = b
		}
	}
	_ = l.Close() // retained batches outlive their loader
	for i, b := range kept {
		if !cmp.Equal(read(t, b), want[i], cmp.Comparer(bytes.Equal)) {
			t.Fatalf("retained batch %d changed", i)
		}
		b.Release()
	}
	if s := l.Stats(); s.Leased != 0 {
		t.Fatalf("%d batches are still held", s.Leased)
	}
}

func TestRetainingTooMuchIsAnError(t *testing.T) {
	spec := train(photos(t, 18), 2)
	spec.Deliver.Memory = 64 << 10
	l := open(t, spec)
	var kept []*stoker.Batch
	var failed error
	for b, err := range l.Batches(t.Context()) {
		if err != nil {
			failed = err
			break
		}
		b.Retain()
		kept = append(kept, b)
	}
	if stoker.CodeOf(failed) != stoker.Held || len(kept) < 2 {
		t.Fatalf("after %d batches: %v", len(kept), failed)
	}
	for _, b := range kept {
		b.Release()
	}
}

func TestContextEndsAPass(t *testing.T) {
	l := open(t, train(photos(t, 18), 2))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	for b, err := range l.Batches(ctx) {
		if err != nil {
			if !errors.Is(err, context.Canceled) || b != nil {
				t.Fatalf("%v, %v", b, err)
			}
			break
		}
		if n++; n == 2 {
			cancel()
		}
		if n > 2 {
			t.Fatal("the pass went on")
		}
	}
}

func TestBadSamples(t *testing.T) {
	root := photos(t, 18)
	bad := filepath.Join(root, "coffee", "007.jpg")
	if err := os.Truncate(bad, 20_000); err != nil {
		t.Fatal(err)
	}
	spec := train(root, 6)
	l := open(t, spec)
	var failed *stoker.Error
	for _, err := range l.Batches(t.Context()) {
		if err != nil && !errors.As(err, &failed) {
			t.Fatalf("no Error: %v", err)
		}
	}
	if failed == nil || failed.Code != stoker.Damaged || failed.Where.File != bad || failed.Hint == "" {
		t.Fatalf("%+v", failed)
	}
	spec.OnBad.Policy = stoker.Skip
	l = open(t, spec)
	rows, lost := 0, 0
	for b, err := range l.Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		rows += b.Rows
		for i, valid := range b.Valid() {
			if !valid {
				lost++
				if len(b.Bad) != 1 || b.Bad[0].Sample != b.IDs()[i] || b.Bad[0].Put != -1 {
					t.Fatalf("bad %+v, id %d", b.Bad, b.IDs()[i])
				}
			}
		}
	}
	if rows != 18 || lost != 1 {
		t.Fatalf("%d rows, %d of them lost", rows, lost)
	}
}

func TestFloatsAndDirectTypes(t *testing.T) {
	spec := train(photos(t, 6), 6)
	spec.Fields[0].Transform = []stoker.Op{
		stoker.Transform("Resize", stoker.Args{"size": []int{8, 10}}),
		stoker.Transform("ToTensor", nil),
		stoker.Transform("Normalize", stoker.Args{"mean": []float64{0.5, 0.5, 0.5}, "std": []float64{0.25, 0.25, 0.25}}),
	}
	l := open(t, spec)
	for b, err := range l.Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		images, err := b.Float32("image")
		if err != nil {
			t.Fatal(err)
		}
		if !cmp.Equal(images.Shape, []int{6, 3, 8, 10}) || len(images.Row(5)) != 240 {
			t.Fatalf("shape %v", images.Shape)
		}
		for _, v := range images.Data {
			if v < -2.001 || v > 2.001 {
				t.Fatalf("a value of %v", v)
			}
		}
		for name, want := range map[string]string{
			"imge":  `batches have no field "imge"; did you mean "image"?`,
			"x":     `batches have no field "x"; there are image, label, key`,
			"image": `field "image" holds float32, not uint8; batch.Float32("image")`,
		} {
			_, err := b.Uint8(name)
			var e *stoker.Error
			if !errors.As(err, &e) || e.Error()+"; "+e.Hint != want {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestHalvesAreBits(t *testing.T) {
	for _, dtype := range []string{"float16", "bfloat16"} {
		spec := train(photos(t, 6), 6)
		spec.Fields[0].Transform = []stoker.Op{
			stoker.Transform("Resize", stoker.Args{"size": []int{8, 10}}),
			stoker.Transform("ToDtype", stoker.Args{"dtype": dtype, "scale": true}),
		}
		l := open(t, spec)
		for b, err := range l.Batches(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			images, err := stoker.Array[stoker.Bits](b, "image")
			if err != nil {
				t.Fatal(err)
			}
			if !cmp.Equal(images.Shape, []int{6, 3, 8, 10}) {
				t.Fatalf("shape %v", images.Shape)
			}
			one := map[string]stoker.Bits{"float16": 0x3C00, "bfloat16": 0x3F80}[dtype]
			for _, bits := range images.Data {
				if bits > one { // no number of 0 to 1
					t.Fatalf("%#x as %s", bits, dtype)
				}
			}
			_, err = b.Float32("image")
			var e *stoker.Error
			if !errors.As(err, &e) || e.Error()+"; "+e.Hint != `field "image" holds `+dtype+`, not float32; stoker.Array[stoker.Bits](batch, "image")` {
				t.Error(err)
			}
		}
	}
}

func TestOpenNamesEveryProblem(t *testing.T) {
	spec := train(t.TempDir()+"/nothing", 0)
	spec.Batch.Size = -1
	spec.Order.Shuffle = "ful"
	spec.Fields[0].Transform[0] = stoker.Transform("RandomResizedCorp", stoker.Args{"size": func() {}})
	_, err := stoker.Open(t.Context(), spec)
	for _, part := range []string{"batch.size is -1", `shuffle is "ful"`} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Fatalf("no word of %q: %v", part, err)
		}
	}
	spec = train(photos(t, 6), 4)
	spec.Fields[0].Transform[0] = stoker.Transform("RandomResizedCorp", stoker.Args{"size": func() {}})
	if _, err = stoker.Open(t.Context(), spec); err == nil || !strings.Contains(err.Error(), "RandomResizedCrop") {
		t.Fatalf("no word of the nearest: %v", err)
	}
}

func TestRestoreRefusesAnotherStream(t *testing.T) {
	root := photos(t, 12)
	state := open(t, train(root, 4)).State()
	spec := train(root, 4)
	spec.Order.Seed = 8
	l := open(t, spec)
	if err := l.Restore(state); stoker.CodeOf(err) != stoker.BadState || !strings.Contains(err.Error(), "seed") {
		t.Fatalf("a state of another seed was taken: %v", err)
	}
}

// 200 loaders opened, read from and closed leave no descriptor, no mapping of an
// index and no goroutine.
func TestNothingIsLeftOfClosedLoaders(t *testing.T) {
	spec := train(photos(t, 6), 2)
	spec.Fields = spec.Fields[1:] // labels and keys: no picture is decoded
	left := func() (descriptors, mappings int) {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		return len(fds), strings.Count(string(maps), ".idx")
	}
	fds, maps := left()
	for range 200 {
		l, err := stoker.Open(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range l.Batches(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		if err := errors.Join(l.Close(), l.Close()); err != nil {
			t.Fatal(err)
		}
	}
	goleak.VerifyNone(t) // waits for what is on its way out
	if f, m := left(); f > fds || m > maps {
		t.Fatalf("%d descriptors and %d mappings of indexes became %d and %d", fds, maps, f, m)
	}
}

// Whoever opens a dataset learns what its requests wait for.
func TestWhatIsWaitedForIsSaid(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var said string
	_, err = stoker.OpenWith(ctx, stoker.Spec{Dataset: stoker.Dataset{Path: stoker.Paths{"http://" + at + "/a.tar"}}}, stoker.Options{Waiting: func(line string) {
		said = line
		cancel()
	}})
	if !errors.Is(err, context.Canceled) || !strings.HasPrefix(said, at+" does not answer: 1 request has waited for ") {
		t.Errorf("%q, %v", said, err)
	}
}
