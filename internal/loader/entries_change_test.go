package loader

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/stage/batch"
)

// alone is a loader with lanes of its own, as in another process: only the cache folder is
// shared. It returns when all is closed and what was learned is written, with what the loader
// did with entry points and the notices.
func alone(t testing.TB, sp Spec, use func(l *Loader)) (found stats.Entries, told []string) {
	t.Helper()
	var mu sync.Mutex
	s := NewShared(batch.Heap{}, stats.NewBoard(nil, 64))
	l, err := Open(context.Background(), s, sp, Options{Notice: func(line string) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, line)
	}})
	if err != nil {
		t.Fatal(err)
	}
	use(l)
	l.Close()
	s.Close()
	s.closing.Wait()
	if e := l.Stats().Entries; e != nil {
		found = *e
	}
	return found, told
}

// epochOf is alone for one epoch, whose digest must be want.
func epochOf(t testing.TB, sp Spec, epoch int64, want uint64) (found stats.Entries, told []string) {
	t.Helper()
	return alone(t, sp, func(l *Loader) {
		if got := digest(walk(t, l, epoch, 0, 0)); got != want {
			t.Errorf("epoch %d differs from the one without entry points", epoch)
		}
	})
}

// plainly are the batches of an epoch without entry points.
func plainly(t testing.TB, sp Spec, epoch int64) (all []seen) {
	t.Helper()
	sp.Entries.Off = true
	found, _ := alone(t, sp, func(l *Loader) { all = walk(t, l, epoch, 0, 0) })
	if found != (stats.Entries{}) {
		t.Errorf("entry points are kept although they are off: %+v", found)
	}
	return all
}

// storesOf are the folders of entry points in the cache folder.
func storesOf(t testing.TB) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(os.Getenv("STOKER_CACHE"), "index", "*.facts"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// touchAll gives all files below root another time.
func touchAll(t testing.TB, root string, when time.Time) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "*", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, path := range files {
		if err := os.Chtimes(path, when, when); err != nil {
			t.Fatal(err)
		}
	}
}

// A dataset whose files have other times, and a copy of it elsewhere, know nothing of what was
// learned, not even from a store that was copied too, and learn it anew.
func TestEntryPointsOfACopy(t *testing.T) {
	const n = 12
	t.Setenv("STOKER_CACHE", t.TempDir())
	root := jpegs(t, n)
	sp := cropSpec(t, root)
	want := [3]uint64{digest(plainly(t, sp, 0)), digest(plainly(t, sp, 1)), digest(plainly(t, sp, 2))}
	anew := func(what string, sp Spec, stored bool) {
		t.Helper()
		found, told := epochOf(t, sp, 0, want[0])
		if found.Pictures-found.Known < n || found.Wrong > 0 || found.Learned < n || (found.Stored > 0) != stored || len(told) > 0 {
			t.Errorf("%s, first epoch: %+v, %q", what, found, told)
		}
		epochOf(t, sp, 1, want[1])
		if found, told = epochOf(t, sp, 2, want[2]); found.Known != found.Pictures || found.Wrong > 0 || len(told) > 0 {
			t.Errorf("%s, third epoch: %+v, %q", what, found, told)
		}
	}
	anew("new", sp, false)
	again := filepath.Join(t.TempDir(), "again")
	if err := os.CopyFS(again, os.DirFS(root)); err != nil {
		t.Fatal(err)
	}
	touchAll(t, again, time.Now().Add(-3*time.Hour))
	moveAll(t, again, root, "*")
	anew("with other times", sp, true)

	elsewhere := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(elsewhere, os.DirFS(root)); err != nil {
		t.Fatal(err)
	}
	first := storesOf(t)[0]
	there := cropSpec(t, elsewhere)
	if got := digest(plainly(t, there, 0)); got != want[0] {
		t.Error("a copy has another order, or other pixels")
	}
	indexes, err := filepath.Glob(filepath.Join(os.Getenv("STOKER_CACHE"), "index", "*.idx"))
	if err != nil || len(indexes) != 2 {
		t.Fatalf("%q: %v", indexes, err)
	}
	for _, path := range indexes {
		if dir := path[:len(path)-len(".idx")] + ".facts"; dir != first {
			if err := os.CopyFS(dir, os.DirFS(first)); err != nil {
				t.Fatal(err)
			}
		}
	}
	anew("a copy, with the store of the original", there, true)
	if stores := storesOf(t); len(stores) != 2 {
		t.Errorf("%q", stores)
	}
}

// pairs writes two folders of n files of equal names, sizes and times, with other photographs.
func pairs(t *testing.T, n int) (old, replaced string) {
	t.Helper()
	old, replaced = t.TempDir(), t.TempDir()
	when := time.Now().Add(-time.Hour).Truncate(time.Second)
	photo := func(name string) []byte {
		raw, err := os.ReadFile("../../testdata/photos/" + name + ".jpg")
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	names := [][2]string{{"rocket", "astronaut"}, {"astronaut", "coffee"}, {"coffee", "chelsea"}}
	for i := range n {
		a, b := photo(names[i%3][0]), photo(names[i%3][1])
		b = append(b, make([]byte, len(a)-len(b))...)
		name := filepath.Join("class", string(rune('a'+i))+".jpg")
		writeFile(t, filepath.Join(old, name), a)
		writeFile(t, filepath.Join(replaced, name), b)
	}
	touchAll(t, old, when)
	touchAll(t, replaced, when)
	return old, replaced
}

// validRows are the rows of batches by their samples.
func validRows(batches []seen) map[int64][]byte {
	rows := make(map[int64][]byte)
	for _, b := range batches {
		for r, id := range b.IDs {
			if b.Valid[r] {
				rows[id] = b.Pixels[r]
			}
		}
	}
	return rows
}

// moveAll puts files of a folder in the place of those of another, each at one instant.
func moveAll(t testing.TB, from, to, pattern string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(from, "*", pattern))
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, path := range files {
		rel, _ := filepath.Rel(from, path)
		if err := os.Rename(path, filepath.Join(to, rel)); err != nil {
			t.Fatal(err)
		}
	}
}

// Pictures that replace others of their size and time in mid-epoch are found out one by one:
// each row is the old picture or the new one, and later epochs have the new ones alone.
func TestEntryPointsOfPicturesReplacedInMidEpoch(t *testing.T) {
	const n = 12
	t.Setenv("STOKER_CACHE", t.TempDir())
	root, other := pairs(t, n)
	sp := cropSpec(t, root)
	sp.Batch.Size, sp.Deliver.Prefetch = 2, 1
	after := sp
	after.Dataset.Path = Paths{other}
	want := [4]uint64{digest(plainly(t, sp, 0)), 0, digest(plainly(t, after, 2)), digest(plainly(t, after, 3))}
	before, now := validRows(plainly(t, sp, 1)), validRows(plainly(t, after, 1))
	epochOf(t, sp, 0, want[0])
	found, told := alone(t, sp, func(l *Loader) {
		p, err := l.Pass(1, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Cancel()
		step, replaced := 0, 0
		for b := next(t, l, p); b != nil; b = next(t, l, p) {
			for id, row := range validRows([]seen{*b}) {
				switch {
				case bytes.Equal(row, now[id]):
					replaced++
				case !bytes.Equal(row, before[id]):
					t.Errorf("sample %d at step %d is neither the old picture nor the new one", id, step)
				}
			}
			if step++; step == 2 {
				moveAll(t, other, root, "*")
			}
		}
		if step != n/2 || replaced < n/4 {
			t.Errorf("%d steps, %d new pictures", step, replaced)
		}
		if got := digest(walk(t, l, 2, 0, 0)); got != want[2] {
			t.Error("the epoch after it differs")
		}
	})
	if found.Wrong < n || len(told) > 0 {
		t.Errorf("%+v, %q", found, told)
	}
	if found, told = epochOf(t, sp, 3, want[3]); found.Wrong > 0 || found.Known != found.Pictures || len(told) > 0 {
		t.Errorf("after they were learned: %+v, %q", found, told)
	}
}

// Pictures that are replaced in mid-epoch and have another time are bad samples, as they are
// without entry points: nothing is learned of them under the old time.
func TestEntryPointsOfFilesWrittenInMidEpoch(t *testing.T) {
	const n = 12
	t.Setenv("STOKER_CACHE", t.TempDir())
	root, other := pairs(t, n)
	touchAll(t, other, time.Now())
	sp := cropSpec(t, root)
	sp.Batch.Size, sp.Deliver.Prefetch, sp.OnBad.Policy = 2, 1, Skip
	want := digest(plainly(t, sp, 0))
	before := validRows(plainly(t, sp, 1))
	epochOf(t, sp, 0, want)
	found, _ := alone(t, sp, func(l *Loader) {
		p, err := l.Pass(1, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Cancel()
		step, bad := 0, 0
		for b := next(t, l, p); b != nil; b = next(t, l, p) {
			for id, row := range validRows([]seen{*b}) {
				if !bytes.Equal(row, before[id]) {
					t.Errorf("sample %d at step %d is not the old picture", id, step)
				}
			}
			for _, x := range b.Bad {
				if bad++; errs.CodeOf(x.Err) != errs.Changed {
					t.Error(x.Err)
				}
			}
			if step++; step == 2 {
				moveAll(t, other, root, "[b-e].jpg")
			}
		}
		if bad == 0 {
			t.Errorf("%d bad samples", bad)
		}
	})
	if found.Wrong > 0 {
		t.Errorf("%+v", found)
	}
	found, told := epochOf(t, sp, 2, digest(plainly(t, sp, 2)))
	if news := found.Pictures - found.Known; found.Wrong > 0 || news < 4 || news > 8 || len(told) > 0 {
		t.Errorf("in the next opening: %+v, %q", found, told)
	}
}
