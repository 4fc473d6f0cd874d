package tokens_test

import (
	"testing"

	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/tokens"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// FuzzFiles harms the flat files of other tools, read as windows.
func FuzzFiles(f *testing.F) {
	var paths []string
	for _, name := range []string{"llama.bin", "llmc.bin", "train.bin", "tokens.npy"} {
		paths = append(paths, "../../../../testdata/tokens/"+name)
	}
	stagetest.FuzzFiles(f, paths, func(name string, data []byte) (format.Stored, source.Source, error) {
		src := stagetest.Memory{"mem://" + name: data}
		d, err := tokens.Open(ctx, src, []string{"mem://" + name}, tokens.Options{Window: 7, Next: true, Store: &index.Store{}})
		return d, src, err
	})
}
