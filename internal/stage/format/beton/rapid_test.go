package beton_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/beton"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// file is what a simple writer of such files needs to know; it was written from the
// layout in the package's comment and shares no code with the reader.
type file struct {
	kinds   []byte     // type of each field
	samples [][][]byte // the stored bytes of every field of every sample
	order   []int      // in which samples find their places
}

const smallPage = 4096

// widths of a row's parts: numbers and places at multiples of 8, structs anywhere.
func (f *file) layout() (at []int, length int) {
	most := 1
	for _, k := range f.kinds {
		n, align := 8, 8
		switch k {
		case 2:
			n, align = 13, 1
		case 3, 5:
			n, align = 16, 1
		}
		for length%align != 0 {
			length++
		}
		at = append(at, length)
		length += n
		most = max(most, align)
	}
	for length%most != 0 {
		length++
	}
	return at, length
}

func (f *file) bytes() []byte {
	at, length := f.layout()
	out := binary.LittleEndian.AppendUint16(nil, 2)
	out = binary.LittleEndian.AppendUint16(out, uint16(len(f.kinds)))
	out = binary.LittleEndian.AppendUint32(out, smallPage)
	out = binary.LittleEndian.AppendUint64(out, uint64(len(f.samples)))
	out = binary.LittleEndian.AppendUint64(out, 0)
	for i, k := range f.kinds {
		desc := make([]byte, 1+16+1024)
		desc[0] = k
		copy(desc[1:], fmt.Sprintf("f%d", i))
		if k == 4 { // three 16-bit numbers
			desc[17] = 3
			text := `[["", "<i2"]]`
			desc[17+256] = byte(len(text))
			copy(desc[17+264:], text)
		}
		out = append(out, desc...)
	}
	rows := len(out)
	out = append(out, make([]byte, length*len(f.samples))...)
	for len(out)%smallPage != 0 {
		out = append(out, 0)
	}
	var table []byte
	for _, id := range f.order {
		total := 0
		for i, v := range f.samples[id] {
			if k := f.kinds[i]; k > 1 {
				total += len(v)
			}
		}
		if len(out)%smallPage+total > smallPage { // a sample is stored in one page
			out = append(out, make([]byte, smallPage-len(out)%smallPage)...)
		}
		for i, v := range f.samples[id] {
			row := out[rows+id*length+at[i]:]
			place := uint64(len(out))
			switch f.kinds[i] {
			case 0, 1:
				copy(row, v)
				continue
			case 2:
				row[0], row[1], row[3] = 1, byte(len(v)/3), 1
				binary.LittleEndian.PutUint64(row[5:], place)
			case 3, 5:
				binary.LittleEndian.PutUint64(row, place)
				binary.LittleEndian.PutUint64(row[8:], uint64(len(v)))
			case 4:
				binary.LittleEndian.PutUint64(row, place)
			}
			out = append(out, v...)
			table = binary.LittleEndian.AppendUint64(table, uint64(id))
			table = binary.LittleEndian.AppendUint64(table, place)
			table = binary.LittleEndian.AppendUint64(table, uint64(len(v)))
		}
	}
	for len(out)%smallPage != 0 {
		out = append(out, 0)
	}
	binary.LittleEndian.PutUint64(out[16:], uint64(len(out)))
	return append(out, table...)
}

// small is a file for seeds.
func small(n int) *file {
	f := &file{kinds: []byte{2, 1, 3, 5, 4, 0}[:3+n]}
	for id := range 3 {
		all := [][]byte{bytes.Repeat([]byte{byte(id)}, 3*(id+1)), make([]byte, 8), []byte("bytes"), []byte("{}\x00"), []byte("abcdef"), make([]byte, 8)}
		f.samples, f.order = append(f.samples, all[:3+n]), append(f.order, id)
	}
	return f
}

// pagesOf is how many samples in a row begin in one page, by their extents.
func pagesOf(d *beton.Dataset) (sizes []int64) {
	var last int64
	for id := range d.Index().Len() {
		page := last
		if e := d.Extents(id, nil, nil); len(e) > 0 {
			page = e[0].Off / smallPage
		}
		if sizes == nil || page != last {
			sizes = append(sizes, 0)
		}
		sizes[len(sizes)-1]++
		last = page
	}
	return sizes
}

func TestWrittenIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &file{kinds: rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 2, 3, 4, 5}), 1, 7).Draw(t, "kinds")}
		n := rapid.IntRange(1, 20).Draw(t, "samples")
		for id := range n {
			var values [][]byte
			for _, k := range f.kinds {
				var v []byte
				switch k {
				case 0, 1:
					v = rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "number")
				case 2:
					v = make([]byte, 3*rapid.IntRange(1, 100).Draw(t, "width"))
				case 3:
					v = rapid.SliceOfN(rapid.Byte(), 0, 400).Draw(t, "bytes")
				case 4:
					v = rapid.SliceOfN(rapid.Byte(), 6, 6).Draw(t, "array")
				case 5:
					v = append([]byte(rapid.StringN(0, 40, -1).Draw(t, "text")), 0)
				}
				values = append(values, v)
			}
			f.samples, f.order = append(f.samples, values), append(f.order, id)
		}
		f.order = rapid.Permutation(f.order).Draw(t, "order")
		src := stagetest.Bytes(f.bytes())
		d, err := beton.Open(ctx, src, path, beton.Options{Store: &index.Store{}, Pictures: true})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		want := pagesOf(d)
		if slices.Max(f.kinds) < 2 { // all is numbers
			want = nil
		}
		if got := d.Runs(); !slices.Equal(got, want) {
			t.Fatalf("pages of %v samples, want %v", got, want)
		}
		var s format.Sample
		for id := range n {
			if err := stagetest.Read(d, src, int64(id), nil, &s); err != nil {
				t.Fatal(err)
			}
			for i, want := range f.samples[id] {
				switch f.kinds[i] {
				case 2:
					want = append(fmt.Appendf(nil, "P6\n%d 1\n255\n", len(want)/3), want...)
				case 5:
					want = want[:len(want)-1]
				}
				if !bytes.Equal(s.Fields[i].Data, want) || d.Size(int64(id), s.Fields[i].Name) != int64(len(want)) {
					t.Fatalf("sample %d, field %d: %q, want %q", id, i, s.Fields[i].Data, want)
				}
			}
		}
	})
}
