package hdf5_test

import (
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format/hdf5"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// FuzzOpen holds that whatever a file holds, every sample of it is read or says
// why not.
func FuzzOpen(f *testing.F) {
	var files [][]byte
	var places [][]int
	for n, name := range []string{"plain", "userblock", "sparse", "sparse_latest", "types", "types_latest", "shard0", "shard1", "shard2", "tables", "mixed"} {
		data := fixture(f, name)
		files = append(files, data)
		places = append(places, stagetest.Marks(data, "\x89HDF", "TREE", "SNOD", "HEAP", "GCOL", "OHDR", "OCHK", "BTHD", "FAHD", "FADB", "EAHD", "EAIB"))
		f.Add(uint8(n), []byte("\x40\x00\x00\x81\x00"))
		for at := range 10 { // one byte of some structure
			f.Add(uint8(n), []byte{byte(at * 7), byte(at), byte(4 + at%24), 0, byte(at * 5)})
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, harm []byte) {
		which %= uint8(len(files))
		err := stagetest.WithSums(stagetest.HarmedAt(files[which], harm, places[which]), func(data []byte) error {
			d, err := try(data, hdf5.Options{})
			if err != nil {
				return err
			}
			n := d.Index().Len()
			_ = d.Close()
			if n > 1<<12 { // rows that were never written cost nothing to declare
				return nil
			}
			_, err = readAll(data, hdf5.Options{})
			return err
		})
		if err == nil {
			return
		}
		if e := errs.From(err); e.Code == errs.Bug || e.Where.Shard == "" || e.Hint == "" {
			t.Fatalf("%s: %v at %v, hint %q", e.Code, e, e.Where, e.Hint)
		}
	})
}
