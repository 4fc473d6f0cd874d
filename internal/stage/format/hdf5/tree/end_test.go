package tree_test

import (
	"bytes"
	"encoding/binary"
	"maps"
	"slices"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// A structure that does not begin with its signature is damage, with its place.
func TestWrongSignatures(t *testing.T) {
	data := fixture(t, "latest")
	for _, mark := range []string{"OHDR", "FAHD", "EAHD", "EAIB"} {
		at := stagetest.Marks(data, mark)[0]
		bad := slices.Clone(data)
		bad[at+1] = 'X'
		if e := errs.From(list(t, bad)); e == nil || e.Code != errs.Damaged || e.Where.Offset.Or(-1) != int64(at) {
			t.Errorf("%s at %d: %v", mark, at, e)
		}
	}
}

// A page of names may be the last thing in a file, and full.
func TestNamesAtTheEndOfTheFile(t *testing.T) {
	data := fixture(t, "types")
	_, have := items(t, data)
	le := binary.LittleEndian
	from := le.Uint64(data[80:])
	page := slices.Clone(data[from:][:24+16*int(le.Uint16(data[from+6:]))+8])
	to := uint64(len(data))
	// The superblock has the page and the heap of names, and so has the group's header.
	for _, at := range []int{80, 96 + bytes.Index(data[96:], data[80:96])} {
		le.PutUint64(data[at:], to)
	}
	copy(data[from:], "gone")
	data = append(data, page...)
	le.PutUint64(data[40:], uint64(len(data))) // where the file ends
	if _, moved := items(t, data); !slices.Equal(slices.Sorted(maps.Keys(moved)), slices.Sorted(maps.Keys(have))) {
		t.Errorf("%v\nand with the names at the end\n%v", slices.Sorted(maps.Keys(have)), slices.Sorted(maps.Keys(moved)))
	}
}
