package transform

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/rng"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/testdata/photos"
)

func listed(t fataler, text string) (ops []Op) {
	if err := json.Unmarshal([]byte(text), &ops); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return ops
}

type fataler interface {
	Fatalf(format string, args ...any)
}

// result is what a program makes of a picture.
func result(t fataler, p *Program, lane *Lane, encoded []byte, key rng.Key) (mem.Shape, []byte) {
	shape, err := p.Begin(lane, encoded, key)
	if err != nil {
		t.Fatalf("%v", err)
	}
	shape = slices.Clone(shape)
	out := make([]byte, shape.Elems()*p.DType().Size())
	if err := p.Finish(lane, out); err != nil {
		t.Fatalf("%v", err)
	}
	return shape, out
}

// chains are operations of every kind, and how many of them come out the same
// every time.
var chains = []struct {
	ops   string
	fixed int
}{
	{`[]`, 0},
	{`[{"op": "RandomResizedCrop", "size": 64}, "RandomHorizontalFlip"]`, 0},
	{`[{"op": "Resize", "size": 100}, {"op": "RandomCrop", "size": 64}, "RandomHorizontalFlip"]`, 1},
	{`[{"op": "Resize", "size": 90}, {"op": "CenterCrop", "size": 64}]`, 2},
	{`[{"op": "Resize", "size": 90}, {"op": "CenterCrop", "size": 64}, "ToTensor", {"op": "Normalize", "mean": [0.5, 0.4, 0.3], "std": [0.2, 0.2, 0.3]}]`, 2},
	{`[{"op": "CenterCrop", "size": 300}, {"op": "Pad", "padding": 7}, {"op": "RandomCrop", "size": 128}]`, 2},
	{`[{"op": "Grayscale"}, {"op": "Resize", "size": 70}, {"op": "RandomCrop", "size": 64}]`, 0},
	{`[{"op": "Resize", "size": 120}, {"op": "RandomGrayscale", "p": 0.5}, {"op": "RandomVerticalFlip"}]`, 1},
}

func TestTheHalvesOfAProgramAreTheWhole(t *testing.T) {
	lane := NewLane()
	defer lane.Close()
	names := []string{"chelsea", "coffee", "rocket"}
	rapid.Check(t, func(t *rapid.T) {
		raw, err := photos.Files.ReadFile(rapid.SampledFrom(names).Draw(t, "photo") + ".jpg")
		if err != nil {
			t.Fatal(err)
		}
		chain := rapid.SampledFrom(chains).Draw(t, "chain")
		codec := rapid.SampledFrom([]string{"rgb", "gray"}).Draw(t, "codec")
		if codec == "gray" && bytes.Contains([]byte(chain.ops), []byte("Normalize")) {
			codec = "rgb" // three means
		}
		key := rng.Key(rapid.Uint64().Draw(t, "key"))
		p, err := Compile(codec, listed(t, chain.ops), rapid.SampledFrom([]string{"nchw", "nhwc"}).Draw(t, "layout"))
		if err != nil {
			t.Fatal(err)
		}
		alone := rapid.Bool().Draw(t, "decode alone")
		before, after, ok := p.Split(alone)
		if want := chain.fixed; !ok || !alone && codec == "rgb" && before.Steps() != want || alone && before.Steps() != 0 {
			t.Fatalf("%d steps are kept of %s, not %d", before.Steps(), chain.ops, want)
		}
		wantShape, want := result(t, p, lane, raw, key)
		shape, pixels := result(t, before, lane, raw, 0)
		gotShape, got := result(t, after, lane, format.PNM(shape[1], shape[0], shape[2], pixels), key)
		if !slices.Equal(wantShape, gotShape) || !bytes.Equal(want, got) {
			t.Fatalf("%s of %s: %v, not %v, or other bytes", chain.ops, codec, gotShape, wantShape)
		}
		if !alone {
			return
		}
		layout := "nchw"
		if p.shown == "hwc" {
			layout = "nhwc"
		}
		stored, err := CompilePixels(shape, listed(t, chain.ops), layout)
		if err != nil {
			t.Fatal(err)
		}
		if _, got = result(t, stored, lane, pixels, key); !bytes.Equal(want, got) {
			t.Fatalf("%s of stored pixels: other bytes", chain.ops)
		}
	})
}

func TestOnlyPicturesAreSplit(t *testing.T) {
	for _, codec := range []string{"int", "text", "bytes"} {
		p, err := Compile(codec, nil, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, _, ok := p.Split(false); ok {
			t.Errorf("a program of %s was split", codec)
		}
	}
}

func TestStoredPixelsAreCounted(t *testing.T) {
	p, err := CompilePixels(mem.Shape{4, 5, 3}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	if shape, fixed := p.Shape(); !fixed || !slices.Equal(shape, mem.Shape{4, 5, 3}) {
		t.Errorf("shape %v", shape)
	}
	lane := NewLane()
	defer lane.Close()
	if _, err := p.Begin(lane, make([]byte, 59), 0); err == nil {
		t.Error("59 bytes are 4 x 5 pixels")
	}
}
