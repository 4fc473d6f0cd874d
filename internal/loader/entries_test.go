package loader

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/stats"
)

const cropChain = `[{"op":"RandomResizedCrop","size":[40,32],"scale":[0.05,0.6]},{"op":"RandomHorizontalFlip"}]`

// jpegs is a folder of n of testdata's photographs, as they are.
func jpegs(t testing.TB, n int) (root string) {
	root = t.TempDir()
	files, err := filepath.Glob("../../testdata/photos/*.jpg")
	if err != nil || len(files) != 6 {
		t.Fatalf("%d photographs: %v", len(files), err)
	}
	for i := range n {
		raw, err := os.ReadFile(files[i%6])
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(root, fmt.Sprint("class", i%2), fmt.Sprintf("%03d.jpg", i)), raw)
	}
	return root
}

func writeFile(t testing.TB, path string, raw []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, raw, 0o644); err != nil {
		t.Fatal(err)
	}
}

// entered walks an epoch of a loader that is opened for it and closed, as an engine of its
// own would, and returns what it did with entry points, also in the epoch that it has begun
// ahead.
func entered(t *testing.T, s *Shared, want uint64, sp Spec, epoch, n int64) *stats.Entries {
	t.Helper()
	l := open(t, s, sp)
	got := digest(walk(t, l, epoch, 0, 0))
	if want != 0 && got != want {
		t.Errorf("epoch %d differs from the one without entry points", epoch)
	}
	l.Close()
	s.closing.Wait() // the store has written what was learned
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if found := l.Stats().Entries; found == nil || found.Pictures >= n {
			break // the lanes have told what they did
		}
	}
	return l.Stats().Entries
}

func cropSpec(t *testing.T, root string) Spec {
	sp := imageSpec(root)
	sp.Fields[0].Transform = ops(t, cropChain)
	return sp
}

// without are the digests of epochs without entry points.
func without(t *testing.T, s *Shared, sp Spec, epochs int64) (all []uint64) {
	sp.Entries.Off = true
	l := open(t, s, sp)
	for epoch := range epochs {
		all = append(all, digest(walk(t, l, epoch, 0, 0)))
	}
	if l.Stats().Entries != nil {
		t.Error("entry points are kept although they are off")
	}
	return all
}

// What one epoch learns, the next one uses, in this process and in others, and the batches are
// the same.
func TestEntryPointsChangeNothing(t *testing.T) {
	const n = 18
	s, sp := ground(t), cropSpec(t, jpegs(t, n))
	want := without(t, s, sp, 4)
	l := open(t, s, sp)
	for epoch := range int64(3) {
		if got := digest(walk(t, l, epoch, 0, 0)); got != want[epoch] {
			t.Errorf("epoch %d differs", epoch)
		}
	}
	l.Close()
	waitQuiet(t, l)
	got := entered(t, s, want[3], sp, 3, n)
	uses := kernel.Target() != "go" // without C they are learned, and not used
	if got == nil || got.Stored < n || got.Known != got.Pictures || got.Wrong != 0 || (got.Leapt > 0) != uses || uses && got.Leapt >= got.MCUs {
		t.Errorf("after three epochs: %+v", got)
	}
}

// A folder that gains a file loses nothing, and a file that is written anew is learned anew.
func TestEntryPointsOfFilesThatChange(t *testing.T) {
	const n = 12
	root := jpegs(t, n)
	s, sp := ground(t), cropSpec(t, root)
	entered(t, s, without(t, s, sp, 1)[0], sp, 0, n)

	raw, err := os.ReadFile(filepath.Join(root, "class0", "000.jpg"))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(root, "class1", "new.jpg"), raw)
	got := entered(t, s, without(t, s, sp, 1)[0], sp, 0, n+1)
	if news := got.Pictures - got.Known; news < 1 || news > 2 {
		t.Errorf("with one more file: %+v", got)
	}

	other, err := os.ReadFile(filepath.Join(root, "class1", "001.jpg"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(root, "class0", "000.jpg")); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(root, "class0", "000.jpg"), other)
	got = entered(t, s, without(t, s, sp, 1)[0], sp, 0, n+1)
	if news := got.Pictures - got.Known; news < 1 || news > 2 || got.Wrong != 0 {
		t.Errorf("with one file written anew: %+v", got)
	}
}

// A picture in the place of another, of the same size and time, is found out, by its fingerprint
// or by the points that are passed, and makes its own pixels.
func TestEntryPointsOfAPictureInThePlaceOfAnother(t *testing.T) {
	root := t.TempDir()
	raw, err := os.ReadFile("../../testdata/photos/rocket.jpg")
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.ReadFile("../../testdata/photos/astronaut.jpg")
	if err != nil {
		t.Fatal(err)
	}
	padded := append(bytes.Clone(other), make([]byte, len(raw)-len(other))...)
	path, when := filepath.Join(root, "a", "x.jpg"), time.Now().Add(-time.Hour).Truncate(time.Second)
	put := func(raw []byte) {
		writeFile(t, path, raw)
		if err := os.Chtimes(path, when, when); err != nil {
			t.Fatal(err)
		}
	}
	put(raw)
	s, sp := ground(t), cropSpec(t, root)
	sp.Batch.Size, sp.Order.Tail = 1, ""
	entered(t, s, without(t, s, sp, 1)[0], sp, 0, 1)
	put(padded)
	got := entered(t, s, without(t, s, sp, 1)[0], sp, 0, 1)
	if got.Wrong == 0 || got.Known != 0 {
		t.Errorf("with another picture in its place: %+v", got)
	}
	if got = entered(t, s, without(t, s, sp, 2)[1], sp, 1, 1); got.Known != got.Pictures || got.Wrong != 0 {
		t.Errorf("after it was learned: %+v", got)
	}
}

// A cache folder that cannot hold entry points costs nothing but them.
func TestEntryPointsThatCannotBeKept(t *testing.T) {
	s, sp := ground(t), cropSpec(t, jpegs(t, 6))
	want := without(t, s, sp, 1)[0]
	indexes, err := filepath.Glob(filepath.Join(os.Getenv("STOKER_CACHE"), "index", "*.idx"))
	if err != nil || len(indexes) != 1 {
		t.Fatalf("%d indexes: %v", len(indexes), err)
	}
	writeFile(t, indexes[0][:len(indexes[0])-len(".idx")]+".facts", []byte("a file in the place of the folder"))
	if got := entered(t, s, want, sp, 0, 0); got != nil && got.Known > 0 {
		t.Errorf("%+v", got)
	}
}
