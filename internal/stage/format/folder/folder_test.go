package folder_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/folder"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

var ctx = context.Background()

// grow makes a tree: "path" is a file that holds its own name, "path/" a folder,
// "path -> target" a link.
func grow(t stagetest.TB, root string, tree ...string) {
	t.Helper()
	stagetest.Must(t, os.MkdirAll(root, 0o755))
	for _, entry := range tree {
		name, target, link := strings.Cut(entry, " -> ")
		path := root + "/" + name
		if strings.HasSuffix(name, "/") {
			stagetest.Must(t, os.MkdirAll(path, 0o755))
			continue
		}
		stagetest.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if link {
			stagetest.Must(t, os.Symlink(target, path))
		} else {
			stagetest.Must(t, os.WriteFile(path, []byte(name), 0o644))
		}
	}
}

// setting is a folder, a source and a store of indexes.
type setting struct {
	root  string
	src   source.Source
	opt   folder.Options
	built *int // how often something was indexed
}

func newSetting(t *testing.T, tree ...string) setting {
	t.Helper()
	dir := t.TempDir()
	s := setting{root: dir + "/data", src: source.NewFile(), opt: folder.Options{Store: &index.Store{Dir: dir + "/cache"}}, built: new(int)}
	last := int64(0)
	s.opt.Progress = func(done, _ int64, _ string) {
		if *s.built == 0 || done <= last {
			*s.built++
		}
		last = done
	}
	grow(t, s.root, tree...)
	return s
}

func (s setting) open(t *testing.T) *folder.Dataset {
	t.Helper()
	d, err := folder.Open(ctx, s.src, s.root, s.opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// samples are the names and labels of a dataset.
func samples(t stagetest.TB, d *folder.Dataset) (names []string, labels []int64) {
	t.Helper()
	var s format.Sample
	for id := range d.Index().Len() {
		stagetest.Must(t, d.Parse(id, []string{folder.Key, folder.Label}, nil, &s))
		names = append(names, string(s.Fields[0].Data))
		labels = append(labels, s.Fields[1].Int)
	}
	return names, labels
}

func TestSuite(t *testing.T) {
	s := newSetting(t, "a/1.jpg", "a/x/2.png", "b/3.jpeg", "c/é.webp")
	stagetest.Must(t, os.WriteFile(s.root+"/c/empty.jpg", nil, 0o644))
	d := s.open(t)
	stagetest.Dataset(t, d, s.src)
	stagetest.NoHeap(t, d, s.src, []string{"image", "label"})
	stagetest.NoHeap(t, d, s.src, nil)
}

// What torchvision makes of the same trees; see testdata/make.py.
func TestLikeImageFolder(t *testing.T) {
	data, err := os.ReadFile("testdata/imagefolder.json")
	stagetest.Must(t, err)
	var golden map[string]struct {
		Tree       []string
		AllowEmpty bool `json:"allow_empty"`
		Error      bool
		Classes    []string
		Samples    [][2]any
	}
	stagetest.Must(t, json.Unmarshal(data, &golden))
	for name, g := range golden {
		t.Run(name, func(t *testing.T) {
			tree := make([]string, len(g.Tree))
			for i, e := range g.Tree {
				tree[i], err = url.PathUnescape(e)
				stagetest.Must(t, err)
			}
			s := newSetting(t, tree...)
			s.opt.AllowEmpty = g.AllowEmpty
			d, err := folder.Open(ctx, s.src, s.root, s.opt)
			if g.Error {
				if errs.CodeOf(err) != errs.Empty {
					t.Errorf("got %v, ImageFolder refuses it", err)
				}
				return
			}
			stagetest.Must(t, err)
			defer d.Close()
			unescape := func(v any) string {
				s, err := url.PathUnescape(v.(string))
				stagetest.Must(t, err)
				return s
			}
			var wantNames, wantClasses []string
			var wantLabels []int64
			for _, w := range g.Samples {
				wantNames, wantLabels = append(wantNames, unescape(w[0])), append(wantLabels, int64(w[1].(float64)))
			}
			for _, c := range g.Classes {
				wantClasses = append(wantClasses, unescape(c))
			}
			names, labels := samples(t, d)
			if diff := cmp.Diff(wantNames, names) + cmp.Diff(wantLabels, labels) + cmp.Diff(wantClasses, d.Index().Classes()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestErrorsTeach(t *testing.T) {
	for _, c := range []struct {
		name string
		tree string
		path string // below the root
		code errs.Code
		what string
		hint string
	}{
		{"missing", "data/train/a/1.jpg", "data/tarin", errs.NotFound, "there is no dataset at", "data/train\"?"},
		{"a file", "x.jpg", "x.jpg", errs.Config, "is a file", "class folders"},
		{"a shard", "x.tar", "x.tar", errs.Config, "is a file", "WebDataset"},
		{"nothing", "", "", errs.Empty, "has no class folder", "one folder of images per class"},
		{"loose", "1.jpg 2.jpg", "", errs.Empty, "has no class folder", "2 images are directly in it: put them in one folder per class"},
		{"one loose", "1.jpg", "", errs.Empty, "has no class folder", "1 image is directly"},
		{"no image", "a/1.txt b/", "", errs.Empty, "there is no image below", "2 class folders were looked through; files count that end in .jpg"},
		{"empty class", "a/1.jpg b/ c/x.txt", "", errs.Empty, "2 classes without an image: b, c", "allow_empty"},
		{"below a file", "a/1.jpg", "a/1.jpg/x", errs.NotFound, "there is no dataset at", "1.jpg"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSetting(t, strings.Fields(c.tree)...)
			_, err := folder.Open(ctx, s.src, filepath.Join(s.root, c.path), s.opt)
			e := errs.From(err)
			if err == nil || e.Code != c.code || !strings.Contains(e.What, c.what) || !strings.Contains(e.Hint, c.hint) || e.Where.File == "" {
				t.Errorf("%s: %s at %v | %s", e.Code, e.What, e.Where, e.Hint)
			}
		})
	}
	_, err := folder.Open(ctx, source.NewFile(), "", folder.Options{})
	if errs.CodeOf(err) != errs.Config {
		t.Errorf("an empty path: %v", err)
	}
}

func TestFieldsTeach(t *testing.T) {
	s := newSetting(t, "a/1.jpg")
	d := s.open(t)
	stagetest.Must(t, d.Check([]string{"image", "label", "__key__", "jpg;image"}))
	e := errs.From(d.Check([]string{"image", "lable"}))
	if e.Code != errs.Config || !strings.Contains(e.Hint, `"label"`) || e.Where.Field != "lable" {
		t.Errorf("%v | %s", e, e.Hint)
	}
}

func TestCircle(t *testing.T) {
	for _, link := range []string{"a/b/up -> ..", "a/self -> .", "a/root -> ../..", "a/x -> ../../data/a"} {
		s := newSetting(t, "a/b/1.jpg", link)
		_, err := folder.Open(ctx, s.src, s.root, s.opt)
		if e := errs.From(err); err == nil || e.Code != errs.Config || !strings.Contains(e.What, "leads back") || !strings.Contains(e.Where.File, "/a/") {
			t.Errorf("%s: %v", link, err)
		}
	}
}

func TestUnreadableFolder(t *testing.T) {
	s := newSetting(t, "a/1.jpg", "b/1.jpg")
	s.src = stagetest.WithFaults(s.src, "list b unreadable")
	_, err := folder.Open(ctx, s.src, s.root, s.opt)
	if e := errs.From(err); err == nil || e.Code != errs.Unreadable || e.Where.File != s.root+"/b" {
		t.Errorf("%v", err)
	}
}

// A folder that is being filled while it is indexed is not half a dataset.
func TestWrittenToWhileIndexed(t *testing.T) {
	s := newSetting(t, "a/1.jpg", "b/1.jpg")
	n := 0
	s.src = meddler{s.src, func(dir string) {
		if filepath.Base(dir) == "b" {
			n++
			stagetest.Must(t, os.WriteFile(fmt.Sprintf("%s/%d.jpg", dir, n+1), nil, 0o644))
		}
	}}
	_, err := folder.Open(ctx, s.src, s.root, s.opt)
	if e := errs.From(err); err == nil || e.Code != errs.Changed || e.Where.File != s.root+"/b" || n < 2 {
		t.Errorf("%v after %d", err, n)
	}
	once := false
	s.src = meddler{source.NewFile(), func(dir string) {
		if filepath.Base(dir) == "a" && !once {
			once = true
			stagetest.Must(t, os.WriteFile(dir+"/new.jpg", nil, 0o644))
		}
	}}
	if names, _ := samples(t, s.open(t)); !slices.Contains(names, "a/new.jpg") {
		t.Errorf("%q", names)
	}
}

// meddler does something whenever a folder was listed.
type meddler struct {
	source.Source
	meddle func(dir string)
}

func (m meddler) List(ctx context.Context, prefix string) iter.Seq2[source.Info, error] {
	return func(yield func(source.Info, error) bool) {
		m.Source.List(ctx, prefix)(yield)
		m.meddle(prefix)
	}
}

func TestStaleness(t *testing.T) {
	base := []string{"a/1.jpg", "a/x/2.jpg", "b/3.jpg"}
	for _, c := range []struct {
		name   string
		change func(root string) error
		stale  bool
		want   string
	}{
		{"nothing", func(string) error { return nil }, false, "a/1.jpg a/x/2.jpg b/3.jpg"},
		{"read", func(r string) error { _, err := os.ReadFile(r + "/a/1.jpg"); return err }, false, "a/1.jpg a/x/2.jpg b/3.jpg"},
		{"file added", func(r string) error { return os.WriteFile(r+"/a/x/9.jpg", nil, 0o644) }, true, "a/1.jpg a/x/2.jpg a/x/9.jpg b/3.jpg"},
		{"file removed", func(r string) error { return os.Remove(r + "/a/1.jpg") }, true, "a/x/2.jpg b/3.jpg"},
		{"file renamed", func(r string) error { return os.Rename(r+"/b/3.jpg", r+"/b/4.jpg") }, true, "a/1.jpg a/x/2.jpg b/4.jpg"},
		{"class renamed", func(r string) error { return os.Rename(r+"/b", r+"/A") }, true, "A/3.jpg a/1.jpg a/x/2.jpg"},
		{"class added", func(r string) error { grow(t, r, "c/5.jpg"); return nil }, true, "a/1.jpg a/x/2.jpg b/3.jpg c/5.jpg"},
		{"class removed", func(r string) error { return os.RemoveAll(r + "/a") }, true, "b/3.jpg"},
		{"all replaced", func(r string) error {
			stagetest.Must(t, os.Rename(r, r+".old"))
			grow(t, r, base...)
			return nil
		}, true, "a/1.jpg a/x/2.jpg b/3.jpg"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSetting(t, base...)
			s.open(t)
			if *s.built != 1 {
				t.Fatalf("built %d times", *s.built)
			}
			stagetest.Must(t, c.change(s.root))
			names, _ := samples(t, s.open(t))
			if got := strings.Join(names, " "); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			if stale := *s.built > 1; stale != c.stale {
				t.Errorf("built again: %v, want %v", stale, c.stale)
			}
		})
	}
}

// counting counts the questions about files that no read needs.
type counting struct {
	source.Source
	stats, lists *atomic.Int64
}

func (c counting) Stat(ctx context.Context, name string) (source.Info, error) {
	c.stats.Add(1)
	return c.Source.Stat(ctx, name)
}

func (c counting) List(ctx context.Context, prefix string) iter.Seq2[source.Info, error] {
	c.lists.Add(1)
	return c.Source.List(ctx, prefix)
}

// A file that is rewritten in place with as many bytes is found when it is read, and
// opening asks for folders only, however many files there are.
func TestFileRewritten(t *testing.T) {
	s := newSetting(t, "a/1.jpg", "a/2.jpg", "b/3.jpg", "b/4.jpg", "b/5.jpg")
	s.open(t)
	var stats, lists atomic.Int64
	s.src = counting{s.src, &stats, &lists}
	d := s.open(t)
	if stats.Load() != 3 || lists.Load() != 0 {
		t.Errorf("opening 5 files in 2 folders asked for %d objects and listed %d folders", stats.Load(), lists.Load())
	}
	path := s.root + "/a/2.jpg"
	old, err := os.ReadFile(path)
	stagetest.Must(t, err)
	stagetest.Must(t, os.WriteFile(path, bytes.Repeat([]byte("x"), len(old)), 0o644))
	var smp format.Sample
	if e := errs.From(stagetest.Read(d, s.src, 1, nil, &smp)); e.Code != errs.Changed || e.Where.File != path {
		t.Errorf("%v", e)
	}
	stagetest.Must(t, stagetest.Read(d, s.src, 0, nil, &smp))
	stagetest.Must(t, d.Index().Invalidate())
	d = s.open(t)
	stagetest.Must(t, stagetest.Read(d, s.src, 1, nil, &smp))
}

// A file with another size than it had is found when it is read; after
// Invalidate the next Open has it right.
func TestFileChanged(t *testing.T) {
	s := newSetting(t, "a/1.jpg", "b/2.jpg")
	d := s.open(t)
	stagetest.Must(t, os.WriteFile(s.root+"/a/1.jpg", []byte("something else"), 0o644))
	stagetest.Must(t, os.Remove(s.root+"/b/2.jpg"))
	var smp format.Sample
	if e := errs.From(stagetest.Read(d, s.src, 0, nil, &smp)); e.Code != errs.Changed || e.Where.File != s.root+"/a/1.jpg" {
		t.Errorf("%v", e)
	}
	if e := errs.From(stagetest.Read(d, s.src, 1, nil, &smp)); e.Code != errs.NotFound {
		t.Errorf("%v", e)
	}
	stagetest.Must(t, d.Index().Invalidate())
	grow(t, s.root, "b/2.jpg")
	d = s.open(t)
	stagetest.Must(t, stagetest.Read(d, s.src, 0, nil, &smp))
	if string(smp.Fields[0].Data) != "something else" {
		t.Errorf("%q", smp.Fields[0].Data)
	}
}

func TestWhatIsNoFile(t *testing.T) {
	s := newSetting(t, "a/1.jpg", "a/gone.jpg -> nowhere", "a/null.jpg -> /dev/null", "b/2.jpg")
	before := s.open(t).Index().Digest()
	stagetest.Must(t, unix.Mkfifo(s.root+"/a/pipe.jpg", 0o644))
	stagetest.Must(t, unix.Mkfifo(s.root+"/a/pipe", 0o644)) // not called as a picture is
	for range 2 {                                           // built, and as it is kept
		d := s.open(t)
		var smp format.Sample
		if e := errs.From(stagetest.Read(d, s.src, 1, nil, &smp)); e.Code != errs.NotFound {
			t.Errorf("a link to nothing: %v", e)
		}
		want := "2 pipes, sockets or devices were found in " + s.root + " and left out (the first is a/null.jpg, a device)"
		if note := d.Index().Note(); d.Index().Len() != 3 || d.Index().Digest() != before || !strings.HasPrefix(note, want) {
			t.Errorf("%d samples, %q", d.Index().Len(), note)
		}
	}
	stagetest.Must(t, os.Remove(s.root+"/b/2.jpg"))
	stagetest.Must(t, unix.Mkfifo(s.root+"/b/2.jpg", 0o644))
	if _, err := folder.Open(ctx, s.src, s.root, s.opt); errs.From(err).Code != errs.Empty {
		t.Errorf("a class of a pipe alone: %v", err)
	}
}

// The digest is the same for the same files, regardless of where they are and when they
// were made; it is different if the files are.
func TestDigest(t *testing.T) {
	tree := []string{"a/1.jpg", "b/2.jpg"}
	base := newSetting(t, tree...).open(t).Index().Digest()
	then := time.Now().Add(-time.Hour)
	s := newSetting(t, tree...)
	stagetest.Must(t, os.Chtimes(s.root+"/a/1.jpg", then, then))
	stagetest.Must(t, os.Chtimes(s.root+"/a", then, then))
	if got := s.open(t).Index().Digest(); got != base {
		t.Error("another place and time, another digest")
	}
	for _, tree := range [][]string{{"a/1.jpg", "b/3.jpg"}, {"a/1.jpg", "b/2.jpg", "b/3.jpg"}, {"a/1.jpg", "c/2.jpg"}, {"a/1.jpg", "a/2.jpg"}} {
		if got := newSetting(t, tree...).open(t).Index().Digest(); got == base {
			t.Errorf("%q has the same digest", tree)
		}
	}
}

func TestOptionsHaveTheirOwnIndex(t *testing.T) {
	s := newSetting(t, "a/1.jpg", "a/2.npy")
	s.open(t)
	s.opt.Extensions = []string{".NPY"}
	if names, _ := samples(t, s.open(t)); !slices.Equal(names, []string{"a/2.npy"}) {
		t.Errorf("%q", names)
	}
	s.opt.Extensions = []string{".npy"}
	n := *s.built
	s.open(t)
	if *s.built != n {
		t.Error("the case of extensions matters")
	}
}

func TestCancelled(t *testing.T) {
	s := newSetting(t, "a/1.jpg")
	ended, end := context.WithCancel(ctx)
	end()
	if _, err := folder.Open(ended, s.src, s.root, s.opt); err != context.Canceled { //nolint:errorlint // as it is
		t.Errorf("%v", err)
	}
}

func TestRandomTrees(t *testing.T) {
	n := 0
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		n++
		part := rapid.StringMatching(`[ab.é-]{0,2}[abAé]`)
		ext := rapid.SampledFrom([]string{".jpg", ".JPG", ".txt", ""})
		root := fmt.Sprintf("%s/%d", dir, n)
		want := make(map[string]bool)
		for range rapid.IntRange(1, 12).Draw(t, "files") {
			parts := rapid.SliceOfN(part, 2, 4).Draw(t, "path")
			e := ext.Draw(t, "ext")
			name := strings.Join(parts, "/") + e
			if os.MkdirAll(filepath.Dir(root+"/"+name), 0o755) != nil || os.WriteFile(root+"/"+name, []byte(name), 0o644) != nil {
				continue // a folder where a file is, or the other way round
			}
			if strings.EqualFold(e, ".jpg") {
				want[name] = true
			}
		}
		d, err := folder.Open(ctx, source.NewFile(), root, folder.Options{AllowEmpty: true, Store: &index.Store{}})
		if len(want) == 0 {
			if errs.CodeOf(err) != errs.Empty {
				t.Fatalf("%v", err)
			}
			return
		}
		stagetest.Must(t, err)
		defer d.Close()
		names, labels := samples(t, d)
		classes := d.Index().Classes()
		if !slices.IsSorted(classes) || len(names) != len(want) || !slices.IsSorted(labels) {
			t.Fatalf("classes %q, names %q, labels %v", classes, names, labels)
		}
		for i, name := range names {
			if !want[name] || !strings.HasPrefix(name, classes[labels[i]]+"/") {
				t.Fatalf("%q has the class %q", name, classes[labels[i]])
			}
			if i > 0 && labels[i] == labels[i-1] && compareInClass(names[i-1], name) >= 0 {
				t.Fatalf("%q comes after %q", name, names[i-1])
			}
		}
	})
}

// compareInClass is the order of os.walk, sorted: by folder, then by name.
func compareInClass(a, b string) int {
	if c := strings.Compare(filepath.Dir(a), filepath.Dir(b)); c != 0 {
		return c
	}
	return strings.Compare(filepath.Base(a), filepath.Base(b))
}
