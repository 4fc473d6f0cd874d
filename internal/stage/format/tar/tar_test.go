package tar_test

import (
	gotar "archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/tar"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

var ctx = context.Background()

type member struct{ name, data string }

// members are "name=data", or a name alone whose data is the name.
func members(list ...string) []member {
	var out []member
	for _, m := range list {
		name, data, ok := strings.Cut(m, "=")
		if !ok {
			data = name
		}
		out = append(out, member{name, data})
	}
	return out
}

func archive(t stagetest.TB, form gotar.Format, list []member) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := gotar.NewWriter(&buf)
	for _, m := range list {
		stagetest.Must(t, w.WriteHeader(&gotar.Header{Name: m.name, Size: int64(len(m.data)), Mode: 0o644, Format: form}))
		_, err := w.Write([]byte(m.data))
		stagetest.Must(t, err)
	}
	stagetest.Must(t, w.Close())
	return buf.Bytes()
}

// shelf is a folder for shards and one for indexes.
type shelf struct {
	dir   string
	src   source.Source
	store *index.Store
	bytes *atomic.Int64 // that were said to be indexed
}

func newShelf(t *testing.T) shelf {
	t.Helper()
	dir := t.TempDir()
	src := source.NewFile()
	t.Cleanup(func() { _ = src.Close() })
	return shelf{dir, src, &index.Store{Dir: dir + "/cache"}, new(atomic.Int64)}
}

func (s shelf) put(t stagetest.TB, name string, data []byte) string {
	t.Helper()
	return stagetest.Put(t, filepath.Join(s.dir, name), data)
}

func (s shelf) try(shards ...string) (*tar.Dataset, error) {
	return tar.Open(ctx, s.src, shards, tar.Options{Store: s.store, Progress: func(done, _ int64, _ string) { s.bytes.Store(done) }})
}

func (s shelf) open(t *testing.T, shards ...string) *tar.Dataset {
	t.Helper()
	d, err := s.try(shards...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

type sample struct {
	Key    string
	URL    string
	Fields map[string]string
}

func all(t stagetest.TB, d *tar.Dataset, src source.Source) []sample {
	t.Helper()
	var out []sample
	var s format.Sample
	for id := range d.Index().Len() {
		stagetest.Must(t, stagetest.Read(d, src, id, nil, &s))
		one := sample{Fields: make(map[string]string)}
		for _, f := range s.Fields {
			switch f.Name {
			case tar.Key:
				one.Key = string(f.Data)
			case tar.URL:
				one.URL = string(f.Data)
			default:
				one.Fields[strings.Clone(f.Name)] = string(f.Data)
			}
		}
		out = append(out, one)
	}
	return out
}

func TestSuite(t *testing.T) {
	s := newShelf(t)
	gap := strings.Repeat("g", 100<<10) // more than is read along
	a := s.put(t, "a.tar", archive(t, gotar.FormatPAX, members("1.jpg", "1.cls=0", "1.json={}", "2.jpg=", "2.cls=1")))
	b := s.put(t, "b.tar", archive(t, gotar.FormatGNU, members("1.jpg", "1.npy="+gap, "1.cls=2", "1.txt=x", "x/3.jpg=y", strings.Repeat("l", 150)+".jpg")))
	d := s.open(t, a, b)
	stagetest.Dataset(t, d, s.src)
	stagetest.NoHeap(t, d, s.src, []string{"png;jpg", "jpg", "__key__", "__url__"})
	stagetest.NoHeap(t, d, s.src, nil)
	if got := d.Extents(2, []string{"jpg", "cls"}, nil); len(got) != 2 {
		t.Errorf("members that are far apart are read as %v", got)
	}
	if got := d.Extents(2, []string{"cls", "txt"}, nil); len(got) != 1 {
		t.Errorf("adjacent members are read as %v", got)
	}
}

// What WebDataset reads from the same shards; see testdata/make.py.
func TestLikeWebDataset(t *testing.T) {
	data, err := os.ReadFile("testdata/webdataset.json")
	stagetest.Must(t, err)
	var golden map[string][]sample
	stagetest.Must(t, json.Unmarshal(data, &golden))
	for name, want := range golden {
		t.Run(name, func(t *testing.T) {
			s := newShelf(t)
			path, err := filepath.Abs("testdata/" + name)
			stagetest.Must(t, err)
			for i := range want {
				want[i].URL = path
				want[i].Key, err = url.PathUnescape(want[i].Key)
				stagetest.Must(t, err)
				for k, v := range want[i].Fields {
					want[i].Fields[k] = latin1(v)
				}
			}
			d := s.open(t, path)
			if diff := cmp.Diff(want, all(t, d, s.src)); diff != "" {
				t.Error(diff)
			}
			stagetest.Dataset(t, d, s.src)
		})
	}
}

func latin1(s string) string {
	b := make([]byte, 0, len(s))
	for _, r := range s {
		b = append(b, byte(r))
	}
	return string(b)
}

func TestHiddenMembersAreNoData(t *testing.T) {
	s := newShelf(t)
	d := s.open(t, s.put(t, "a.tar", archive(t, gotar.FormatUSTAR, members("d/._1.jpg", "d/1.jpg", ".x.jpg", "d/1.cls"))))
	if got := all(t, d, s.src); len(got) != 1 || len(got[0].Fields) != 2 || d.Index().Meta().Skipped != 2 {
		t.Errorf("%v, %d skipped", got, d.Index().Meta().Skipped)
	}
}

// Hard links have no bytes of their own: how many are left out is said, also of
// shards that an older index knew.
func TestHardLinksAreCounted(t *testing.T) {
	s := newShelf(t)
	linked := func(names ...string) []byte {
		var b bytes.Buffer
		w := gotar.NewWriter(&b)
		stagetest.Must(t, w.WriteHeader(&gotar.Header{Name: "0.jpg", Typeflag: gotar.TypeReg, Size: 3, Mode: 0o644}))
		_, err := w.Write([]byte("pix"))
		stagetest.Must(t, err)
		for _, n := range names {
			stagetest.Must(t, w.WriteHeader(&gotar.Header{Name: n, Linkname: "0.jpg", Typeflag: gotar.TypeLink, Mode: 0o644}))
		}
		stagetest.Must(t, w.Close())
		return b.Bytes()
	}
	a := s.put(t, "a.tar", archive(t, gotar.FormatUSTAR, members("1.jpg", "1.cls=0")))
	if note := s.open(t, a).Index().Note(); note != "" {
		t.Errorf("%q", note)
	}
	b := s.put(t, "b.tar", linked("1.jpg", "x/2.jpg", ".hidden.jpg", "without a dot"))
	c := s.put(t, "c.tar", linked("3.jpg"))
	const want = "3 members are hard links and were left out (the first is in b.tar)"
	for range 2 { // the second time after one of the shards was rewritten
		d := s.open(t, a, b, c)
		if note := d.Index().Note(); !strings.HasPrefix(note, want) || d.Index().Len() != 3 || d.Index().Meta().Skipped != 5 {
			t.Errorf("%d samples, %q", d.Index().Len(), note)
		}
		s.put(t, "a.tar", archive(t, gotar.FormatUSTAR, members("1.jpg", "1.cls=01")))
	}
}

func TestFieldsTeach(t *testing.T) {
	s := newShelf(t)
	path := s.put(t, "a.tar", archive(t, gotar.FormatUSTAR, members("1.jpg", "1.cls", "x/2.jpeg", "x/2.cls")))
	d := s.open(t, path)
	stagetest.Must(t, d.Check([]string{"jpg;png", "cls", "__url__", "gif;__key__"}))
	if e := errs.From(d.Check([]string{"jpg", "csl"})); e.Code != errs.Config || !strings.Contains(e.What, "jpg, cls, jpeg") || !strings.Contains(e.Hint, `"cls"`) {
		t.Errorf("%v | %s", e, e.Hint)
	}
	var smp format.Sample
	e := errs.From(stagetest.Read(d, s.src, 1, []string{"jpg"}, &smp))
	if e.Code != errs.MissingField || e.Where.Shard != path || e.Where.Member != "x/2" || e.Where.Sample.Or(-1) != 1 ||
		!strings.Contains(e.What, "it has jpeg, cls") || !strings.Contains(e.Hint, `"jpeg"`) {
		t.Errorf("%v at %+v | %s", e, e.Where, e.Hint)
	}
	stagetest.Must(t, stagetest.Read(d, s.src, 1, []string{"jpg;jpeg;png"}, &smp))
	if f := smp.Fields[0]; f.Name != "jpeg" || string(f.Member) != "x/2.jpeg" || string(f.Data) != "x/2.jpeg" {
		t.Errorf("%+v", f)
	}
}

func TestKeysMayComeAgainInAnotherShard(t *testing.T) {
	s := newShelf(t)
	a := s.put(t, "a.tar", archive(t, gotar.FormatUSTAR, members("1.jpg=a")))
	b := s.put(t, "b.tar", archive(t, gotar.FormatUSTAR, members("1.jpg=b")))
	got := all(t, s.open(t, b, a, b), s.src)
	if len(got) != 3 || got[0].Fields["jpg"] != "b" || got[1].URL != a || got[2].URL != b {
		t.Errorf("%v", got)
	}
}

func TestOpenErrorsTeach(t *testing.T) {
	s := newShelf(t)
	good := s.put(t, "train-000.tar", archive(t, gotar.FormatUSTAR, members("1.jpg")))
	for _, c := range []struct {
		name   string
		shards []string
		code   errs.Code
		what   string
		hint   string
	}{
		{"no list", nil, errs.Config, "list of shards is empty", "{000..099}"},
		{"missing", []string{good, s.dir + "/train-001.tar"}, errs.NotFound, "no tar file", "train-000.tar"},
		{"folder", []string{s.dir}, errs.Config, "is a folder", "/*"},
		{"no sample", []string{s.put(t, "none.tar", archive(t, gotar.FormatUSTAR, nil))}, errs.Empty, "no sample", "0001.jpg"},
		{"no data", []string{s.put(t, "dots.tar", archive(t, gotar.FormatUSTAR, members("a", "b")))}, errs.Empty, "no sample", "2 members are not data"},
		{"xz", []string{s.put(t, "x.tar.xz", []byte("\xfd7zXZ\x00 and more"))}, errs.Unsupported, "compressed with xz", "unxz"},
		{"text", []string{s.put(t, "t.tar", bytes.Repeat([]byte("text"), 500))}, errs.Damaged, "first header", "tar file"},
		{"short text", []string{s.put(t, "u.tar", []byte("text"))}, errs.Damaged, "inside a header", ""},
		{"zero bytes", []string{s.put(t, "v.tar", nil)}, errs.Damaged, "is empty", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := s.try(c.shards...)
			e := errs.From(err)
			if err == nil || e.Code != c.code || !strings.Contains(e.What, c.what) || !strings.Contains(e.Hint, c.hint) || c.shards != nil && e.Where.Shard+e.Where.File == "" {
				t.Errorf("%s: %s at %v | %s", e.Code, e.What, e.Where, e.Hint)
			}
		})
	}
}

func TestStaleness(t *testing.T) {
	shard := func(t *testing.T, list ...string) []byte { return archive(t, gotar.FormatUSTAR, members(list...)) }
	setup := func(t *testing.T) (shelf, string, string) {
		s := newShelf(t)
		a, b := s.put(t, "a.tar", shard(t, "1.jpg", "2.jpg", "2.x")), s.put(t, "b.tar", shard(t, "3.y", "3.jpg"))
		s.open(t, a, b)
		if s.bytes.Load() == 0 {
			t.Fatal("was not built")
		}
		s.bytes.Store(0)
		return s, a, b
	}
	t.Run("nothing", func(t *testing.T) {
		s, a, b := setup(t)
		if got := all(t, s.open(t, a, b), s.src); len(got) != 3 || s.bytes.Load() != 0 {
			t.Errorf("%v, built again %v", got, s.bytes.Load() != 0)
		}
	})
	t.Run("one shard replaced: the other is not read", func(t *testing.T) {
		s, a, b := setup(t)
		s.put(t, "b.tar", shard(t, "4.jpg", "5.z", "6.jpg"))
		faulty := stagetest.WithFaults(s.src, "read a.tar unreadable")
		d, err := tar.Open(ctx, faulty, []string{a, b}, tar.Options{Store: s.store})
		stagetest.Must(t, err)
		defer d.Close()
		fresh := newShelf(t)
		want, err := tar.Open(ctx, s.src, []string{a, b}, tar.Options{Store: fresh.store})
		stagetest.Must(t, err)
		defer want.Close()
		if diff := cmp.Diff(all(t, want, s.src), all(t, d, s.src)); diff != "" {
			t.Error(diff)
		}
		if d.Index().Digest() != want.Index().Digest() {
			t.Error("an index that was built in part has another digest")
		}
	})
	t.Run("only the time", func(t *testing.T) {
		s, a, b := setup(t)
		now := time.Now().Add(-time.Minute)
		stagetest.Must(t, os.Chtimes(a, now, now))
		s.open(t, a, b)
		if s.bytes.Load() == 0 {
			t.Error("was not built again")
		}
	})
	t.Run("while it is read", func(t *testing.T) {
		s, a, b := setup(t)
		d := s.open(t, a, b)
		stagetest.Must(t, os.WriteFile(a, shard(t, "1.jpg", "2.jpg", "2.x"), 0o644)) // the same bytes, but who knows
		var smp format.Sample
		if e := errs.From(stagetest.Read(d, s.src, 0, nil, &smp)); e.Code != errs.Changed {
			t.Errorf("%v", e)
		}
		stagetest.Must(t, stagetest.Read(d, s.src, 2, nil, &smp))
	})
	t.Run("while it is indexed", func(t *testing.T) {
		s, a, b := setup(t)
		stagetest.Must(t, os.Remove(s.store.Path(index.Key{Format: "tar", Paths: []string{a, b}})))
		src := touching{s.src, func() { stagetest.Must(t, os.Chtimes(b, time.Now(), time.Now())) }}
		if _, err := tar.Open(ctx, src, []string{a, b}, tar.Options{Store: s.store}); errs.CodeOf(err) != errs.Changed {
			t.Errorf("%v", err)
		}
	})
}

// touching does something before every read.
type touching struct {
	source.Source
	touch func()
}

func (s touching) ReadAt(ctx context.Context, obj source.Info, p []byte, off int64) error {
	err := s.Source.ReadAt(ctx, obj, p, off)
	s.touch()
	return err
}

func TestDigest(t *testing.T) {
	open := func(t *testing.T, dir, a, b string) string {
		s := newShelf(t)
		return s.open(t, s.put(t, dir+"a.tar", archive(t, gotar.FormatUSTAR, members("1.jpg", "2.jpg="+a))), s.put(t, dir+"b.tar", archive(t, gotar.FormatUSTAR, members(b)))).Index().Digest()
	}
	base := open(t, "", "x", "3.jpg")
	if open(t, "elsewhere/", "x", "3.jpg") != base {
		t.Error("another folder, another digest")
	}
	if open(t, "", "xx", "3.jpg") == base || open(t, "", "x", "4.jpg") == base || open(t, "", "x", "3.png") == base {
		t.Error("other samples, the same digest")
	}
}

func TestRootOfShards(t *testing.T) {
	s := newShelf(t)
	data := archive(t, gotar.FormatUSTAR, members("1.jpg"))
	for _, names := range [][]string{{"x/a.tar"}, {"x/a.tar", "x/b.tar"}, {"x/a.tar", "xy/a.tar"}, {"x/y/a.tar", "x/a.tar", "x/yz.tar"}} {
		var paths []string
		for _, n := range names {
			paths = append(paths, s.put(t, n, data))
		}
		d := s.open(t, paths...)
		for i, p := range paths {
			if got := string(d.Index().AppendPath(i, nil)); got != p {
				t.Errorf("shard %d of %q is %q", i, names, got)
			}
		}
	}
}

func TestManyShardsSideBySide(t *testing.T) {
	s := newShelf(t)
	var shards []string
	for i := range 40 {
		var list []string
		for j := range 25 {
			list = append(list, fmt.Sprintf("%d-%d.jpg", i, j), fmt.Sprintf("%d-%d.cls=%d", i, j, i))
		}
		shards = append(shards, s.put(t, fmt.Sprintf("%03d.tar", i), archive(t, gotar.FormatPAX, members(list...))))
	}
	d := s.open(t, shards...)
	for i, smp := range all(t, d, s.src) {
		if want := fmt.Sprintf("%d-%d", i/25, i%25); smp.Key != want || smp.Fields["jpg"] != want+".jpg" || smp.URL != shards[i/25] {
			t.Fatalf("sample %d is %v", i, smp)
		}
	}
	s.put(t, "020.tar", []byte("no tar"))
	s.put(t, "030.tar", []byte("no tar"))
	for range 5 { // the same error, whoever is faster
		if _, err := s.try(shards...); errs.CodeOf(err) != errs.Damaged || errs.From(err).Where.Shard != shards[20] {
			t.Fatalf("%v", err)
		}
	}
}

func TestCancelled(t *testing.T) {
	s := newShelf(t)
	path := s.put(t, "a.tar", archive(t, gotar.FormatUSTAR, members("1.jpg")))
	hanging := stagetest.WithFaults(s.src, "read a.tar hang")
	soon, stop := context.WithTimeout(ctx, 20*time.Millisecond)
	defer stop()
	if _, err := tar.Open(soon, hanging, []string{path}, tar.Options{Store: s.store}); err != context.DeadlineExceeded { //nolint:errorlint // as it is
		t.Errorf("%v", err)
	}
}

// reference groups what Go's own reader finds by the rules, the slow and plain
// way.
func reference(t stagetest.TB, data []byte, path string) []sample {
	t.Helper()
	r := gotar.NewReader(bytes.NewReader(data))
	var out []sample
	for {
		h, err := r.Next()
		if err == io.EOF {
			return out
		}
		stagetest.Must(t, err)
		body, err := io.ReadAll(r)
		stagetest.Must(t, err)
		dir, base := "", h.Name
		if i := strings.LastIndex(h.Name, "/"); i >= 0 {
			dir, base = h.Name[:i+1], h.Name[i+1:]
		}
		stem, ext, ok := strings.Cut(base, ".")
		if !ok || stem == "" || h.Typeflag != gotar.TypeReg {
			continue
		}
		if len(out) == 0 || out[len(out)-1].Key != dir+stem {
			out = append(out, sample{dir + stem, path, make(map[string]string)})
		}
		out[len(out)-1].Fields[strings.ToLower(ext)] = string(body)
	}
}

func TestRandomShards(t *testing.T) {
	s := newShelf(t)
	rapid.Check(t, func(t *rapid.T) {
		form := rapid.SampledFrom([]gotar.Format{gotar.FormatPAX, gotar.FormatGNU}).Draw(t, "format")
		var list []member
		for i := range rapid.IntRange(1, 12).Draw(t, "samples") {
			stem := rapid.StringMatching(`([a-zé]{1,60}/){0,3}[a-zA-Z0-9é_-]{0,120}`).Draw(t, "stem") + fmt.Sprint("-", i) // whatever is drawn, no key comes twice
			for _, e := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"jpg", "PNG", "cls", "seg.png", "json", ""}), 1, 4, strings.ToLower).Draw(t, "fields") {
				size := rapid.SampledFrom([]int{0, 1, 511, 512, 513, 5000, 70_000}).Draw(t, "size")
				list = append(list, member{stem + "." + e, strings.Repeat("x", size)})
			}
			if rapid.Bool().Draw(t, "junk") {
				list = append(list, member{"README", "nothing"})
			}
		}
		data := archive(t, form, list)
		path := s.put(t, "r.tar", data)
		d, err := tar.Open(ctx, s.src, []string{path}, tar.Options{Store: &index.Store{}})
		stagetest.Must(t, err)
		defer d.Close()
		if diff := cmp.Diff(reference(t, data, path), all(t, d, s.src)); diff != "" {
			t.Fatal(diff)
		}
	})
}
