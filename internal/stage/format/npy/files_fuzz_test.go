package npy_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/npy"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// FuzzFiles harms what numpy wrote.
func FuzzFiles(f *testing.F) {
	files, err := filepath.Glob("../../../../testdata/npy/*.np[yz]")
	stagetest.Must(f, err)
	stagetest.FuzzFiles(f, files, func(name string, data []byte) (format.Stored, source.Source, error) {
		src := stagetest.Memory{"mem://" + name: data}
		d, err := npy.Open(context.Background(), src, []string{"mem://" + name}, npy.Options{Store: &index.Store{}, UnpackedBytes: 2 << 20})
		return d, src, err
	})
}
