package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stoker-data/stoker"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/testdata/photos"
)

// photoShards is two shards of untouched photographs, in a folder.
func photoShards(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	write(t, filepath.Join(dir, "0.tar"), photoShard(t, 0, "astronaut", "chelsea", "coffee"))
	write(t, filepath.Join(dir, "1.tar"), photoShard(t, 1, "rocket", "coffee", "chelsea"))
	return dir
}

func photoShard(t *testing.T, number int, names ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i, name := range names {
		raw, err := photos.Files.ReadFile(name + ".jpg")
		if err == nil {
			err = w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%d%d.jpg", number, i), Mode: 0o644, Size: int64(len(raw))})
		}
		if err == nil {
			_, err = w.Write(raw)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// elsewhere is a copy of a folder of shards with other times, for a user whose cache is empty.
func elsewhere(t *testing.T, from string) (to string) {
	t.Helper()
	to = t.TempDir()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-5 * time.Hour)
	for _, name := range glob(t, to, "*.tar") {
		if err := os.Chtimes(name, old, old); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("STOKER_CACHE", t.TempDir())
	return to
}

func glob(t *testing.T, parts ...string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(parts...))
	if err != nil || len(all) == 0 {
		t.Fatal(parts, all, err)
	}
	return all
}

// loaded is the pixels of an epoch of small crops, what entry points did for it, and the
// notices about them.
func loaded(t *testing.T, dir string, off bool) (pixels uint64, e *stats.Entries, told []string) {
	t.Helper()
	var mu sync.Mutex
	l, err := stoker.OpenWith(t.Context(), stoker.Spec{
		Dataset: stoker.Dataset{Path: stoker.Paths{filepath.Join(dir, "{0..1}.tar")}},
		Fields: []stoker.Field{{Name: "image", From: "jpg", Decode: "rgb", Transform: []stoker.Op{
			stoker.Transform("RandomResizedCrop", stoker.Args{"size": 40, "scale": []float64{0.05, 0.3}}),
		}}},
		Order: stoker.Order{Shuffle: stoker.ShuffleFull, Seed: 3}, Batch: stoker.BatchSpec{Size: 2}, Workers: 2,
		Entries: stoker.Entries{Off: off},
	}, stoker.Options{Notice: func(line string) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, line)
	}})
	if err != nil {
		t.Fatal(err)
	}
	h := fnv.New64a()
	for b, err := range l.Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		raw, err := b.Uint8("image")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = h.Write(raw.Data)
	}
	if err := l.Close(); err != nil { // the lanes have told what they did
		t.Fatal(err)
	}
	return h.Sum64(), l.Stats().Entries, told
}

// same loads an epoch without entry points and one with them, and compares the pixels.
func same(t *testing.T, dir string) (*stats.Entries, []string) {
	t.Helper()
	want, _, _ := loaded(t, dir, true)
	got, e, told := loaded(t, dir, false)
	if got != want {
		t.Error("entry points changed pixels")
	}
	if e == nil || e.Pictures == 0 || e.Wrong > 0 {
		t.Fatalf("%+v, %q", e, told)
	}
	return e, told
}

// travelled indexes shards with entry points, and copies them.
func travelled(t *testing.T) (to string) {
	t.Helper()
	t.Setenv("STOKER_CACHE", t.TempDir())
	from := photoShards(t)
	if got := command(t, "index", filepath.Join(from, "{0..1}.tar"), "--entries", "--beside"); got.status != 0 || !strings.Contains(got.out, "of 6 of 6 JPEGs") {
		t.Fatalf("%d: %s%s", got.status, got.out, got.err)
	}
	if fi, err := os.Stat(glob(t, from, ".stoker", "*.entries")[0]); err != nil || fi.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
	return elsewhere(t, from)
}

// A copy of shards with other times begins with what was learned of them elsewhere.
func TestEntryPointsTravel(t *testing.T) {
	to := travelled(t)
	e, told := same(t, to)
	if e.Known != e.Pictures || e.Learned > 0 || e.Leapt == 0 || e.Stored != 6 || len(told) > 0 {
		t.Errorf("the first epoch of a copy: %+v, %q", e, told)
	}
	got := command(t, "inspect", filepath.Join(to, "{0..1}.tar"), "--json")
	var report struct {
		Entries struct{ Pictures, Bytes int64 }
	}
	if err := json.Unmarshal([]byte(got.out), &report); err != nil || report.Entries.Pictures != 6 || report.Entries.Bytes == 0 {
		t.Errorf("%v: %s%s", err, got.out, got.err)
	}
	if got := command(t, "inspect", filepath.Join(to, "{0..1}.tar")); !strings.Contains(got.out, "6 records of JPEGs") {
		t.Errorf("%s%s", got.out, got.err)
	}
}

// travelling is the file of entry points that came with a copy.
func travelling(t *testing.T, dir string) string { return glob(t, dir, ".stoker", "*.entries")[0] }

// None of the records are used if a shard was written anew, before a copy was used or after:
// neither is the index that came with it.
func TestEntryPointsOfAShardThatChanged(t *testing.T) {
	for _, used := range []bool{false, true} {
		to := travelled(t)
		if used {
			if e, _ := same(t, to); e.Known != e.Pictures {
				t.Errorf("%+v", e)
			}
		}
		write(t, filepath.Join(to, "1.tar"), photoShard(t, 1, "coffee", "rocket", "chelsea")) // of the same size
		if e, told := same(t, to); e.Stored != 0 || len(told) > 0 {
			t.Errorf("used before: %v: %+v, %q", used, e, told)
		}
		if got := command(t, "index", filepath.Join(to, "{0..1}.tar"), "--beside"); got.status != 0 {
			t.Fatal(got.err)
		}
		again := elsewhere(t, to) // its index is new, its entry points are old
		e, told := same(t, again)
		if e.Stored != 0 || len(told) != 1 || !strings.Contains(told[0], "stoker index --entries --beside") {
			t.Errorf("with entry points of before: %+v, %q", e, told)
		}
		if got := command(t, "index", filepath.Join(again, "{0..1}.tar"), "--entries"); got.status == 0 || !strings.Contains(got.err, travelling(t, again)) {
			t.Errorf("%d: %s", got.status, got.err)
		}
		if got := command(t, "index", filepath.Join(again, "{0..1}.tar"), "--entries", "--beside"); got.status != 0 {
			t.Errorf("%d: %s", got.status, got.err)
		}
		if e, told := same(t, elsewhere(t, again)); e.Known != e.Pictures || len(told) > 0 {
			t.Errorf("written again: %+v, %q", e, told)
		}
	}
}

// A file of entry points that is not what it should be costs one notice, and is an error of a
// command that names it.
func TestEntryPointsThatTravelledBadly(t *testing.T) {
	kept := travelled(t)
	whole, err := os.ReadFile(travelling(t, kept))
	if err != nil {
		t.Fatal(err)
	}
	for what, harm := range map[string]func(raw []byte) []byte{
		"cut":             func(raw []byte) []byte { return raw[:len(raw)/2] },
		"empty":           func([]byte) []byte { return nil },
		"a flipped bit":   func(raw []byte) []byte { raw[len(raw)-100] ^= 1; return raw },
		"a later version": func(raw []byte) []byte { raw[8]++; return raw },
		"something else":  func(raw []byte) []byte { return bytes.Repeat([]byte("else"), len(raw)/4) },
		"forged counts":   func(raw []byte) []byte { copy(raw[len(raw)-40:], "\xff\xff\xff\xff\xff\xff\xff\x7f"); return raw },
	} {
		t.Run(what, func(t *testing.T) {
			to := elsewhere(t, kept)
			write(t, travelling(t, to), harm(bytes.Clone(whole)))
			e, told := same(t, to)
			if e.Stored != 0 || len(told) != 1 || !strings.Contains(told[0], travelling(t, to)) {
				t.Errorf("%+v, %q", e, told)
			}
			bench := command(t, "bench", filepath.Join(to, "{0..1}.tar"), "--batch-size", "2", "--epochs", "1", "--image-size", "32")
			if bench.status != 0 || strings.Count(bench.out, travelling(t, to)) != 1 {
				t.Errorf("%d: %s%s", bench.status, bench.out, bench.err)
			}
			for _, flags := range [][]string{{"--entries"}, {"--entries", "--beside"}} {
				got := command(t, append([]string{"index", filepath.Join(to, "{0..1}.tar")}, flags...)...)
				if got.status == 0 || !strings.Contains(got.err, travelling(t, to)) {
					t.Errorf("%q: %d: %s", flags, got.status, got.err)
				}
			}
		})
	}
	t.Run("damaged records", func(t *testing.T) {
		to := elsewhere(t, kept)
		raw := bytes.Clone(whole)
		for at := 300; at < len(raw)/2; at += 200 { // after the first fact, before the table
			raw[at] ^= 0xff
		}
		write(t, travelling(t, to), raw)
		if e, told := same(t, to); e.Known == e.Pictures || len(told) != 1 {
			t.Errorf("%+v, %q", e, told)
		}
	})
}

// What cannot be written beside the data is an error before everything is read.
func TestEntryPointsThatCannotTravel(t *testing.T) {
	from := photoShards(t)
	write(t, filepath.Join(from, ".stoker"), []byte("a file in the place of the folder"))
	if got := command(t, "index", filepath.Join(from, "{0..1}.tar"), "--entries", "--beside"); got.status == 0 || !strings.Contains(got.err, ".stoker") {
		t.Errorf("%d: %s", got.status, got.err)
	}
	if got := command(t, "index", folder(t, 1), "--entries", "--beside"); got.status != 2 || !strings.Contains(got.err, "leave --beside out") {
		t.Errorf("%d: %s", got.status, got.err)
	}
}
