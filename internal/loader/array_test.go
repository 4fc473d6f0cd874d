package loader

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/order"
)

// Arrays of every type come out as they are stored, to the byte, beside numbers.
func TestArraysAsStored(t *testing.T) {
	s := ground(t)
	for d := range descrs {
		t.Run(d.String(), func(t *testing.T) {
			dir := t.TempDir()
			const n, row = 11, 6
			x, y := random(n*row*d.Size(), 1), random(n*d.Size(), 2)
			if d == mem.Bool {
				for i := range x {
					x[i] &= 1
				}
			}
			saveArray(t, dir, "x.npy", d, "(11, 2, 3)", x)
			saveArray(t, dir, "y.npy", d, "(11,)", y)
			l := open(t, s, arraySpec(nil, dir))
			want := []dataset.Column{{Name: "x", Kind: "array", DType: d.String(), Shape: []int{2, 3}}, {Name: "y", Kind: "number", DType: d.String(), Shape: []int{}}}
			if got := l.Fields(); !slices.EqualFunc(got, want, func(a, b dataset.Column) bool { return string(jsonOf(t, a)) == string(jsonOf(t, b)) }) {
				t.Errorf("fields %+v", got)
			}
			got := arrays(t, l)
			if len(got) != n {
				t.Fatalf("%d samples", len(got))
			}
			for id, sample := range got {
				i := int(id) * row * d.Size()
				if !bytes.Equal(sample["x"], x[i:i+row*d.Size()]) || !bytes.Equal(sample["y"], y[int(id)*d.Size():(int(id)+1)*d.Size()]) {
					t.Errorf("sample %d: %x, %x", id, sample["x"], sample["y"])
				}
			}
		})
	}
}

// x and y as two views of tokens: rows of their own without gaps, other dtypes, and
// what Python's slices would give.
func TestViewsAreContiguous(t *testing.T) {
	s := ground(t)
	dir := t.TempDir()
	const n, row = 10, 9
	tokens := random(2*n*row, 3)
	path := saveArray(t, dir, "tokens.npy", mem.Uint16, "(10, 9)", tokens)
	wide := func(id int64, from, to int) (out []byte) {
		for i := from; i < to; i++ {
			out = binary.LittleEndian.AppendUint64(out, uint64(binary.LittleEndian.Uint16(tokens[2*(int(id)*row+i):])))
		}
		return out
	}
	l := open(t, s, arraySpec(fieldsOf(t, `[
		{"name": "x", "from": "tokens", "dtype": "int64", "view": [null, -1]},
		{"name": "y", "from": "tokens", "dtype": "int64", "view": [1, null]},
		{"name": "middle", "from": "tokens", "dtype": "int64", "view": [-6, 20]},
		{"name": "all", "from": "tokens", "dtype": "int64", "view": [0, 9]},
		{"name": "raw", "from": "tokens", "view": [3, 4]}]`), path))
	if got := l.slotBytes; got > 4096 {
		t.Errorf("a slot of %d bytes for rows of %d", got, row*8+row*2)
	}
	p, err := l.Pass(0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Cancel()
	b, err := p.Next(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	golden := `[{"name":"x","off":0,"shape":[8]},{"name":"y","off":192,"shape":[8]},` +
		`{"name":"middle","off":384,"shape":[6]},{"name":"all","off":576,"shape":[9]},` +
		`{"name":"raw","off":832,"shape":[1]},{"name":"__ids__","off":896},{"name":"__valid__","off":960}]`
	var sent []wire.Column // as the engine sends them
	for _, c := range b.Columns {
		sent = append(sent, wire.Column(c))
	}
	if got := string(jsonOf(t, sent)); got != golden {
		t.Errorf("columns\n%s, want\n%s", got, golden)
	}
	b.Release()
	for id, sample := range arrays(t, l) {
		for name, want := range map[string][]byte{
			"x": wide(id, 0, 8), "y": wide(id, 1, 9), "middle": wide(id, 3, 9), "all": wide(id, 0, 9),
			"raw": tokens[2*(int(id)*row+3):][:2],
		} {
			if !bytes.Equal(sample[name], want) {
				t.Errorf("sample %d, %s: %x, want %x", id, name, sample[name], want)
			}
		}
	}
	for _, f := range l.Fields()[:2] {
		if !slices.Equal(f.Shape, []int{8}) {
			t.Errorf("%s has shape %v", f.Name, f.Shape)
		}
	}
}

// Members of one name that differ in length: ragged, padded to the longest, to a
// multiple, to a fixed length, and cut to it.
func TestRaggedAndPadded(t *testing.T) {
	s := ground(t)
	path, rows := documents(t, docSizes...)
	widen := func(row []byte) (out []byte) {
		for ; len(row) > 0; row = row[2:] {
			out = binary.LittleEndian.AppendUint32(out, uint32(int16(binary.LittleEndian.Uint16(row))))
		}
		return out
	}
	spec := func(more string) Spec {
		return arraySpec(fieldsOf(t, `[{"name": "doc", "from": "doc.npy", "decode": "npy", "dtype": "int32"`+more+`}, {"name": "label", "from": "cls", "decode": "int"}]`), path)
	}
	t.Run("ragged", func(t *testing.T) {
		l := open(t, s, spec(`, "batch": "ragged"`))
		if f := l.Fields()[0]; f.Kind != "array" || f.Batch != "ragged" || !slices.Equal(f.Shape, []int{-1, 2}) || f.DType != "int32" {
			t.Errorf("%+v", f)
		}
		got := arrays(t, l)
		for id, want := range rows {
			if sample := got[int64(id)]; !bytes.Equal(sample["doc"], widen(want)) || sample["label"][0] != byte(id%4) {
				t.Errorf("sample %d: %x, want %x", id, sample, widen(want))
			}
		}
	})
	for _, c := range []struct {
		pad           string
		to, multiple  int
		value         int32
		truncated     bool
		fixed         bool
		shape, length []int
	}{
		{pad: ``, value: 0, shape: []int{-1, 2}},
		{pad: `, "pad": {"multiple": 8, "value": -100}`, multiple: 8, value: -100, shape: []int{-1, 2}},
		{pad: `, "pad": {"to": "longest", "value": 258}`, value: 258, shape: []int{-1, 2}},
		{pad: `, "pad": {"to": 30, "multiple": 16, "value": 7}`, to: 30, multiple: 16, value: 7, fixed: true, shape: []int{32, 2}},
		{pad: `, "pad": {"to": 6, "truncate": true}`, to: 6, truncated: true, fixed: true, shape: []int{6, 2}},
	} {
		t.Run("padded"+c.pad, func(t *testing.T) {
			l := open(t, s, spec(`, "batch": "padded"`+c.pad))
			fields := l.Fields()
			if f := fields[0]; f.Batch != "padded" || !slices.Equal(f.Shape, c.shape) {
				t.Errorf("%+v", f)
			}
			if f := fields[2]; f.Name != "doc_lengths" || f.Of != "doc" || f.DType != "int64" || f.Kind != "number" {
				t.Errorf("%+v", f)
			}
			p, err := l.Pass(0, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Cancel()
			seen := 0
			for {
				b, err := p.Next(context.Background(), 0)
				if err != nil {
					break
				}
				ids, lengths := int64s(b.Slot.Mem[b.Columns[3].Off:])[:b.Rows], int64s(b.Slot.Mem[b.Columns[2].Off:])[:b.Rows]
				width := c.to
				for _, id := range ids {
					if !c.fixed {
						width = max(width, docSizes[id])
					}
				}
				if c.multiple > 0 {
					width = (width + c.multiple - 1) / c.multiple * c.multiple
				}
				if got := b.Columns[0].Shape; !slices.Equal(got, []int{width, 2}) {
					t.Fatalf("a batch of shape %v, want %d steps", got, width)
				}
				for r, row := range rowsOf(b, b.Columns[0], mem.Int32) {
					seen++
					n := min(docSizes[ids[r]], width)
					want := widen(rows[ids[r]])[:8*n]
					for len(want) < 8*width {
						want = binary.LittleEndian.AppendUint32(want, uint32(c.value))
					}
					if !bytes.Equal(row, want) || lengths[r] != int64(n) {
						t.Errorf("sample %d (length %d): %x, want %x", ids[r], lengths[r], row, want)
					}
				}
				b.Release()
			}
			if seen != len(rows) {
				t.Errorf("%d samples of %d", seen, len(rows))
			}
		})
	}
}

// Every form of a column goes on from every step, to the byte.
func TestArraysGoOnFromEveryStep(t *testing.T) {
	s := ground(t)
	path, _ := documents(t, docSizes...)
	for _, more := range []string{`, "batch": "ragged"`, `, "batch": "padded"`, `, "batch": "padded", "pad": {"to": 40}`} {
		spec := arraySpec(fieldsOf(t, `[{"name": "doc", "from": "doc.npy", "decode": "npy"`+more+`}]`), path)
		l, other := open(t, s, spec), open(t, s, spec)
		whole := walkAll(t, l, 1, 0, 0)
		for i, b := range whole {
			st := saved(t, l, 1, b.Position)
			if err := other.Check(st); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(texts(walkAll(t, other, 1, st.Position, int64(i+1))), texts(whole)[i+1:]) {
				t.Errorf("%s: after step %d: another stream", more, i)
			}
		}
		spec.Fields[0].Batch, spec.Fields[0].Pad = "padded", Pad{Value: 3}
		if err := open(t, s, spec).Check(saved(t, l, 0, 0)); errs.CodeOf(err) != errs.State {
			t.Errorf("%s: a state of another padding fits: %v", more, err)
		}
	}
}

// Arrays that are not what the first one says: named, skipped, replaced, in every
// form of a column.
func TestDamagedArrays(t *testing.T) {
	const broken = 4
	good := func(n int) []byte { return arrayFile(1, "'<i2'", fmt.Sprintf("(%d,)", n), random(2*n, 1)) }
	kinds := map[string][]byte{
		"empty":           nil,
		"no array":        []byte("hello, this is text and no array at all"),
		"cut":             good(8)[:130],
		"beyond its end":  append(good(8), 0),
		"another dtype":   arrayFile(1, "'<i4'", "(8,)", random(32, 1)),
		"more dimensions": arrayFile(1, "'<i2'", "(2, 4)", random(16, 1)),
		"objects":         arrayFile(1, "'|O'", "(8,)", random(16, 1)),
		"absurd":          arrayFile(1, "'<i2'", "(4611686018427387904,)", random(16, 1)),
	}
	forms := map[string]string{
		"dense": `{"name": "a", "from": "npy", "decode": "npy"}`, "ragged": `{"name": "a", "from": "npy", "decode": "npy", "batch": "ragged"}`,
		"padded": `{"name": "a", "from": "npy", "decode": "npy", "batch": "padded"}`,
		"fixed":  `{"name": "a", "from": "npy", "decode": "npy", "batch": "padded", "pad": {"to": 12}}`,
	}
	for name, body := range kinds {
		for form, field := range forms {
			t.Run(name+"/"+form, func(t *testing.T) {
				var members []member
				for i := range 9 {
					n := 8
					if form != "dense" {
						n = i
					}
					members = append(members, member{fmt.Sprintf("%d.npy", i), good(n)})
				}
				members[broken].body = body
				path := filepath.Join(t.TempDir(), "a.tar")
				writeTar(t, path, members)
				s := ground(t)
				spec := arraySpec(fieldsOf(t, "["+field+"]"), path)
				_, err := end(t, open(t, s, spec))
				if e := errs.From(err); errs.Classes[e.Code].Python != "DataError" || e.Where.Sample.Or(-1) != broken || e.Where.Shard != path || e.Hint == "" || e.Where.Field != "a" {
					t.Fatalf("told as %v (%s, hint %q) at %+v", err, e.Code, e.Hint, e.Where)
				}
				for _, policy := range []string{Skip, Replace} {
					spec.OnBad.Policy = policy
					rows, bad := 0, 0
					for _, b := range walkAll(t, open(t, s, spec), 0, 0, 0) {
						rows += b.Rows
						bad += len(b.Bad)
						for r, valid := range b.valid() {
							if id := b.ids()[r]; valid == 0 && id != broken || valid == 1 && id == broken {
								t.Errorf("%s: sample %d, valid %d", policy, id, valid)
							}
						}
					}
					if rows != 9 || bad != 1 {
						t.Errorf("%s: %d rows, %d bad", policy, rows, bad)
					}
				}
			})
		}
	}
}

// A skipped row of an unequal column is a copy of a good one, length and all.
func TestSkippedRowsAreCopies(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.tar")
	writeTar(t, path, []member{
		{"0.npy", arrayFile(1, "'|u1'", "(3,)", []byte("abc"))}, {"1.npy", nil}, {"2.npy", arrayFile(1, "'|u1'", "(2,)", []byte("xy"))},
	})
	spec := arraySpec(fieldsOf(t, `[{"name": "a", "from": "npy", "decode": "npy", "batch": "ragged"}, {"name": "b", "from": "npy", "decode": "npy", "batch": "padded", "pad": {"value": 45}}]`), path)
	spec.Order.Shuffle, spec.OnBad.Policy = "", Skip
	b := walkAll(t, open(t, ground(t), spec), 0, 0, 0)[0]
	if got, want := string(b.Columns["a"]), "\"abc\"\n\"xy\"\n\"xy\"\n"; got != want {
		t.Errorf("ragged %q, want %q", got, want)
	}
	if got, want := string(b.Columns["b"]), "abcxy-xy-"; got != want || !slices.Equal(int64s(b.Columns["b_lengths"]), []int64{3, 2, 2}) {
		t.Errorf("padded %q, want %q, lengths %v", got, want, int64s(b.Columns["b_lengths"]))
	}
}

// Members of a mixture with arrays of another type or form are told apart; equal
// ones mix, whatever they are stored as.
func TestMixturesOfArrays(t *testing.T) {
	s := ground(t)
	dir := t.TempDir()
	a := saveArray(t, dir, "a.npy", mem.Uint16, "(4, 3)", random(24, 1))
	b := saveArray(t, dir, "b.npy", mem.Int32, "(5, 3)", bytes.Repeat([]byte{1, 2, 0, 0}, 15))
	spec := Spec{Dataset: Dataset{Mixed: []Dataset{
		{Path: Paths{a}, Fields: fieldsOf(t, `[{"name": "x", "from": "a", "dtype": "int64"}, {"name": "y", "from": "a", "dtype": "int64", "view": [1, null]}]`)},
		{Path: Paths{b}, Fields: fieldsOf(t, `[{"name": "x", "from": "b", "dtype": "int64"}, {"name": "y", "from": "b", "dtype": "int64", "view": [1, null]}]`)},
	}}, Mix: Mix{Stop: order.AllExhausted}, Batch: BatchSpec{Size: 4}}
	seen := arrays(t, open(t, s, spec))
	if len(seen) != 9 || !bytes.Equal(seen[5]["y"], bytes.Repeat([]byte{1, 2, 0, 0, 0, 0, 0, 0}, 2)) {
		t.Errorf("%d samples: %x", len(seen), seen[5])
	}
	spec.Dataset.Mixed[1].Fields[0].DType = ""
	if _, err := Open(context.Background(), s, spec, Options{}); errs.CodeOf(err) != errs.Config || !strings.Contains(err.Error(), "int32") {
		t.Errorf("another dtype: %v", err)
	}
	spec.Dataset.Mixed[1].Fields[0].DType = "int64"
	spec.Dataset.Mixed[1].Fields[1].View = View{To: new(-1)}
	if _, err := Open(context.Background(), s, spec, Options{}); errs.CodeOf(err) != errs.Config || !strings.Contains(err.Error(), "0 to 2") {
		t.Errorf("another view: %v", err)
	}
}

// Rows of int32 tokens in runs, as those of int64, and the lengths of a field of
// arrays counted in steps.
func TestRunsOfTokens(t *testing.T) {
	s := ground(t)
	dir := t.TempDir()
	var tokens []int32
	for i := range 60 {
		tokens = append(tokens, int32(1000*(i/5)+i%5))
	}
	path := saveArray(t, dir, "tokens.npy", mem.Int32, "(12, 5)", raw(t, tokens))
	spec := arraySpec(fieldsOf(t, `[{"name": "tokens", "dtype": "int64"}]`), path)
	spec.Batch = BatchSpec{Size: 2, Pack: 8, Lengths: Lengths{Field: "tokens"}}
	l := open(t, s, spec)
	if f := l.Fields()[0]; f.DType != "int64" || !slices.Equal(f.Shape, []int{8}) || f.Kind != "array" {
		t.Errorf("%+v", f)
	}
	times := map[int64]int{}
	for _, b := range walkAll(t, l, 0, 0, 0) {
		got, positions, lens := int64s(b.Columns["tokens"]), int32sOf(b.Columns[batch.PositionIDs]), int32sOf(b.Columns[batch.SeqLens])
		at := 0
		for run, id := range b.ids() {
			for i := at; i < at+lens[run]; i++ {
				want := 1000*id + int64(positions[i])
				if id < 0 {
					want = 0
				} else if b.valid()[run] == 1 {
					times[want]++
				}
				if got[i] != want {
					t.Fatalf("run %d of sample %d: token %d, want %d", run, id, got[i], want)
				}
			}
			at += lens[run]
		}
	}
	if len(times) != 60 {
		t.Errorf("%d tokens of 60", len(times))
	}
}

// What is impossible is reported at open, with what to do about it.
func TestArraysThatCanNotBe(t *testing.T) {
	s := ground(t)
	dir := t.TempDir()
	x := saveArray(t, dir, "x.npy", mem.Float32, "(4, 3)", random(48, 1))
	y := saveArray(t, dir, "y.npy", mem.Int64, "(4,)", random(32, 1))
	docs, _ := documents(t, 2, 3)
	for _, c := range []struct {
		path, field, says string
	}{
		{x, `{"name": "x", "dtype": "int64"}`, "rounded"},
		{x, `{"name": "x", "dtype": "float23"}`, `did you mean "float32"?`},
		{x, `{"name": "x", "decode": "npy"}`, "leave decode out"},
		{x, `{"name": "x", "decode": "rgb"}`, "needs no decoding"},
		{x, `{"name": "x", "decode": "int"}`, "needs one number"},
		{x, `{"name": "x", "transform": ["CenterCrop"]}`, "transforms and layout need pictures"},
		{x, `{"name": "x", "batch": "heap"}`, "it can be"},
		{x, `{"name": "x", "view": [3, 1]}`, "empty"},
		{x, `{"name": "x", "pad": {"to": 4}}`, "needs batch padded"},
		{x, `{"name": "x", "batch": "padded", "view": [1, 2]}`, "its batch is padded"},
		{x, `{"name": "x", "batch": "padded", "pad": {"truncate": true}}`, "truncate"},
		{x, `{"name": "x", "batch": "padded", "dtype": "float64", "pad": {"to": 1000000000000}}`, "too large"},
		{y, `{"name": "y", "batch": "padded"}`, "single numbers"},
		{y, `{"name": "y", "view": [1, null]}`, "single numbers"},
		{y, `{"name": "y", "dtype": "bool"}`, "int64 is not converted to bool"},
		{docs, `{"name": "d", "from": "doc.npy", "decode": "array"}`, "npy"},
		{docs, `{"name": "d", "from": "cls", "decode": "npy"}`, "does not begin as"},
		{docs, `{"name": "d", "from": "cls", "dtype": "int8"}`, "needs numbers or arrays"},
		{docs, `{"name": "d", "from": "cls", "decode": "text", "batch": "ragged"}`, "for arrays"},
		{docs, `{"name": "d", "from": "doc.npy", "decode": "npy", "batch": "padded", "pad": {"value": 40000}}`, "not a valid int16"},
		{docs, `{"name": "d", "from": "doc.npy", "decode": "npy", "batch": "padded", "pad": {"value": 0.5}}`, "not a valid int16"},
	} {
		_, err := Open(context.Background(), s, arraySpec(fieldsOf(t, "["+c.field+"]"), c.path), Options{})
		if e := errs.From(err); e.Code != errs.Config && e.Code != errs.Damaged || !strings.Contains(e.Error()+e.Hint, c.says) {
			t.Errorf("%s: %v (%s), want %q", c.field, err, e.Hint, c.says)
		}
	}
	for text, says := range map[string]string{`[1]`: "view is", `"x"`: "view is"} {
		if err := json.Unmarshal([]byte(text), new(View)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("view %s: %v", text, err)
		}
	}
	for _, text := range []string{`0`, `-3`, `"long"`, `1.5`} {
		if err := json.Unmarshal([]byte(`{"to": `+text+`}`), new(Pad)); err == nil || !strings.Contains(err.Error(), "pad.to") {
			t.Errorf("pad.to %s: %v", text, err)
		}
	}
}

// Files in rows of bytes of any number, as HDF5 keeps them, are decoded if asked to be.
func TestFilesInRowsOfBytes(t *testing.T) {
	fields := fieldsOf(t, `[{"name": "picture", "from": "encoded", "decode": "rgb"}, {"name": "images"}]`)
	l := open(t, ground(t), arraySpec(fields, "../../testdata/guides/photos.h5"))
	got := arrays(t, l)
	if len(got) != 12 {
		t.Fatalf("%d samples", len(got))
	}
	for id, sample := range got {
		apart := 0
		for i, v := range sample["images"] {
			apart += max(int(v)-int(sample["picture"][i]), int(sample["picture"][i])-int(v))
		}
		if len(sample["picture"]) != 32*40*3 || apart > 8*len(sample["images"]) {
			t.Errorf("sample %d: %d bytes, %d from the picture that was encoded", id, len(sample["picture"]), apart)
		}
	}
}

// A value that does not fit into the type that was asked for is an error of its
// sample.
func TestValuesThatDoNotFit(t *testing.T) {
	dir := t.TempDir()
	path := saveArray(t, dir, "y.npy", mem.Int64, "(4,)", raw(t, []int64{1, 127, math.MaxInt32, -5}))
	spec := arraySpec(fieldsOf(t, `[{"name": "y", "dtype": "int8"}]`), path)
	_, err := end(t, open(t, ground(t), spec))
	if e := errs.From(err); e.Code != errs.Damaged || e.Where.Sample.Or(-1) != 2 || !strings.Contains(err.Error(), "2147483647") {
		t.Errorf("%v at %+v", err, e.Where)
	}
}

// Pictures in .npy members are delivered as they are explained.
func TestPicturesInNpyMembers(t *testing.T) {
	var members []member
	var rows [][]byte
	for i := range 6 {
		data := random(5*4*3, uint64(i))
		rows = append(rows, data)
		members = append(members, member{fmt.Sprintf("%d.img.npy", i), arrayFile(1, "'|u1'", "(5, 4, 3)", data)})
	}
	path := filepath.Join(t.TempDir(), "pictures.tar")
	writeTar(t, path, members)
	spec := arraySpec(fieldsOf(t, `[{"name": "img", "from": "img.npy", "decode": "npy", "layout": "nhwc", "transform": ["RandomVerticalFlip"]}]`), path)
	l := open(t, ground(t), spec)
	got := arrays(t, l)
	e, err := l.Explain(0, 0)
	if err != nil || len(e.Rows) == 0 {
		t.Fatalf("%+v %v", e, err)
	}
	for _, row := range e.Rows {
		choices := row.Choices["img"]
		if row.Error != "" || len(choices) != 1 {
			t.Fatalf("sample %d is explained as %+v, %s", row.Sample, choices, row.Error)
		}
		want := rows[row.Sample]
		if choices[0].Values[0].Of == true {
			want = nil
			for y := 4; y >= 0; y-- {
				want = append(want, rows[row.Sample][12*y:12*y+12]...)
			}
		}
		if !bytes.Equal(got[row.Sample]["img"], want) {
			t.Errorf("sample %d, %v: %x, not %x", row.Sample, choices, got[row.Sample]["img"], want)
		}
	}
}
