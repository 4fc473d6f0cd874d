package lmdb_test

import (
	"path/filepath"
	"testing"

	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/lmdb"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// FuzzFiles harms what the library wrote, datums and all.
func FuzzFiles(f *testing.F) {
	files, err := filepath.Glob("../../../../testdata/lmdb/*.mdb.gz")
	stagetest.Must(f, err)
	stagetest.FuzzFiles(f, files, func(_ string, data []byte) (format.Stored, source.Source, error) {
		d, err := try(data, lmdb.Options{})
		return d, stagetest.Memory{here: data}, err
	})
}
