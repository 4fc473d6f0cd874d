package tar

import (
	gotar "archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// object is a source of one object under any name; it counts reads and bytes.
type object struct {
	data        []byte
	reads, took int
}

func (o *object) Stat(context.Context, string) (source.Info, error) { panic("not asked for") }

func (o *object) ReadAt(_ context.Context, _ source.Info, p []byte, off int64) error {
	o.reads++
	o.took += len(p)
	copy(p, o.data[off:][:len(p)])
	return nil
}

func (o *object) List(context.Context, string) iter.Seq2[source.Info, error] {
	panic("not asked for")
}

func scanned(data []byte) (*object, *shard, error) {
	o := &object{data: data}
	sh, err := scan(context.Background(), o, source.Info{Name: "x.tar", Size: int64(len(data)), Version: "1"}, func(int64) {})
	return o, sh, err
}

func archived(t testing.TB, form gotar.Format, size int, names ...string) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := gotar.NewWriter(&buf)
	for _, n := range names {
		err := w.WriteHeader(&gotar.Header{Name: n, Size: int64(size), Mode: 0o644, Format: form})
		_, err2 := w.Write(make([]byte, size))
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// Large bodies are stepped over, small ones come many to a read.
func TestScanReadsHeaders(t *testing.T) {
	var names []string
	for i := range 500 {
		names = append(names, fmt.Sprintf("%04d.jpg", i))
	}
	for _, c := range []struct{ size, reads, took int }{
		{300_000, 501 * 1, 501 * (4 << 10)},
		{100, 12, 2 << 20},
	} {
		o, sh, err := scanned(archived(t, gotar.FormatUSTAR, c.size, names...))
		if err != nil || len(sh.keyLen) != len(names) {
			t.Fatal(err)
		}
		if o.reads > c.reads || o.took > c.took {
			t.Errorf("%d reads of %d bytes for members of %d", o.reads, o.took, c.size)
		}
	}
}

func FuzzScan(f *testing.F) {
	f.Add(archived(f, gotar.FormatUSTAR, 3, "a/1.jpg", "a/1.cls", "2.jpg"))
	f.Add(archived(f, gotar.FormatGNU, 0, strings.Repeat("d/", 60)+"é.jpg", "x.cls"))
	f.Add(archived(f, gotar.FormatPAX, 1, strings.Repeat("d/", 60)+"é.jpg", "x.cls"))
	f.Fuzz(func(t *testing.T, data []byte) {
		data = bytes.Clone(data)
		// The checksums are mended, or nothing would get past the first header.
		for i := 0; i+blockLen <= len(data); i += blockLen {
			if h := data[i : i+blockLen]; h[257] == 'u' {
				sum, _ := sums(h)
				copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
			}
		}
		data = append(data, make([]byte, -len(data)&(blockLen-1)+2*blockLen)...)
		_, sh, err := scanned(data)
		if err != nil {
			if errs.CodeOf(err) == errs.Bug {
				t.Fatal(err)
			}
			return
		}
		end := int64(0)
		for m := range sh.off {
			if sh.off[m]-blockLen < end || sh.size[m] < 0 || sh.off[m]+sh.size[m] > int64(len(data)) {
				t.Fatalf("member %d has %d bytes at %d", m, sh.size[m], sh.off[m])
			}
			end = sh.off[m] + sh.size[m]
		}
		for i := range sh.keyLen {
			if len(sh.key(i)) == 0 || sh.first[i] >= sh.first[i+1] {
				t.Fatalf("sample %d: key %q, members %d to %d", i, sh.key(i), sh.first[i], sh.first[i+1])
			}
		}
		agree(t, data, sh)
	})
}

// agree holds a shard against Go's reader: what both take is the same.
func agree(t *testing.T, data []byte, sh *shard) {
	r := gotar.NewReader(bytes.NewReader(data))
	for m := range sh.off {
		for {
			h, err := r.Next()
			if err == io.EOF {
				t.Fatalf("member %d is not there for Go", m)
			}
			if err != nil || h.Name != string(sh.name.At(m)) && strings.Contains(h.Name, "\x00") {
				return // Go is stricter here and there
			}
			if h.Typeflag != gotar.TypeReg && h.Typeflag != gotar.TypeCont {
				continue
			}
			if _, _, ok := split(h.Name); !ok {
				continue
			}
			if h.Name != string(sh.name.At(m)) || h.Size != sh.size[m] {
				t.Fatalf("member %d is %q of %d bytes, for Go %q of %d", m, sh.name.At(m), sh.size[m], h.Name, h.Size)
			}
			break
		}
	}
}
