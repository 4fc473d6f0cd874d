package tar_test

import (
	"path/filepath"
	"testing"

	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/tar"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// FuzzShard harms whole shards, compressed ones too.
func FuzzShard(f *testing.F) {
	files, err := filepath.Glob("testdata/*.t*")
	stagetest.Must(f, err)
	stagetest.FuzzFiles(f, files, func(name string, data []byte) (format.Stored, source.Source, error) {
		src := stagetest.Memory{"mem://" + name: data}
		d, err := tar.Open(ctx, src, []string{"mem://" + name}, tar.Options{Store: &index.Store{}})
		return d, src, err
	})
}
