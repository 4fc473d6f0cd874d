package parquet_test

import (
	"path/filepath"
	"testing"

	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/parquet"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// FuzzFiles harms what pyarrow and parquet-go wrote: each encoding and codec, pages with
// an index and with checksums, nulls and lists.
func FuzzFiles(f *testing.F) {
	files, err := filepath.Glob("../../../../testdata/parquet/*.parquet*")
	stagetest.Must(f, err)
	stagetest.FuzzFiles(f, files, func(_ string, data []byte) (format.Stored, source.Source, error) {
		src := stagetest.Bytes(data)
		d, err := parquet.Open(ctx, src, []string{anywhere}, parquet.Options{Store: &index.Store{}})
		return d, src, err
	})
}
