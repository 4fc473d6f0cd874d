package bucket_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/loader"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
	"github.com/stoker-data/stoker/internal/stagetest"
	"github.com/stoker-data/stoker/internal/stagetest/bucket"
	"github.com/stoker-data/stoker/internal/stagetest/fixture"
	"github.com/stoker-data/stoker/internal/stagetest/formats"
	"github.com/stoker-data/stoker/internal/tool/verify"
)

func TestMain(m *testing.M) { os.Exit(stagetest.OwnCache(m)) }

func TestStore(t *testing.T) {
	stagetest.Source(t, func(t *testing.T, objects map[string][]byte) (source.Source, string, func(string, []byte)) {
		s := bucket.New()
		put := func(name string, data []byte) { s.Put("mem://b/"+name, data) }
		for name, data := range objects {
			put(name, data)
		}
		return s, "mem://b/", put
	})
}

// schemes are all that there are, and that of a store.
func schemes(s *bucket.Store) []source.Scheme {
	return append(dataset.Sources(remote.NewNet(remote.Options{})), s.Scheme())
}

// stored is the store for the suite that all sources share.
func stored(s *bucket.Store) formats.Store {
	const prefix = bucket.Prefix + "b"
	return formats.Store{Prefix: prefix, Put: func(path string, data []byte) { s.Put(prefix+path, data) }}
}

// A source is a package and a line. Then every format is read from it as from local
// files: found out, expanded, indexed, with the same digests of dataset and samples. An
// index that still holds is compared with one Stat a file, and no file is read to open it.
func TestEveryFormat(t *testing.T) {
	t.Chdir("../../dataset") // where the fixtures' relative paths begin
	stores := fixture.Stores(t)
	stores["folder"] = spec.Dataset{Path: spec.Paths{fixture.Pictures(t, 9)}}
	for name, d := range stores {
		t.Run(name, func(t *testing.T) {
			s := bucket.New()
			here := formats.Open(t, d, nil)
			d := stored(s).Copied(t, d, here.Dataset().Index())
			files := here.Dataset().Index().Files()
			there := formats.Open(t, d, schemes(s))
			if here.Digest() != there.Digest() || here.Len() != there.Len() || here.Format() != there.Format() {
				t.Fatalf("%d samples of %s, digest %s; of local files %d, %s, %s", there.Len(), there.Format(), there.Digest(), here.Len(), here.Format(), here.Digest())
			}
			if want, got := formats.Digests(t, here), formats.Digests(t, there); !slices.Equal(want, got) {
				t.Errorf("samples have the digests %x, and %x in local files", got, want)
			}
			s.Calls()
			again := formats.Open(t, d, schemes(s))
			calls := s.Calls()
			if again.Dataset().Index().Path() != there.Dataset().Index().Path() {
				t.Errorf("another index: %s", again.Dataset().Index().Path())
			}
			if name != "folder" && (calls.Bytes > int64(files+1)*4096 || calls.Stats > 4*files+12) {
				t.Errorf("opening %d files again took %+v", files, calls)
			}
		})
	}
}

// The loader reads ranges of objects, a mixture may have members of several schemes, and
// a manifest rows of several.
func TestSeveralSchemes(t *testing.T) {
	t.Chdir("../../dataset")
	s := bucket.New()
	local := spec.Dataset{Path: spec.Paths{fixture.Shards(t, 9, 4)}}
	here := formats.Open(t, local, nil)
	far := stored(s).Copied(t, local, here.Dataset().Index())
	ids := func(d spec.Dataset) (all []int64) {
		shared := loader.NewShared(batch.Heap{}, stats.NewBoard(nil, 32))
		defer shared.Close()
		l, err := loader.Open(t.Context(), shared, spec.Spec{Dataset: d, Batch: spec.Batch{Size: 2}, Order: spec.Order{Shuffle: "full"}}, loader.Options{Sources: schemes(s)})
		stagetest.Must(t, err)
		defer l.Close()
		p, err := l.Pass(0, 0, 0)
		stagetest.Must(t, err)
		defer p.Cancel()
		for {
			b, err := p.Next(t.Context(), time.Minute)
			if errors.Is(err, io.EOF) {
				return all
			}
			stagetest.Must(t, err)
			c := b.Columns[slices.IndexFunc(b.Columns, func(c batch.Column) bool { return c.Name == batch.IDs })]
			for r := range b.Rows {
				all = append(all, int64(binary.LittleEndian.Uint64(b.Slot.Mem[c.Off+8*int64(r):])))
			}
			b.Release()
		}
	}
	one := ids(local)
	if got := ids(far); !slices.Equal(got, one) {
		t.Errorf("the order is %d, and %d of local files", got, one)
	}
	if c := s.Calls(); c.Reads == 0 {
		t.Errorf("nothing was read: %+v", c)
	}
	if got := ids(spec.Dataset{Mixed: []spec.Dataset{local, far}}); len(got) < 2*int(here.Len()) {
		t.Errorf("a mixture of both has %d samples", len(got))
	}

	pictures := fixture.Pictures(t, 2)
	found, err := filepath.Glob(pictures + "/*/*.ppm")
	stagetest.Must(t, err)
	a, b := found[0], found[1]
	stored(s).Upload(t, b)
	manifest := stagetest.Put(t, pictures+"/both.csv", []byte("path\n"+a+"\n"+stored(s).Away(t, b)+"\n"))
	both := formats.Open(t, spec.Dataset{Manifest: manifest, Root: "/", Origins: spec.Paths{"mem://b/"}}, schemes(s))
	s.Calls()
	for id, name := range found {
		raw, err := both.Read(t.Context(), int64(id))
		stagetest.Must(t, err)
		if want, err := os.ReadFile(name); err != nil || len(raw) != 1 || !bytes.Equal(raw[0], want) {
			t.Errorf("row %d is not %s", id, name)
		}
	}
	if c := s.Calls(); c.Reads != 1 {
		t.Errorf("of two rows one is in the store, and it was asked %+v", c)
	}
	_, err = dataset.Open(t.Context(), spec.Spec{Dataset: spec.Dataset{Manifest: manifest}}, dataset.Options{Sources: schemes(s)})
	if errs.CodeOf(err) != errs.Config || !strings.Contains(err.Error(), "outside") {
		t.Errorf("a manifest that leaves its folder: %v", err)
	}
}

// The version is what is compared: an object that was replaced by one as long is found
// by the next open, and by a read through an index of before.
func TestReplaced(t *testing.T) {
	t.Chdir("../../dataset")
	s := bucket.New()
	d := spec.Dataset{Path: spec.Paths{fixture.Shards(t, 4, 4)}}
	here := formats.Open(t, d, nil)
	d = stored(s).Copied(t, d, here.Dataset().Index())
	old := formats.Open(t, d, schemes(s))
	stored(s).Upload(t, string(here.Dataset().Index().AppendPath(0, nil)))
	var sample format.Sample
	err := format.NewReader(old.Dataset(), old.Source()).Read(t.Context(), 0, nil, &sample)
	if errs.CodeOf(err) != errs.Changed {
		t.Errorf("reading what was replaced: %v", err)
	}
	formats.Digests(t, formats.Open(t, d, schemes(s)))
}

// An index beside the data is adopted where versions are others, and are not times; it
// cannot be written into a bucket.
func TestAnIndexBesideTheData(t *testing.T) {
	t.Chdir("../../dataset")
	s := bucket.New()
	d := spec.Dataset{Path: spec.Paths{fixture.Shards(t, 40, 10)}}
	here := formats.Open(t, d, nil)
	x := here.Dataset().Index()
	at, err := format.WriteBeside(t.Context(), here.Source(), x)
	stagetest.Must(t, err)
	stored(s).Upload(t, at)
	t.Setenv("STOKER_CACHE", t.TempDir())
	indexed := false
	there, err := dataset.Open(t.Context(), spec.Spec{Dataset: stored(s).Copied(t, d, x)}, dataset.Options{
		Sources: schemes(s), Stored: true, Progress: func(int64, int64, string) { indexed = true },
	})
	stagetest.Must(t, err)
	defer there.Close()
	if indexed {
		t.Error("it was indexed again")
	}
	if there.Digest() != here.Digest() || !slices.Equal(formats.Digests(t, there), formats.Digests(t, here)) {
		t.Error("it is another dataset")
	}
	if _, err := format.WriteBeside(t.Context(), there.Source(), there.Dataset().Index()); errs.CodeOf(err) != errs.Unsupported {
		t.Errorf("writing into a bucket: %v", err)
	}
	if _, err := os.Stat("mem:"); err == nil {
		t.Error("a local folder was made of the name of a bucket")
	}
}

// What is wrong is said with the name that was given, and with what there is.
func TestErrorsTeach(t *testing.T) {
	s := bucket.New()
	s.Put("mem://b/train/000.tar", nil)
	for name, want := range map[string]string{
		"mem://b/trian/000.tar":        "did you mean \"mem://b/train/000.tar\"?",
		"mem://b/train/{000..001}.tar": `has one entry: 000.tar`,
		"mem://b/train/*.npz":          "the folder \"mem://b/train\" has one entry: 000.tar",
		"hdfs://b/x.tar":               "mount",
	} {
		_, err := dataset.Open(context.Background(), spec.Spec{Dataset: spec.Dataset{Path: spec.Paths{name}}}, dataset.Options{Sources: schemes(s)})
		if e := errs.From(err); err == nil || !strings.Contains(e.Hint, want) {
			t.Errorf("%s: %v (%s)", name, err, e.Hint)
		}
	}
}

// Tools that read samples read them from any source.
func TestVerify(t *testing.T) {
	t.Chdir("../../dataset")
	s := bucket.New()
	d := spec.Dataset{Path: spec.Paths{fixture.Shards(t, 9, 4)}}
	d = stored(s).Copied(t, d, formats.Open(t, d, nil).Dataset().Index())
	r, err := verify.Run(t.Context(), verify.Config{Dataset: d, Sources: schemes(s)})
	stagetest.Must(t, err)
	if r.Checked != r.Samples || r.Samples == 0 || r.Damaged != 0 {
		t.Errorf("%d of %d samples checked, %d damaged", r.Checked, r.Samples, r.Damaged)
	}
}
