package transform

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// golden is one case of testdata/cases.json: what torchvision made.
type golden struct {
	Name   string `json:"name"`
	Source string `json:"source"`
	Codec  string `json:"codec"`
	Layout string `json:"layout"`
	Ops    []Op   `json:"ops"`
	Draw   *int   `json:"draw"`  // of draws.json: the sample's key
	Place  *int   `json:"place"` // of choices.json: the sample's key
	DType  string `json:"dtype"`
	Shape  []int  `json:"shape"`
	Offset int    `json:"offset"`
}

func readGoldens(t *testing.T) (cases []golden, expected []byte) {
	t.Helper()
	readJSON(t, "testdata/cases.json", &cases)
	f, err := os.Open("testdata/expected.bin.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if expected, err = io.ReadAll(z); err != nil {
		t.Fatal(err)
	}
	return cases, expected
}

// readSource reads a picture of this package's testdata, or of the project's.
func readSource(t testing.TB, name string) []byte {
	t.Helper()
	for _, dir := range []string{"testdata", "../../../testdata/photos"} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			return b
		}
	}
	t.Fatalf("no picture %s", name)
	return nil
}

func mustCompile(t testing.TB, codec string, ops []Op, layout string) *Program {
	t.Helper()
	p, err := Compile(codec, ops, layout)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// whole runs a program on one sample.
func whole(t testing.TB, l *Lane, p *Program, encoded []byte, key rng.Key) ([]int, []byte) {
	t.Helper()
	shape, err := p.Begin(l, encoded, key)
	if err != nil {
		t.Fatal(err)
	}
	dst := bytes.Repeat([]byte{0xAA}, shape.Elems()*max(1, p.DType().Size()))
	if err := p.Finish(l, dst); err != nil {
		t.Fatal(err)
	}
	return append([]int(nil), shape...), dst
}

// TestEqualsTorchvision: within 1 anywhere, 0.05 in the mean over the set;
// float32 within 1e-6 of what torchvision makes of the same bytes, halves equal to it.
func TestEqualsTorchvision(t *testing.T) {
	cases, expected := readGoldens(t)
	var draws []drawn
	readJSON(t, "testdata/draws.json", &draws)
	lane := NewLane()
	defer lane.Close()
	var off, all int
	for _, c := range cases {
		t.Run(c.Source+"/"+c.Name, func(t *testing.T) {
			p := mustCompile(t, c.Codec, c.Ops, c.Layout)
			key := rng.Sample(1, 2, 3)
			if c.Draw != nil {
				d := draws[*c.Draw]
				key = rng.Sample(d.Seed, d.Epoch, d.Place)
			}
			if c.Place != nil {
				key = rng.Sample(2, 1, int64(*c.Place))
			}
			shape, got := whole(t, lane, p, readSource(t, c.Source), key)
			if diff := cmp.Diff(c.Shape, shape); diff != "" || p.DType().String() != c.DType {
				t.Fatalf("%v, shape (-want +got):\n%s", p.DType(), diff)
			}
			want := expected[c.Offset : c.Offset+len(got)]
			switch c.DType {
			case "float32":
				compareFloats(t, want, got)
				return
			case "float16", "bfloat16":
				if !bytes.Equal(got, want) {
					t.Errorf("%x, not %x", got, want)
				}
				return
			}
			most, sum := 0, 0
			for i := range got {
				d := int(got[i]) - int(want[i])
				most, sum = max(most, d, -d), sum+max(d, -d)
			}
			off, all = off+sum, all+len(got)
			if mean := float64(sum) / float64(len(got)); most > 1 || mean > 0.2 {
				t.Errorf("differs by up to %d, %.3f in the mean", most, mean)
			}
		})
	}
	mean := float64(off) / float64(all)
	t.Logf("%s: %d of %d values apart, mean difference %.4f", kernel.Target(), off, all, mean)
	if mean > 0.05 {
		t.Errorf("mean difference %.4f", mean)
	}
}

func compareFloats(t *testing.T, want, got []byte) {
	t.Helper()
	for i := 0; i < len(got); i += 4 {
		w := math.Float32frombits(binary.LittleEndian.Uint32(want[i:]))
		g := math.Float32frombits(binary.LittleEndian.Uint32(got[i:]))
		if math.Abs(float64(w)-float64(g)) > 1e-6 {
			t.Fatalf("value %d is %v, torchvision's is %v", i/4, g, w)
		}
	}
}
