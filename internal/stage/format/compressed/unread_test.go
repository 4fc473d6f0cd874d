package compressed

import (
	"bytes"
	"compress/flate"
	"context"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// half is a source that fails from its second read on.
type half struct{ memory }

func (h half) ReadAt(ctx context.Context, obj source.Info, p []byte, off int64) error {
	if off >= readBytes {
		return errs.New(errs.Unreadable, "the disk is gone")
	}
	return h.memory.ReadAt(ctx, obj, p, off)
}

// A read that fails within a deflate block, its codes too, is an error of the source, and
// does not pass for damage.
func TestAReadThatFailsIsNotDamage(t *testing.T) {
	var block bytes.Buffer
	w := must[*flate.Writer](t)(flate.NewWriter(&block, 9))
	_, _ = w.Write(texts(20_000)["mixed"])
	_ = w.Close()
	for k := 1; k < 200; k++ { // bytes of the block before the reads fail
		data := []byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03")
		for rest := readBytes - k - len(data); rest > 0; rest = readBytes - k - len(data) {
			n := min(rest-5, 60_000)
			if left := rest - 5 - n; left > 0 && left < 5 {
				n -= 5
			}
			data = append(data, 0, byte(n), byte(n>>8), ^byte(n), ^byte(n>>8))
			data = append(data, make([]byte, n)...)
		}
		data = append(append(data, block.Bytes()...), make([]byte, 8)...)
		r := NewReader(ctx, half{memory{data}}, info(data), Gzip)
		var err error
		for err == nil {
			_, err = r.Next()
		}
		if errs.CodeOf(err) != errs.Unreadable {
			t.Fatalf("%d bytes into a block: %v", k, err)
		}
	}
}
