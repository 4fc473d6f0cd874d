package hub_test

import (
	"bytes"
	"context"
	"iter"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/hub"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
	"github.com/stoker-data/stoker/internal/stagetest"
	"github.com/stoker-data/stoker/internal/stagetest/formats"
	"github.com/stoker-data/stoker/internal/stagetest/hubserver"
)

func TestMain(m *testing.M) { os.Exit(stagetest.OwnCache(m)) }

// serve starts a Hub, with its address as the endpoint, and no token to be found anywhere.
func serve(t *testing.T) *hubserver.Server {
	t.Helper()
	for _, env := range []string{"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HUB_DISABLE_IMPLICIT_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"} {
		t.Setenv(env, "")
	}
	t.Setenv("HF_HOME", t.TempDir())
	s := hubserver.New(t)
	t.Setenv("HF_ENDPOINT", s.URL)
	return s
}

// open makes a source: another one for each, as each dataset that is opened has its own.
func open(t *testing.T, a source.Access) source.Source {
	t.Helper()
	net := remote.NewNet(remote.Options{})
	t.Cleanup(net.Close)
	if a.Deadline == 0 {
		a.Deadline = 30 * time.Second
	}
	src, err := hub.Scheme(net).Open(a)
	stagetest.Must(t, err)
	return src
}

func sources(t *testing.T) []source.Scheme {
	net := remote.NewNet(remote.Options{})
	t.Cleanup(net.Close)
	return dataset.Sources(net)
}

func stat(t *testing.T, src source.Source, name string) source.Info {
	t.Helper()
	st, err := src.Stat(t.Context(), name)
	if err != nil {
		t.Fatalf("%s: %v (%s)", name, err, errs.From(err).Hint)
	}
	return st
}

func read(t *testing.T, src source.Source, name string) string {
	t.Helper()
	p, err := source.ReadAll(t.Context(), src, name, 1<<20)
	if err != nil {
		t.Fatalf("%s: %v (%s)", name, err, errs.From(err).Hint)
	}
	return string(p)
}

// files are the contents of a commit.
func files(all ...string) map[string][]byte {
	out := map[string][]byte{}
	for i := 0; i < len(all); i += 2 {
		out[all[i]] = []byte(all[i+1])
	}
	return out
}

// latest is a source whose commit is always the last one: another is made when there is
// a commit. A read of what was opened before it then meets what is there now.
type latest struct {
	t   *testing.T
	now atomic.Pointer[source.Source]
}

func (l *latest) renew() {
	src := open(l.t, source.Access{})
	l.now.Store(&src)
}

func (l *latest) Stat(ctx context.Context, name string) (source.Info, error) {
	return (*l.now.Load()).Stat(ctx, name)
}

func (l *latest) ReadAt(ctx context.Context, obj source.Info, p []byte, off int64) error {
	return (*l.now.Load()).ReadAt(ctx, obj, p, off)
}

func (l *latest) List(ctx context.Context, prefix string) iter.Seq2[source.Info, error] {
	return (*l.now.Load()).List(ctx, prefix)
}

func TestSource(t *testing.T) {
	for kind, lfs := range map[string]bool{"of LFS": true, "of Git": false} {
		t.Run(kind, func(t *testing.T) {
			stagetest.Source(t, func(t *testing.T, objects map[string][]byte) (source.Source, string, func(string, []byte)) {
				s := serve(t)
				s.LFS = func(string) bool { return lfs }
				s.Page = 2
				src := &latest{t: t}
				put := func(all map[string][]byte) {
					below := map[string][]byte{}
					for name, data := range all {
						below["x/"+name] = data
					}
					s.Commit("owner/name", "main", below)
					src.renew()
				}
				put(objects)
				return src, "hf://datasets/owner/name/x/", func(name string, data []byte) { put(map[string][]byte{name: data}) }
			})
		})
	}
}

func TestEveryFormat(t *testing.T) {
	s := serve(t)
	formats.Read(t, formats.Store{Prefix: "hf://datasets/owner/name", Put: func(path string, data []byte) {
		s.Commit("owner/name", "main", map[string][]byte{path[1:]: data})
	}})
}

// Names of repositories and revisions mean what they mean to huggingface_hub.
func TestNames(t *testing.T) {
	s := serve(t)
	first := s.Commit("owner/name", "main", files("data/x.txt", "first"))
	s.Commit("owner/name", "main", files("data/x.txt", "second"))
	s.Commit("owner/name", "refs/pr/1", files("data/x.txt", "of a pull request"))
	s.Commit("owner/name", "refs/convert/parquet", files("data/x.txt", "converted"))
	s.Commit("owner/name", "user/branch", files("data/x.txt", "of a branch"))
	s.Commit("owner/other", "main", files("data/x.txt", "other"))
	s.Commit("squad", "main", files("data/x.txt", "without an owner", "x.txt", "at the top"))
	s.Rename("owner/other", "owner/renamed")
	src := open(t, source.Access{})
	for name, want := range map[string]string{
		"hf://datasets/owner/name/data/x.txt":                          "second",
		"hf://datasets/owner/name@main/data/x.txt":                     "second",
		"hf://datasets/owner/name@" + first + "/data/x.txt":            "first",
		"hf://datasets/owner/name@refs%2Fpr%2F1/data/x.txt":            "of a pull request",
		"hf://datasets/owner/name@refs/pr/1/data/x.txt":                "of a pull request",
		"hf://datasets/owner/name@refs%2Fconvert%2Fparquet/data/x.txt": "converted",
		"hf://datasets/owner/name@refs/convert/parquet/data/x.txt":     "converted",
		"hf://datasets/owner/name@user%2Fbranch/data/x.txt":            "of a branch",
		"hf://datasets/owner/other/data/x.txt":                         "other",
		"hf://datasets/squad/data/x.txt":                               "without an owner",
		"hf://datasets/squad/x.txt":                                    "at the top",
		"hf://datasets/squad@main/x.txt":                               "at the top",
	} {
		if got := read(t, src, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		dir := source.Dir(name)
		var listed []string
		for it, err := range src.List(t.Context(), dir) {
			stagetest.Must(t, err)
			listed = append(listed, it.Name)
		}
		if !slices.Contains(listed, name) {
			t.Errorf("%s has %q", dir, listed)
		}
	}
	for _, dir := range []string{"hf://datasets/owner/name", "hf://datasets/owner/name/", "hf://datasets/owner/name@refs/pr/1", "hf://datasets/squad", "hf://datasets/owner/name/data/"} {
		if st := stat(t, src, dir); !st.Dir || st.Name != strings.TrimSuffix(dir, "/") {
			t.Errorf("%s: %+v", dir, st)
		}
	}
}

// Files are called what they are called, and folders are listed in the order of names,
// whatever the order and the size of the Hub's pages.
func TestOddNames(t *testing.T) {
	s := serve(t)
	s.Page = 2
	names := []string{"a b/c+d&e=f?g#h%2F.bin", "a b/é\x01.txt", "a b/@main", "z/" + strings.Repeat("n", 1000), "z/000", "z/001", "z/002.tar", "z/002/x", "z/002-y/x"}
	all := map[string][]byte{}
	for i, name := range names {
		all[name] = bytes.Repeat([]byte("x"), i)
	}
	s.Commit("o/n", "main", all)
	for _, walk := range []bool{false, true} { // what a listing of all says is good for single names too
		src := open(t, source.Access{})
		const root = "hf://datasets/o/n/"
		if walk {
			var walked []string
			for it, err := range source.Walk(t.Context(), src, root) {
				stagetest.Must(t, err)
				walked = append(walked, strings.TrimPrefix(it.Name, root))
			}
			want := append(slices.Clone(names), ".gitattributes")
			slices.Sort(want)
			if !slices.Equal(walked, want) {
				t.Errorf("walked %q", walked)
			}
			s.Seen()
		}
		for i, name := range names {
			if got := read(t, src, root+name); len(got) != i {
				t.Errorf("%q: %d bytes", name, len(got))
			}
		}
		if n := hubserver.Count(s.Seen(), "tree"); walk && n != 0 {
			t.Errorf("%d more listings, after one of everything", n)
		}
		var listed []string
		for it, err := range src.List(t.Context(), root+"z/") {
			stagetest.Must(t, err)
			listed = append(listed, strings.TrimPrefix(it.Name, root))
		}
		if want := []string{"z/000", "z/001", "z/002", "z/002-y", "z/002.tar", names[3]}; !slices.Equal(listed, want) {
			t.Errorf("listed %q", listed)
		}
	}
}

// A source reads the commit that the revision was when it was first asked for. The version
// of a file is that of its bytes: a commit that leaves them alone leaves it alone.
func TestACommitIsPinned(t *testing.T) {
	s := serve(t)
	s.Commit("o/n", "main", files("x.bin", "old", "y.txt", "old", "same.bin", "same", "same.txt", "same"))
	src := open(t, source.Access{})
	const root = "hf://datasets/o/n/"
	before := map[string]source.Info{}
	for _, name := range []string{"x.bin", "y.txt", "same.bin", "same.txt"} {
		before[name] = stat(t, src, root+name)
	}
	for it, err := range src.List(t.Context(), root) {
		stagetest.Must(t, err)
		if name := strings.TrimPrefix(it.Name, root); name != ".gitattributes" && it != before[name] {
			t.Errorf("listed as %+v, and %+v by itself", it, before[name])
		}
	}
	s.Commit("o/n", "main", files("x.bin", "new", "y.txt", "new", "README.md", "more"))
	for name, want := range map[string]string{"x.bin": "old", "y.txt": "old"} {
		if got := read(t, src, root+name); got != want {
			t.Errorf("%s: %q after another commit", name, got)
		}
	}
	later := open(t, source.Access{})
	for name, old := range before {
		now := stat(t, later, root+name)
		if same := now == old; same != strings.HasPrefix(name, "same") {
			t.Errorf("%s was %+v and is %+v", name, old, now)
		}
		err := later.ReadAt(t.Context(), old, make([]byte, old.Size), 0)
		if code := errs.CodeOf(err); strings.HasPrefix(name, "same") != (err == nil) || err != nil && code != errs.Changed {
			t.Errorf("%s: a read of what was there before: %v", name, err)
		}
		p := make([]byte, now.Size)
		stagetest.Must(t, later.ReadAt(t.Context(), now, p, 0))
		if err := later.ReadAt(t.Context(), old, p, 0); (err == nil) != strings.HasPrefix(name, "same") {
			t.Errorf("%s: a read of what was there before, once its place is known: %v", name, err)
		}
	}
}

// An index is good for a later commit that leaves the data alone, and not for one that
// does not.
func TestAnIndexOutlivesACommit(t *testing.T) {
	s := serve(t)
	shard, err := os.ReadFile("../../../../testdata/parquet/kinds.parquet")
	stagetest.Must(t, err)
	s.Commit("o/n", "main", map[string][]byte{"data/train-00000-of-00002.parquet": shard, "data/train-00001-of-00002.parquet": shard})
	index := func() (string, string, int64) {
		s.Seen()
		c, err := dataset.Open(t.Context(), spec.Spec{Dataset: spec.Dataset{Path: spec.Paths{"hf://datasets/o/n/data"}}}, dataset.Options{Sources: sources(t), Stored: true})
		stagetest.Must(t, err)
		defer c.Close()
		return c.Dataset().Index().Path(), c.Digest(), c.Len()
	}
	path, digest, n := index()
	s.Commit("o/n", "main", files("README.md", "# more words"))
	if again, d, _ := index(); again != path || d != digest {
		t.Errorf("another index: %s, and before %s", again, path)
	}
	if seen := s.Seen(); hubserver.Count(seen, "storage") > 1 { // one is read to see what it is
		t.Errorf("an index that is there was built by %+v", seen)
	}
	s.Commit("o/n", "main", map[string][]byte{"data/train-00001-of-00002.parquet": nil})
	if _, d, m := index(); d == digest || 2*m != n {
		t.Errorf("%d samples, and half of %d are there", m, n)
	}
}
