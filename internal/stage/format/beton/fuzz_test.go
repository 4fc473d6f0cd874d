package beton_test

import (
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/beton"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// FuzzFile opens and reads whatever a file holds: samples or errors of the data,
// and never a panic or a bug. The seeds have pages of 4 KiB, not of 2 MiB.
func FuzzFile(f *testing.F) {
	for n := range 4 {
		f.Add(small(n).bytes())
	}
	f.Add(stored(f, "numbers"))
	f.Fuzz(func(t *testing.T, data []byte) {
		src := stagetest.Bytes(data)
		d, err := beton.Open(ctx, src, path, beton.Options{Store: &index.Store{}})
		if err != nil {
			if errs.CodeOf(err) == errs.Bug {
				t.Fatal(err)
			}
			return
		}
		defer d.Close()
		var s format.Sample
		for id := range min(d.Index().Len(), 50) {
			if err := stagetest.Read(d, src, id, nil, &s); err != nil && errs.CodeOf(err) == errs.Bug {
				t.Fatal(err)
			}
			for _, f := range s.Fields {
				if n := d.Size(id, f.Name); err == nil && n != int64(len(f.Data)) {
					t.Fatalf("%s has %d bytes, Size says %d", f.Name, len(f.Data), n)
				}
			}
		}
	})
}
