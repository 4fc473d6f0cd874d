package kernel

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

// mixNaive is MixUp and CutMix as torchvision has them: the batch rolled by one.
func mixNaive(data []byte, size int, rows []int32, mixed func(own, before []byte)) {
	was := slices.Clone(data)
	for i, r := range rows {
		before := int(rows[(i+len(rows)-1)%len(rows)])
		mixed(data[int(r)*size:(int(r)+1)*size], was[before*size:(before+1)*size])
	}
}

func listed(t *rapid.T, n int) []int32 {
	var rows []int32
	for i := range n {
		if rapid.Bool().Draw(t, "listed") {
			rows = append(rows, int32(i))
		}
	}
	return rows
}

// The C code and its twin give what rolling and blending gives, to the bit, in all rows
// that are listed and in no other byte.
func TestMixUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.SampledFrom([]int{4, 8}).Draw(t, "bytes")
		numbers := rapid.SampledFrom([]int{0, 1, 3, 17, 2047, 2048, 2049, 5000}).Draw(t, "numbers")
		n := rapid.IntRange(0, 5).Draw(t, "rows")
		lambda := rapid.Float64Range(0, 1).Draw(t, "lambda")
		rows, size := listed(t, n), numbers*width
		words := make([]float64, n*numbers+3)
		data := bytesOf(words)[:n*size+width]
		for i := range n*numbers + 1 {
			x := math.Sin(float64(i)*1.7) * 300
			if width == 4 {
				floats[float32](data)[i] = float32(x)
			} else {
				words[i] = x
			}
		}
		want, twin := slices.Clone(data), bytesOf(slices.Clone(words))[:len(data)]
		mixNaive(want, size, rows, func(own, before []byte) {
			if width == 8 {
				a, b := floats[float64](own), floats[float64](before)
				for i := range a {
					a[i] = float64(b[i]*(1-lambda)) + float64(a[i]*lambda)
				}
				return
			}
			a, b := floats[float32](own), floats[float32](before)
			for i := range a {
				a[i] = float32(b[i]*float32(1-lambda)) + float32(a[i]*float32(lambda))
			}
		})
		if err := MixUp(data, size, width, rows, lambda); err != nil {
			t.Fatal(err)
		}
		if len(rows) > 0 && size > 0 {
			mixUpGo(twin, size, width, rows, lambda, 1-lambda)
		}
		if !bytes.Equal(data, want) || !bytes.Equal(twin, want) {
			t.Fatalf("%d rows (%v) of %d numbers of %d bytes differ", n, rows, numbers, width)
		}
	})
}

func TestCutMix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Planes{
			rapid.IntRange(1, 3).Draw(t, "planes"), rapid.IntRange(1, 9).Draw(t, "height"),
			rapid.IntRange(1, 9).Draw(t, "width"), rapid.SampledFrom([]int{1, 3, 4, 12}).Draw(t, "bytes"),
		}
		size := p.Planes * p.Height * p.Width * p.Bytes
		n := rapid.IntRange(0, 5).Draw(t, "rows")
		rows := listed(t, n)
		x1, y1 := rapid.IntRange(0, p.Width).Draw(t, "x1"), rapid.IntRange(0, p.Height).Draw(t, "y1")
		x2, y2 := rapid.IntRange(x1, p.Width).Draw(t, "x2"), rapid.IntRange(y1, p.Height).Draw(t, "y2")
		data := rapid.SliceOfN(rapid.Byte(), n*size+1, n*size+1).Draw(t, "data")
		want := slices.Clone(data)
		mixNaive(want, size, rows, func(own, before []byte) {
			for i := range own {
				x, y := i/p.Bytes%p.Width, i/p.Bytes/p.Width%p.Height
				if x >= x1 && x < x2 && y >= y1 && y < y2 {
					own[i] = before[i]
				}
			}
		})
		if _, err := CutMix(data, p, rows, x1, y1, x2, y2, nil); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(data, want) {
			t.Fatalf("%+v, rows %v of %d, [%d, %d) x [%d, %d):\n%v, not\n%v", p, rows, n, x1, x2, y1, y2, data, want)
		}
	})
}

func TestMixRefuses(t *testing.T) {
	var bad JobError
	data := bytesOf(make([]float64, 16))
	for _, err := range []error{
		MixUp(data, 16, 2, nil, 0.5),
		MixUp(data, 18, 4, nil, 0.5),
		MixUp(data, 16, 4, []int32{8}, 0.5),
		MixUp(data, 16, 4, []int32{-1}, 0.5),
		MixUp(data, 16, 4, []int32{math.MaxInt32}, 0.5),
		MixUp(data, -16, 4, []int32{0}, 0.5),
		MixUp(data[1:], 16, 4, []int32{0}, 0.5),
		second(CutMix(data, Planes{1, 4, 4, 1}, []int32{0, 8}, 0, 0, 1, 1, nil)),
		second(CutMix(data, Planes{1, 4, 4, 1}, []int32{0, math.MaxInt32}, 0, 0, 1, 1, nil)),
		second(CutMix(data, Planes{1, 4, 4, 1}, []int32{0, 1}, 0, 0, 5, 1, nil)),
		second(CutMix(data, Planes{1, 4, 4, 1}, []int32{0, 1}, -1, 0, 5, 1, nil)),
		second(CutMix(data, Planes{1, 4, 4, 0}, []int32{0, 1}, 0, 0, 1, 1, nil)),
		second(CutMix(data, Planes{1 << 20, 1 << 20, 4, 1}, []int32{0, 1}, 0, 0, 1, 1, nil)),
	} {
		if !errors.As(err, &bad) {
			t.Errorf("%v", err)
		}
	}
	rows, spare := []int32{0, 1}, make([]byte, 64)
	if n := testing.AllocsPerRun(10, func() {
		_ = MixUp(data, 64, 4, rows, 0.3)
		spare, _ = CutMix(data, Planes{4, 4, 4, 1}, rows, 0, 0, 4, 4, spare)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func second(_ []byte, err error) error { return err }

// A batch of 64 pictures of 224 x 224, in memory that no cache holds.
func BenchmarkMixUp(b *testing.B) {
	const n, size = 64, 3 * 224 * 224 * 4
	data := bytesOf(make([]float64, n*size/8))
	rows := make([]int32, n)
	for i := range rows {
		rows[i] = int32(i)
	}
	b.Run("C", func(b *testing.B) {
		b.SetBytes(n * size)
		for b.Loop() {
			_ = MixUp(data, size, 4, rows, 0.3)
		}
	})
	b.Run("Go", func(b *testing.B) {
		b.SetBytes(n * size)
		for b.Loop() {
			mixUpGo(data, size, 4, rows, 0.3, 0.7)
		}
	})
	b.Run("CutMix", func(b *testing.B) {
		var spare []byte
		b.SetBytes(n * size)
		for b.Loop() {
			spare, _ = CutMix(data, Planes{3, 224, 224, 4}, rows, 30, 30, 190, 190, spare)
		}
	})
}

func bytesOf(words []float64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 8*len(words))
}
