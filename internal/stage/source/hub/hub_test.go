package hub_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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

// Opening costs a few requests of the API, whatever the number of shards, and reading one
// asks the Hub once where it is.
func TestRequests(t *testing.T) {
	s := serve(t)
	shard, err := os.ReadFile("../../../../testdata/parquet/kinds.parquet")
	stagetest.Must(t, err)
	all := files("README.md", "---\nlicense: mit\n---\n")
	for i := range 100 {
		all[fmt.Sprintf("data/train-%05d-of-00100.parquet", i)] = shard
	}
	s.Commit("o/n", "main", all)
	for _, path := range []string{"hf://datasets/o/n", "hf://datasets/o/n/data/*.parquet", "hf://datasets/o/n/data/train-{00000..00099}-of-00100.parquet"} {
		for _, first := range []bool{true, false} {
			s.Seen()
			c, err := dataset.Open(t.Context(), spec.Spec{Dataset: spec.Dataset{Path: spec.Paths{path}}}, dataset.Options{Sources: sources(t), Stored: true})
			if err != nil {
				t.Fatalf("%s: %v (%s)", path, err, errs.From(err).Hint)
			}
			files := c.Dataset().Index().Files()
			c.Close()
			seen := s.Seen()
			api, resolved := hubserver.Count(seen, "info")+hubserver.Count(seen, "tree")+hubserver.Count(seen, "paths"), hubserver.Count(seen, "resolve")
			t.Logf("%s: %d of the API, %d of resolve, %d of the storage", path, api, resolved, hubserver.Count(seen, "storage"))
			if files != 100 || api > 4 || resolved > 102 || !first && resolved > 3 {
				t.Errorf("%s: %d files, %d requests of the API, %d of resolve", path, files, api, resolved)
				for _, r := range seen[:10] {
					t.Logf("%+v", r)
				}
			}
		}
	}
}

// Many reads of a file that nobody has read yet ask where it is once.
func TestOneAsksWhereAFileIs(t *testing.T) {
	s := serve(t)
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<14)
	s.Commit("o/n", "main", map[string][]byte{"x.tar": data})
	src := open(t, source.Access{})
	obj := stat(t, src, "hf://datasets/o/n/x.tar")
	s.Seen()
	together := func() {
		t.Helper()
		var wg sync.WaitGroup
		for i := range 32 {
			wg.Go(func() {
				p := make([]byte, 1000)
				if err := src.ReadAt(t.Context(), obj, p, int64(i*1000)); err != nil || !bytes.Equal(p, data[i*1000:i*1000+1000]) {
					t.Errorf("at %d: %v", i*1000, err)
				}
			})
		}
		wg.Wait()
	}
	together()
	if seen := s.Seen(); hubserver.Count(seen, "resolve") != 1 || hubserver.Count(seen, "storage") < 32 {
		t.Errorf("%d resolved, %d read", hubserver.Count(seen, "resolve"), hubserver.Count(seen, "storage"))
	}
	s.Expire() // every URL that was signed is refused from now on
	together()
	if n := hubserver.Count(s.Seen(), "resolve"); n < 1 || n > 4 {
		t.Errorf("%d resolved, once the signature ended", n)
	}
}

// A URL whose end is near is not used: it is asked for again before it is refused.
func TestSignaturesEnd(t *testing.T) {
	s := serve(t)
	s.Life = time.Second
	s.Commit("o/n", "main", files("x.bin", "data"))
	src := open(t, source.Access{})
	obj := stat(t, src, "hf://datasets/o/n/x.bin")
	for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		stagetest.Must(t, src.ReadAt(t.Context(), obj, make([]byte, 4), 0))
	}
	seen := s.Seen()
	if n := hubserver.Count(seen, "resolve"); n < 2 || n > 4 {
		t.Errorf("asked %d times where the file is, for one second each", n)
	}
	// For good: an error that says so, and no loop.
	s.Spoil = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Path, "/xet-bridge/") {
			w.WriteHeader(http.StatusForbidden)
			return true
		}
		return false
	}
	err := open(t, source.Access{}).ReadAt(t.Context(), obj, make([]byte, 4), 0)
	if e := errs.From(err); e.Code != errs.Denied || e.Where.File != obj.Name || !strings.Contains(e.What, "403") || strings.Contains(err.Error()+e.Hint, "Signature") {
		t.Errorf("%v (%s)", err, e.Hint)
	}
	if n := hubserver.Count(s.Seen(), "resolve"); n != 2 {
		t.Errorf("asked %d times for a URL that is always refused", n)
	}
}

// What is not an answer to the request is not delivered.
func TestAnswersAreChecked(t *testing.T) {
	data := "the bytes of an object, which are these"
	storage := func(f func(w http.ResponseWriter)) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasPrefix(r.URL.Path, "/xet-bridge/") {
				return false
			}
			f(w)
			return true
		}
	}
	resolve := func(set ...string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/resolve/") {
				return false
			}
			for i := 0; i < len(set); i += 2 {
				w.Header().Set(set[i], set[i+1])
			}
			w.WriteHeader(http.StatusFound)
			return true
		}
	}
	part := func(first, last, size int, body string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, size))
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write([]byte(body))
		}
	}
	n := len(data)
	for name, c := range map[string]struct {
		spoil func(w http.ResponseWriter, r *http.Request) bool
		code  errs.Code
		says  string
	}{
		"as it should be": {},
		"other bytes":     {storage(part(0, n-1, n, strings.ToUpper(data))), errs.Unreadable, "do not have the hash"},
		"another range":   {storage(part(1, n, n+1, data)), errs.Unreachable, "were requested"},
		"another size":    {storage(part(0, n-1, n+1, data)), errs.Changed, "40 bytes"},
		"too short":       {storage(part(0, n-1, n, data[:9])), errs.Unreachable, "9 bytes"},
		"all of it":       {storage(func(w http.ResponseWriter) { _, _ = w.Write([]byte(data)) }), errs.Unsupported, "does not answer requests of ranges"},
		"encoded": {storage(func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "gzip")
			part(0, n-1, n, data)(w)
		}), errs.Unreachable, "encoded"},
		"shorter":        {storage(func(w http.ResponseWriter) { w.WriteHeader(http.StatusRequestedRangeNotSatisfiable) }), errs.Changed, "shorter"},
		"out of order":   {storage(func(w http.ResponseWriter) { w.WriteHeader(500) }), errs.Unreachable, "answered 500"},
		"another file":   {resolve("X-Linked-Etag", `"`+strings.Repeat("a", 64)+`"`, "Location", "http://127.0.0.1:1/x"), errs.Changed, "its hash is aaaa"},
		"a longer file":  {resolve("X-Linked-Size", "1000", "X-Linked-Etag", fmt.Sprintf("%x", sha256.Sum256([]byte(data))), "Location", "http://127.0.0.1:1/x"), errs.Changed, "1000 bytes"},
		"another commit": {resolve("X-Repo-Commit", strings.Repeat("b", 40), "Location", "http://127.0.0.1:1/x"), errs.Unreachable, "of the commit bbbb"},
		"machine keys": {func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasPrefix(r.URL.Path, "/xet-bridge/") {
				http.Redirect(w, r, "http://169.254.169.254/latest/meta-data", http.StatusFound)
				return true
			}
			return false
		}, errs.Unreadable, "link-local"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t)
			s.Commit("o/n", "main", files("x.bin", data))
			src := open(t, source.Access{Deadline: 200 * time.Millisecond})
			obj := stat(t, src, "hf://datasets/o/n/x.bin")
			s.Spoil = c.spoil
			p := make([]byte, n)
			err := src.ReadAt(t.Context(), obj, p, 0)
			if c.code == "" {
				if err != nil || string(p) != data {
					t.Errorf("%q, %v", p, err)
				}
				return
			}
			if e := errs.From(err); err == nil || e.Code != c.code || !strings.Contains(err.Error(), c.says) || e.Where.File != obj.Name || e.Hint == "" {
				t.Errorf("%v (%s)", err, errs.From(err).Hint)
			}
		})
	}
}

// A Hub that refuses or fails for a while is waited for, in every kind of request; one
// that goes on is an error that says what it is.
func TestTrouble(t *testing.T) {
	s := serve(t)
	s.Page = 1
	s.Commit("o/n", "main", files("a/x.bin", "data", "a/y.txt", "text"))
	var mu sync.Mutex
	troubles := map[string]func(w http.ResponseWriter){
		"info":    func(w http.ResponseWriter) { w.Header().Set("Retry-After", "0"); w.WriteHeader(429) },
		"tree":    func(w http.ResponseWriter) { _, _ = w.Write([]byte(`[{"type": "fi`)) },
		"cursor":  func(w http.ResponseWriter) { w.WriteHeader(500) },
		"resolve": func(w http.ResponseWriter) { w.WriteHeader(502) },
		"storage": func(w http.ResponseWriter) { w.WriteHeader(503) },
	}
	s.Spoil = func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		kind := "info"
		for part, k := range map[string]string{"/tree/": "tree", "/resolve/": "resolve", "/xet-bridge/": "storage"} {
			if strings.Contains(r.URL.Path, part) {
				kind = k
			}
		}
		if r.URL.Query().Has("cursor") {
			kind = "cursor"
		}
		if troubles[kind] == nil {
			return false
		}
		troubles[kind](w)
		delete(troubles, kind)
		return true
	}
	src := open(t, source.Access{Deadline: time.Minute})
	if x, y := read(t, src, "hf://datasets/o/n/a/x.bin"), read(t, src, "hf://datasets/o/n/a/y.txt"); x != "data" || y != "text" {
		t.Errorf("%q, %q", x, y)
	}
	if len(troubles) > 0 {
		t.Errorf("%d troubles were not met", len(troubles))
	}
	s.Spoil = func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("RateLimit", `"resolvers";r=0;t=250`)
		w.WriteHeader(429)
		return true
	}
	_, err := open(t, source.Access{Deadline: 300 * time.Millisecond}).Stat(t.Context(), "hf://datasets/o/n")
	if e := errs.From(err); e.Code != errs.Throttled {
		t.Errorf("%v (%s)", err, e.Hint)
	}
}

// A Hub that is silent is waited for together: of many that need the same answer one asks, and
// all of them meet what came of that.
func TestASilentHub(t *testing.T) {
	const readers = 24
	for what, path := range map[string]string{"where a file is": "/resolve/", "a listing": "/tree/", "a commit": "/revision/"} {
		t.Run(what, func(t *testing.T) {
			s := serve(t)
			s.Commit("o/n", "main", files("a/x", "1"))
			var silent atomic.Int64
			var from atomic.Bool
			s.Spoil = func(_ http.ResponseWriter, r *http.Request) bool {
				if !from.Load() || !strings.Contains(r.URL.Path, path) {
					return false
				}
				silent.Add(1)
				<-r.Context().Done()
				return true
			}
			net := remote.NewNet(remote.Options{Stall: time.Second / 2})
			defer net.Close()
			src, err := hub.Scheme(net).Open(source.Access{Deadline: 1500 * time.Millisecond})
			stagetest.Must(t, err)
			var st source.Info
			if path == "/resolve/" {
				st = stat(t, src, "hf://datasets/o/n/a/x")
			}
			from.Store(true)
			failed := make(chan error)
			for range readers {
				go func() {
					if path == "/resolve/" {
						failed <- src.ReadAt(t.Context(), st, make([]byte, 1), 0)
						return
					}
					_, err := src.Stat(t.Context(), "hf://datasets/o/n/a/x")
					failed <- err
				}()
			}
			for range readers {
				if err := <-failed; errs.CodeOf(err) != errs.Unreachable || !strings.Contains(err.Error(), "did not answer in time") {
					t.Errorf("%v", err)
				}
			}
			if n := silent.Load(); n == 0 || n >= readers {
				t.Errorf("%d requests were not answered", n)
			}
		})
	}
}

// Listings are data: what cannot be one is an error, and not a smaller dataset.
func TestListingsAreChecked(t *testing.T) {
	const hash = `"oid": "0123456789012345678901234567890123456789"`
	for name, c := range map[string]struct{ page, link, says string }{
		"outside":           {page: `[{"type": "file", "path": "b/x", "size": 1, ` + hash + `}]`, says: "not one of this folder"},
		"deeper":            {page: `[{"type": "file", "path": "a/b/x", "size": 1, ` + hash + `}]`, says: "not one of this folder"},
		"dots":              {page: `[{"type": "file", "path": "a/..", "size": 1, ` + hash + `}]`, says: "not one of this folder"},
		"negative":          {page: `[{"type": "file", "path": "a/x", "size": -1, ` + hash + `}]`, says: "a/x"},
		"no hash":           {page: `[{"type": "file", "path": "a/x", "size": 1, "oid": "W/1"}]`, says: "its hash is W/1"},
		"twice, and other":  {page: `[{"type": "file", "path": "a/x", "size": 1, ` + hash + `}, {"type": "file", "path": "a/x", "size": 2, ` + hash + `}]`, says: "twice"},
		"no end":            {page: `[]`, link: `<https://huggingface.co/x?cursor=same>; rel="next"`, says: "same page twice"},
		"no end, new pages": {page: `[]`, link: `<https://huggingface.co/x?cursor=%d>; rel="next"`, says: "pages without a name"},
		"no cursor":         {page: `[]`, link: `<https://huggingface.co/x>; rel="next"`, says: "but not where"},
		"another thing":     {page: `{"error": "none"}`, says: "not the JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t)
			s.Commit("o/n", "main", files("a/x", "1"))
			var asked atomic.Int64
			s.Spoil = func(w http.ResponseWriter, r *http.Request) bool {
				if asked.Load() > 1000 {
					return false // long enough
				}
				if !strings.Contains(r.URL.Path, "/tree/") {
					return false
				}
				if c.link != "" {
					w.Header().Set("Link", strings.Replace(c.link, "%d", fmt.Sprint(asked.Add(1)), 1))
				}
				_, _ = w.Write([]byte(c.page))
				return true
			}
			src := open(t, source.Access{Deadline: 200 * time.Millisecond})
			var err error
			for _, e := range src.List(t.Context(), "hf://datasets/o/n/a") {
				err = e
			}
			if err == nil || !strings.Contains(err.Error(), c.says) || errs.From(err).Hint == "" {
				t.Errorf("%v", err)
			}
		})
	}
	// The same entry twice is one, and what is neither file nor folder is none.
	s := serve(t)
	s.Commit("o/n", "main", files("a/x", "1"))
	s.Spoil = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/tree/") {
			return false
		}
		one := `{"type": "file", "path": "a/x", "size": 1, ` + hash + `}`
		_, _ = fmt.Fprintf(w, `[%s, {"type": "commit", "path": "a/module", "oid": "1"}, %s]`, one, one)
		return true
	}
	n := 0
	for _, err := range open(t, source.Access{}).List(t.Context(), "hf://datasets/o/n/a") {
		stagetest.Must(t, err)
		n++
	}
	if n != 1 {
		t.Errorf("%d entries", n)
	}
}

func TestTokens(t *testing.T) {
	const secret = "hf_planted0123456789"
	s := serve(t)
	s.Commit("owner/open", "main", files("x.bin", "open"))
	s.Commit("owner/hidden", "main", files("x.bin", "hidden"))
	s.Commit("owner/gated", "main", files("x.bin", "gated", "y.txt", "gated"))
	s.Private("owner/hidden")
	s.Gate("owner/gated")
	s.Allow(secret, "owner/hidden", "owner/gated")
	s.Allow("hf_somebody")
	file := filepath.Join(t.TempDir(), "token")
	stagetest.Must(t, os.WriteFile(file, []byte(secret+"\n"), 0o600))
	home := t.TempDir()
	stagetest.Must(t, os.WriteFile(filepath.Join(home, "token"), []byte(secret), 0o600))
	for name, c := range map[string]struct {
		env    map[string]string
		access source.Storage
		sent   bool
	}{
		"none":                {},
		"HF_TOKEN":            {env: map[string]string{"HF_TOKEN": secret}, sent: true},
		"its old name":        {env: map[string]string{"HUGGING_FACE_HUB_TOKEN": " " + secret + "\n"}, sent: true},
		"HF_TOKEN_PATH":       {env: map[string]string{"HF_TOKEN_PATH": file}, sent: true},
		"HF_HOME":             {env: map[string]string{"HF_HOME": home}, sent: true},
		"not implied":         {env: map[string]string{"HF_TOKEN": secret, "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}},
		"anonymous":           {env: map[string]string{"HF_TOKEN": secret}, access: source.Storage{Anonymous: true}},
		"token_env":           {env: map[string]string{"MINE": secret, "HF_TOKEN": "hf_somebody", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}, access: source.Storage{TokenEnv: "MINE"}, sent: true},
		"endpoint_url is one": {env: map[string]string{"HF_TOKEN": secret, "HF_ENDPOINT": "http://127.0.0.1:1"}, access: source.Storage{EndpointURL: s.URL + "/"}, sent: true},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range c.env {
				t.Setenv(k, v)
			}
			s.Seen()
			src := open(t, source.Access{Storage: c.access})
			if got := read(t, src, "hf://datasets/owner/open/x.bin"); got != "open" {
				t.Errorf("%q", got)
			}
			for _, name := range []string{"hf://datasets/owner/hidden/x.bin", "hf://datasets/owner/gated/x.bin", "hf://datasets/owner/gated/y.txt"} {
				_, err := source.ReadAll(t.Context(), src, name, 100)
				if (err == nil) != c.sent {
					t.Errorf("%s: %v", name, err)
				}
			}
			for _, r := range s.Seen() {
				if (r.Token == secret) != (c.sent && !r.Storage) {
					t.Errorf("%+v: a token where there should be none, or none where there should be one", r)
				}
			}
		})
	}
	for name, c := range map[string]struct {
		env  map[string]string
		file string
		code errs.Code
		says []string
	}{
		"gated, no token":         {file: "gated", code: errs.Denied, says: []string{s.URL + "/datasets/owner/gated", "no token was found in HF_TOKEN"}},
		"gated, another's token":  {env: map[string]string{"HF_TOKEN": "hf_somebody"}, file: "gated", code: errs.Denied, says: []string{s.URL + "/datasets/owner/gated", "that of HF_TOKEN"}},
		"hidden, no token":        {file: "hidden", code: errs.NotFound, says: []string{s.URL + "/datasets/owner/hidden", "private", "no token was found in HF_TOKEN"}},
		"hidden, another's token": {env: map[string]string{"HF_TOKEN": "hf_somebody"}, file: "hidden", code: errs.NotFound, says: []string{"private", "that of HF_TOKEN"}},
		"a token nobody knows":    {env: map[string]string{"HF_TOKEN_PATH": file + "s"}, file: "open", code: errs.Denied, says: []string{"does not know the token of the file " + file + "s"}},
	} {
		t.Run(name, func(t *testing.T) {
			stagetest.Must(t, os.WriteFile(file+"s", []byte("hf_stale"), 0o600))
			for k, v := range c.env {
				t.Setenv(k, v)
			}
			path := "hf://datasets/owner/" + c.file + "/x.bin"
			_, err := source.ReadAll(t.Context(), open(t, source.Access{}), path, 100)
			e := errs.From(err)
			text := fmt.Sprint(err) + e.Hint
			if e.Code != c.code || e.Where.File != path || strings.Contains(text, "hf_") {
				t.Errorf("%v (%s)", err, e.Hint)
			}
			for _, want := range c.says {
				if !strings.Contains(text, want) {
					t.Errorf("%q is not in %v (%s)", want, err, e.Hint)
				}
			}
		})
	}
	t.Run("renewed", func(t *testing.T) {
		t.Setenv("HF_TOKEN_PATH", file)
		s.Allow("hf_first", "owner/hidden")
		stagetest.Must(t, os.WriteFile(file, []byte("hf_first"), 0o600))
		src := open(t, source.Access{})
		if got := read(t, src, "hf://datasets/owner/hidden/x.bin"); got != "hidden" {
			t.Errorf("%q", got)
		}
		s.Forget("hf_first")
		s.Expire()
		stagetest.Must(t, os.WriteFile(file, []byte(secret), 0o600))
		if got := read(t, src, "hf://datasets/owner/hidden/x.bin"); got != "hidden" {
			t.Errorf("%q", got)
		}
	})
}

// A dataset that is hidden while it is read is an error that says so.
func TestHiddenSince(t *testing.T) {
	s := serve(t)
	s.Commit("o/n", "main", files("x.bin", "data", "y.txt", "text"))
	src := open(t, source.Access{})
	x, y := stat(t, src, "hf://datasets/o/n/x.bin"), stat(t, src, "hf://datasets/o/n/y.txt")
	s.Private("o/n")
	for _, obj := range []source.Info{x, y} {
		err := src.ReadAt(t.Context(), obj, make([]byte, 4), 0)
		if e := errs.From(err); e.Code != errs.NotFound || e.Where.File != obj.Name || !strings.Contains(e.What, "no longer") || !strings.Contains(e.Hint, "HF_TOKEN") {
			t.Errorf("%v (%s)", err, e.Hint)
		}
	}
}

// From HTTPS nothing leads to plain HTTP, and no redirect of the Hub's goes round forever.
func TestRedirects(t *testing.T) {
	var calls atomic.Int64
	const oid = "0123456789012345678901234567890123456789"
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		switch {
		case strings.Contains(r.URL.Path, "/revision/"):
			_, _ = fmt.Fprintf(w, `{"sha": %q}`, oid)
		case strings.Contains(r.URL.Path, "/tree/"):
			_, _ = fmt.Fprintf(w, `[{"type": "file", "path": "x", "size": 4, "oid": %q}, {"type": "file", "path": "y", "size": 4, "oid": %[1]q}]`, oid)
		case strings.HasSuffix(r.URL.Path, "/x"):
			w.Header().Set("ETag", `"`+oid+`"`)
			w.Header().Set("Location", "http://127.0.0.1:1/x?X-Amz-Signature=planted")
			w.WriteHeader(http.StatusFound)
		default:
			w.Header().Set("Location", r.URL.Path)
			w.WriteHeader(http.StatusTemporaryRedirect)
		}
	}))
	defer server.Close()
	_ = serve(t)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	stagetest.Must(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	t.Setenv("AWS_CA_BUNDLE", ca)
	src := open(t, source.Access{Storage: source.Storage{EndpointURL: server.URL}})
	for name, want := range map[string]string{"hf://datasets/o/n/x": "leads from HTTPS to http", "hf://datasets/o/n/y": "redirects in a loop"} {
		obj := stat(t, src, name)
		err := src.ReadAt(t.Context(), obj, make([]byte, 4), 0)
		if e := errs.From(err); e.Code != errs.Unreadable || !strings.Contains(e.What, want) || strings.Contains(err.Error()+e.Hint, "planted") {
			t.Errorf("%s: %v (%s)", name, err, e.Hint)
		}
	}
	if n := calls.Load(); n > 12 {
		t.Errorf("%d requests", n)
	}
}

// Each says what to write instead, or what to do.
func TestErrorsTeach(t *testing.T) {
	s := serve(t)
	s.Commit("owner/photos", "main", files("data/train-000.tar", "1", "data/test-000.tar", "1"))
	s.Commit("owner/photos", "refs/convert/parquet", files("x.parquet", "1"))
	s.Commit("other/pictures", "main", files("x.tar", "1"))
	src := open(t, source.Access{})
	for name, c := range map[string]struct {
		code errs.Code
		says string
	}{
		"hf://datasets/owner/photo/data/train-000.tar":             {errs.NotFound, "did you mean hf://datasets/owner/photos?"},
		"hf://datasets/owner/phtos/data/*.tar":                     {errs.NotFound, "did you mean hf://datasets/owner/photos?"},
		"hf://datasets/owner/phtos/data/train-{000..001}.tar":      {errs.NotFound, "did you mean hf://datasets/owner/photos?"},
		"hf://datasets/owner/pictures/x.tar":                       {errs.NotFound, "did you mean hf://datasets/other/pictures?"},
		"hf://datasets/photos":                                     {errs.NotFound, "did you mean hf://datasets/owner/photos?"},
		"hf://datasets/owner/photos@mian/data/train-000.tar":       {errs.NotFound, "did you mean @main?"},
		"hf://datasets/owner/photos@refs/convert/parqet/x.parquet": {errs.NotFound, "did you mean @refs%2Fconvert%2Fparquet?"},
		"hf://datasets/owner/photos/dta/train-000.tar":             {errs.NotFound, `did you mean "hf://datasets/owner/photos/data/train-000.tar"?`},
		"hf://datasets/owner/photos/data/trian-000.tar":            {errs.NotFound, `did you mean "hf://datasets/owner/photos/data/train-000.tar"?`},
		"hf://datasets/owner/photos/data/*.npz":                    {errs.NotFound, "has 2 entries: test-000.tar, train-000.tar"},
		"hf://owner/photos/data/train-000.tar":                     {errs.Config, "hf://datasets/OWNER/NAME"},
		"hf://datasets":                                            {errs.NotFound, ""},
	} {
		_, err := source.Expand(t.Context(), src, []string{name})
		if e := errs.From(err); err == nil || e.Code != c.code || !strings.Contains(e.Hint, c.says) {
			t.Errorf("%s: %v (%s)", name, err, e.Hint)
		}
	}
	t.Setenv("HF_HUB_OFFLINE", "1")
	if _, err := open(t, source.Access{}).Stat(t.Context(), "hf://datasets/owner/photos"); errs.CodeOf(err) != errs.Config || !strings.Contains(err.Error(), "HF_HUB_OFFLINE") {
		t.Error(err)
	}
	t.Setenv("HF_HUB_OFFLINE", "")
	for _, bad := range []string{"huggingface.co", "ftp://host", "http://"} {
		t.Setenv("HF_ENDPOINT", bad)
		if _, err := open(t, source.Access{}).Stat(t.Context(), "hf://datasets/owner/photos"); errs.CodeOf(err) != errs.Config {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
