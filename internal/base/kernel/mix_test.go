package kernel

import (
	"bytes"
	"errors"
	"fmt"
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

// put writes number i of a type.
func put(data []byte, i int, of Float, x float64) {
	switch of {
	case Float32:
		numbers[float32](data)[i] = float32(x)
	case Float64:
		numbers[float64](data)[i] = x
	default:
		numbers[uint16](data)[i] = of.Bits(float32(x))
	}
}

// mixedNaive is before*(1-lambda) + own*lambda, each result rounded.
func mixedNaive(own, before []byte, of Float, lambda float64) {
	k, r := float32(lambda), float32(1-lambda)
	for i := range len(own) / of.Size() {
		switch of {
		case Float32:
			a, b := numbers[float32](own), numbers[float32](before)
			a[i] = float32(b[i]*r) + float32(a[i]*k)
		case Float64:
			a, b := numbers[float64](own), numbers[float64](before)
			a[i] = float64(b[i]*(1-lambda)) + float64(a[i]*lambda)
		default:
			a, b := numbers[uint16](own), numbers[uint16](before)
			x, y := of.Of(of.Bits(of.Of(b[i])*r)), of.Of(of.Bits(of.Of(a[i])*k))
			a[i] = of.Bits(x + y)
		}
	}
}

// The C code of every level and its twin give what rolling and blending gives, to the bit, in
// all rows that are listed and in no other byte.
func TestMixUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of := rapid.SampledFrom([]Float{Float32, Float64, Float16, BFloat16}).Draw(t, "of")
		many := rapid.SampledFrom([]int{0, 1, 3, 17, 2047, 2048, 2049, 5000}).Draw(t, "numbers")
		n := rapid.IntRange(0, 5).Draw(t, "rows")
		lambda := rapid.Float64Range(0, 1).Draw(t, "lambda")
		most := rapid.SampledFrom([]float64{300, 1, 70_000, 1e-5, 1e38}).Draw(t, "most") // of float16: infinite, below its normal numbers
		rows, size := listed(t, n), many*of.Size()
		words := make([]float64, n*many+3)
		data := bytesOf(words)[:n*size+of.Size()]
		for i := range n*many + 1 {
			put(data, i, of, math.Sin(float64(i)*1.7)*most)
		}
		want := slices.Clone(data)
		mixNaive(want, size, rows, func(own, before []byte) { mixedNaive(own, before, of, lambda) })
		for level := -1; level <= mixLevel(""); level++ {
			got := bytesOf(slices.Clone(words))[:len(data)]
			if len(rows) > 0 && size > 0 {
				mixUpAt(got, size, of, rows, lambda, level)
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("level %d: %d rows (%v) of %d numbers of type %d differ", level, n, rows, many, of)
			}
		}
		if err := MixUp(data, size, of, rows, lambda); err != nil || !bytes.Equal(data, want) {
			t.Fatalf("%v, or other numbers", err)
		}
	})
}

// Every number of 16 bits is mixed as its value, which is a number of the type, too.
func TestMixUpOfEveryHalf(t *testing.T) {
	for _, of := range []Float{Float16, BFloat16} {
		all := make([]float64, 1<<15)
		words := numbers[uint16](bytesOf(all))
		for i := range 1 << 16 {
			words[i], words[1<<16+i] = uint16(i), uint16(i*0x9E37)
		}
		for _, lambda := range []float64{0, 0.3, 1e-6, 0.9999} {
			want := slices.Clone(bytesOf(all))
			mixNaive(want, 1<<17, []int32{0, 1}, func(own, before []byte) { mixedNaive(own, before, of, lambda) })
			for level := -1; level <= mixLevel(""); level++ {
				got := bytesOf(slices.Clone(all))
				mixUpAt(got, 1<<17, of, []int32{0, 1}, lambda, level)
				for i, bits := range numbers[uint16](got) {
					right := numbers[uint16](want)[i]
					if a, b := of.Of(bits), of.Of(right); bits != right && (a == a || b == b) { // NaN has many
						t.Fatalf("level %d, lambda %v: number %d of type %d is %v, not %v", level, lambda, i, of, a, b)
					}
				}
			}
		}
	}
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
		MixUp(data, 17, Float16, nil, 0.5),
		MixUp(data, 18, Float32, nil, 0.5),
		MixUp(data, 16, Float32, []int32{8}, 0.5),
		MixUp(data, 16, Float32, []int32{-1}, 0.5),
		MixUp(data, 16, Float32, []int32{math.MaxInt32}, 0.5),
		MixUp(data, -16, Float32, []int32{0}, 0.5),
		MixUp(data[1:], 16, Float32, []int32{0}, 0.5),
		MixUp(data[1:], 16, BFloat16, []int32{0}, 0.5),
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
		_ = MixUp(data, 64, Float32, rows, 0.3)
		_ = MixUp(data, 64, Float16, rows, 0.3)
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
	for _, of := range []Float{Float32, Float16, BFloat16} {
		for level := -1; level <= mixLevel(""); level++ {
			b.Run(fmt.Sprintf("%d bytes/%d/level %d", of.Size(), of, level), func(b *testing.B) {
				b.SetBytes(n * 3 * 224 * 224 * int64(of.Size()))
				for b.Loop() {
					mixUpAt(data, 3*224*224*of.Size(), of, rows, 0.3, level)
				}
			})
		}
	}
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
