//go:build cgo

package kernel

import (
	"bytes"
	"testing"
)

// Both builds of the decoder make the twin's pixels, and of harmed streams an error or as
// many of them.
func TestVP8EqualsTwin(t *testing.T) {
	for name, stream := range webpStreams(t) {
		i, err := WebPHeader(stream)
		if err != nil || i.Lossless {
			continue
		}
		want := make([]byte, i.W*i.H*3)
		if err := webpTwin(want, stream, i); err != nil {
			t.Fatalf("%s: twin: %v", name, err)
		}
		for level := range lossyLevel() + 1 {
			got := bytes.Repeat([]byte{0xEE}, i.W*i.H*3+64)
			dst := got[: i.W*i.H*3 : i.W*i.H*3]
			if err := lossyAt(dst, stream, i, level); err != nil || !bytes.Equal(dst, want) || got[len(dst)] != 0xEE {
				t.Errorf("%s: level %d: other pixels, %v", name, level, err)
			}
			for cut := range min(len(stream)-4, 400) {
				err := lossyAt(dst, stream[:cut], i, level)
				if err == nil {
					t.Fatalf("%s: level %d: %d of %d bytes give a picture", name, level, cut, len(stream))
				}
				wantBad(t, name, err)
			}
			bad := bytes.Clone(stream)
			for at := range bad {
				bad[at] ^= 0xff
				if err := lossyAt(dst, bad, i, level); err != nil {
					wantBad(t, name, err)
				}
				bad[at] ^= 0xff
			}
		}
	}
}
