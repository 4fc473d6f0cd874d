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
	{`[{"op": "Resize", "size": 90}, {"op": "RandAugment", "num_ops": 3}, {"op": "CenterCrop", "size": 64}, {"op": "AugMix", "alpha": 0.5}, "ToTensor"]`, 1},
	{`[{"op": "Resize", "size": 120}, {"op": "RandomGrayscale", "p": 0.5}, {"op": "RandomVerticalFlip"}]`, 1},
	{`[{"op": "RandomApply", "transforms": ["RandomHorizontalFlip", {"op": "CenterCrop", "size": 60}, {"op": "RandomApply", "transforms": ["RandomVerticalFlip", {"op": "Pad", "padding": 3}]}]}, {"op": "RandomCrop", "size": 50}]`, 0},
	{`[{"op": "Resize", "size": 80}, {"op": "GaussianBlur", "kernel_size": 9}, "RandomErasing", "RandomHorizontalFlip"]`, 1},
	{`[{"op": "Resize", "size": 80}, "ToTensor", {"op": "RandomErasing", "value": [0.1, 7, -3]}, {"op": "Normalize", "mean": 0.5, "std": 0.25}, {"op": "RandomApply", "transforms": [{"op": "RandomErasing", "value": "random"}]}]`, 1},
	{`["ToTensor", {"op": "Pad", "padding": 4, "fill": 1.0}, {"op": "RandomApply", "transforms": [{"op": "Normalize", "mean": 0.5, "std": 0.25}, "RandomHorizontalFlip"]}, {"op": "RandomCrop", "size": 64}]`, 0},
	{`[{"op": "Resize", "size": 80}, "ToTensor", {"op": "RandomErasing", "value": [0.1, 7, -3]}, {"op": "ToDtype", "dtype": "bfloat16"}, {"op": "Normalize", "mean": 0.5, "std": 0.25}, {"op": "RandomErasing", "value": "random"}]`, 1},
	{`[{"op": "ToDtype", "dtype": "bfloat16", "scale": true}, {"op": "Pad", "padding": 4, "fill": 1.0}, {"op": "RandomApply", "transforms": [{"op": "Normalize", "mean": 0.5, "std": 0.25}, "RandomHorizontalFlip"]}, {"op": "RandomCrop", "size": 64}]`, 0},
	{`[{"op": "Resize", "size": 90}, "ToTensor", {"op": "Normalize", "mean": 0.5, "std": 0.25}, "RandomVerticalFlip", {"op": "ToDtype", "dtype": "float16"}]`, 1},
}

// TestHalvesAreTheWhole: wherever a program is cut, also inside a RandomApply and
// after a conversion to floats, its halves give the bytes of the whole.
func TestHalvesAreTheWhole(t *testing.T) {
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
		if codec == "gray" && bytes.Contains([]byte(chain.ops), []byte("[0.5, 0.4")) || codec == "gray" && bytes.Contains([]byte(chain.ops), []byte("[0.1, 7")) {
			codec = "rgb" // three means, or values
		}
		key := rng.Key(rapid.Uint64().Draw(t, "key"))
		p, err := Compile(codec, listed(t, chain.ops), rapid.SampledFrom([]string{"nchw", "nhwc"}).Draw(t, "layout"))
		if err != nil {
			t.Fatal(err)
		}
		if n, ok := p.Settled(); !ok || codec == "rgb" && n != chain.fixed {
			t.Fatalf("%d steps are settled of %s, not %d", n, chain.ops, chain.fixed)
		}
		at := rapid.IntRange(0, p.Steps()).Draw(t, "at")
		before, after := p.Cut(at)
		wantShape, want := result(t, p, lane, raw, key)
		shape, pixels := result(t, before, lane, raw, key)
		gotShape, got := result(t, after, lane, format.PNM(shape[1], shape[0], shape[2], pixels), key)
		if !slices.Equal(wantShape, gotShape) || !bytes.Equal(want, got) {
			t.Fatalf("%s of %s, cut at %d: %v, not %v, or other bytes", chain.ops, codec, at, gotShape, wantShape)
		}
		if at > 0 {
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

func TestOnlyEncodedPicturesAreSettled(t *testing.T) {
	for _, codec := range []string{"int", "text", "bytes"} {
		if _, ok := mustCompile(t, codec, nil, "").Settled(); ok {
			t.Errorf("a program of %s can be kept", codec)
		}
	}
	p, err := CompilePixels(mem.Shape{4, 5, 3}, listed(t, `[{"op": "Resize", "size": 3}]`), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := p.Settled(); ok {
		t.Error("pictures that are stored decoded are kept decoded again")
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
