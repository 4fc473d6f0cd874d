package npy_test

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format/npy"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// A wrong byte in an array of a .npz is found, whether it is compressed or not, as
// numpy.load finds it.
func TestChecksumOfMembers(t *testing.T) {
	data := counting(3<<20, 7) // more than is read at once
	for _, harm := range []int{200, 1 << 20, 3<<20 + 100} {
		file := archive(t, member{name: "x", data: array("|u1", []int{3 << 20}, data)}, member{name: "y", data: array("|u1", []int{3 << 20}, data)})
		stagetest.Must(t, read("x.npz", file))
		file[harm] ^= 1
		e := errs.From(read("x.npz", file))
		if e.Code != errs.Damaged || e.Where.Member != "x.npy" || e.Where.Shard == "" || e.Hint == "" {
			t.Errorf("a wrong bit at %d: %v at %+v", harm, e, e.Where)
		}
		// Who asks for the other array does not read this one.
		d, err := npy.Open(context.Background(), stagetest.Bytes(file), nil, npy.Options{
			Store: &index.Store{}, Fields: []npy.Field{{Name: "y", Paths: []string{"x.npz"}}},
		})
		stagetest.Must(t, err)
		stagetest.Must(t, d.Close())
	}
}

// What changes after that without a new time is found by Verify.
func TestVerify(t *testing.T) {
	s := newShelf(t)
	plain, compressed := array("<i4", []int{4, 3}, counting(48, 1)), array("<i4", []int{4, 3}, counting(48, 2))
	file := archive(t, member{name: "x", data: plain}, compressedMember("p", compressed))
	path := s.put(t, "a.npz", file)
	d := s.open(t, path)
	src := source.NewFile()
	defer src.Close()
	if checked, err := d.Verify(context.Background(), src, 0); err != nil || !slices.Equal(checked, []string{"x.npy"}) {
		t.Errorf("%v, %v", checked, err)
	}
	st, err := os.Stat(path)
	stagetest.Must(t, err)
	file[170] ^= 4
	stagetest.Must(t, os.WriteFile(path, file, 0o600))
	stagetest.Must(t, os.Chtimes(path, time.Time{}, st.ModTime()))
	if _, err := d.Verify(context.Background(), src, 0); errs.CodeOf(err) != errs.Damaged {
		t.Errorf("%v", err)
	}
	single := s.open(t, s.put(t, "b.npy", plain))
	if checked, err := single.Verify(context.Background(), src, 0); checked != nil || err != nil {
		t.Errorf("a .npy has no checksum: %v, %v", checked, err)
	}
}
