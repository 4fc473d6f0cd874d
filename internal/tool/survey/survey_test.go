package survey

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/spec"
)

// Whatever the order and however it is dealt out to goroutines, a sum is the one of
// rational numbers.
func TestSumIsExact(t *testing.T) {
	finite := rapid.Float64().Filter(func(x float64) bool { return !math.IsInf(x, 0) && !math.IsNaN(x) })
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(finite, 0, 50).Draw(t, "numbers")
		parts := make([]sum, rapid.IntRange(1, 4).Draw(t, "parts"))
		want := new(big.Rat)
		for _, x := range all {
			parts[rapid.IntRange(0, len(parts)-1).Draw(t, "part")].add(x)
			want.Add(want, new(big.Rat).SetFloat64(x))
			if rapid.Bool().Draw(t, "carry") {
				parts[0].carry()
			}
		}
		for i := range parts[1:] {
			parts[0].merge(&parts[i+1])
		}
		if got, _ := parts[0].value().Rat(nil); got.Cmp(want) != 0 {
			t.Fatalf("%v: %v, not %v", all, got, want)
		}
		if parts[0].count != int64(len(all)) {
			t.Fatalf("%d numbers, not %d", parts[0].count, len(all))
		}
	})
}

func TestMeanStd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.SliceOfN(rapid.Float32Range(-1e3, 1e3), 1, 40).Draw(t, "numbers")
		var s, q sum
		var mean, square float64
		for _, x := range v {
			s.add(float64(x))
			q.add(float64(x) * float64(x))
			mean += float64(x) / float64(len(v))
		}
		for _, x := range v {
			square += (float64(x) - mean) * (float64(x) - mean) / float64(len(v))
		}
		gotMean, gotStd := meanStd(s.value(), q.value(), int64(len(v)), 1)
		if math.Abs(gotMean-mean) > 1e-9 || math.Abs(gotStd-math.Sqrt(square)) > 1e-6 {
			t.Fatalf("%v %v, not %v %v", gotMean, gotStd, mean, math.Sqrt(square))
		}
	})
}

func TestHalf(t *testing.T) {
	for bits, want := range map[uint16]float64{
		0: 0, 1: math.Ldexp(1, -24), 0x3c00: 1, 0xc000: -2, 0x7bff: 65504, 0x7c00: math.Inf(1), 0xfc00: math.Inf(-1), 0x3555: 0.333251953125,
	} {
		if got := at(binary.LittleEndian.AppendUint16(nil, bits), 0, mem.Float16); got != want {
			t.Errorf("%#x: %v, not %v", bits, got, want)
		}
	}
}

// photos writes n pictures of noise in two classes, and returns their folder.
func photos(t *testing.T, n int) string {
	root := t.TempDir()
	for i := range n {
		m := image.NewRGBA(image.Rect(0, 0, 5+i%7, 4+i%3))
		for p := range m.Pix {
			m.Pix[p] = uint8(p*p*(i+3) + i)
		}
		for p := range m.Rect.Dx() * m.Rect.Dy() {
			m.Pix[4*p+3] = 255
		}
		m.Set(0, 0, color.RGBA{255, 0, 128, 255})
		path := filepath.Join(root, []string{"cat", "dog", "dog"}[i%3], fmt.Sprintf("%04d.png", i))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		f, err := os.Create(path)
		if err == nil {
			err = png.Encode(f, m)
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	return root
}

func surveyed(t *testing.T, root string) *Report {
	r, err := Run(t.Context(), Config{Dataset: spec.Dataset{Path: spec.Paths{root}}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestLanesDoNotMatter(t *testing.T) {
	root := photos(t, 60)
	want := surveyed(t, root)
	for _, n := range []int{1, 3, 8} {
		before := runtime.GOMAXPROCS(n)
		got := surveyed(t, root)
		runtime.GOMAXPROCS(before)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

const text = `DIR: folder, 60 samples

image: image in 60 samples
                   min      median         p99         max        mean
  width              5           8          11          11           8
  height             4           5           6           6           5
  stored         150 B       244 B       343 B       343 B       240 B
  mean MEAN

label: number in 60 samples

  Normalize(mean=[MEAN])

2 classes, of 20 to 40 samples
  cat                             20  weight 1.5000
  dog                             40  weight 0.7500
`

// The report as a person reads it. Its figures are held to NumPy in the tests of
// the Python package; PNG sizes depend on the compressor, and are not looked at.
func TestText(t *testing.T) {
	root := photos(t, 60)
	var b strings.Builder
	if err := surveyed(t, root).WriteText(&b); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.SplitSeq(strings.ReplaceAll(b.String(), root, "DIR"), "\n") {
		switch {
		case strings.HasPrefix(line, "  stored"):
			line = "  stored         150 B       244 B       343 B       343 B       240 B"
		case strings.HasPrefix(line, "  mean"):
			if !strings.HasSuffix(line, "values, divided by 255") {
				t.Error(line)
			}
			line = "  mean MEAN"
		case strings.HasPrefix(line, "  Normalize"):
			line = "  Normalize(mean=[MEAN])"
		}
		got = append(got, line)
	}
	if diff := cmp.Diff(strings.Split(text, "\n"), got); diff != "" {
		t.Error(diff)
	}
}

func TestDamageCountsNowhere(t *testing.T) {
	root := photos(t, 30)
	bad := filepath.Join(root, "cat", "0003.png")
	sound := surveyed(t, root)
	b, err := os.ReadFile(bad)
	if err == nil {
		err = os.WriteFile(bad, b[:len(b)/2], 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := surveyed(t, root)
	if r.Damaged != 1 || errs.CodeOf(r.Err()) != errs.Damaged || sound.Err() != nil {
		t.Errorf("%d damaged: %v", r.Damaged, r.Err())
	}
	if gone := sound.Fields[0].Channels.Values - r.Fields[0].Channels.Values; gone != 8*4 {
		t.Errorf("%d pixels are missing", gone)
	}
}

func TestStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Run(ctx, Config{Dataset: spec.Dataset{Path: spec.Paths{photos(t, 60)}}, Progress: func(done, _ int64) {
		if done > 3 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
