package dataset

import (
	"context"
	"slices"
	"testing"

	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest/fixture"
)

// What an index says of where fields are stored is where parsing finds them: all of a sample's
// fields, or none.
func TestPlaces(t *testing.T) {
	known := make(map[string]bool)
	for name, d := range fixture.Stores(t) {
		t.Run(name, func(t *testing.T) {
			p, _ := openCounted(t, d)
			c := &Collection{Parts: []*Part{p}, stored: []*Part{p}}
			file := source.NewFile()
			defer file.Close()
			reader := format.NewReader(p.Stored, file)
			var s format.Sample
			for id := range min(p.N, 20) {
				if err := reader.Read(context.Background(), id, nil, &s); err != nil {
					t.Fatal(err)
				}
				var stored []format.Extent
				for _, f := range s.Fields {
					if !f.IsInt && f.File >= 0 && !f.Unpacked {
						stored = append(stored, format.Extent{File: f.File, Off: f.Off, Len: int64(len(f.Data))})
					}
				}
				said := c.Places(id, nil)
				known[name] = known[name] || len(said) > 0
				for i := range said {
					said[i].Whole = false
					if !slices.Contains(stored, said[i]) {
						t.Errorf("sample %d: nothing is stored at %+v, but at %+v", id, said[i], stored)
					}
				}
				if len(said) > 0 && len(said) < len(stored) {
					t.Errorf("sample %d: only %+v of %+v", id, said, stored)
				}
			}
		})
	}
	for name, want := range map[string]bool{"tar": true, "files list": true, "tfrecord": false, "mds": false} {
		if known[name] != want {
			t.Errorf("the index of %q says where fields are stored: %v", name, known[name])
		}
	}
}
