package transform

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// floatsOf reads a result of floats.
func floatsOf(b []byte) []float32 {
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.NativeEndian.Uint32(b[4*i:]))
	}
	return out
}

// TestErasedFloats: in both layouts, floats are erased with the very numbers that are
// given, and the rest stays as it is.
func TestErasedFloats(t *testing.T) {
	l := NewLane()
	defer l.Close()
	in := readSource(t, "wide.png")
	const front = `"ToTensor",{"op":"Normalize","mean":[0.485,0.456,0.406],"std":[0.229,0.224,0.225]}`
	values := [3]float32{0.1, -7.25, 1e-9}
	for _, layout := range []string{"nchw", "nhwc"} {
		_, plain := whole(t, l, mustCompile(t, "rgb", opsOf(t, `[`+front+`]`), layout), in, 0)
		want := floatsOf(plain)
		p := mustCompile(t, "rgb", opsOf(t, `[`+front+`,{"op":"RandomErasing","p":1,"value":[0.1,-7.25,1e-9]}]`), layout)
		for place := range int64(20) {
			key := rng.Sample(1, 0, place)
			choices, err := p.Explain(l, in, key)
			if err != nil {
				t.Fatal(err)
			}
			all, err := readChoices(choices)
			if err != nil {
				t.Fatal(err)
			}
			s := all[0]
			_, b := whole(t, l, p, in, key)
			for i, got := range floatsOf(b) {
				pixel, c := i/3, i%3
				if layout == "nchw" {
					pixel, c = i%(120*90), i/(120*90)
				}
				x, y := pixel%120-s.whole("left"), pixel/120-s.whole("top")
				expect := want[i]
				if x >= 0 && y >= 0 && x < s.whole("width") && y < s.whole("height") {
					expect = values[c]
				}
				if got != expect {
					t.Fatalf("%s %v: channel %d of pixel %d, %d of the box: %v, not %v", layout, s, c, x, y, got, expect)
				}
			}
		}
	}
}

// TestNoiseOfErasedFloats: noise follows from what explain says, whatever the layout; a
// Normalize after it is done to it, too.
func TestNoiseOfErasedFloats(t *testing.T) {
	l := NewLane()
	defer l.Close()
	in := readSource(t, "wide.png")
	programs := map[string]*Program{}
	for _, layout := range []string{"nchw", "nhwc"} {
		programs[layout] = mustCompile(t, "rgb", opsOf(t, `["ToTensor",{"op":"RandomErasing","p":1,"value":"random"}]`), layout)
	}
	later := mustCompile(t, "rgb", opsOf(t, `["ToTensor",{"op":"RandomErasing","p":1,"value":"random"},{"op":"Normalize","mean":0.5,"std":0.25}]`), "nchw")
	seen := map[string]bool{}
	for place := range int64(8) {
		key := rng.Sample(5, 1, place)
		choices, err := later.Explain(l, in, key)
		if err != nil {
			t.Fatal(err)
		}
		seen[fmt.Sprint(choices)] = true
		_, a := whole(t, l, programs["nchw"], in, key)
		_, b := whole(t, l, programs["nhwc"], in, key)
		_, c := whole(t, l, later, in, key)
		planes, pixels, normal := floatsOf(a), floatsOf(b), floatsOf(c)
		for i, v := range planes {
			if other := pixels[i%(120*90)*3+i/(120*90)]; v != other {
				t.Fatalf("value %d is %v in planes, %v in pixels", i, v, other)
			}
			if w := (float64(v) - 0.5) / 0.25; math.Abs(w-float64(normal[i])) > 4e-6 {
				t.Fatalf("value %d, %v, is normalised to %v", i, v, normal[i])
			}
		}
	}
	if len(seen) != 8 {
		t.Errorf("%d different choices of 8", len(seen))
	}
}

// TestErasedHalves: what is erased becomes, operation by operation, what torchvision makes of
// it, each result rounded to the type that the picture has there; the rest stays as it is.
func TestErasedHalves(t *testing.T) {
	lane := NewLane()
	defer lane.Close()
	in := readSource(t, "wide.png")
	rapid.Check(t, func(t *rapid.T) {
		half := rapid.SampledFrom([]mem.DType{mem.Float16, mem.BFloat16}).Draw(t, "half")
		at := rapid.SampledFrom([]mem.DType{half, mem.Float32}).Draw(t, "first")
		ops := []string{fmt.Sprintf(`{"op":"ToDtype","dtype":%q,"scale":true}`, at)}
		numbers := rapid.SliceOfN(rapid.Float64Range(-4, 4), 3, 3).Draw(t, "value")
		erase := fmt.Sprintf(`{"op":"RandomErasing","p":1,"value":[%v,%v,%v]}`, numbers[0], numbers[1], numbers[2])
		var value [3]float32
		normals, place := rapid.IntRange(0, 2).Draw(t, "normals"), rapid.IntRange(0, 2).Draw(t, "place")
		for i := range 3 { // before, between and after two operations
			if i == place {
				ops = append(ops, erase)
				for c := range value {
					value[c] = nearest(numbers[c], at)
				}
			}
			switch {
			case i < normals:
				mean, std := rapid.Float64Range(-3, 3).Draw(t, "mean"), rapid.Float64Range(0.01, 8).Draw(t, "std")
				ops = append(ops, fmt.Sprintf(`{"op":"Normalize","mean":%v,"std":%v}`, mean, std))
				m, s := nearest(mean, at), nearest(std, at)
				for c, v := range value {
					value[c] = nearest(float64(nearest(float64(v)-float64(m), at))/float64(s), at)
				}
			case i == normals && at != half:
				at = half
				ops = append(ops, fmt.Sprintf(`{"op":"ToDtype","dtype":%q}`, half))
				for c, v := range value {
					value[c] = nearest(float64(v), half)
				}
			}
		}
		layout := rapid.SampledFrom([]string{"nchw", "nhwc"}).Draw(t, "layout")
		key := rng.Key(rapid.Uint64().Draw(t, "key"))
		made := func(list []string) (*Program, []byte) {
			p, err := Compile("rgb", listed(t, "["+strings.Join(list, ",")+"]"), layout)
			if err != nil {
				t.Fatal(err)
			}
			_, b := result(t, p, lane, in, key)
			return p, b
		}
		p, got := made(ops)
		_, want := made(slices.DeleteFunc(slices.Clone(ops), func(op string) bool { return op == erase }))
		choices, err := p.Explain(lane, in, key)
		if err != nil {
			t.Fatal(err)
		}
		all, err := readChoices(choices)
		if err != nil {
			t.Fatal(err)
		}
		s := all[0]
		for i := range 3 * 120 * 90 {
			pixel, c := i/3, i%3
			if layout == "nchw" {
				pixel, c = i%(120*90), i/(120*90)
			}
			bits := binary.NativeEndian.Uint16(want[2*i:])
			x, y := pixel%120-s.whole("left"), pixel/120-s.whole("top")
			if x >= 0 && y >= 0 && x < s.whole("width") && y < s.whole("height") {
				bits = FloatOf(half).Bits(value[c])
			}
			if b := binary.NativeEndian.Uint16(got[2*i:]); b != bits {
				t.Fatalf("%s, %s: channel %d of pixel %d, %d is %#x, not %#x", ops, layout, c, x, y, b, bits)
			}
		}
	})
}

// TestNoiseOfErasedHalves: the normal numbers are those of float32, rounded.
func TestNoiseOfErasedHalves(t *testing.T) {
	l := NewLane()
	defer l.Close()
	in, key := readSource(t, "wide.png"), rng.Sample(5, 1, 3)
	const erase = `{"op":"RandomErasing","p":1,"value":"random"}`
	_, b := whole(t, l, mustCompile(t, "rgb", opsOf(t, `["ToTensor",`+erase+`]`), ""), in, key)
	want := floatsOf(b)
	for _, half := range []mem.DType{mem.Float16, mem.BFloat16} {
		for _, ops := range []string{
			fmt.Sprintf(`["ToTensor",%s,{"op":"ToDtype","dtype":%q}]`, erase, half),
			fmt.Sprintf(`["ToTensor",{"op":"ToDtype","dtype":%q},%s]`, half, erase),
		} {
			_, got := whole(t, l, mustCompile(t, "rgb", opsOf(t, ops), ""), in, key)
			for i, v := range want {
				if bits := binary.NativeEndian.Uint16(got[2*i:]); rounded(v, half) != FloatOf(half).Of(bits) {
					t.Fatalf("%s: number %d is %#x, and %v in float32", ops, i, bits, v)
				}
			}
		}
	}
}

// TestErasedBoxes: a box is smaller than the picture both ways, and in it; ten tries that
// give a larger one erase nothing.
func TestErasedBoxes(t *testing.T) {
	none := 0
	for place := range int64(20_000) {
		key := rng.Sample(9, 0, place)
		w, h := 1+int(key.Intn(100, 90)), 1+int(key.Intn(101, 90))
		law := newBoxLaw([2]float64{0.3, 1}, [2]float64{0.2, 5})
		b := law.erased(key, size{w, h})
		if b == (box{}) {
			none++
		} else if b.x < 0 || b.y < 0 || b.w >= w || b.h >= h || b.x+b.w > w || b.y+b.h > h {
			t.Fatalf("%+v in %d x %d", b, w, h)
		}
	}
	if none == 0 {
		t.Error("no picture was too small")
	}
}

// TestErases: the descriptors that say so, and no others, have operations after which a
// flip of floats is refused.
func TestErases(t *testing.T) {
	all := catalog()
	for i := range all {
		d := &all[i]
		op := Op{Name: d.name}
		if err := json.Unmarshal([]byte(d.example), &op.Args); err != nil {
			t.Fatal(err)
		}
		ops := []Op{{Name: "ToDtype", Args: map[string]json.RawMessage{"dtype": json.RawMessage(`"float32"`)}}, op}
		if _, err := Compile("rgb", ops, ""); err != nil {
			continue // not of floats
		}
		if _, err := Compile("rgb", append(ops, Op{Name: "RandomHorizontalFlip"}), ""); (err != nil) != d.erases {
			t.Errorf("%s erases: %v in its descriptor; a flip after it: %v", d.name, d.erases, err)
		}
	}
}
