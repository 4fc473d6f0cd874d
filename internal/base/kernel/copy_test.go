package kernel

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// Every length and alignment: the bytes asked for, and none beside them.
func TestCopyOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(4000, 9000)).Draw(t, "n")
		from, to := rapid.IntRange(0, 70).Draw(t, "from"), rapid.IntRange(0, 70).Draw(t, "to")
		src := make([]byte, from+n+70)
		for i := range src {
			src[i] = byte(i*7 + i>>8)
		}
		dst := bytes.Repeat([]byte{0xEE}, to+n+70)
		CopyOut(dst[to:to+n], src[from:from+n])
		if !bytes.Equal(dst[to:to+n], src[from:from+n]) {
			t.Fatal("the bytes differ")
		}
		for i, b := range dst {
			if (i < to || i >= to+n) && b != 0xEE {
				t.Fatalf("byte %d beside the copy was written", i-to)
			}
		}
	})
}
