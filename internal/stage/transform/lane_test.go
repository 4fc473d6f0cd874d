package transform

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/rng"
)

const usual = `[{"op":"RandomResizedCrop","size":32},"RandomHorizontalFlip","ToTensor",
	{"op":"Normalize","mean":[0.485,0.456,0.406],"std":[0.229,0.224,0.225]}]`

func TestNumbersAndTexts(t *testing.T) {
	l := NewLane()
	defer l.Close()
	_, b := whole(t, l, mustCompile(t, "int", nil, ""), []byte(" -42\n"), 0)
	if got := int64(binary.LittleEndian.Uint64(b)); got != -42 {
		t.Errorf("int: %d", got)
	}
	_, b = whole(t, l, mustCompile(t, "float", nil, ""), []byte("2.5e-3"), 0)
	if got := math.Float64frombits(binary.LittleEndian.Uint64(b)); got != 2.5e-3 {
		t.Errorf("float: %v", got)
	}
	for codec, text := range map[string]string{"bytes": "\xff\x00x", "text": "grüße\n", "json": ` {"a": [1, 2]}`} {
		for _, text := range []string{text, text + text[:0]} {
			shape, b := whole(t, l, mustCompile(t, codec, nil, ""), []byte(text), 0)
			if len(shape) != 1 || shape[0] != len(text) || string(b) != text {
				t.Errorf("%s: %v %q", codec, shape, b)
			}
		}
	}
	shape, b := whole(t, l, mustCompile(t, "bytes", nil, ""), nil, 0)
	if len(b) != 0 || len(shape) != 1 || shape[0] != 0 {
		t.Errorf("no bytes: %v %q", shape, b)
	}
}

func TestErrorsOfSamples(t *testing.T) {
	l := NewLane()
	defer l.Close()
	jpeg := readSource(t, "chelsea.jpg")
	for _, c := range []struct {
		codec, ops string
		in         []byte
		code       errs.Code
		what       string
	}{
		{"rgb", `[]`, nil, errs.Damaged, "picture"},
		{"rgb", `[]`, []byte("not a picture at all"), errs.Damaged, "picture"},
		{"rgb", `[]`, jpeg[:20], errs.Damaged, "picture"},
		{"rgb", `[]`, jpeg[:len(jpeg)/2], errs.Damaged, "picture"},
		{"rgb", `[]`, readSource(t, "wide.png")[:900], errs.Damaged, "picture"},
		{"int", `[]`, []byte("cat"), errs.Damaged, "number"},
		{"float", `[]`, []byte("x"), errs.Damaged, "number"},
		{"text", `[]`, []byte("\xff"), errs.Damaged, "text"},
		{"json", `[]`, []byte("{"), errs.Damaged, "JSON"},
		{"rgb", `[{"op":"RandomCrop","size":9000}]`, jpeg, errs.Unsupported, "RandomCrop"},
		{"rgb", `[{"op":"Resize","size":1000000}]`, jpeg, errs.Unsupported, "Resize"},
		{"rgb", `["ToTensor",{"op":"Normalize","mean":0.5,"std":0.3},{"op":"CenterCrop","size":900}]`, jpeg, errs.Unsupported, "CenterCrop"},
	} {
		p := mustCompile(t, c.codec, opsOf(t, c.ops), "")
		shape, err := p.Begin(l, c.in, 1)
		if err == nil {
			err = p.Finish(l, make([]byte, shape.Elems()*max(1, p.DType().Size())))
		}
		var e *errs.Error
		if !errors.As(err, &e) {
			t.Errorf("%s %s %.20q: %v", c.codec, c.ops, c.in, err)
			continue
		}
		if e.Code != c.code || !strings.Contains(e.What, c.what) || e.Hint == "" || e.Where != (errs.Where{}) {
			t.Errorf("%s %s %.20q: %s %q, hint %q", c.codec, c.ops, c.in, e.Code, e.Error(), e.Hint)
		}
		// The lane is as good as before.
		if _, err := mustCompile(t, "rgb", nil, "").Begin(l, jpeg, 1); err != nil {
			t.Errorf("after it: %v", err)
		}
	}
}

func TestWrongOrderOfCallsIsABug(t *testing.T) {
	l := NewLane()
	defer l.Close()
	p, other := mustCompile(t, "int", nil, ""), mustCompile(t, "float", nil, "")
	if err := p.Finish(l, make([]byte, 8)); err == nil || errs.CodeOf(err) != errs.Bug {
		t.Errorf("Finish alone: %v", err)
	}
	if _, err := p.Begin(l, []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	if err := other.Finish(l, make([]byte, 8)); err == nil || errs.CodeOf(err) != errs.Bug {
		t.Errorf("Finish of another: %v", err)
	}
	if err := p.Finish(l, make([]byte, 7)); err == nil || errs.CodeOf(err) != errs.Bug {
		t.Errorf("a short destination: %v", err)
	}
}

// TestNoAllocation: per sample, once warm, on the way of JPEGs and of labels.
func TestNoAllocation(t *testing.T) {
	if kernel.Target() == "go" {
		t.Skip("the twin allocates")
	}
	l := NewLane()
	defer l.Close()
	jpeg := readSource(t, "chelsea.jpg")
	for codec, c := range map[string]struct {
		ops string
		in  []byte
	}{
		"rgb": {usual, jpeg},
		"gray": {`[{"op":"RandomApply","transforms":[{"op":"Resize","size":70}]},{"op":"RandomCrop","size":64,"padding":4},
			"RandomVerticalFlip","RandomHorizontalFlip",{"op":"CenterCrop","size":90},
			{"op":"GaussianBlur","kernel_size":9},{"op":"RandomAdjustSharpness","sharpness_factor":2},"RandomErasing",
			"ToTensor",{"op":"RandomErasing","value":"random"},{"op":"RandomErasing","value":0.3}]`, jpeg},
		"policies": {`[{"op":"RandomResizedCrop","size":64},{"op":"RandAugment","num_ops":4},"TrivialAugmentWide",{"op":"AutoAugment","policy":"svhn"},{"op":"AugMix","mixture_width":2}]`, jpeg},
		"int":      {`[]`, []byte("17")},
		"text":     {`[]`, []byte("a caption")},
	} {
		p := mustCompile(t, strings.Replace(codec, "policies", "rgb", 1), opsOf(t, c.ops), "")
		dst := make([]byte, 1<<20)
		place := int64(0)
		run := func() {
			place++
			shape, err := p.Begin(l, c.in, rng.Sample(1, 1, place))
			if err == nil {
				err = p.Finish(l, dst[:shape.Elems()*max(1, p.DType().Size())])
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for range 50 {
			run()
		}
		if n := testing.AllocsPerRun(100, run); n > 0 {
			t.Errorf("%s: %v allocations a sample", codec, n)
		}
	}
}

// TestNumbersOfOperations: what draws nothing has no number, and RandomApply
// comes before what it holds.
func TestNumbersOfOperations(t *testing.T) {
	l := NewLane()
	defer l.Close()
	in := readSource(t, "wide.png")
	bare := mustCompile(t, "rgb", opsOf(t, `[{"op":"RandomCrop","size":20},"RandomHorizontalFlip"]`), "")
	more := mustCompile(t, "rgb", opsOf(t, `["Identity",{"op":"CenterCrop","size":[90,120]},{"op":"Compose","transforms":[{"op":"RandomCrop","size":20}]},
		{"op":"Pad","padding":0},"RandomHorizontalFlip",{"op":"Resize","size":20}]`), "")
	for place := range int64(20) {
		key := rng.Sample(5, 0, place)
		_, a := whole(t, l, bare, in, key)
		_, b := whole(t, l, more, in, key)
		if !bytes.Equal(a, b) {
			t.Fatalf("place %d differs", place)
		}
	}
	p := mustCompile(t, "rgb", opsOf(t, `["RandomVerticalFlip",{"op":"RandomApply","transforms":["RandomGrayscale",{"op":"RandomApply","transforms":["RandomVerticalFlip"]}]},"RandomHorizontalFlip"]`), "")
	var got []uint64
	for _, s := range p.steps {
		switch o := s.op.(type) {
		case *flip:
			got = append(got, o.number)
		case *apply:
			got = append(got, o.number)
		case *gray:
			got = append(got, o.number)
		}
	}
	if len(got) != 6 || p.steps[1].span() != 3 || p.steps[3].span() != 1 {
		t.Fatalf("numbers %v, holding %d and %d", got, p.steps[1].span(), p.steps[3].span())
	}
	for i, n := range got {
		if n != uint64(i) {
			t.Errorf("numbers %v", got)
		}
	}
}

// TestRandomApply: all of what it holds, or nothing.
func TestRandomApply(t *testing.T) {
	l := NewLane()
	defer l.Close()
	in := readSource(t, "wide.png")
	p := mustCompile(t, "rgb", opsOf(t, `[{"op":"RandomApply","p":0.3,"transforms":[{"op":"Resize","size":[10,12]},{"op":"Pad","padding":1}]}]`), "")
	acted := 0
	for place := range int64(2000) {
		shape, err := p.Begin(l, in, rng.Sample(9, 0, place))
		if err != nil {
			t.Fatal(err)
		}
		switch fmt.Sprint(shape) {
		case "[12 14 3]":
			acted++
		case "[90 120 3]":
		default:
			t.Fatalf("%v", shape)
		}
	}
	if acted < 500 || acted > 700 {
		t.Errorf("acted %d times of 2000", acted)
	}
}

// TestDraft: where it is allowed pixels are near, elsewhere they are the same.
func TestDraft(t *testing.T) {
	l := NewLane()
	defer l.Close()
	run := func(picture, op string) []byte {
		_, b := whole(t, l, mustCompile(t, "rgb", opsOf(t, "["+op+"]"), ""), readSource(t, picture), rng.Sample(1, 0, 3))
		return b
	}
	const large = `{"op":"RandomResizedCrop","size":40,"scale":[0.9,1]`
	for _, c := range []struct {
		picture, op string
		same        bool
	}{
		{"coffee.jpg", large, false},
		{"coffee.jpg", `{"op":"Resize","size":[50,60]`, false},
		{"coffee.jpg", `{"op":"Resize","size":[300,400]`, true}, // less than twice as large
		{"wide.png", `{"op":"Resize","size":[20,20]`, true},
	} {
		exact, draft := run(c.picture, c.op+"}"), run(c.picture, c.op+`,"draft":true}`)
		sum := 0
		for i := range exact {
			d := int(exact[i]) - int(draft[i])
			sum += max(d, -d)
		}
		if mean := float64(sum) / float64(len(exact)); bytes.Equal(exact, draft) != c.same || mean > 2 {
			t.Errorf("%s of %s: a mean difference of %.2f", c.op, c.picture, mean)
		}
	}
}

// TestLanesAgree: many lanes run one program; neither lane nor order matters.
func TestLanesAgree(t *testing.T) {
	p := mustCompile(t, "rgb", opsOf(t, usual), "")
	pictures := [][]byte{readSource(t, "wide.png"), readSource(t, "coffee.jpg"), readSource(t, "tall.png")}
	const n = 24
	do := func(l *Lane, i int) []byte {
		_, b := whole(t, l, p, pictures[i%3], rng.Sample(1, 0, int64(i)))
		return b
	}
	l := NewLane()
	defer l.Close()
	var want [n][]byte
	for i := range want {
		want[i] = do(l, i)
	}
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			l := NewLane()
			defer l.Close()
			for i := range n {
				i = (i*7 + w*5) % n
				if !bytes.Equal(do(l, i), want[i]) {
					t.Errorf("sample %d differs on lane %d", i, w)
				}
			}
		})
	}
	wg.Wait()
}

// TestShapePromise: what Shape promises, Begin gives, for pictures of any size.
func TestShapePromise(t *testing.T) {
	l := NewLane()
	defer l.Close()
	parts := []string{
		`{"op":"RandomResizedCrop","size":[9,13]}`, `{"op":"Resize","size":11}`, `{"op":"Resize","size":[8,15]}`,
		`{"op":"Resize","size":7,"max_size":12}`, `{"op":"Resize","max_size":21}`, `{"op":"CenterCrop","size":[16,10]}`,
		`{"op":"RandomCrop","size":[9,10],"padding":2,"pad_if_needed":true}`, `{"op":"Pad","padding":[1,2,3,4],"padding_mode":"reflect"}`,
		`"RandomVerticalFlip"`, `"RandomGrayscale"`, `{"op":"Grayscale","num_output_channels":3}`,
		`{"op":"RandomApply","transforms":[{"op":"RandomCrop","size":[9,10],"pad_if_needed":true}]}`,
	}
	rapid.Check(t, func(r *rapid.T) {
		var ops []string
		for range rapid.IntRange(0, 5).Draw(r, "ops") {
			ops = append(ops, rapid.SampledFrom(parts).Draw(r, "op"))
		}
		if rapid.Bool().Draw(r, "floats") {
			ops = append(ops, `"ToTensor"`)
		}
		p, err := Compile("rgb", opsOf(t, "["+strings.Join(ops, ",")+"]"), "")
		if err != nil {
			return
		}
		w, h := rapid.IntRange(1, 30).Draw(r, "w"), rapid.IntRange(1, 30).Draw(r, "h")
		ppm := fmt.Appendf(nil, "P6 %d %d 255\n%s", w, h, strings.Repeat("abc", w*h))
		shape, err := p.Begin(l, ppm, rng.Key(rapid.Uint64().Draw(r, "key")))
		if errs.CodeOf(err) == errs.Unsupported && err != nil {
			return // an edge of nothing
		}
		if err != nil {
			r.Fatal(err)
		}
		if promised, ok := p.Shape(); ok && fmt.Sprint(promised) != fmt.Sprint(shape) {
			r.Fatalf("promised %v, given %v", promised, shape)
		}
		dst := make([]byte, shape.Elems()*p.DType().Size())
		if err := p.Finish(l, dst); err != nil {
			r.Fatal(err)
		}
	})
}

// BenchmarkBegin is what a sample costs before its pixels are touched.
func BenchmarkBegin(b *testing.B) {
	l := NewLane()
	defer l.Close()
	p := mustCompile(b, "rgb", opsOf(b, usual), "")
	in := readSource(b, "chelsea.jpg")
	b.ReportAllocs()
	for i := range b.N {
		if _, err := p.Begin(l, in, rng.Sample(1, 0, int64(i))); err != nil {
			b.Fatal(err)
		}
	}
}
