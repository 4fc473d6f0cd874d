package transform

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// drawnSizes is testdata/sizes.json: see the script beside it.
type drawnSizes struct {
	Sizes []struct {
		Op     Op        `json:"op"`
		W      int       `json:"w"`
		H      int       `json:"h"`
		Draws  []float64 `json:"draws"`
		Result []int     `json:"result"` // height, width; or left, top, right, bottom
	} `json:"sizes"`
	Histograms []struct {
		Op      Op                `json:"op"`
		W       int               `json:"w"`
		H       int               `json:"h"`
		Draws   int               `json:"draws"`
		Ranges  map[string][2]int `json:"ranges"`
		Numbers []string          `json:"numbers"` // of joint
		Counts  map[string][]int  `json:"counts"`
	} `json:"histograms"`
}

// only is the program's first operation.
func only(t *testing.T, op Op) *step {
	t.Helper()
	return &mustCompile(t, "rgb", []Op{op}, "").steps[0]
}

// TestSizesAreTorchvisions: equal draws give equal sizes and paddings, to the pixel.
func TestSizesAreTorchvisions(t *testing.T) {
	var all drawnSizes
	readJSON(t, "testdata/sizes.json", &all)
	seen := map[string]int{}
	for _, c := range all.Sizes {
		in, u := size{c.W, c.H}, float32(c.Draws[0])
		var got []int
		switch o := only(t, c.Op).op.(type) {
		case *zoomOut:
			pads, err := o.at(u, float32(c.Draws[1]), float32(c.Draws[2]), extent{in, 3})
			if err != nil {
				t.Fatal(err)
			}
			got = []int{int(pads[0]), int(pads[1]), int(pads[2]), int(pads[3])}
		case *randomSize:
			var to size
			switch law := o.law.(type) {
			case *shorterEdge:
				to = law.at(int(c.Draws[0]), in)
			case *shorterOf:
				to = law.at(int(c.Draws[0]), in)
			case *scaleJitter:
				to = law.at(u, in)
			}
			got = []int{to.h, to.w}
		}
		if !slices.Equal(got, c.Result) {
			t.Errorf("%s %s of %d x %d, drawn %v: %v, torchvision's is %v", c.Op.Name, c.Op.Args, c.W, c.H, c.Draws, got, c.Result)
		}
		seen[c.Op.Name]++
	}
	for _, name := range []string{"RandomResize", "RandomShortestSize", "ScaleJitter", "RandomZoomOut"} {
		if seen[name] < 10 {
			t.Errorf("%d cases of %s", seen[name], name)
		}
	}
}

// TestNumbersFollowTorchvision: what is chosen over 100,000 places against 100,000 of
// torchvision's draws.
func TestNumbersFollowTorchvision(t *testing.T) {
	var all drawnSizes
	readJSON(t, "testdata/sizes.json", &all)
	for _, want := range all.Histograms {
		s := only(t, want.Op)
		got := map[string][]int{}
		for name, counts := range want.Counts {
			got[name] = make([]int, len(counts))
		}
		for place := range int64(want.Draws) {
			c, err := s.op.choose(rng.Sample(18, 0, place), extent{size{want.W, want.H}, 3})
			if err != nil {
				t.Fatal(err)
			}
			bin := func(name string, n int) int {
				low, high := want.Ranges[name][0], want.Ranges[name][1]
				value := int(c[slices.Index(s.numbers, name)])
				return min(max((value-low)*n/(high-low), 0), n-1)
			}
			for name := range want.Ranges {
				got[name][bin(name, 20)]++
			}
			if joint := got["joint"]; joint != nil {
				joint[bin(want.Numbers[0], 5)*5+bin(want.Numbers[1], 5)]++
			}
		}
		for name, counts := range want.Counts {
			if z := chiSquared(counts, got[name]); z > 3.5 {
				t.Errorf("%s %s, %s: %.1f deviations from torchvision's\n%v\n%v", want.Op.Name, want.Op.Args, name, z, counts, got[name])
			}
		}
	}
}

// TestImpossibleSizes: a picture that cannot be made as large or as small is an error
// of that sample.
func TestImpossibleSizes(t *testing.T) {
	for ops, at := range map[string]size{
		`[{"op":"RandomShortestSize","min_size":5,"max_size":9}]`:                                    {1, 4000},
		`[{"op":"RandomResize","min_size":1000,"max_size":1001}]`:                                    {1, 60000},
		`[{"op":"ScaleJitter","target_size":[9,9],"scale_range":[1e-9,1e-8]}]`:                       {300, 200},
		`[{"op":"ScaleJitter","target_size":[9,9],"scale_range":[1e30,1e38]}]`:                       {300, 200},
		`[{"op":"ScaleJitter","target_size":[1000000,1000000],"scale_range":[1e300,1e301]}]`:         {1, 1},
		`[{"op":"RandomZoomOut","side_range":[1e30,1e38],"p":1}]`:                                    {300, 200},
		`[{"op":"RandomZoomOut","side_range":[3e38,1e300],"p":1}]`:                                   {65535, 65535},
		`[{"op":"RandomChoice","transforms":[{"op":"RandomZoomOut","side_range":[1e9,1e9],"p":1}]}]`: {2, 3},
	} {
		p := mustCompile(t, "rgb", opsOf(t, ops), "")
		s := &p.steps[len(p.steps)-1]
		for place := range int64(20) {
			if _, err := s.op.choose(rng.Sample(1, 0, place), extent{at, 3}); err == nil || err.Code != errs.Unsupported || err.Hint == "" || !strings.Contains(err.What, s.name) {
				t.Errorf("%s of %v: %v", ops, at, err)
				break
			}
		}
	}
}

// TestZoomOutNothing: what cannot change a picture leaves no trace.
func TestZoomOutNothing(t *testing.T) {
	for _, ops := range []string{`[{"op":"RandomZoomOut","p":0}]`, `[{"op":"RandomZoomOut","side_range":[1,1]}]`, `["RGB"]`} {
		if p := mustCompile(t, "rgb", opsOf(t, ops), ""); p.Steps() != 0 {
			t.Errorf("%s has %d steps", ops, p.Steps())
		}
	}
}

// TestRGB: grey becomes three equal channels, before and after a conversion to floats.
func TestRGB(t *testing.T) {
	l := NewLane()
	defer l.Close()
	in := readSource(t, "gray.png")
	grey := func(ops string) (mem []int, pixels []byte) {
		return whole(t, l, mustCompile(t, "gray", opsOf(t, ops), "nhwc"), in, 1)
	}
	_, one := grey(`[]`)
	shape, three := grey(`["RGB"]`)
	if !slices.Equal(shape, []int{60, 80, 3}) {
		t.Fatalf("%v", shape)
	}
	for i, v := range three {
		if v != one[i/3] {
			t.Fatalf("value %d is %d, not %d", i, v, one[i/3])
		}
	}
	_, early := grey(`["RGB","ToTensor",{"op":"Normalize","mean":0.3,"std":0.2}]`)
	_, late := grey(`["ToTensor",{"op":"Normalize","mean":0.3,"std":0.2},"RGB"]`)
	if !slices.Equal(early, late) {
		t.Error("RGB after floats gives others than before")
	}
}

// TestSingle: a draw as torch.rand makes it is below 1, and has 24 bits.
func TestSingle(t *testing.T) {
	sum, most := 0.0, float32(0)
	for place := range int64(10_000) {
		u := single(rng.Sample(1, 0, place), 0)
		if u < 0 || u >= 1 || u*(1<<24) != float32(math.Trunc(float64(u*(1<<24)))) {
			t.Fatalf("%v", u)
		}
		sum, most = sum+float64(u), max(most, u)
	}
	if math.Abs(sum/10_000-0.5) > 0.012 || most < 0.999 {
		t.Errorf("mean %v, most %v", sum/10_000, most)
	}
}

// TestSizesAreRefused: what torchvision refuses when it is called or made.
func TestSizesAreRefused(t *testing.T) {
	for ops, want := range map[string]string{
		`{"op":"RandomResize","min_size":5,"max_size":5}`:                    "max_size (5) must be greater than min_size (5)",
		`{"op":"RandomResize","min_size":5}`:                                 "max_size is missing",
		`{"op":"RandomResize","min_size":0,"max_size":5}`:                    "min_size must be a positive whole number, not 0",
		`{"op":"RandomResize","min_size":[4,5],"max_size":9}`:                "min_size must be a positive whole number, not [4,5]",
		`{"op":"RandomResize","min_size":4,"max_size":9,"antialias":false}`:  "antialias=True only",
		`{"op":"RandomShortestSize"}`:                                        "min_size is missing",
		`{"op":"RandomShortestSize","min_size":[]}`:                          "min_size must be a positive whole number, or a list of them, not []",
		`{"op":"RandomShortestSize","min_size":[3,"4"]}`:                     `not [3,"4"]`,
		`{"op":"RandomShortestSize","min_size":[3,4.5]}`:                     "not [3,4.5]",
		`{"op":"RandomShortestSize","min_size":3,"max_size":0}`:              "max_size must be a positive whole number, not 0",
		`{"op":"ScaleJitter","target_size":9}`:                               "target_size must be two positive whole numbers, not 9",
		`{"op":"ScaleJitter","target_size":[9,9],"scale_range":[0,1]}`:       "scale_range must be two numbers, the smaller first, both positive",
		`{"op":"RandomZoomOut","side_range":[0.5,2]}`:                        "side_range must begin at 1 or above, not at 0.5",
		`{"op":"RandomZoomOut","side_range":[3,2]}`:                          "side_range must be two numbers, the smaller first",
		`{"op":"RandomZoomOut","fill":0.5}`:                                  "the fill is not a byte",
		`{"op":"RandomZoomOut","p":2}`:                                       "p must be a number from 0 to 1",
		`"ToTensor",{"op":"RandomResize","min_size":4,"max_size":9}`:         "move RandomResize before ToTensor",
		`"ToTensor",{"op":"ScaleJitter","target_size":[4,9]}`:                "move ScaleJitter before ToTensor",
		`"ToTensor",{"op":"Normalize","mean":0.485,"std":1},"RandomZoomOut"`: "move RandomZoomOut before ToTensor",
	} {
		_, err := Compile("rgb", opsOf(t, "["+ops+"]"), "")
		if err == nil {
			t.Errorf("%s is accepted", ops)
			continue
		}
		e := errs.From(err)
		if !strings.Contains(e.What+" | "+e.Hint, want) || e.Code != errs.Config {
			t.Errorf("%s: %v, without %s", ops, err, want)
		}
	}
	// Problems are in the order of the arguments, every time.
	for range 20 {
		_, err := Compile("rgb", []Op{{Name: "RandomResize"}}, "")
		if err == nil || strings.Index(err.Error(), "min_size is missing") > strings.Index(err.Error(), "max_size is missing") {
			t.Fatal(err)
		}
	}
	var op Op
	if err := json.Unmarshal([]byte(`{"op":"RandomZoomOut","fill":[1,2,3]}`), &op); err != nil {
		t.Fatal(err)
	}
	if _, err := Compile("gray", []Op{op}, ""); err == nil || !strings.Contains(err.Error(), "the fill has 3 channels, but the picture has 1") {
		t.Errorf("%v", err)
	}
}
