package tree_test

import (
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// FuzzTree holds that whatever a file holds, listing it and finding its chunks
// ends in an error that says where, or in chunks that lie in the file. Files of
// the real library are harmed in a few places: bytes from nothing would hardly
// get past a signature.
func FuzzTree(f *testing.F) {
	var files [][]byte
	for _, name := range []string{"plain", "userblock", "groups", "groups_latest", "groups_ordered", "sparse", "sparse_latest", "types_latest", "refused", "shard2"} {
		files = append(files, fixture(f, name))
		f.Add(uint8(len(files)-1), []byte("\x40\x00\x00\x01\x00"))
	}
	f.Fuzz(func(t *testing.T, which uint8, harm []byte) {
		data := stagetest.Harmed(files[int(which)%len(files)], harm)
		sound := func(err error) {
			if e := errs.From(err); e.Code == errs.Bug || e.Where.Shard == "" || e.Hint == "" {
				t.Fatalf("%s: %v at %v, hint %q", e.Code, e, e.Where, e.Hint)
			}
		}
		file, err := open(data)
		if err != nil {
			sound(err)
			return
		}
		list, err := file.Items(true)
		if err != nil {
			sound(err)
			return
		}
		for _, i := range list {
			if i.Dataset == nil || i.Dataset.Why != "" || i.Dataset.Layout.Chunk == nil {
				continue
			}
			chunks, err := file.Chunks(i.Dataset)
			if err != nil {
				sound(err)
				continue
			}
			for _, c := range chunks {
				if c.Off >= 0 && (c.Size < 1 || c.Off+c.Size > int64(len(data))) {
					t.Fatalf("%s: a chunk of %d bytes at %d of %d", i.Path, c.Size, c.Off, len(data))
				}
			}
		}
	})
}
