package bucket_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
	"github.com/stoker-data/stoker/internal/stagetest/bucket"
	"github.com/stoker-data/stoker/internal/stagetest/fixture"
	"github.com/stoker-data/stoker/internal/stagetest/formats"
)

// shard is a tar of n samples: a body of so many bytes, and a small one.
func shard(t *testing.T, first, n, size int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	body := bytes.Repeat([]byte{1, 2, 3, 4}, (size+3)/4)[:size]
	for i := first; i < first+n; i++ {
		for _, m := range []struct {
			ending string
			data   []byte
		}{{"cls", fmt.Append(nil, i)}, {"bin", body}} {
			stagetest.Must(t, w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%06d.%s", i, m.ending), Mode: 0o644, Size: int64(len(m.data))}))
			_, err := w.Write(m.data)
			stagetest.Must(t, err)
		}
	}
	stagetest.Must(t, w.Close())
	return b.Bytes()
}

// Opening shards again costs a listing of their folder and one look at what they are,
// however they are named; with an index that is believed, not even a comparison.
func TestOpeningManyShards(t *testing.T) {
	s := bucket.New()
	var list spec.Paths
	for i := range 1000 {
		name := fmt.Sprintf("mem://b/train/s-%03d.tar", i)
		list = append(list, name)
		s.Put(name, shard(t, i, 1, 10))
	}
	for _, c := range []struct {
		name  string
		path  spec.Paths
		fresh string
		most  int // requests
	}{
		{"braces", spec.Paths{"mem://b/train/s-{000..999}.tar"}, "", 6},
		{"a list", list, "", 6},
		{"a glob", spec.Paths{"mem://b/train/*.tar"}, "", 8},
		{"a glob with letters", spec.Paths{"mem://b/train/s-*.tar"}, "", 8},
		{"a folder", spec.Paths{"mem://b/train"}, "", 22}, // whose first files are looked into
		{"believed", spec.Paths{"mem://b/train/s-{000..999}.tar"}, spec.FreshNever, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := spec.Dataset{Path: c.path, Storage: source.Storage{Fresh: c.fresh}}
			first := formats.Open(t, d, schemes(s))
			s.Calls()
			again := formats.Open(t, d, schemes(s))
			calls := s.Calls()
			calls.Of = nil
			if again.Dataset().Index().Path() != first.Dataset().Index().Path() || again.Len() != 1000 {
				t.Errorf("%d samples, of another index", again.Len())
			}
			if calls.All() > c.most || calls.Lists > 3 || calls.Bytes > 20*4096 {
				t.Errorf("%+v", calls)
			}
		})
	}
}

// Single objects of many folders cost a listing of each, and no request for each object.
func TestOpeningManyObjects(t *testing.T) {
	s := bucket.New()
	var list spec.Paths
	for i := range 1200 {
		name := fmt.Sprintf("mem://b/train/%d/%04d.jpg", i%4, i)
		list = append(list, name)
		s.Put(name, []byte{0xff, 0xd8, byte(i)})
	}
	for name, path := range map[string]spec.Paths{"all below": {"mem://b/train/**/*.jpg"}, "a glob": {"mem://b/train/?/*.jpg"}, "a list": list} {
		t.Run(name, func(t *testing.T) {
			for _, what := range []string{"the first time", "again"} {
				s.Calls()
				opened := formats.Open(t, spec.Dataset{Path: path, Format: "files"}, schemes(s))
				calls := s.Calls()
				calls.Of = nil
				if opened.Len() != 1200 || calls.All() > 40 {
					t.Errorf("%s: %d samples, %+v", what, opened.Len(), calls)
				}
			}
		})
	}
}

// Whether an object that was replaced is found by the next open, or by the read of a
// sample, is the user's choice.
func TestFresh(t *testing.T) {
	s := bucket.New()
	for _, fresh := range []string{"", spec.FreshAlways, spec.FreshNever} {
		dir := "mem://b/at " + fresh
		for i := range 3 {
			s.Put(fmt.Sprintf("%s/%d.tar", dir, i), shard(t, i, 1, 10))
		}
		d := spec.Dataset{Path: spec.Paths{dir + "/{0..2}.tar"}, Storage: source.Storage{Fresh: fresh}}
		before := formats.Open(t, d, schemes(s))
		s.Put(dir+"/1.tar", shard(t, 7, 1, 10)) // as many bytes
		after := formats.Open(t, d, schemes(s))
		var sample format.Sample
		err := format.NewReader(after.Dataset(), after.Source()).Read(t.Context(), 1, nil, &sample)
		if fresh == spec.FreshNever {
			if errs.CodeOf(err) != errs.Changed || after.Digest() != before.Digest() {
				t.Errorf("%q: %v", fresh, err)
			}
			after = formats.Open(t, d, schemes(s)) // the read gave the index up
			err = format.NewReader(after.Dataset(), after.Source()).Read(t.Context(), 1, nil, &sample)
		}
		if err != nil || after.Digest() == before.Digest() {
			t.Errorf("%q: %v, digest %s", fresh, err, after.Digest())
		}
	}
}

// An index is made by long ranges, of many shards at once, which read each byte once; large
// bodies are stepped over.
func TestIndexingFromADistance(t *testing.T) {
	for _, c := range []struct {
		name             string
		shards, per, len int
		requests         int // a shard
		percent          int // of the bytes
		short            bool
	}{
		{"small members", 16, 80, 100_000, 10, 101, true},
		{"members of 4 MiB", 8, 6, 4 << 20, 9, 5, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := bucket.New()
			s.Reach = source.Link{Gap: 1800 << 10, Part: 4 << 20, Conns: 16} // 20 ms, 90 MB/s
			total := int64(0)
			for i := range c.shards {
				data := shard(t, i*c.per, c.per, c.len)
				total += int64(len(data))
				s.Put(fmt.Sprintf("mem://b/%s/%02d.tar", c.name, i), data)
			}
			s.Latency = 2 * time.Millisecond
			told := map[string]bool{}
			all, err := dataset.Open(t.Context(), spec.Spec{Dataset: spec.Dataset{Path: spec.Paths{"mem://b/" + c.name + "/*.tar"}}}, dataset.Options{
				Sources: schemes(s), Stored: true, Progress: func(_, of int64, what string) { told[what] = of == total },
			})
			stagetest.Must(t, err)
			defer all.Close()
			calls := s.Calls()
			calls.Of = nil
			if all.Len() != int64(c.shards*c.per) || calls.Reads > c.shards*c.requests || calls.Bytes > total*int64(c.percent)/100 || calls.Most < 8 || calls.Most > 40 {
				t.Errorf("%d samples of %d bytes took %+v", all.Len(), total, calls)
			}
			if !told["bytes"] {
				t.Errorf("what was told: %v", told)
			}
			t.Logf("%d bytes: %d requests, %d bytes, %d at once", total, calls.All(), calls.Bytes, calls.Most)
		})
	}
}

// No format reads all of its files to be indexed, but those that say nothing of themselves
// elsewhere, and none reads more than a sample's part of a file for a sample.
func TestNoFormatReadsWhatItDoesNotNeed(t *testing.T) {
	t.Chdir("../../dataset")
	const padded = 24 << 20
	s := bucket.New()
	dir := t.TempDir()
	rows := padded / 4096
	fixture.SaveArray(t, dir, "x.npy", mem.Uint8, fmt.Sprintf("(%d, 4096)", rows), make([]byte, rows*4096))
	data, err := os.ReadFile(filepath.Join(dir, "x.npy"))
	stagetest.Must(t, err)
	s.Put("mem://b/x.npy", data)
	s.Put("mem://b/x.bin", make([]byte, padded))
	s.Put("mem://b/x.tar", shard(t, 0, 5, 5<<20))
	for name, d := range map[string]spec.Dataset{
		"npy":    {Path: spec.Paths{"mem://b/x.npy"}},
		"tokens": {Path: spec.Paths{"mem://b/x.bin"}, DType: "uint16", Window: spec.Window{Length: 1024}},
		"tar":    {Path: spec.Paths{"mem://b/x.tar"}},
	} {
		t.Run(name, func(t *testing.T) {
			s.Calls()
			c := formats.Open(t, d, schemes(s))
			if calls := s.Calls(); calls.Bytes > padded/20 {
				t.Errorf("opening it read %+v", calls)
			}
			var sample format.Sample
			stagetest.Must(t, format.NewReader(c.Dataset(), c.Source()).Read(t.Context(), 2, nil, &sample))
			if calls := s.Calls(); calls.Bytes > 6<<20 || calls.All() > 2 {
				t.Errorf("a sample read %+v", calls)
			}
		})
	}
}

// A dataset that was indexed where it is local brings its index: in the bucket no shard is
// read but for its fingerprint.
func TestIndexesTravelIntoBuckets(t *testing.T) {
	s := bucket.New()
	dir := t.TempDir()
	for i := range 4 {
		stagetest.Put(t, fmt.Sprintf("%s/%d.tar", dir, i), shard(t, i*10, 10, 100_000))
	}
	here := formats.Open(t, spec.Dataset{Path: spec.Paths{dir + "/*.tar"}}, nil)
	_, err := format.WriteBeside(t.Context(), here.Source(), here.Dataset().Index())
	stagetest.Must(t, err)
	upload := func(prefix string, change func(name string, data []byte) []byte) {
		stagetest.Must(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			name := prefix + strings.TrimPrefix(path, dir)
			s.Put(name, change(name, data))
			return err
		}))
	}
	same := func(_ string, data []byte) []byte { return data }
	upload("mem://b/as/it/was", same)
	upload("mem://b/changed", func(name string, data []byte) []byte {
		if strings.HasSuffix(name, "/2.tar") {
			data = slices.Concat(data[:700], []byte{9}, data[701:])
		}
		return data
	})
	upload("mem://b/more", same)
	s.Put("mem://b/more/4.tar", shard(t, 40, 10, 100_000))
	t.Setenv("STOKER_CACHE", t.TempDir())
	for prefix, adopted := range map[string]bool{"mem://b/as/it/was": true, "mem://b/changed": false, "mem://b/more": false} {
		s.Calls()
		there := formats.Open(t, spec.Dataset{Path: spec.Paths{prefix + "/*.tar"}}, schemes(s))
		calls, whole := s.Calls(), false
		for name, r := range calls.Of {
			whole = whole || strings.HasSuffix(name, ".tar") && r.Bytes > 256<<10
		}
		if whole == adopted || adopted && (there.Digest() != here.Digest() || !slices.Equal(formats.Digests(t, there), formats.Digests(t, here))) {
			t.Errorf("%s: digest %s, %+v", prefix, there.Digest(), calls)
		}
		s.Calls()
		again := formats.Open(t, spec.Dataset{Path: spec.Paths{prefix + "/*.tar"}}, schemes(s))
		if calls := s.Calls(); again.Dataset().Index().Path() != there.Dataset().Index().Path() || calls.Bytes > 3*4096 {
			t.Errorf("%s again: %+v", prefix, calls)
		}
	}
}

// A folder of pictures is listed flat, class by class, and compared at every open unless it
// is believed.
func TestFoldersAreListedFlat(t *testing.T) {
	s := bucket.New()
	dir := t.TempDir()
	for i := range 600 {
		name := fmt.Sprintf("/c%d/deep/%d/%04d.ppm", i%6, i%50, i)
		stagetest.Put(t, dir+name, fixture.Picture(i))
		s.Put("mem://b/photos"+name, fixture.Picture(i))
	}
	here := formats.Open(t, spec.Dataset{Path: spec.Paths{dir}}, nil)
	for fresh, most := range map[string]int{"": 20, spec.FreshNever: 12} {
		d := spec.Dataset{Path: spec.Paths{"mem://b/photos"}, Storage: source.Storage{Fresh: fresh}}
		first := formats.Open(t, d, schemes(s))
		if first.Digest() != here.Digest() || !slices.Equal(first.Classes(), here.Classes()) || !slices.Equal(first.Labels(), here.Labels()) {
			t.Errorf("digest %s with %d samples; of local files %s with %d", first.Digest(), first.Len(), here.Digest(), here.Len())
		}
		s.Calls()
		formats.Open(t, d, schemes(s))
		if calls := s.Calls(); calls.All() > most {
			t.Errorf("%q: %+v", fresh, calls)
		}
		s.Put("mem://b/photos/c0/new"+fresh+".ppm", fixture.Picture(1))
		if again := formats.Open(t, d, schemes(s)); (again.Len() == first.Len()) != (fresh == spec.FreshNever) {
			t.Errorf("%q: %d samples after one more", fresh, again.Len())
		}
		stagetest.Put(t, dir+"/c0/new"+fresh+".ppm", fixture.Picture(1))
		here = formats.Open(t, spec.Dataset{Path: spec.Paths{dir}}, nil)
	}
}

// What is misspelt is named with what there is, from the bucket on.
func TestNearestNames(t *testing.T) {
	s := bucket.New()
	for _, name := range []string{"photos/train/000.tar", "photos/val/000.tar", "photos-old/x.tar"} {
		s.Put("mem://"+name, shard(t, 0, 1, 10))
	}
	for name, want := range map[string]string{
		"mem://photso/train/000.tar":        "did you mean \"mem://photos/train/000.tar\"?",
		"mem://photos/trian/000.tar":        "did you mean \"mem://photos/train/000.tar\"?",
		"mem://photos/train/00.tar":         "did you mean \"mem://photos/train/000.tar\"?",
		"mem://photos/train/*.npz":          "\"mem://photos/train\" has one entry: 000.tar",
		"mem://photos/tarin/**":             "did you mean \"mem://photos/train\"?",
		"mem://nothing-like-it/train/*":     "photos, photos-old",
		"mem://photos/train/{000..002}.tar": `has one entry: 000.tar`,
	} {
		_, err := dataset.Open(t.Context(), spec.Spec{Dataset: spec.Dataset{Path: spec.Paths{name}}}, dataset.Options{Sources: schemes(s), Stored: true})
		if e := errs.From(err); err == nil || e.Code != errs.NotFound || !strings.Contains(e.Hint, want) {
			t.Errorf("%s: %v (%s)", name, err, e.Hint)
		}
	}
}
