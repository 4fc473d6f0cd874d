package beton_test

import (
	"testing"

	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/beton"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// FuzzFiles harms what FFCV wrote: every kind of field and of picture.
func FuzzFiles(f *testing.F) {
	files := []string{"testdata/everything.beton.gz", "testdata/mixed.beton.gz", "testdata/raw.beton.gz", "testdata/numbers.beton.gz"}
	stagetest.FuzzFiles(f, files, func(_ string, data []byte) (format.Stored, source.Source, error) {
		src := stagetest.Bytes(data)
		d, err := beton.Open(ctx, src, path, beton.Options{Store: &index.Store{}})
		return d, src, err
	})
}
