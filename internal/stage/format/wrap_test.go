package format_test

import (
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
)

func TestWrapped(t *testing.T) {
	if got := string(format.PNM(2, 1, 3, []byte("abcdef"))); got != "P6\n2 1\n255\nabcdef" {
		t.Errorf("%q", got)
	}
	if got := string(format.PNM(3, 1, 1, []byte("abc"))); got != "P5\n3 1\n255\nabc" {
		t.Errorf("%q", got)
	}
	for _, c := range []struct {
		dtype mem.DType
		shape []int
		want  string
	}{
		{mem.Int16, []int{2, 3}, "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }"},
		{mem.Uint8, []int{5}, "{'descr': '|u1', 'fortran_order': False, 'shape': (5,), }"},
		{mem.Float64, nil, "{'descr': '<f8', 'fortran_order': False, 'shape': (), }"},
		{mem.Bool, []int{1, 1 << 40, 1, 1, 1, 1, 1, 1, 1, 1}, "{'descr': '|b1', 'fortran_order': False, 'shape': (1, 1099511627776, 1, 1, 1, 1, 1, 1, 1, 1), }"},
	} {
		got := string(format.NPY(c.dtype, c.shape, []byte("data")))
		head := strings.TrimSuffix(got, "data")
		room := int(head[8]) | int(head[9])<<8
		if len(head)%64 != 0 || room != len(head)-10 || head[:8] != "\x93NUMPY\x01\x00" || strings.TrimRight(head[10:], " \n") != c.want || head[len(head)-1] != '\n' {
			t.Errorf("%q, want %q", head, c.want)
		}
	}
}
