package transform

import (
	"bytes"
	"compress/zlib"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"io"
	"math"
	"slices"
	"testing"

	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// timmGoldens is testdata/timm.json.
type timmGoldens struct {
	Cases []struct {
		Source string
		Ops    []Op
		Shape  []int
		Pixels string // compressed, in base64
		Digest string // or the SHA-256 of the pixels
	}
	Sizes []struct {
		W, H    int
		To      [2]int // height, width
		Longest float64
		Made    [2]int // height, width
	}
}

// TestEqualsTimm: within 1 of what timm makes of PIL images, with Pillow's resampling,
// and equal where nothing is resampled.
func TestEqualsTimm(t *testing.T) {
	var g timmGoldens
	readJSON(t, "testdata/timm.json", &g)
	l := NewLane()
	defer l.Close()
	for _, c := range g.Cases {
		p := mustCompile(t, "rgb", c.Ops, "nhwc")
		shape, got := whole(t, l, p, readSource(t, c.Source), 1)
		if !slices.Equal(shape, c.Shape) {
			t.Errorf("%s %v: %v, not %v", c.Source, c.Ops, shape, c.Shape)
			continue
		}
		if c.Digest != "" {
			if sum := sha256.Sum256(got); hex.EncodeToString(sum[:]) != c.Digest {
				t.Errorf("%s %v: other pixels", c.Source, c.Ops)
			}
			continue
		}
		most := 0.0
		for i, want := range inflated(t, c.Pixels) {
			most = max(most, math.Abs(float64(got[i])-float64(want)))
		}
		if most > 1 {
			t.Errorf("%s %v: differs by up to %v", c.Source, c.Ops, most)
		}
	}
	if len(g.Cases) == 0 || len(g.Sizes) == 0 {
		t.Error("there are no cases")
	}
	for _, c := range g.Sizes {
		o := keepRatio{to: size{c.To[1], c.To[0]}, longest: c.Longest}
		if got := o.target(size{c.W, c.H}); got != (size{c.Made[1], c.Made[0]}) {
			t.Errorf("%d x %d to %v, longest %v: %v, not %v", c.W, c.H, c.To, c.Longest, got, c.Made)
		}
	}
}

func inflated(t *testing.T, text string) []byte {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	z, err := zlib.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestRandomInterpolation: RandomResizedCropAndInterpolation is RandomResizedCrop, with
// bilinear and bicubic equally often, as its choice says.
func TestRandomInterpolation(t *testing.T) {
	l := NewLane()
	defer l.Close()
	in := readSource(t, "wide.png")
	p := mustCompile(t, "rgb", opsOf(t, `[{"op":"RandomResizedCropAndInterpolation","size":[20,24]}]`), "nhwc")
	alone := map[kernel.Filter]*Program{
		kernel.Bilinear: mustCompile(t, "rgb", opsOf(t, `[{"op":"RandomResizedCrop","size":[20,24]}]`), "nhwc"),
		kernel.Bicubic:  mustCompile(t, "rgb", opsOf(t, `[{"op":"RandomResizedCrop","size":[20,24],"interpolation":"bicubic"}]`), "nhwc"),
	}
	count := map[kernel.Filter]int{}
	const n = 1000
	for place := range int64(n) {
		key := rng.Sample(4, 0, place)
		choices, err := p.Explain(l, in, key)
		if err != nil {
			t.Fatal(err)
		}
		filter := kernel.Bilinear
		if v := choices[0].Values[6]; v.Name != "bicubic" {
			t.Fatalf("its seventh number is %s", v.Name)
		} else if v.Of == 1 {
			filter = kernel.Bicubic
		}
		count[filter]++
		if place > 40 {
			continue
		}
		_, got := whole(t, l, p, in, key)
		if _, want := whole(t, l, alone[filter], in, key); !bytes.Equal(got, want) {
			t.Fatalf("place %d: not what RandomResizedCrop gives", place)
		}
	}
	if most := max(count[kernel.Bilinear], count[kernel.Bicubic]); most > n/2+80 { // five standard deviations
		t.Errorf("%v of %d", count, n)
	}
}
