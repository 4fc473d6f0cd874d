package compressed

import (
	"bytes"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// Zeros may follow the last gzip member, as tapes leave them, one too; nothing else may.
func TestZerosAfterTheEnd(t *testing.T) {
	want := texts(2_000)["mixed"]
	sound := packers(t)["gzip 6"](want)
	for _, n := range []int{0, 1, 2, 9, 10, 11, 512, 10240} {
		got, _, err := unpacked(append(bytes.Clone(sound), make([]byte, n)...))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d zeros: %d bytes, %v", n, len(got), err)
		}
		if n == 0 {
			continue
		}
		bad := append(bytes.Clone(sound), make([]byte, n)...)
		bad[len(bad)-1] = 1
		if _, _, err := unpacked(bad); errs.CodeOf(err) != errs.Damaged {
			t.Errorf("%d bytes of which the last is 1: %v", n, err)
		}
	}
}
