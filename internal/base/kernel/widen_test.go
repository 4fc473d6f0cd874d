package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// Every kind, length and alignment, by the kernel and its twin, against Go's own
// conversions: what was asked for, and not a byte beside it.
func TestWiden(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := Int{Bytes: rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "from"), Signed: rapid.Bool().Draw(t, "signed")}
		to := rapid.SampledFrom([]int{2, 4, 8}).Filter(func(n int) bool { return n > from.Bytes }).Draw(t, "to")
		n := rapid.IntRange(0, 200).Draw(t, "n")
		in, out := rapid.IntRange(0, 9).Draw(t, "in"), rapid.IntRange(0, 9).Draw(t, "out")
		src := rapid.SliceOfN(rapid.Byte(), in+n*from.Bytes, in+n*from.Bytes).Draw(t, "src")
		want := bytes.Repeat([]byte{0xEE}, out+n*to+64)
		for i := range n {
			putInt(want[out+i*to:], takeInt(src[in+i*from.Bytes:], from), to)
		}
		dst := bytes.Repeat([]byte{0xEE}, len(want))
		if err := Widen(dst[out:out+n*to], src[in:], from, to); err != nil {
			t.Fatal(err)
		}
		twin := bytes.Repeat([]byte{0xEE}, len(want))
		widenGo(twin[out:out+n*to], src[in:], from, to)
		if !bytes.Equal(dst, want) || !bytes.Equal(twin, want) {
			t.Fatalf("%v to %d:\n%x, twin\n%x, not\n%x", from, to, dst, twin, want)
		}
	})
}

func takeInt(p []byte, k Int) uint64 {
	switch k {
	case Int{1, false}:
		return uint64(p[0])
	case Int{1, true}:
		return uint64(int8(p[0]))
	case Int{2, false}:
		return uint64(binary.LittleEndian.Uint16(p))
	case Int{2, true}:
		return uint64(int16(binary.LittleEndian.Uint16(p)))
	case Int{4, false}:
		return uint64(binary.LittleEndian.Uint32(p))
	}
	return uint64(int32(binary.LittleEndian.Uint32(p)))
}

func putInt(p []byte, v uint64, size int) {
	switch size {
	case 2:
		binary.LittleEndian.PutUint16(p, uint16(v))
	case 4:
		binary.LittleEndian.PutUint32(p, uint32(v))
	case 8:
		binary.LittleEndian.PutUint64(p, v)
	}
}

func TestWidenRefuses(t *testing.T) {
	for _, c := range []struct {
		dst, src int
		from     Int
		to       int
	}{
		{8, 8, Int{Bytes: 8}, 8},
		{8, 4, Int{Bytes: 4}, 4},
		{4, 8, Int{Bytes: 4}, 2},
		{0, 0, Int{}, 8},
		{0, 0, Int{Bytes: 3}, 8},
		{0, 0, Int{Bytes: -2}, 8},
		{16, 3, Int{Bytes: 2}, 8},
		{15, 4, Int{Bytes: 2}, 8},
		{17, 4, Int{Bytes: 2}, 8},
		{24, 4, Int{Bytes: 2}, 8},
		{0, 4, Int{Bytes: 2}, 16},
	} {
		var bad JobError
		if err := Widen(make([]byte, c.dst), make([]byte, c.src), c.from, c.to); !errors.As(err, &bad) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	dst, src := make([]byte, 8*2049), make([]byte, 2*2049)
	if n := testing.AllocsPerRun(10, func() { _ = Widen(dst, src, Int{Bytes: 2}, 8) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// One window of 2,049 tokens, uint16 to int64, into one of 64 places in turn.
func BenchmarkWiden(b *testing.B) {
	const n, places = 2049, 64
	dst, src := make([]byte, places*n*8), make([]byte, places*n*2)
	b.SetBytes(n * 8)
	for i := 0; b.Loop(); i++ {
		p := i % places
		if err := Widen(dst[p*n*8:(p+1)*n*8], src[p*n*2:(p+1)*n*2], Int{Bytes: 2}, 8); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mtokens/s")
}
