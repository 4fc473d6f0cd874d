package transform

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/rng"
	"github.com/stoker-data/stoker/internal/stage/format"
)

// TestKnownAfterContainers: what is known is what all parts, in all orders, agree on.
func TestKnownAfterContainers(t *testing.T) {
	const front = `{"op":"Resize","size":[20,20]},`
	for ops, want := range map[string]mem.Shape{
		`{"op":"RandomChoice","transforms":[{"op":"CenterCrop","size":8},{"op":"RandomResizedCrop","size":8}]}`:                                               {8, 8, 3},
		front + `{"op":"RandomChoice","transforms":[{"op":"CenterCrop","size":8},"Identity"]}`:                                                                nil,
		front + `{"op":"RandomChoice","transforms":["RandomHorizontalFlip","Identity"]}`:                                                                      {20, 20, 3},
		`{"op":"RandomChoice","transforms":["Grayscale",{"op":"Compose","transforms":["RandomVerticalFlip","Grayscale"]}]},{"op":"CenterCrop","size":5}`:      {5, 5, 1},
		`{"op":"RandomOrder","transforms":[{"op":"RandomResizedCrop","size":8},"RandomHorizontalFlip"]}`:                                                      {8, 8, 3},
		front + `{"op":"RandomOrder","transforms":[{"op":"Pad","padding":2},"RandomHorizontalFlip"]}`:                                                         {24, 24, 3},
		front + `{"op":"RandomOrder","transforms":[{"op":"Pad","padding":2},{"op":"Pad","padding":3}]}`:                                                       nil,
		front + `{"op":"RandomOrder","transforms":[{"op":"Pad","padding":2},{"op":"CenterCrop","size":8}]}`:                                                   nil,
		`{"op":"RandomOrder","transforms":[{"op":"CenterCrop","size":8},{"op":"RandomCrop","size":8,"pad_if_needed":true},"RandomVerticalFlip"]}`:             {8, 8, 3},
		front + `{"op":"RandomOrder","transforms":["RandomVerticalFlip",{"op":"RandomApply","transforms":[{"op":"CenterCrop","size":8}]}]}`:                   nil,
		front + `{"op":"RandomOrder","transforms":["RandomVerticalFlip",{"op":"RandomOrder","transforms":[{"op":"CenterCrop","size":8},"RandomGrayscale"]}]}`: {8, 8, 3},
		front + `{"op":"RandomZoomOut"}`:                             nil,
		front + `{"op":"RandomResize","min_size":8,"max_size":9}`:    nil,
		`{"op":"ScaleJitter","target_size":[9,9]},"RandomGrayscale"`: nil,
	} {
		p := mustCompile(t, "rgb", opsOf(t, "["+ops+"]"), "")
		if shape, known := p.Shape(); !slices.Equal(shape, want) || known != (want != nil) {
			t.Errorf("%s: %v, not %v", ops, shape, want)
		}
	}
}

// TestContainersAreRefused: every refusal says what is wrong, where, and what to write.
func TestContainersAreRefused(t *testing.T) {
	for ops, want := range map[string]string{
		`{"op":"RandomChoice","transforms":["ToTensor","Identity"]}`:                                                                  `(RandomChoice): the type of the result would be uint8 or float32 at random|move it out of RandomChoice`,
		`{"op":"RandomChoice","transforms":["Identity","Grayscale"]}`:                                                                 `would be 3 or 1 at random|RandomGrayscale`,
		`{"op":"RandomChoice","transforms":[]}`:                                                                                       `transforms is empty`,
		`{"op":"RandomOrder","transforms":[]}`:                                                                                        `transforms is empty`,
		`"RandomOrder"`:                                                                                                               `transforms is missing`,
		`{"op":"RandomChoice","transforms":["Identity","Identity"],"p":[1]}`:                                                          `p has 1 numbers, and there are 2 transforms`,
		`{"op":"RandomChoice","transforms":["Identity","Identity"],"p":[1,-1]}`:                                                       `none is negative`,
		`{"op":"RandomChoice","transforms":["Identity","Identity"],"p":[0,0]}`:                                                        `not all are 0, not [0,0]`,
		`{"op":"RandomChoice","transforms":["Identity","Identity"],"p":[1e308,1e308]}`:                                                `none is negative`,
		`{"op":"RandomChoice","transforms":["Identity","Identity"],"p":"x"}`:                                                          `p must be a list of numbers, one for each transform, not "x"`,
		`{"op":"RandomOrder","transforms":["ToTensor","RandomVerticalFlip"]}`:                                                         `uint8 or float32 at random|move it out of RandomOrder`,
		`{"op":"RandomOrder","transforms":["RandomVerticalFlip","Grayscale"]}`:                                                        `3 or 1 at random`,
		`"ToTensor",{"op":"RandomOrder","transforms":[{"op":"Pad","padding":2},{"op":"Normalize","mean":0.5,"std":2}]}`:               `move Pad before ToTensor`,
		`{"op":"RandomOrder","transforms":[` + strings.Repeat(`"Identity",`, 18) + `"Identity"]}`:                                     `19 transforms in random order: the limit is 18|Compose, which counts as one`,
		`{"op":"RandomChoice","transforms":["Identity",{"op":"RandomOrder","transforms":["Identity","Croop"]}]}`:                      `transform 2 of 2 in transform 2 of 2 in transform 1 of 1 (RandomChoice) (RandomOrder) (Croop)`,
		`{"op":"RandomOrder","transforms":[` + strings.Repeat(`{"op":"CenterCrop","size":9},`, 15) + `{"op":"CenterCrop","size":9}]}`: `17 operations, 16 of which change the size`,
	} {
		_, err := Compile("rgb", opsOf(t, "["+ops+"]"), "")
		if err == nil {
			t.Errorf("%s is accepted", ops)
			continue
		}
		e := errs.From(err)
		for _, part := range strings.Split(want, "|") {
			if !strings.Contains(e.What+" | "+e.Hint, part) || e.Code != errs.Config {
				t.Errorf("%s:\n  %v | %s\nis without\n  %s", ops, err, e.Hint, part)
			}
		}
	}
	deep := strings.Repeat(`{"op":"RandomOrder","transforms":["RandomVerticalFlip",`, 100) + `"Identity"` + strings.Repeat(`]}`, 100)
	if _, err := Compile("rgb", opsOf(t, "["+deep+"]"), ""); err == nil || !strings.Contains(err.Error(), "more than 32 deep") {
		t.Errorf("%v", err)
	}
}

// TestAlternativesAreNotCountedTogether: a picture goes through one of them.
func TestAlternativesAreNotCountedTogether(t *testing.T) {
	var many []string
	for i := range 60 {
		many = append(many, fmt.Sprintf(`{"op":"CenterCrop","size":%d}`, i+1))
	}
	p := mustCompile(t, "rgb", opsOf(t, `[{"op":"RandomChoice","transforms":[`+strings.Join(many, ",")+`]}]`), "")
	if p.Steps() != 61 {
		t.Errorf("%d steps", p.Steps())
	}
}

// TestDigestsOfContainers: one for all ways of writing the same, another for anything
// else.
func TestDigestsOfContainers(t *testing.T) {
	digest := func(ops string) string { return mustCompile(t, "rgb", opsOf(t, "["+ops+"]"), "").Digest() }
	const a, b = `"RandomVerticalFlip"`, `"RandomHorizontalFlip"`
	for _, same := range [][2]string{
		{`{"op":"RandomChoice","transforms":[` + a + `,` + b + `]}`, `{"op":"RandomChoice","transforms":[` + a + `,{"op":"Compose","transforms":[` + b + `,"Identity"]}],"p":[3,3]}`},
		{`{"op":"RandomOrder","transforms":[` + a + `,"ToImage"]}`, `{"op":"RandomOrder","transforms":[` + a + `,"Identity"]}`},
		{`{"op":"RandomZoomOut"}`, `{"op":"RandomZoomOut","fill":[0,0,0],"side_range":[1,4.0],"p":0.5}`},
		{`{"op":"RandomShortestSize","min_size":5}`, `{"op":"RandomShortestSize","min_size":[5],"antialias":true}`},
	} {
		if digest(same[0]) != digest(same[1]) {
			t.Errorf("%s\n%s\nhave two digests", same[0], same[1])
		}
	}
	seen := map[string]string{}
	for _, ops := range []string{
		`{"op":"RandomChoice","transforms":[` + a + `,` + b + `]}`, `{"op":"RandomChoice","transforms":[` + a + `,` + b + `],"p":[1,2]}`,
		`{"op":"RandomChoice","transforms":[{"op":"Compose","transforms":[` + a + `,` + b + `]}]}`,
		`{"op":"RandomChoice","transforms":["Identity",{"op":"Compose","transforms":[` + a + `,` + b + `]}]}`,
		`{"op":"RandomChoice","transforms":[{"op":"Compose","transforms":[` + a + `,` + b + `]},"Identity"]}`,
		`{"op":"RandomChoice","transforms":[` + a + `,` + b + `,"Identity"]}`, `{"op":"RandomChoice","transforms":[` + a + `,"Identity",` + b + `]}`,
		`{"op":"RandomOrder","transforms":[` + a + `,` + b + `]}`, `{"op":"RandomOrder","transforms":[{"op":"Compose","transforms":[` + a + `,` + b + `]}]}`,
		`{"op":"RandomOrder","transforms":[` + a + `,` + b + `,"Identity"]}`, `{"op":"RandomApply","transforms":[` + a + `,` + b + `]}`,
		`{"op":"RandomResize","min_size":5,"max_size":7}`, `{"op":"RandomResize","min_size":5,"max_size":8}`,
		`{"op":"RandomResize","min_size":5,"max_size":8,"interpolation":"bicubic"}`,
		`{"op":"RandomShortestSize","min_size":5}`, `{"op":"RandomShortestSize","min_size":5,"max_size":6}`, `{"op":"RandomShortestSize","min_size":[5,6]}`,
		`{"op":"ScaleJitter","target_size":[5,6]}`, `{"op":"ScaleJitter","target_size":[6,5]}`, `{"op":"ScaleJitter","target_size":[5,6],"scale_range":[0.1,1]}`,
		`"RandomZoomOut"`, `{"op":"RandomZoomOut","p":1}`, `{"op":"RandomZoomOut","fill":1}`, `{"op":"RandomZoomOut","side_range":[1,2]}`,
	} {
		d := digest(ops)
		if other, there := seen[d]; there {
			t.Errorf("%s and %s have one digest", ops, other)
		}
		seen[d] = ops
	}
	// Kept in saved states: they may not change.
	for ops, want := range map[string]string{
		`{"op":"RandomChoice","transforms":["RandomVerticalFlip",{"op":"RandomZoomOut","fill":7},{"op":"RandomOrder","transforms":["RandomHorizontalFlip",{"op":"RandomResize","min_size":5,"max_size":8}]}],"p":[1,2,1]}`: "07807983c74f528333e952372ebb2b11",
		`{"op":"RandomShortestSize","min_size":[480,512],"max_size":1333},{"op":"ScaleJitter","target_size":[1024,1024]},"RGB"`:                                                                                            "349cbdadcfdced172f0e88dbd52500f1",
	} {
		if got := digest(ops); got != want {
			t.Errorf("the digest of %s is %s, was %s", ops, got, want)
		}
	}
}

// TestPermutations: order number i is the i-th of all, as texts are sorted.
func TestPermutations(t *testing.T) {
	var all []string
	for i := range 24 {
		all = append(all, fmt.Sprint(permutation(i, 4, nil)))
	}
	if !slices.IsSorted(all) || len(slices.Compact(all)) != 24 || all[0] != "[0 1 2 3]" || all[23] != "[3 2 1 0]" {
		t.Errorf("%v", all)
	}
	o := &inOrder{parts: mostOrder}
	for place := range int64(1000) {
		c, _ := o.choose(rng.Sample(1, 0, place), extent{})
		got := o.turns(c, nil)
		slices.Sort(got)
		for i, part := range got {
			if len(got) != mostOrder || part != i {
				t.Fatalf("%v", got)
			}
		}
	}
}

// heldChains are programs with containers of every kind in one another.
var heldChains = []string{
	`{"op":"RandomChoice","transforms":["ToTensor",{"op":"Compose","transforms":["RandomVerticalFlip","ToTensor"]}]},{"op":"RandomOrder","transforms":[{"op":"Normalize","mean":0.5,"std":2},"RandomHorizontalFlip",{"op":"Normalize","mean":[0.1,0.2,0.3],"std":0.5}]},{"op":"CenterCrop","size":40}`,
	`{"op":"RandomOrder","transforms":[{"op":"Compose","transforms":[{"op":"RandomAutocontrast","p":1},{"op":"Pad","padding":3}]},"RandomHorizontalFlip",{"op":"RandomChoice","transforms":[{"op":"RandomCrop","size":40},{"op":"Compose","transforms":[{"op":"RandomAutocontrast","p":1},{"op":"Pad","padding":5}]},"Identity"],"p":[1,2,1]},{"op":"RandomApply","transforms":[{"op":"RandomResize","min_size":40,"max_size":60},{"op":"Compose","transforms":[{"op":"RandomAutocontrast","p":1},{"op":"Pad","padding":1}]}]}]}`,
	`{"op":"Resize","size":50},{"op":"RandomChoice","transforms":["RandomGrayscale",{"op":"RandomOrder","transforms":[{"op":"RandomZoomOut","p":1,"side_range":[1,1.5]},{"op":"ScaleJitter","target_size":[60,60],"scale_range":[0.5,1.5]}]}]},"RandomVerticalFlip"`,
	`{"op":"RandomApply","transforms":[{"op":"Grayscale"},{"op":"Resize","size":30},"RGB"]},{"op":"RandomOrder","transforms":["RandomVerticalFlip"]}`,
}

// TestContainersInHalves: programs with containers, also ones that measure, give the
// same wherever they are cut, and nothing is allocated for them.
func TestContainersInHalves(t *testing.T) {
	l := NewLane()
	defer l.Close()
	for _, ops := range heldChains {
		p := mustCompile(t, "rgb", opsOf(t, "["+ops+"]"), "nhwc")
		in := readSource(t, "wide.png")
		for place := range int64(25) {
			key := rng.Sample(5, 0, place)
			shape, want := whole(t, l, p, in, key)
			if known, sized := p.Shape(); sized && !slices.Equal(known, mem.Shape(shape)) {
				t.Fatalf("%s: %v, known as %v", ops, shape, known)
			}
			for n := range p.Steps() + 1 {
				before, after := p.Cut(n)
				at, pixels := whole(t, l, before, in, key)
				gotShape, got := whole(t, l, after, format.PNM(at[1], at[0], at[2], pixels), key)
				if !slices.Equal(shape, gotShape) || !bytes.Equal(want, got) {
					t.Fatalf("%s at place %d, cut at %d: %v, not %v, or other bytes", ops, place, n, gotShape, shape)
				}
			}
		}
		if kernel.Target() == "go" {
			continue // the twin allocates
		}
		dst, place := make([]byte, 1<<20), int64(0)
		run := func() {
			place++
			shape, err := p.Begin(l, in, rng.Sample(1, 1, place%20))
			if err != nil || p.Finish(l, dst[:shape.Elems()*p.DType().Size()]) != nil {
				t.Fatal("no sample")
			}
		}
		for range 50 {
			run()
		}
		if n := testing.AllocsPerRun(100, run); n > 0 {
			t.Errorf("%s: %v allocations a sample", ops, n)
		}
	}
}

// TestWhatIsKnownHolds: for any containers, every picture has the size, channels and
// type that the program says.
func TestWhatIsKnownHolds(t *testing.T) {
	l := NewLane()
	defer l.Close()
	in := readSource(t, "tall.png")
	leaves := []string{
		`"RandomHorizontalFlip"`, `"Identity"`, `{"op":"CenterCrop","size":20}`, `{"op":"Resize","size":[20,20]}`, `{"op":"Resize","size":15}`,
		`{"op":"Pad","padding":[1,2]}`, `"RandomGrayscale"`, `"Grayscale"`, `{"op":"Grayscale","num_output_channels":3}`, `"RGB"`, `"ToTensor"`, `{"op":"ToDtype","dtype":"float16"}`,
		`{"op":"Normalize","mean":0.5,"std":2}`, `{"op":"RandomCrop","size":20,"pad_if_needed":true}`, `{"op":"RandomZoomOut","side_range":[1,2]}`,
	}
	var draw func(t *rapid.T, depth int) string
	draw = func(t *rapid.T, depth int) string {
		var ops []string
		for range rapid.IntRange(1, 3).Draw(t, "ops") {
			kind := rapid.SampledFrom([]string{"", "", "Compose", "RandomApply", "RandomChoice", "RandomOrder"}).Draw(t, "kind")
			if kind == "" || depth == 0 {
				ops = append(ops, rapid.SampledFrom(leaves).Draw(t, "op"))
			} else {
				ops = append(ops, fmt.Sprintf(`{"op":%q,"transforms":[%s]}`, kind, draw(t, depth-1)))
			}
		}
		return strings.Join(ops, ",")
	}
	rapid.Check(t, func(rt *rapid.T) {
		ops := "[" + draw(rt, 3) + "]"
		p, err := Compile(rapid.SampledFrom([]string{"rgb", "gray"}).Draw(rt, "codec"), opsOf(t, ops), "nhwc")
		if err != nil {
			return
		}
		known, sized := p.Shape()
		for place := range int64(12) {
			shape, err := p.Begin(l, in, rng.Sample(2, 0, place))
			if err != nil {
				if errs.CodeOf(err) == errs.Bug {
					rt.Fatalf("%s: %v", ops, err)
				}
				continue // a crop that does not fit
			}
			if sized && !slices.Equal(known, shape) || shape[2] != p.at.c || l.run.tone.dtype() != p.at.tone.dtype() {
				rt.Fatalf("%s: %v and %s, known %v, %d channels, %s", ops, shape, l.run.tone.dtype(), known, p.at.c, p.at.tone.dtype())
			}
			if err := p.Finish(l, make([]byte, shape.Elems()*p.DType().Size())); err != nil {
				rt.Fatalf("%s: %v", ops, err)
			}
		}
	})
}

// TestChosenAsOften: RandomChoice follows p, whatever its sum.
func TestChosenAsOften(t *testing.T) {
	s := only(t, opsOf(t, `[{"op":"RandomChoice","transforms":["RandomVerticalFlip","RandomVerticalFlip","RandomVerticalFlip"],"p":[0.2,0,0.6]}]`)[0])
	var counts [3]int
	for place := range int64(10_000) {
		c, _ := s.op.choose(rng.Sample(4, 0, place), extent{})
		counts[int(c[0])]++
	}
	if counts[1] != 0 || counts[0] < 2350 || counts[0] > 2650 {
		t.Errorf("%v", counts)
	}
}
