package tfrecord_test

import (
	"path/filepath"
	"testing"

	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// FuzzFiles harms what tensorflow wrote.
func FuzzFiles(f *testing.F) {
	var files []string
	for _, pattern := range []string{"*.tfrec*", "pictures-*"} {
		some, err := filepath.Glob("../../../../testdata/tfrecord/" + pattern)
		stagetest.Must(f, err)
		files = append(files, some...)
	}
	stagetest.FuzzFiles(f, files, func(_ string, data []byte) (format.Stored, source.Source, error) {
		d, err := try(data)
		return d, stagetest.Bytes(data), err
	})
}
