package lmdb

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"iter"
	"os"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

type bytesSource struct{ data []byte }

func (m bytesSource) Stat(_ context.Context, name string) (source.Info, error) {
	return source.Info{Name: name, Size: int64(len(m.data)), Version: "1"}, nil
}

func (m bytesSource) ReadAt(_ context.Context, _ source.Info, p []byte, off int64) error {
	copy(p, m.data[off:][:len(p)])
	return nil
}

func (m bytesSource) List(context.Context, string) iter.Seq2[source.Info, error] {
	return func(func(source.Info, error) bool) {}
}

// FuzzWalk checks that whatever a file holds, indexing it ends in an error that says
// where, or in samples that are within the file and can be parsed or say why not.
func FuzzWalk(f *testing.F) {
	var files [][]byte
	for _, name := range []string{"small", "mixed", "named", "only", "beside", "integer", "reverse", "datum_raw", "datum_float", "dupsort"} {
		raw, err := os.ReadFile("../../../../testdata/lmdb/" + name + ".mdb.gz")
		if err != nil {
			f.Fatal(err)
		}
		r, err := gzip.NewReader(bytes.NewReader(raw))
		if err != nil {
			f.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			f.Fatal(err)
		}
		files = append(files, data)
		f.Add(uint8(len(files)-1), []byte("\x10\x10\x00\x01\x00"))
	}
	f.Fuzz(func(t *testing.T, which uint8, harm []byte) {
		data := stagetest.Harmed(files[int(which)%len(files)], harm)
		src := bytesSource{data}
		d, err := Open(t.Context(), src, []string{"s3://x"}, Options{Store: &index.Store{}})
		if err != nil {
			if e := errs.From(err); e.Code == errs.Bug || e.Where.Shard == "" || e.Hint == "" {
				t.Fatalf("%s: %v at %v, hint %q", e.Code, e, e.Where, e.Hint)
			}
			return
		}
		defer d.Close()
		var s format.Sample
		for id := range d.x.Len() {
			e := d.Extents(id, nil, nil)[0]
			raw := data[e.Off : e.Off+e.Len]
			if err := d.Parse(id, nil, [][]byte{raw}, &s); err == nil && len(s.Fields) < 2 {
				t.Fatalf("sample %d has %d fields", id, len(s.Fields))
			} else if err != nil && errs.CodeOf(err) == errs.Bug {
				t.Fatal(err)
			}
		}
	})
}

// FuzzDatum checks that a value that is taken for a Datum is as large as it says.
func FuzzDatum(f *testing.F) {
	f.Add([]byte("\x08\x01\x10\x01\x18\x02\x22\x02ab\x28\x05"))
	f.Add([]byte("\x08\x01\x10\x01\x18\x01\x35\x00\x00\x80\x3f\x28\x05"))
	f.Add([]byte("\x22\x02ab\x28\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x38\x01"))
	f.Fuzz(func(t *testing.T, v []byte) {
		d, err := parseDatum(v)
		if err != nil {
			return
		}
		n := d.shape[0] * d.shape[1] * d.shape[2]
		switch d.kind() {
		case datumBytes:
			if int64(len(d.data)) != n || !bytes.Equal(v[d.dataAt:d.dataAt+len(d.data)], d.data) {
				t.Fatalf("%v: %d bytes at %d", d.shape, len(d.data), d.dataAt)
			}
		case datumFloats:
			if int64(len(d.floats)) != 4*n {
				t.Fatalf("%v: %d bytes of floats", d.shape, len(d.floats))
			}
		case datumEncoded:
			if len(d.data) == 0 {
				t.Fatal("an image without bytes")
			}
		}
	})
}
