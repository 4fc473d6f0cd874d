package stagetest

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// FuzzFiles fuzzes a format with the files of its fixtures, which its own tools wrote:
// each is harmed in a few places, opened, and read, every field by itself too. What
// comes out is samples, or errors that say where and what to do; never a bug.
func FuzzFiles(f *testing.F, files []string, open func(name string, data []byte) (format.Stored, source.Source, error)) {
	var stored [][]byte
	for _, path := range files {
		var data []byte
		if strings.HasSuffix(path, ".gz") && !strings.Contains(filepath.Base(path), "tfrecord") && !strings.Contains(path, "tar") && !strings.Contains(path, "mds") {
			data = Unzipped(f, path)
		} else {
			var err error
			data, err = os.ReadFile(path)
			Must(f, err)
		}
		stored = append(stored, data)
		n := uint8(len(stored) - 1)
		f.Add(n, []byte(nil))
		for i := range 10 { // all over the file, and twice as often near its ends
			at := []int{len(data) / 10 * i, i * 7, len(data) - 1 - i*5}[i%3]
			f.Add(n, []byte{byte(at), byte(at >> 8), byte(at >> 16), byte(i), byte(37 * i)})
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, harm []byte) {
		n := int(which) % len(stored)
		d, src, err := open(filepath.Base(files[n]), Harmed(stored[n], harm))
		if err != nil {
			noBug(t, err)
			return
		}
		if c, ok := d.(io.Closer); ok {
			defer func() { _ = c.Close() }()
		}
		readEach(t, d, src)
	})
}

func noBug(t *testing.T, err error) {
	t.Helper()
	if e := errs.From(err); e.Code == errs.Bug || e.Code == errs.Damaged && e.Where.Shard == "" && e.Where.File == "" {
		t.Fatalf("%s: %v at %v, hint %q", e.Code, e, e.Where, e.Hint)
	}
}

// readEach reads the first samples whole, then by single fields.
func readEach(t *testing.T, d format.Stored, src source.Source) {
	t.Helper()
	d.Classes()
	var s format.Sample
	for id := range min(d.Len(), 20) {
		names := [][]string{nil}
		if err := Read(d, src, id, nil, &s); err != nil {
			noBug(t, err)
			for _, name := range d.Index().Meta().Fields {
				names = append(names, []string{name})
			}
		}
		for _, f := range s.Fields {
			names = append(names, []string{f.Name})
		}
		for _, fields := range names[1:] {
			if err := Read(d, src, id, fields, &s); err != nil {
				noBug(t, err)
			}
			if typed, ok := d.(interface {
				Type(name string) (format.Type, bool)
			}); ok {
				typed.Type(fields[0])
			}
		}
	}
}
