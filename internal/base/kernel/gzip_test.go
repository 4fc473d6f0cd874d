package kernel

import (
	"bytes"
	"compress/gzip"
	"testing"

	"pgregory.net/rapid"
)

func gzipped(t *rapid.T, data []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, rapid.IntRange(-2, 9).Draw(t, "level"))
	w.Name = rapid.StringMatching("[a-z]{0,5}").Draw(t, "name")
	w.Comment = rapid.StringMatching("[a-z]{0,5}").Draw(t, "comment")
	w.Extra = rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "extra")
	_, _ = w.Write(data)
	_ = w.Close()
	return b.Bytes()
}

// Files of one member and several; harmed, they are errors unless Go reads the same bytes.
func TestGzip(t *testing.T) {
	all := inflaters()
	rapid.Check(t, func(t *rapid.T) {
		var data, raw []byte
		for range rapid.IntRange(1, 3).Draw(t, "members") {
			some := drawnBytes(t)
			data, raw = append(data, some...), append(raw, gzipped(t, some)...)
		}
		bad := bytes.Clone(raw)
		bad[rapid.IntRange(0, len(raw)-1).Draw(t, "at")] ^= byte(rapid.IntRange(1, 255).Draw(t, "by"))
		bad = bad[:rapid.IntRange(1, len(raw)).Draw(t, "cut")]
		for name, z := range all {
			dst := make([]byte, len(data)+1)
			if n, err := z.Gzip(dst, len(data), raw); err != nil || n != len(data) || !bytes.Equal(dst[:n], data) {
				t.Fatalf("%s: %d bytes of %d, %v", name, n, len(data), err)
			}
			if len(data) > 0 {
				if _, err := z.Gzip(dst, len(data)-1, raw); err != InflateFull { //nolint:errorlint // as it is
					t.Fatalf("%s: a byte less: %v", name, err)
				}
			}
			n, err := z.Gzip(dst, len(data), bad)
			if want, gone := goGzip(bad); err == nil && (gone != nil || !bytes.Equal(dst[:n], want)) {
				t.Fatalf("%s: %d bytes, and Go has %d, %v", name, n, len(want), gone)
			}
		}
	})
}

func goGzip(raw []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	_, err = b.ReadFrom(r)
	return b.Bytes(), err
}

func FuzzGzip(f *testing.F) {
	f.Add([]byte("\x1f\x8b\x08\x1e\x00\x00\x00\x00\x00\xff\x02\x00ab\x00c\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00"), uint16(5))
	all := inflaters()
	f.Fuzz(func(t *testing.T, raw []byte, size uint16) {
		for name, z := range all {
			dst := make([]byte, size)
			n, err := z.Gzip(dst, len(dst), raw)
			if want, gone := goGzip(raw); err == nil && (gone != nil || !bytes.Equal(dst[:n], want)) {
				t.Fatalf("%s: %d bytes, and Go has %d, %v", name, n, len(want), gone)
			}
		}
	})
}
