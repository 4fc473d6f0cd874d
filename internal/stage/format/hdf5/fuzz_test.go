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
	for _, name := range []string{"plain", "userblock", "sparse", "sparse_latest", "types", "types_latest", "shard0", "shard1", "shard2"} {
		files = append(files, fixture(f, name))
		f.Add(uint8(len(files)-1), []byte("\x40\x00\x00\x01\x00"))
	}
	f.Fuzz(func(t *testing.T, which uint8, harm []byte) {
		data := stagetest.Harmed(files[int(which)%len(files)], harm)
		d, err := try(data, hdf5.Options{})
		if err == nil {
			n := d.Index().Len()
			_ = d.Close()
			if n > 1<<12 { // rows that were never written cost nothing to declare
				return
			}
			_, err = readAll(data, hdf5.Options{})
		}
		if err == nil {
			return
		}
		if e := errs.From(err); e.Code == errs.Bug || e.Where.Shard == "" || e.Hint == "" {
			t.Fatalf("%s: %v at %v, hint %q", e.Code, e, e.Where, e.Hint)
		}
	})
}
