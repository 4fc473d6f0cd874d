package npy_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/npy"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// array is a .npy file as NumPy lays it out, written by hand.
func array(descr string, shape []int, data []byte) []byte {
	dims := ""
	for _, n := range shape {
		dims += fmt.Sprintf("%d, ", n)
	}
	return withHeader(fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, dims), data)
}

func withHeader(text string, data []byte) []byte {
	text += strings.Repeat(" ", 63-(10+len(text))%64) + "\n"
	out := append([]byte("\x93NUMPY\x01\x00"), 0, 0)
	binary.LittleEndian.PutUint16(out[8:], uint16(len(text)))
	return append(append(out, text...), data...)
}

// counting is n bytes that begin with begin.
func counting(n int, begin byte) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = begin + byte(i)
	}
	return out
}

func TestFieldsByName(t *testing.T) {
	s := newShelf(t)
	for _, name := range []string{"x.npy", "x-0.npy", "x-1.npy", "x-2.npy", "y-0.npy", "y-1.npy", "x1.npy", "x2.npy", "x-00000-of-00002.npy", "x-00001-of-00002.npy", "7.npy", "sub/x.npy", "sub/y-1.npy", "A.NPY", "a;b.npy"} {
		s.put(t, name, array("|u1", []int{2, 1}, counting(2, 0)))
	}
	for _, c := range []struct {
		paths string
		want  string // the fields and their samples, or the error
	}{
		{"x.npy", "x 2"},
		{"x-0.npy", "x-0 2"},
		{"x1.npy x2.npy", "x1 x2 2"},
		{"x-0.npy x-1.npy", "x 4"},
		{"x-0.npy y-0.npy", "x-0 y-0 2"},
		{"x-0.npy y-0.npy x-1.npy y-1.npy", "x y 4"},
		{"x-00000-of-00002.npy x-00001-of-00002.npy", "x 4"},
		{"7.npy A.NPY", "7 A 2"},
		{"x-0.npy x-1.npy y-1.npy y-0.npy", `the fields "x" and "y" are numbered 0, 01 and 01, 0`},
		{"x-0.npy x-1.npy x-2.npy y-0.npy y-1.npy", "are numbered"},
		{"x.npy x-0.npy x-1.npy", `would both be the field "x"`},
		{"x.npy sub/x.npy", `would both be the field "x"`},
		{"x.npy x.npy", `would both be the field "x"`},
		{"x-0.npy x-0.npy", `would both be the field "x"`},
		{"a;b.npy", `"a;b" is not a name of a field`},
		{"", "list of NumPy files is empty"},
	} {
		paths := strings.Fields(c.paths)
		for i := range paths {
			paths[i] = s.dir + "/" + paths[i]
		}
		d, err := s.try(paths...)
		got := ""
		if err == nil {
			got = fmt.Sprint(strings.Join(d.Index().Meta().Fields, " "), " ", d.Index().Len())
			_ = d.Close()
		} else if got = errs.From(err).What; errs.CodeOf(err) != errs.Config || errs.From(err).Hint == "" {
			t.Errorf("%s: %v", c.paths, err)
		}
		if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
			t.Errorf("%s: %s, not %s", c.paths, got, c.want)
		}
	}
}

func TestNamedFields(t *testing.T) {
	s := newShelf(t)
	a := s.put(t, "a.npy", array("|u1", []int{3}, []byte("abc")))
	b := s.put(t, "b.npy", array("|u1", []int{1}, []byte("d")))
	z := s.put(t, "z.npz", archive(t, compressedMember("train_x", array("|u1", []int{4, 2}, []byte("EEFFGGHH"))), member{name: "n", data: array("<i8", nil, counting(8, 0))}, compressedMember("test_x", array("|u1", []int{1}, []byte("t")))))
	d := s.fields(t, npy.Field{Name: "l", Paths: []string{a, b}}, npy.Field{Name: "x", Array: "train_x", Paths: []string{z}}, npy.Field{Name: "again", Array: "train_x", Paths: []string{z}})
	if got := rows(t, d, s.src, "l"); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Errorf("%q", got)
	}
	for _, f := range []string{"x", "again", "none;x"} {
		if got := rows(t, d, s.src, f); !slices.Equal(got, []string{"EE", "FF", "GG", "HH"}) {
			t.Errorf("%q", got)
		}
	}
	stagetest.Dataset(t, d, s.src)
	stagetest.Must(t, d.Check([]string{"x", "y;l"}))
	if e := errs.From(d.Check([]string{"agian"})); e.Code != errs.Config || !strings.Contains(e.What, "l, x, again") || !strings.Contains(e.Hint, `"again"`) {
		t.Errorf("%v | %s", e, e.Hint)
	}
	if _, ok := d.Type("y"); ok || d.Size(0, "y") != -1 {
		t.Error("a field that is not there has a type")
	}
	for _, c := range []struct {
		fields []npy.Field
		what   string
	}{
		{[]npy.Field{}, "list of fields is empty"},
		{[]npy.Field{{Name: "", Paths: []string{a}}}, "not a name of a field"},
		{[]npy.Field{{Name: "x"}}, "has no file"},
		{[]npy.Field{{Name: "x", Paths: []string{a}}, {Name: "x", Paths: []string{b}}}, "given twice"},
		{[]npy.Field{{Name: "x", Paths: []string{a}}, {Name: "y", Paths: []string{b}}}, `the field "x" has 3 rows, and the field "y" has 1`},
		{[]npy.Field{{Name: "x", Paths: []string{a, b}}, {Name: "y", Paths: []string{b, a}}}, `file 0 of the field "x" has 3 rows`},
		{[]npy.Field{{Name: "train_y", Paths: []string{z}}}, `no array "train_y"`},
		{[]npy.Field{{Name: "x", Array: "train_x", Paths: []string{z, a}}}, "the rows of the field"},
	} {
		_, err := npy.Open(ctx, s.src, nil, npy.Options{Store: s.store, Fields: c.fields})
		if e := errs.From(err); err == nil || e.Code != errs.Config || !strings.Contains(e.What, c.what) || e.Hint == "" {
			t.Errorf("%v, not %s", err, c.what)
		}
	}
	if _, err := s.try(a, z); errs.CodeOf(err) != errs.Config {
		t.Errorf("%v", err)
	}
	if _, err := s.try(z, z); errs.CodeOf(err) != errs.Config {
		t.Errorf("%v", err)
	}
}

// Rows of any number of files, against their plain concatenation.
func TestRandomShards(t *testing.T) {
	s := newShelf(t)
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.IntRange(1, 9).Draw(t, "width")
		var fields []npy.Field
		var want [2][]string
		var counts [2][]int // rows of each file
		total := 0
		for f := range want {
			field := npy.Field{Name: fmt.Sprint("f", f), Array: "v"}
			left := total
			for i := 0; f == 0 && i < rapid.IntRange(1, 5).Draw(t, "files") || f == 1 && (left > 0 || i == 0); i++ {
				n := rapid.IntRange(0, 7).Draw(t, "rows")
				if f == 0 && i == 0 {
					n++
				}
				if f == 1 {
					n = min(n, left)
					if i == 9 {
						n = left
					}
					left -= n
				} else {
					total += n
				}
				data := counting(n*width, byte(rapid.IntRange(0, 255).Draw(t, "first")))
				for r := range n {
					want[f] = append(want[f], string(data[r*width:][:width]))
				}
				counts[f] = append(counts[f], n)
				file := array("|i1", []int{n, width}, data)
				name := fmt.Sprintf("%d-%d.npy", f, i)
				switch rapid.IntRange(0, 2).Draw(t, "kind") {
				case 1:
					name, file = name[:3]+".npz", archive(t, member{name: "v", data: file})
				case 2:
					name, file = name[:3]+".npz", archive(t, member{name: "other", data: file[:5]}, compressedMember("v", file))
				}
				field.Paths = append(field.Paths, s.put(t, name, file))
			}
			fields = append(fields, field)
		}
		d, err := npy.Open(ctx, s.src, nil, npy.Options{Store: &index.Store{}, Fields: fields}) // files of one size and time come again
		if len(counts[0]) > 1 && len(counts[0]) == len(counts[1]) && !slices.Equal(counts[0], counts[1]) {
			if e := errs.From(err); err == nil || e.Code != errs.Config || !strings.Contains(e.Hint, "same order") {
				t.Fatalf("files of %v and %v rows, which pair up: %v", counts[0], counts[1], err)
			}
			return
		}
		stagetest.Must(t, err)
		defer d.Close()
		for f := range want {
			if got := rows(t, d, s.src, fields[f].Name); !slices.Equal(got, want[f]) {
				t.Fatalf("field %d: %q, not %q", f, got, want[f])
			}
		}
	})
}

func TestStaleness(t *testing.T) {
	s := newShelf(t)
	one := array("|u1", []int{3}, []byte("abc"))
	path := s.put(t, "a.npz", archive(t, compressedMember("x", one), member{name: "y", data: one}))
	d := s.open(t, path)
	digest := d.Index().Digest()
	faulty := stagetest.WithFaults(s.src)
	again, err := npy.Open(ctx, faulty, []string{path}, npy.Options{Store: s.store})
	stagetest.Must(t, err)
	defer again.Close()
	if faulty.Reads() != 0 || again.Index().Digest() != digest {
		t.Errorf("%d reads of what is indexed", faulty.Reads())
	}
	rows(t, again, s.src, "x") // is unpacked by now
	s.put(t, "a.npz", archive(t, compressedMember("x", array("|u1", []int{4}, []byte("abcd"))), member{name: "y", data: array("|u1", []int{4}, []byte("abcd"))}))
	for _, f := range []string{"x", "y"} {
		if err := stagetest.Read(again, s.src, 0, []string{f}, &format.Sample{}); errs.CodeOf(err) != errs.Changed {
			t.Errorf("%s of a file that is another now: %v", f, err)
		}
	}
	if n := s.open(t, path).Index().Len(); n != 4 {
		t.Errorf("%d samples", n)
	}
}

// Arrays that are not all kept are unpacked again, and that is said.
func TestFewBlocks(t *testing.T) {
	s := newShelf(t)
	var paths []string
	for i := range 4 {
		paths = append(paths, s.put(t, fmt.Sprintf("a-%d.npz", i), archive(t, compressedMember("x", array("|u1", []int{10, 50}, bytes.Repeat([]byte{byte(i)}, 500))))))
	}
	d, err := npy.Open(ctx, s.src, paths, npy.Options{Store: s.store, UnpackedBytes: 1500})
	stagetest.Must(t, err)
	defer d.Close()
	if note := d.Index().Note(); !strings.Contains(note, "again and again") {
		t.Errorf("note %q", note)
	}
	var smp format.Sample
	for i := range int64(200) {
		id := i * 7 % 40
		stagetest.Must(t, stagetest.Read(d, s.src, id, nil, &smp))
		if !bytes.Equal(smp.Fields[0].Data, bytes.Repeat([]byte{byte(id / 10)}, 50)) {
			t.Fatalf("sample %d is %v", id, smp.Fields[0].Data)
		}
	}
	if note := s.open(t, paths...).Index().Note(); note != "" {
		t.Errorf("note %q", note)
	}
}

func TestSniff(t *testing.T) {
	one := array("|u1", []int{1}, []byte("a"))
	for _, c := range []struct {
		name string
		head []byte
		want bool
	}{
		{"a.npy", one, true},
		{"a", one[:16], true},
		{"a.npz", archive(t, member{name: "x", data: one})[:16], true},
		{"a.zip", archive(t, member{name: "x", data: one})[:16], false},
		{"a.npy", []byte("hello"), false},
		{"a.npz", nil, false},
	} {
		if npy.Sniff(c.name, c.head) != c.want {
			t.Errorf("%s", c.name)
		}
	}
}

// An array that cannot be read does not prevent the others of its archive from being
// fields; it is reported, and asking for it by name is an error.
func TestUnreadableArrayBesideOthers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.npz")
	x, text := array("|u1", []int{3}, []byte("abc")), array("<U1", []int{3}, make([]byte, 12))
	stagetest.Must(t, os.WriteFile(path, archive(t, member{name: "text", data: text}, member{name: "x", data: x}, member{name: "n", data: array("|u1", []int{}, []byte("a"))}), 0o600))
	src := source.NewFile()
	defer src.Close()
	d, err := npy.Open(context.Background(), src, []string{path}, npy.Options{Store: &index.Store{}})
	stagetest.Must(t, err)
	defer d.Close()
	if fields := d.Index().Meta().Fields; len(fields) != 1 || fields[0] != "x" || d.Index().Len() != 3 {
		t.Errorf("%v of %d", fields, d.Index().Len())
	}
	if notes := strings.Join(d.Notes(), "\n"); !strings.Contains(notes, `"text" (`) || !strings.Contains(notes, `"n" (`) {
		t.Errorf("%s", notes)
	}
	if err := d.Check([]string{"x"}); err != nil {
		t.Error(err)
	}
	if err := d.Check([]string{"text"}); errs.CodeOf(err) != errs.Unsupported {
		t.Error(err)
	}
	if _, err := npy.Open(context.Background(), src, nil, npy.Options{Store: &index.Store{}, Fields: []npy.Field{{Name: "text", Paths: []string{path}}}}); errs.CodeOf(err) != errs.Unsupported {
		t.Error(err)
	}
}
