package loader

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// What a format leaves out of the batches is told, with the reason; what is left
// out for being beside something else is not.
func TestLeftOutIsTold(t *testing.T) {
	s := ground(t)
	for path, want := range map[string][]string{
		"../../testdata/parquet/rows-whole.parquet":  {`"maybe" (null in `, `"note" (null in `, "fields=[...]", "on_bad"},
		"../../testdata/parquet/nulls-none.parquet":  {`"gap" (null in 1 of 24 rows)`, `"nolist" (null in `, `"inlist" (2 nulls in its lists)`, "fields=[...]"},
		"../../testdata/parquet/kinds.parquet":       {`which is not read`, `"map.key_value.key"`},
		formatDir + "/mds/testdata/refused":          {`encodings are not read`, `(pkl)`},
		"../../testdata/parquet/huggingface.parquet": nil,
		"../../testdata/tfrecord/pictures.tfrecord":  {`"parts" (it has 1 to 2 values`},
	} {
		l := open(t, s, Spec{Dataset: Dataset{Path: Paths{path}}, Batch: BatchSpec{Size: 3}})
		notes := strings.Join(l.Notes(), "\n")
		if n := strings.Count(notes, "left out of the batches"); n != min(len(want), 1) {
			t.Errorf("%s: told %d times: %s", path, n, notes)
		}
		for _, says := range want {
			if !strings.Contains(notes, says) {
				t.Errorf("%s: %q is not in %s", path, says, notes)
			}
		}
	}
}

// Where everything would be left out, a loader of batches is refused and says
// why; who only looks at what is stored is told.
func TestNothingLeftToDeliver(t *testing.T) {
	s := ground(t)
	path := filepath.Join(t.TempDir(), "t.csv")
	if err := os.WriteFile(path, []byte("a,b\n1,\n,2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	d := Dataset{Path: Paths{path}}
	_, err := Open(context.Background(), s, Spec{Dataset: d, Batch: BatchSpec{Size: 3}}, Options{})
	if errs.CodeOf(err) != errs.Config || !strings.Contains(err.Error(), `"a" (not every row has it), "b"`) {
		t.Errorf("%v", err)
	}
	l, err := Open(context.Background(), s, Spec{Dataset: d, Workers: 1}, Options{Stored: true})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if notes := strings.Join(l.Notes(), "\n"); !strings.Contains(notes, `"a" (not every row has it)`) {
		t.Errorf("%s", notes)
	}
	open(t, s, Spec{Dataset: d, Batch: BatchSpec{Size: 1}, Fields: []Field{{Name: "b"}}, OnBad: OnBad{Policy: Skip}})
}

// What is delivered unasked fails at no row for a null, and misses none.
func TestDefaultsMeetNoNull(t *testing.T) {
	s := ground(t)
	for _, name := range []string{"told", "none", "snappy", "index", "v2"} {
		l := open(t, s, Spec{Dataset: Dataset{Path: Paths{"../../testdata/parquet/nulls-" + name + ".parquet"}}, Batch: BatchSpec{Size: 4}})
		rows := 0
		for _, b := range walk(t, l, 0, 0, 0) { // ends the test at an error
			rows += len(b.IDs)
		}
		if n := len(l.Fields()); rows != 24 || n != 4 {
			t.Errorf("%s: %d rows of %d fields", name, rows, n)
		}
	}
}

// Files of 0 bytes among TensorFlow's shards have no records, wherever they are in
// the list, and are reported.
func TestEmptyShardsAreTold(t *testing.T) {
	s := ground(t)
	whole, err := os.ReadFile("../../testdata/tfrecord/pictures.tfrecord")
	if err != nil {
		t.Fatal(err)
	}
	var want int64
	for _, names := range [][]string{{"photos-00000-of-00003", "photos-00001-of-00003", "photos-00002-of-00003"}, {"a.tfrecord", "b.tfrecord", "c.tfrecord"}} {
		for empty := -1; empty < len(names); empty++ {
			dir := t.TempDir()
			for i, name := range names {
				data := whole
				if i == empty {
					data = nil
				}
				if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			for _, path := range []string{dir, filepath.Join(dir, "*")} {
				l, err := Open(context.Background(), s, Spec{Dataset: Dataset{Path: Paths{path}}, Workers: 1}, Options{Stored: true})
				if err != nil {
					t.Errorf("%s, %d is empty: %v", path, empty, err)
					continue
				}
				if empty < 0 {
					want = l.Len() / 3 * 2
				} else if notes := strings.Join(l.Notes(), "\n"); l.Len() != want || !strings.Contains(notes, "1 of 3 files have 0 bytes, and count as no records: "+names[empty]) {
					t.Errorf("%s, %d is empty: %d samples, %s", path, empty, l.Len(), notes)
				}
				l.Close()
			}
		}
	}
}

// A .npy member of a kind that is not read does not keep the other fields of its
// shard from being delivered, and it is told; who names it is refused.
func TestUnreadableMembersAreLeftOut(t *testing.T) {
	s := ground(t)
	path := filepath.Join(t.TempDir(), "a.tar")
	var members []member
	for i := range 3 {
		members = append(members,
			member{fmt.Sprintf("%d.cls", i), []byte{'0' + byte(i)}},
			member{fmt.Sprintf("%d.npy", i), arrayFile(1, "'<c8'", "(1,)", make([]byte, 8))})
	}
	writeTar(t, path, members)
	d := Dataset{Path: Paths{path}}
	l := open(t, s, Spec{Dataset: d, Batch: BatchSpec{Size: 3}})
	if f, notes := l.Fields(), strings.Join(l.Notes(), "\n"); len(f) != 1 || f[0].Name != "cls" || !strings.Contains(notes, `"npy" (`) || !strings.Contains(notes, "complex") {
		t.Errorf("%v: %s", f, notes)
	}
	_, err := Open(context.Background(), s, Spec{Dataset: d, Fields: []Field{{Name: "npy", Decode: "npy"}}}, Options{})
	if errs.CodeOf(err) != errs.Config || !strings.Contains(err.Error(), "complex numbers") {
		t.Errorf("%v", err)
	}
}
