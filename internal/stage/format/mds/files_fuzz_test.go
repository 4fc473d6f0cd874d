package mds_test

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/mds"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// FuzzFiles harms the first shard, or the index.json, of what mosaicml-streaming wrote.
func FuzzFiles(f *testing.F) {
	var files []string
	for _, pattern := range []string{"index.json", "shard.00000.mds*"} {
		some, err := filepath.Glob("testdata/*/" + pattern)
		stagetest.Must(f, err)
		files = append(files, some...)
	}
	all := make(map[string]stagetest.Memory)
	sets := make(map[string][]string) // by the name of a file, those that have it
	for _, path := range files {
		dir, name := filepath.Base(filepath.Dir(path)), filepath.Base(path)
		all[dir] = stored(f, dir)
		sets[name] = append(sets[name], dir)
	}
	stagetest.FuzzFiles(f, files, func(name string, data []byte) (format.Stored, source.Source, error) {
		dir := sets[name][0]
		for _, d := range sets[name] { // the one whose file this was, as far as it begins alike
			if was := all[d][root+"/"+name]; len(was) > 40 && len(data) > 40 && strings.HasPrefix(string(data), string(was[:40])) {
				dir = d
			}
		}
		src := maps.Clone(all[dir])
		src[root+"/"+name] = data
		d, err := mds.Open(ctx, src, root, mds.Options{Store: &index.Store{}})
		return d, src, err
	})
}
