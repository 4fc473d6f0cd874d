package loader

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/stage/order"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

func mixing(t testing.TB, text string) *transform.Op {
	t.Helper()
	op := new(transform.Op)
	if err := json.Unmarshal([]byte(text), op); err != nil {
		t.Fatal(err)
	}
	return op
}

const (
	mixUp3  = `{"op":"MixUp","alpha":0.4,"num_classes":3}`
	cutMix3 = `{"op":"CutMix","num_classes":3}`
	either3 = `{"op":"RandomChoice","transforms":[` + mixUp3 + `,` + cutMix3 + `],"p":[1,2]}`
)

func floats32(b []byte) (out []float32) {
	for ; len(b) > 0; b = b[4:] {
		out = append(out, math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return out
}

// pixels reads the pictures of a batch, of a type.
func pixels(b full, of kernel.Float) (out []float32) {
	data := b.Columns["image"]
	if of == kernel.Float32 {
		return floats32(data)
	}
	for ; len(data) > 0; data = data[2:] {
		out = append(out, of.Of(binary.LittleEndian.Uint16(data)))
	}
	return out
}

// rolled is what torchvision makes of a batch that was not mixed: rows of pixels (planes x h
// x w of numbers of a type), and their classes.
func rolled(l *Loader, plain full, planes, h, w int, of kernel.Float) (pictures [][]float32, labels [][]float32) {
	c := l.data.Mix().Choose(l.Epoch(plain.Epoch).Key(l.Slice(l.Epoch(plain.Epoch), 0).Place(plain.Step, 0)))
	lambda := c.Lambda
	var x1, y1, x2, y2 int
	if c.Cut {
		x1, y1, x2, y2, lambda = c.Box(w, h)
	}
	all := pixels(plain, of)
	size := planes * h * w
	var rows []int
	for r := range plain.Rows {
		pictures = append(pictures, slices.Clone(all[r*size:(r+1)*size]))
		label := make([]float32, l.data.Mix().Classes)
		label[int64s(plain.Columns["label"])[r]] = 1
		labels = append(labels, label)
		if plain.valid()[r] != 0 {
			rows = append(rows, r)
		}
	}
	hot := make([][]float32, len(labels))
	for i := range labels {
		hot[i] = slices.Clone(labels[i])
	}
	blend := func(own, before []float32, of kernel.Float) {
		rounded := func(v float32) float32 {
			if of != kernel.Float32 {
				return of.Of(of.Bits(v))
			}
			return v
		}
		for i := range own {
			own[i] = rounded(rounded(before[i]*float32(1-lambda)) + rounded(own[i]*float32(lambda)))
		}
	}
	for i, r := range rows {
		b := rows[(i+len(rows)-1)%len(rows)]
		blend(labels[r], hot[b], kernel.Float32)
		if !c.Cut {
			blend(pictures[r], all[b*size:(b+1)*size], of)
			continue
		}
		for at := range size {
			if x, y := at%w, at/w%h; x >= x1 && x < x2 && y >= y1 && y < y2 {
				pictures[r][at] = all[b*size+at]
			}
		}
	}
	return pictures, labels
}

// floatSpec gives float pictures of 6 x 8.
func floatSpec(t *testing.T, root string) Spec {
	s := imageSpec(root)
	s.Fields[0].Transform = ops(t, `[{"op":"RandomHorizontalFlip"},{"op":"ToTensor"},{"op":"Normalize","mean":0.4,"std":0.2}]`)
	s.Fields[0].Transform = append(ops(t, `[{"op":"Resize","size":[6,8]}]`), s.Fields[0].Transform...)
	return s
}

// halfSpec is floatSpec with numbers of 16 bits.
func halfSpec(t *testing.T, root, dtype string) Spec {
	s := floatSpec(t, root)
	s.Fields[0].Transform = append(s.Fields[0].Transform, ops(t, `[{"op":"ToDtype","dtype":"`+dtype+`"}]`)...)
	return s
}

// Mixed batches are those that were not mixed, rolled and blended as torchvision does, to
// the bit: with a last batch that is not full, padding, other worlds, and a skipped sample.
func TestMixedBatches(t *testing.T) {
	const n = 31
	root := pictures(t, n)
	broken := filepath.Join(root, "class1", "000013.ppm")
	if err := os.WriteFile(broken, []byte("no picture"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := ground(t)
	cut := map[bool]int{}
	for of, spec := range map[kernel.Float]Spec{
		kernel.Float32: floatSpec(t, root), kernel.Float16: halfSpec(t, root, "float16"), kernel.BFloat16: halfSpec(t, root, "bfloat16"),
	} {
		for _, text := range []string{mixUp3, cutMix3, either3} {
			for _, world := range []int{1, 3} {
				for _, tail := range []order.Tail{order.Pad, order.Fill} {
					for rank := range world {
						spec := inWorld(spec, rank, world)
						spec.Order.Tail, spec.OnBad.Policy = tail, Skip
						for _, b := range mixedAsRolled(t, s, spec, text, of) {
							cut[bytes.Contains(b.valid(), []byte{0})] = 1
						}
					}
				}
			}
		}
	}
	if len(cut) != 2 {
		t.Error("batches with and without rows that are not valid were not both seen")
	}
}

// mixedAsRolled are the batches of a Spec with a batch transform, compared with rolled.
func mixedAsRolled(t *testing.T, s *Shared, spec Spec, text string, of kernel.Float) []full {
	t.Helper()
	plain := walkAll(t, open(t, s, spec), 1, 0, 0)
	spec.BatchTransform = mixing(t, text)
	l := open(t, s, spec)
	mixed := walkAll(t, l, 1, 0, 0)
	if len(mixed) != len(plain) {
		t.Fatalf("%d batches of %d", len(mixed), len(plain))
	}
	for i, b := range mixed {
		pictures, labels := rolled(l, plain[i], 3, 6, 8, of)
		if got := pixels(b, of); !slices.Equal(got, slices.Concat(pictures...)) {
			t.Fatalf("type %d, %s, %+v, step %d: other pictures", of, text, spec.Order, i)
		}
		if got := floats32(b.Columns["label"]); !slices.Equal(got, slices.Concat(labels...)) {
			t.Fatalf("type %d, %s, %+v, step %d: labels %v, not %v", of, text, spec.Order, i, got, labels)
		}
		if !slices.Equal(b.ids(), plain[i].ids()) || !bytes.Equal(b.valid(), plain[i].valid()) || b.Sum != plain[i].Sum {
			t.Fatalf("step %d: other samples", i)
		}
	}
	return mixed
}

// A batch is mixed in the same way whatever made it, and wherever a pass began.
func TestMixingThatMustNotMatter(t *testing.T) {
	root := pictures(t, 31)
	for _, spec := range []Spec{floatSpec(t, root), halfSpec(t, root, "bfloat16")} {
		mustNotMatter(t, spec)
	}
}

func mustNotMatter(t *testing.T, spec Spec) {
	t.Helper()
	s := ground(t)
	spec.BatchTransform = mixing(t, either3)
	want := texts(walkAll(t, open(t, s, spec), 2, 0, 0))
	for _, lanes := range []int{1, 3} {
		other := spec
		other.Workers, other.Deliver.Prefetch = lanes, 7-2*lanes
		if got := texts(walkAll(t, open(t, s, other), 2, 0, 0)); !slices.Equal(got, want) {
			t.Errorf("%d lanes: other batches", lanes)
		}
	}
	cached := spec
	cached.Cache.Memory = 1 << 20
	l := open(t, s, cached)
	for range 2 {
		if got := texts(walkAll(t, l, 2, 0, 0)); !slices.Equal(got, want) {
			t.Error("with a cache: other batches")
		}
	}
	l = open(t, s, spec)
	for step := range int64(len(want)) {
		st := saved(t, l, 2, step*l.Stride())
		if err := l.Check(st); err != nil {
			t.Fatal(err)
		}
		if got := texts(walkAll(t, l, 2, st.Position, step)); !slices.Equal(got, want[step:]) {
			t.Errorf("from step %d on: other batches", step)
		}
	}
	if slices.Equal(texts(walkAll(t, l, 3, 0, 0)), want) {
		t.Error("another epoch is mixed like this one")
	}
}

// CutMix takes bytes, and arrays beside labels that are probabilities.
func TestMixingOfBytesAndArrays(t *testing.T) {
	s := ground(t)
	spec := imageSpec(pictures(t, 9))
	plain := walkAll(t, open(t, s, spec), 0, 0, 0)
	spec.BatchTransform = mixing(t, `{"op":"CutMix","num_classes":3,"labels":"label"}`)
	l := open(t, s, spec)
	for i, b := range walkAll(t, l, 0, 0, 0) {
		c := l.data.Mix().Choose(l.Epoch(0).Key(int64(4 * i)))
		x1, y1, x2, y2, _ := c.Box(8, 6)
		was, rows := plain[i].Columns["image"], plain[i].Rows
		for at, got := range b.Columns["image"] {
			r, x, y := at/(8*6*3), at/3%8, at/24%6
			from := at
			if x >= x1 && x < x2 && y >= y1 && y < y2 {
				from = at - r*144 + (r+rows-1)%rows*144
			}
			if got != was[from] {
				t.Fatalf("step %d, row %d, (%d, %d)", i, r, x, y)
			}
		}
	}

	dir := t.TempDir()
	images := saveArray(t, dir, "images.npy", mem.Float64, "(6, 2, 3, 4)", random(6*24*8, 3))
	for i, probabilities := range []string{
		saveArray(t, dir, "floats.npy", mem.Float32, "(6, 2)", random(6*8, 4)),
		saveArray(t, dir, "numbers.npy", mem.Uint8, "(6, 2)", random(12, 5)),
	} {
		spec := Spec{
			Dataset:        Dataset{Format: "npy", Columns: []Column{{Name: "image", Path: Paths{images}}, {Name: "soft", Path: Paths{probabilities}}}},
			Batch:          BatchSpec{Size: 3},
			BatchTransform: mixing(t, `"MixUp"`),
		}
		l := open(t, s, spec)
		b := walkAll(t, l, 0, 0, 0)[1]
		if f := l.Fields()[1]; f.Kind != "array" || f.DType != "float32" || !slices.Equal(f.Shape, []int{2}) {
			t.Errorf("%+v", f)
		}
		raw, lambda := must(os.ReadFile(probabilities))[128:], l.data.Mix().Choose(l.Epoch(0).Key(3)).Lambda
		for r := range 3 {
			for j := range 2 {
				at := func(r int) float32 {
					if k := (3+r)*2 + j; i == 1 {
						return float32(raw[k])
					} else {
						return floats32(raw[4*k : 4*k+4])[0]
					}
				}
				want := float32(at((r+2)%3)*float32(1-lambda)) + float32(at(r)*float32(lambda))
				if got := floats32(b.Columns["soft"])[r*2+j]; got != want && !(got != got && want != want) {
					t.Errorf("%s: row %d: %v, not %v", probabilities, r, got, want)
				}
			}
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// What cannot be mixed is one error before the first batch, in torchvision's words.
func TestMixingRefuses(t *testing.T) {
	s := ground(t)
	root, alone := pictures(t, 6), saveArray(t, t.TempDir(), "images.npy", mem.Float32, "(6, 2, 3, 4)", random(6*24*4, 3))
	for want, spec := range map[string]Spec{
		"MixUp needs floats, and field \"image\" is uint8":             with(imageSpec(root), mixing(t, mixUp3)),
		"num_classes must be passed if the labels are class numbers":   with(floatSpec(t, root), mixing(t, `"MixUp"`)),
		"no field is called \"lable\": there are \"image\", \"label\"": with(floatSpec(t, root), mixing(t, `{"op":"CutMix","num_classes":3,"labels":"lable"}`)),
		"labels must be class numbers, one for each sample":            with(floatSpec(t, root), mixing(t, `{"op":"CutMix","num_classes":3,"labels":"image"}`)),
		"alpha must be a positive number, not -1":                      with(floatSpec(t, root), mixing(t, `{"op":"CutMix","alpha":-1}`)),
		"needs pictures, or arrays of numbers":                         with(Spec{Dataset: Dataset{Path: Paths{root}}, Fields: []Field{{Name: "a", From: "image", Decode: "bytes"}, {Name: "label", Decode: "int"}}}, mixing(t, cutMix3)),
		"needs labels, and samples have only":                          with(Spec{Dataset: Dataset{Format: "npy", Path: Paths{alone}}}, mixing(t, cutMix3)),
		"\"label\" is not pictures: put the pictures first":            with(Spec{Dataset: Dataset{Path: Paths{root}}, Fields: []Field{{Name: "label", Decode: "int"}, {Name: "image", Decode: "rgb"}, {Name: "soft", From: "label", Decode: "int"}}}, mixing(t, `{"op":"CutMix","num_classes":3,"labels":"soft"}`)),
	} {
		_, err := Open(context.Background(), s, spec, Options{})
		if err == nil || errs.CodeOf(err) != errs.Config || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %q", err, want)
		}
	}
	l := open(t, s, with(floatSpec(t, root), mixing(t, `{"op":"CutMix","num_classes":2}`)))
	if _, err := end(t, l); err == nil || !strings.Contains(err.Error(), "has label 2, and num_classes is 2") {
		t.Errorf("a label beyond num_classes: %v", err)
	}
}

func with(s Spec, op *transform.Op) Spec {
	s.BatchTransform = op
	return s
}

// States of other mixing do not fit, and without any the digest is what it was.
func TestMixingIsInTheState(t *testing.T) {
	s := ground(t)
	spec := floatSpec(t, pictures(t, 6))
	states := map[string]string{}
	for _, text := range []string{"", mixUp3, cutMix3, either3, `{"op":"MixUp","alpha":0.5,"num_classes":3}`, `{"op":"MixUp","alpha":0.4,"num_classes":4}`} {
		if text != "" {
			spec.BatchTransform = mixing(t, text)
		}
		at := open(t, s, spec).State(0, 0)
		if was, ok := states[at.Pipeline+at.Processing]; ok {
			t.Errorf("%s and %s have the same digest", text, was)
		}
		states[at.Pipeline+at.Processing] = text
	}
	named := with(spec, mixing(t, `{"op":"MixUp","alpha":0.4,"num_classes":3,"labels":"label"}`))
	if at := open(t, s, named).State(0, 0); states[at.Pipeline+at.Processing] != mixUp3 {
		t.Error("naming the field that is meant anyway gives another digest")
	}
}

func TestMixingIsExplained(t *testing.T) {
	s := ground(t)
	l := open(t, s, with(floatSpec(t, pictures(t, 9)), mixing(t, either3)))
	seen := map[string]bool{}
	for step := range int64(3) {
		for epoch := range int64(4) {
			x, err := l.Explain(epoch, 4*step)
			if err != nil {
				t.Fatal(err)
			}
			c := l.data.Mix().Choose(l.Epoch(epoch).Key(4 * step))
			want := string(jsonOf(t, l.data.Mix().Explain(c, 8, 6)))
			if got := string(jsonOf(t, x.Mixed)); got != want || !strings.Contains(string(jsonOf(t, x)), `"batch_transform":`+want) {
				t.Errorf("%s, not %s", got, want)
			}
			seen[fmt.Sprint(c.Cut)] = true
		}
	}
	if len(seen) != 2 {
		t.Error("one of the two was never chosen")
	}
}

// TestMixingIsLeft: where the client mixes, batches are those without mixing, and say what is
// chosen; states, digests and explanations are those of a loader that mixes.
func TestMixingIsLeft(t *testing.T) {
	s := ground(t)
	root := pictures(t, 9)
	front := with(imageSpec(root), mixing(t, either3))
	front.Fields[0].Transform = ops(t, `[{"op":"Resize","size":[12,16]}]`)
	front.DeviceTransform = ops(t, `[{"op":"RandomCrop","size":[6,8]},"ToTensor"]`)
	if _, err := Open(context.Background(), s, front, Options{}); err == nil || !strings.Contains(err.Error(), "would be done before device_transform") {
		t.Errorf("%v", err)
	}
	order, err := dataset.Open(context.Background(), front, dataset.Options{Order: true})
	if err != nil {
		t.Fatalf("of the order alone: %v", err)
	}
	order.Close()
	for name, c := range map[string]struct {
		spec    Spec
		options Options
		stored  string
	}{
		"floats":           {with(floatSpec(t, root), mixing(t, either3)), Options{Mixes: true}, "float32"},
		"bytes, of floats": {with(floatSpec(t, root), mixing(t, either3)), Options{Mixes: true, Bare: true}, "uint8"},
		"bytes":            {with(imageSpec(root), mixing(t, cutMix3)), Options{Mixes: true, Bare: true}, "uint8"},
		"halves":           {with(halfSpec(t, root, "bfloat16"), mixing(t, either3)), Options{Mixes: true}, "bfloat16"},
		"bytes, of halves": {with(halfSpec(t, root, "float16"), mixing(t, either3)), Options{Mixes: true, Bare: true}, "uint8"},
		"steps":            {front, Options{Mixes: true}, "uint8"},
	} {
		l, plain := open(t, s, c.spec, c.options), open(t, s, with(c.spec, nil), c.options)
		f := l.Fields()
		if f[0].Mix == nil || *f[0].Mix != (wire.Mix{Stored: c.stored}) || f[1].Mix == nil || *f[1].Mix != (wire.Mix{Label: true, Stored: "int64"}) {
			t.Errorf("%s: %+v, %+v", name, f[0].Mix, f[1].Mix)
		}
		if f[1].Kind != "array" || f[1].DType != "float32" || !slices.Equal(f[1].Shape, []int{3}) {
			t.Errorf("%s: %+v", name, f[1])
		}
		p, err := l.Pass(1, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range walkAll(t, plain, 1, 0, 0) {
			b, err := p.Next(context.Background(), 30*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if chosen := l.data.Mix().Choose(l.Epoch(1).Key(int64(4 * i))); b.Mixed == nil || *b.Mixed != chosen {
				t.Errorf("%s, step %d: %+v is not %+v", name, i, b.Mixed, chosen)
			}
			if got := copyAll(l, b); !bytes.Equal(got.Columns["image"], want.Columns["image"]) || !bytes.Equal(got.Columns["label"], want.Columns["label"]) || got.Sum != want.Sum {
				t.Errorf("%s, step %d: other rows", name, i)
			}
			b.Release()
		}
		p.Cancel()
		if name == "steps" {
			if w, h := l.data.Size(); w != 8 || h != 6 {
				t.Errorf("pictures of %d x %d", w, h)
			}
			continue
		}
		here := open(t, s, c.spec)
		if d := cmp.Diff(here.State(1, 4), l.State(1, 4)); d != "" {
			t.Errorf("%s: states: %s", name, d)
		}
		one, err := here.Explain(1, 4)
		other, failed := l.Explain(1, 4)
		if err != nil || failed != nil || !bytes.Equal(jsonOf(t, one), jsonOf(t, other)) {
			t.Errorf("%s: %v, %v: explained as %s, not %s", name, err, failed, jsonOf(t, other), jsonOf(t, one))
		}
	}
	l := open(t, s, with(floatSpec(t, root), mixing(t, `{"op":"CutMix","num_classes":2}`)), Options{Mixes: true, Bare: true})
	if _, err := end(t, l); err == nil || !strings.Contains(err.Error(), "has label 2, and num_classes is 2") {
		t.Errorf("a label beyond num_classes: %v", err)
	}
}
