package mds_test

import (
	"bytes"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/mds"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// FuzzDataset opens and reads an arbitrary index.json and one arbitrary shard: the
// result is samples or errors in the data, and never a panic or a bug.
func FuzzDataset(f *testing.F) {
	for _, name := range []string{"everything", "plain", "refused", "rgba", "zstd", "gz", "snappy"} {
		m := stored(f, name)
		for _, suffix := range []string{"", ".zstd", ".gz", ".snappy"} {
			if data := m[shard0+suffix]; data != nil {
				f.Add(m[root+"/index.json"], data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, text, shard []byte) {
		m := stagetest.Memory{root + "/index.json": text}
		for _, suffix := range []string{"", ".zstd", ".gz", ".bz2", ".snappy"} {
			if suffix == "" && bytes.Contains(text, []byte("zip_data\": {")) {
				continue
			}
			m[shard0+suffix] = shard
		}
		d, err := mds.Open(ctx, m, root, mds.Options{Store: &index.Store{}})
		if err != nil {
			if errs.CodeOf(err) == errs.Bug {
				t.Fatal(err)
			}
			return
		}
		defer d.Close()
		var s format.Sample
		for id := range min(d.Index().Len(), 50) {
			if err := stagetest.Read(d, m, id, nil, &s); err != nil && errs.CodeOf(err) == errs.Bug {
				t.Fatal(err)
			}
		}
	})
}
