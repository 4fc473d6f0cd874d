package parquet

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// The next Open accepts the index of every file, also that of columns without a
// dictionary, without a value or without places.
func TestGenuineIndexes(t *testing.T) {
	files, err := filepath.Glob("../../../../testdata/parquet/*.parquet")
	stagetest.Must(t, err)
	src := source.NewFile()
	defer src.Close()
	plain := false
	for _, name := range files {
		path, err := filepath.Abs(name)
		stagetest.Must(t, err)
		d, err := Open(context.Background(), src, []string{path}, Options{Store: &index.Store{}})
		if err != nil {
			continue // refused: other tests say why
		}
		for _, n := range d.dictLen {
			plain = plain || n == 0
		}
		if !open(d.x).valid() {
			t.Errorf("the index of %s is not valid", name)
		}
		_ = d.Close()
	}
	if !plain {
		t.Error("every column of every file has a dictionary")
	}
}
