package transform

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
)

// counted is a way of storing arrays for tests: "<" or ">", their length, int16s.
func counted() Described {
	return Described{
		Name: "counted",
		Read: func(b []byte) (Header, error) {
			if len(b) < 2 || b[0] != '<' && b[0] != '>' {
				return Header{}, errs.New(errs.Damaged, "it is not counted")
			}
			return Header{DType: mem.Int16, Swapped: b[0] == '>', Shape: []int64{int64(b[1])}, Off: 2, Bytes: 2 * int64(b[1])}, nil
		},
		Swap: func(dst, src []byte, size int) {
			for i := 0; i < len(src); i += size {
				binary.LittleEndian.PutUint16(dst[i:], binary.BigEndian.Uint16(src[i:]))
			}
		},
	}
}

func countedField(t *testing.T, ragged bool, first ...string) (*Program, error) {
	t.Helper()
	return CompileField(Want{Decode: "counted", DType: "int32", Ragged: ragged}, Stored{
		Described: map[string]Described{"counted": counted()},
		First: func(like func([]byte) error) (err error) {
			for _, value := range first {
				if err = like([]byte(value)); err == nil {
					return nil
				}
			}
			return err
		},
	})
}

// TestValuesThatSayWhatTheyHold: the first that can be read says what all are, in any
// order of bytes; others are refused, or, where lengths may differ, taken.
func TestValuesThatSayWhatTheyHold(t *testing.T) {
	l := NewLane()
	defer l.Close()
	read := func(p *Program, value string) ([]int32, error) {
		shape, err := p.Begin(l, []byte(value), 1)
		if err != nil {
			return nil, err
		}
		dst := make([]byte, 4*shape.Elems())
		parts := slices.Clone(dst)
		for i := range shape.Elems() {
			if err := p.Part(l, parts[4*i:4*i+4], i, i+1); err != nil {
				return nil, err
			}
		}
		err = p.Finish(l, dst)
		if !slices.Equal(dst, parts) {
			t.Errorf("%q: its parts are not the whole", value)
		}
		out := make([]int32, shape.Elems())
		for i := range out {
			out[i] = int32(binary.LittleEndian.Uint32(dst[4*i:]))
		}
		return out, err
	}
	fixed, err := countedField(t, false, "damaged", "<\x02\x01\x00\x02\x00")
	if err != nil {
		t.Fatal(err)
	}
	if shape, ok := fixed.Shape(); !ok || !slices.Equal(shape, mem.Shape{2}) || fixed.DType() != mem.Int32 || fixed.Kind() != "array" {
		t.Errorf("%v %v %v %s", shape, ok, fixed.DType(), fixed.Kind())
	}
	ragged, err := countedField(t, true, "<\x02\x01\x00\x02\x00")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		p      *Program
		value  string
		want   []int32
		refuse string
	}{
		{fixed, "<\x02\x05\x00\x06\x00", []int32{5, 6}, ""},
		{fixed, ">\x02\x00\x05\xff\xff", []int32{5, -1}, ""},
		{fixed, "<\x03\x05\x00\x06\x00\x07\x00", nil, "int16 of shape [3], but that of the first sample is int16 of shape [2]"},
		{fixed, "<\x02\x05\x00", nil, "cannot read the array"},
		{fixed, "", nil, "not counted"},
		{ragged, "<\x03\x05\x00\x06\x00\x07\x00", []int32{5, 6, 7}, ""},
		{ragged, ">\x01\x00\x05", []int32{5}, ""},
		{ragged, "<\x00", []int32{}, ""},
		{ragged, "<\x03\x05\x00", nil, "cannot read the counted array"},
	} {
		got, err := read(c.p, c.value)
		if c.refuse != "" {
			if err == nil || !strings.Contains(err.Error(), c.refuse) || errs.CodeOf(err) != errs.Damaged {
				t.Errorf("%q: %v, %v", c.value, got, err)
			}
			continue
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%q: %v, not %v: %v", c.value, got, c.want, err)
		}
	}
	if _, err := countedField(t, false, "damaged"); err == nil || errors.Unwrap(err) != nil && errs.CodeOf(err) != errs.Damaged {
		t.Errorf("no value can be read: %v", err)
	}
}
