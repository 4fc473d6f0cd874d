package transform

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// TestChoicesAreReadable: what a user sees, to the letter.
func TestChoicesAreReadable(t *testing.T) {
	l := NewLane()
	defer l.Close()
	for _, c := range []struct {
		source, codec, ops string
		place              int64
		want               string
	}{
		{"wide.png", "rgb", usual, 1, `{"op":"RandomResizedCrop","top":7,"left":7,"height":81,"width":100,"to_height":32,"to_width":32,"stored_top":7,"stored_left":7,"stored_height":81,"stored_width":100}
{"op":"RandomHorizontalFlip","flipped":false}`},
		{"wide.png", "rgb", usual, 2, `{"op":"RandomResizedCrop","top":6,"left":72,"height":39,"width":47,"to_height":32,"to_width":32,"stored_top":6,"stored_left":72,"stored_height":39,"stored_width":47}
{"op":"RandomHorizontalFlip","flipped":true}`},
		{"tall.png", "rgb", `[{"op":"Resize","size":122},{"op":"RandomCrop","size":[100,120],"padding":8}]`, 5, `{"op":"Resize","from_height":97,"from_width":61,"to_height":194,"to_width":122}
{"op":"RandomCrop","top":76,"left":4,"height":100,"width":120,"stored_top":38,"stored_left":2,"stored_height":50,"stored_width":60}`},
		{"tall.png", "rgb", `["RandomVerticalFlip","RandomHorizontalFlip",{"op":"CenterCrop","size":[80,64]},"ToTensor"]`, 3, `{"op":"RandomVerticalFlip","flipped":true}
{"op":"RandomHorizontalFlip","flipped":true}
{"op":"CenterCrop","top":8,"left":-1,"height":80,"width":64,"stored_top":9,"stored_left":-2,"stored_height":80,"stored_width":64}`},
		{"wide.png", "rgb", `[{"op":"Pad","padding":[1,2,3,4]},"RandomGrayscale",{"op":"RandomApply","transforms":["RandomVerticalFlip",{"op":"Grayscale","num_output_channels":3}]}]`, 4, `{"op":"Pad","pad_left":1,"pad_top":2,"pad_right":3,"pad_bottom":4}
{"op":"RandomGrayscale","gray":false}
{"op":"RandomApply","applied":true}
{"op":"RandomVerticalFlip","flipped":true}
{"op":"Grayscale","channels":3}`},
		{"wide.png", "rgb", `[{"op":"Pad","padding":[1,2,3,4]},"RandomGrayscale",{"op":"RandomApply","p":0.1,"transforms":["RandomVerticalFlip"]}]`, 6, `{"op":"Pad","pad_left":1,"pad_top":2,"pad_right":3,"pad_bottom":4}
{"op":"RandomGrayscale","gray":false}
{"op":"RandomApply","applied":false}`},
		{"gray.png", "gray", `["Identity","RandomGrayscale",{"op":"Compose","transforms":[{"op":"CenterCrop","size":50},{"op":"CenterCrop","size":50}]}]`, 1, `{"op":"CenterCrop","top":5,"left":15,"height":50,"width":50,"stored_top":5,"stored_left":15,"stored_height":50,"stored_width":50}`},
		{"wide.png", "rgb", `["ToTensor"]`, 1, ``},
	} {
		p := mustCompile(t, c.codec, opsOf(t, c.ops), "")
		choices, err := p.Explain(l, readSource(t, c.source), rng.Sample(1, 0, c.place))
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, choice := range choices {
			b, err := json.Marshal(choice)
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, string(b))
		}
		if got := strings.Join(lines, "\n"); got != c.want {
			t.Errorf("%s %s, place %d:\n%s\nwanted\n%s", c.source, c.ops, c.place, got, c.want)
		}
	}
}

// readDecodable reads a picture that package decode has a golden for.
func readDecodable(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../decode/testdata/files", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestExplainSeesThePictureAsItIsShown: a TIFF's orientation is applied to it
// before everything else.
func TestExplainSeesThePictureAsItIsShown(t *testing.T) {
	l := NewLane()
	defer l.Close()
	p := mustCompile(t, "rgb", opsOf(t, `[{"op":"Resize","size":10}]`), "")
	for name, want := range map[string]string{
		"orientation1.tif": `[{"op":"Resize","from_height":5,"from_width":7,"to_height":10,"to_width":14}]`,
		"orientation6.tif": `[{"op":"Resize","from_height":7,"from_width":5,"to_height":14,"to_width":10}]`,
	} {
		choices, err := p.Explain(l, readDecodable(t, name), 1)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := json.Marshal(choices); string(b) != want {
			t.Errorf("%s: %s %v", name, b, err)
		}
	}
}

// TestExplainReadsTheHeaderOnly: pixels that cannot be decoded do not matter.
func TestExplainReadsTheHeaderOnly(t *testing.T) {
	l := NewLane()
	defer l.Close()
	p := mustCompile(t, "rgb", opsOf(t, `[{"op":"RandomResizedCrop","size":32},"RandomHorizontalFlip"]`), "")
	png := bytes.Clone(readSource(t, "wide.png"))
	for i := bytes.Index(png, []byte("IDAT")) + 8; i < len(png)-12; i++ {
		png[i] = 0xA5
	}
	pnm := fmt.Appendf(nil, "P3 30 40 255\n%s", strings.Repeat("x ", 3600)) // and no number
	for name, in := range map[string][]byte{"PNG": png, "PNM": pnm} {
		choices, err := p.Explain(l, in, 1)
		if err != nil || len(choices) != 2 {
			t.Errorf("%s: %v %v", name, choices, err)
		}
		if _, err := deliver(l, p, in, 1); errs.CodeOf(err) != errs.Damaged {
			t.Errorf("%s is delivered: %v", name, err)
		}
	}
}

// TestExplainDamaged: a header that cannot be read is the error that Begin returns,
// never a panic, and the lane still works.
func TestExplainDamaged(t *testing.T) {
	l := NewLane()
	defer l.Close()
	p := mustCompile(t, "rgb", opsOf(t, usual), "")
	good := readSource(t, "chelsea.jpg")
	names := []string{"orientation6.tif", "bigtiff.tif", "lossy-odd.webp", "lossless-alpha.webp", "animated.gif", "rgb8.png", "palette4.bmp", "p3-255.ppm"}
	sources := [][]byte{good, nil, []byte("not a picture")}
	for _, name := range names {
		sources = append(sources, readDecodable(t, name))
	}
	same := func(t rapid.TB, in []byte) {
		_, want := p.Begin(l, in, 7)
		choices, err := p.Explain(l, in, 7)
		if fmt.Sprint(err) != fmt.Sprint(want) || err != nil && (choices != nil || errs.CodeOf(err) == errs.Bug) {
			t.Fatalf("%.40q: explained %v, begun %v", in, err, want)
		}
	}
	for _, in := range sources {
		for cut := range min(len(in), 400) {
			same(t, in[:cut])
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		in := bytes.Clone(rapid.SampledFrom(sources).Draw(t, "source"))
		for range rapid.IntRange(1, 4).Draw(t, "bytes") {
			if len(in) > 0 {
				in[rapid.IntRange(0, min(len(in), 300)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
			}
		}
		same(t, in)
	})
	if choices, err := p.Explain(l, good, 7); err != nil || len(choices) != 2 {
		t.Errorf("after it: %v %v", choices, err)
	}
	small := mustCompile(t, "rgb", opsOf(t, `[{"op":"RandomCrop","size":9000}]`), "")
	if choices, err := small.Explain(l, good, 7); errs.CodeOf(err) != errs.Unsupported || choices != nil {
		t.Errorf("a crop that does not fit: %v %v", choices, err)
	}
}

func TestOtherFieldsHaveNoChoices(t *testing.T) {
	l := NewLane()
	defer l.Close()
	for _, codec := range []string{"bytes", "text", "int", "float", "json"} {
		choices, err := mustCompile(t, codec, nil, "").Explain(l, []byte("17"), 1)
		if choices != nil || err != nil {
			t.Errorf("%s: %v %v", codec, choices, err)
		}
	}
}

// TestExplainBesideDelivery: it changes nothing of what a lane delivers later,
// costs nothing there, and does not pass as a Begin.
func TestExplainBesideDelivery(t *testing.T) {
	l := NewLane()
	defer l.Close()
	p := mustCompile(t, "rgb", opsOf(t, usual), "")
	in := readSource(t, "chelsea.jpg")
	_, want := whole(t, l, p, in, 3)
	shape, err := p.Begin(l, in, 3)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := p.Explain(l, in, 3)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Finish(l, make([]byte, shape.Elems()*4)); err == nil || errs.CodeOf(err) != errs.Bug {
		t.Errorf("Finish after Explain: %v", err)
	}
	shown := fmt.Sprint(kept)
	if _, got := whole(t, l, p, in, 3); !bytes.Equal(got, want) {
		t.Error("the sample is another after Explain")
	}
	if _, err := p.Explain(l, readSource(t, "tall.png"), 4); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(kept) != shown {
		t.Errorf("choices changed to %v", kept)
	}
	dst := make([]byte, shape.Elems()*4)
	if kernel.Target() == "go" {
		return // the twin allocates
	}
	if n := testing.AllocsPerRun(50, func() {
		if _, err := p.Begin(l, in, 3); err != nil || p.Finish(l, dst) != nil {
			t.Fatal("no sample")
		}
	}); n > 0 {
		t.Errorf("%v allocations a sample after Explain", n)
	}
}
