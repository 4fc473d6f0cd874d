package format_test

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/stage/format"
)

// Every number has its bytes reversed, in place and into another buffer; a remainder
// that is not a whole number is left alone.
func TestSwap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 17).Draw(t, "size")
		src := rapid.SliceOf(rapid.Byte()).Draw(t, "src")
		var want []byte
		for number := range slices.Chunk(src, size) {
			number = slices.Clone(number)
			if len(number) == size {
				slices.Reverse(number)
			}
			want = append(want, number...)
		}
		dst := slices.Clone(src)
		if format.Swap(dst, src, size); !bytes.Equal(dst, want) {
			t.Errorf("%d of %v: %v", size, src, dst)
		}
		if format.Swap(src, src, size); !bytes.Equal(src, want) {
			t.Errorf("%d in place: %v", size, src)
		}
	})
}
