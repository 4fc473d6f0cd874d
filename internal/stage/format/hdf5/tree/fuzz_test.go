package tree_test

import (
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// marks are the signatures of the structures of HDF5.
var marks = []string{
	"\x89HDF", "TREE", "SNOD", "HEAP", "GCOL", "OHDR", "OCHK", "BTHD", "BTLF", "BTIN",
	"FRHP", "FHDB", "FHIB", "FAHD", "FADB", "EAHD", "EAIB", "EASB", "EADB",
}

// list walks a file: every item, and every chunk, which must be in the file.
func list(t *testing.T, data []byte) error {
	file, err := open(data)
	if err != nil {
		return err
	}
	items, err := file.Items(true)
	if err != nil {
		return err
	}
	for _, i := range items {
		if i.Dataset == nil || i.Dataset.Why != "" || i.Dataset.Layout.Chunk == nil {
			continue
		}
		chunks, failed := file.Chunks(i.Dataset)
		if failed != nil { // the others are listed all the same
			err = failed
			continue
		}
		for _, c := range chunks {
			if c.Off >= 0 && (c.Size < 1 || c.Off+c.Size > int64(len(data))) {
				t.Fatalf("%s: a chunk of %d bytes at %d of %d", i.Path, c.Size, c.Off, len(data))
			}
		}
	}
	return err
}

// FuzzTree checks that whatever a file holds, listing it and finding its chunks ends
// in an error that says where, or in chunks that are in the file. Files of the real
// library are damaged in a few places, mostly in their structures, and get correct
// checksums again: arbitrary bytes would hardly get past a signature.
func FuzzTree(f *testing.F) {
	var files [][]byte
	var places [][]int
	for n, name := range []string{
		"plain", "userblock", "groups", "groups_latest", "groups_ordered", "sparse", "sparse_latest", "types_latest", "refused", "shard2",
		"types", "mixed", "tables", "shuffled_2", "shuffled_latest_2", "latest", "chunk_orders",
	} {
		data := fixture(f, name)
		files, places = append(files, data), append(places, stagetest.Marks(data, marks...))
		f.Add(uint8(n), []byte("\x40\x00\x00\x81\x00"))
		for at := range 12 { // one byte of some structure
			f.Add(uint8(n), []byte{byte(at * 7), byte(at), byte(4 + at%24), 0, byte(at * 5)})
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, harm []byte) {
		n := int(which) % len(files)
		data := stagetest.HarmedAt(files[n], harm, places[n])
		err := stagetest.WithSums(data, func(data []byte) error { return list(t, data) })
		if err == nil {
			return
		}
		if e := errs.From(err); e.Code == errs.Bug || e.Where.Shard == "" || e.Hint == "" {
			t.Fatalf("%s: %v at %v, hint %q", e.Code, e, e.Where, e.Hint)
		}
	})
}

// With its checksums corrected, a damaged structure is read: what is refused then is
// refused for its contents.
func TestHarmBehindChecksums(t *testing.T) {
	data := fixture(t, "latest")
	for _, mark := range []string{"FAHD", "EAHD", "EAIB"} {
		for _, at := range stagetest.Marks(data, mark) {
			harmed := stagetest.Harmed(data, []byte{byte(at + 5), byte((at + 5) >> 8), byte((at + 5) >> 16), 0, 99})
			if err := list(t, harmed); err == nil || !strings.Contains(err.Error(), "the checksum of the ") {
				t.Errorf("%s at %d: a wrong checksum passes: %v", mark, at, err)
			}
			err := stagetest.WithSums(harmed, func(data []byte) error { return list(t, data) })
			if e := errs.From(err); err != nil && (e.Code != errs.Damaged && e.Code != errs.Unsupported) {
				t.Errorf("%s at %d: %v", mark, at, err)
			}
		}
	}
}
