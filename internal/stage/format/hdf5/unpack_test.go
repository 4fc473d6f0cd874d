package hdf5

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/stage/format/hdf5/tree"
)

// packLZF is LZF by its description, with literals and matches drawn.
func packLZF(t *rapid.T, data []byte) (out []byte) {
	for at := 0; at < len(data); {
		best, dist := 0, 0
		for d := 1; d <= min(at, 1<<13); d++ {
			n := 0
			for n < 264 && at+n < len(data) && data[at+n] == data[at+n-d] {
				n++
			}
			if n > best {
				best, dist = n, d
			}
		}
		if best >= 3 && rapid.IntRange(0, 3).Draw(t, "match") > 0 {
			n := rapid.IntRange(3, best).Draw(t, "length")
			if n-2 < 7 {
				out = append(out, byte((n-2)<<5|(dist-1)>>8))
			} else {
				out = append(out, byte(7<<5|(dist-1)>>8), byte(n-9))
			}
			out = append(out, byte(dist-1))
			at += n
			continue
		}
		n := min(rapid.IntRange(1, 32).Draw(t, "literals"), len(data)-at)
		out = append(append(out, byte(n-1)), data[at:at+n]...)
		at += n
	}
	return out
}

// shuffled is shuffle by its definition: byte j of element i goes to j*n+i.
func shuffled(data []byte, size int) []byte {
	out := bytes.Clone(data)
	n := len(data) / size
	for i := range n {
		for j := range size {
			out[j*n+i] = data[i*size+j]
		}
	}
	return out
}

// summed appends the sum by its definition: ones' complement sums of 16 bits.
func summed(data []byte) []byte {
	fold := func(v uint64) uint64 {
		for v > 0xFFFF {
			v = v&0xFFFF + v>>16
		}
		return v
	}
	var a, b uint64
	for i := 0; i < len(data); i += 2 {
		w := uint64(data[i]) << 8
		if i+1 < len(data) {
			w |= uint64(data[i+1])
		}
		a = fold(a + w)
		b = fold(b + a)
	}
	return binary.LittleEndian.AppendUint32(bytes.Clone(data), uint32(b<<16|a))
}

// Any filters in any order, any of them left out, are undone.
func TestUnpack(t *testing.T) {
	var u unpacker
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 0, 0, 1, 2, 255}), 1, 900).Draw(t, "data")
		var filters []tree.Filter
		var mask int32
		stored := data
		compressed := false
		for i := range rapid.IntRange(0, 4).Draw(t, "filters") {
			f := tree.Filter{ID: rapid.SampledFrom([]int{tree.Shuffle, tree.Fletcher, tree.Deflate, tree.LZF}).Draw(t, "filter")}
			isLong := f.ID == tree.Deflate || f.ID == tree.LZF
			if compressed && isLong {
				continue
			}
			if f.ID == tree.Shuffle {
				f.Values = []uint32{uint32(rapid.IntRange(1, 9).Draw(t, "size"))}
			}
			filters = append(filters, f)
			if rapid.IntRange(0, 3).Draw(t, "left out") == 0 {
				mask |= 1 << (len(filters) - 1)
				continue
			}
			compressed = compressed || isLong
			switch f.ID {
			case tree.Shuffle:
				stored = shuffled(stored, int(f.Values[0]))
			case tree.Fletcher:
				stored = summed(stored)
			case tree.Deflate:
				var b bytes.Buffer
				w := zlib.NewWriter(&b)
				_, _ = w.Write(stored)
				_ = w.Close()
				stored = b.Bytes()
			case tree.LZF:
				stored = packLZF(t, stored)
			}
			_ = i
		}
		before := bytes.Clone(stored)
		got, err := u.unpack(filters, mask, stored, int64(len(data)))
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%v: %x (%v), want %x", filters, got, err, data)
		}
		if !bytes.Equal(before, stored) || len(got) > 0 && &got[0] == &stored[0] {
			t.Fatal("what was read was written to, or is given out")
		}
		l := layout{Chunk: []int64{int64(len(data))}, Elem: 1, Filters: filters}
		if err := l.fits(int64(len(stored)), mask); err != nil {
			t.Fatalf("%v: %d bytes of %d: %v", filters, len(stored), len(data), err)
		}
	})
}

// Chunks that cannot be what they claim are found before a byte is read.
func TestFits(t *testing.T) {
	gzip, lzf := []tree.Filter{{ID: tree.Deflate}}, []tree.Filter{{ID: tree.Shuffle, Values: []uint32{4}}, {ID: tree.LZF}}
	for _, c := range []struct {
		filters []tree.Filter
		mask    int32
		size    int64
		fits    bool
	}{
		{gzip, 0, 1 << 10, true},
		{gzip, 0, 900, false}, // of 1 MiB: zlib makes it no smaller than 1,029 bytes
		{gzip, 1, 1 << 10, false},
		{gzip, 1, 1 << 20, true},
		{lzf, 0, 1 << 10, false},
		{lzf, 0, 12_000, true},
		{lzf, 2, 12_000, false},
		{nil, 0, 1 << 20, true},
		{nil, 0, 1<<20 - 1, false},
		{[]tree.Filter{{ID: tree.Fletcher}}, 0, 1<<20 + 4, true},
		{[]tree.Filter{{ID: tree.Fletcher}}, 0, 1 << 20, false},
	} {
		l := layout{Chunk: []int64{1 << 10, 1 << 8}, Elem: 4, Filters: c.filters}
		if err := l.fits(c.size, c.mask); (err == nil) != c.fits {
			t.Errorf("%v, mask %b, %d bytes: %v", c.filters, c.mask, c.size, err)
		}
	}
}

// FuzzUnpack holds that no stored bytes, filters or mask make more than a chunk,
// or anything but an error.
func FuzzUnpack(f *testing.F) {
	f.Add([]byte("\x00a\x20\x00"), uint8(0x40), uint8(0), uint16(4))
	f.Add(summed([]byte("hello")), uint8(0x20), uint8(0), uint16(5))
	f.Add([]byte{0x78, 0x9c, 0x4b, 0x4c, 0x4a, 0x06, 0x00, 0x02, 0x4d, 0x01, 0x27}, uint8(0x12), uint8(1), uint16(3))
	ids := []int{tree.Shuffle, tree.Deflate, tree.Fletcher, tree.LZF}
	var u unpacker
	f.Fuzz(func(t *testing.T, raw []byte, kinds, mask uint8, n uint16) {
		filters := []tree.Filter{{ID: ids[kinds&3]}, {ID: ids[kinds>>2&3]}, {ID: ids[kinds>>4&3]}}
		for i := range filters {
			filters[i].Values = []uint32{uint32(kinds>>6) + 1}
		}
		if sizes := sized(filters, int32(mask), int64(n)); ambiguous(filters, int32(mask), sizes) {
			return
		}
		before := bytes.Clone(raw)
		out, err := u.unpack(filters, int32(mask), raw, int64(n))
		if err == nil && len(out) != int(n) || !bytes.Equal(before, raw) {
			t.Fatalf("%d bytes and not %d, or what was read was written to", len(out), n)
		}
	})
}
