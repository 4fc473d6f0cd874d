package hub_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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
	"github.com/stoker-data/stoker/internal/stagetest/hubserver"
)

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
		"other bytes":     {storage(part(0, n-1, n, strings.ToUpper(data))), errs.Unreadable, "its hash on the Hub"},
		"another range":   {storage(part(1, n, n+1, data)), errs.Unreachable, "were requested"},
		"another size":    {storage(part(0, n-1, n+1, data)), errs.Changed, "40 bytes"},
		"too short":       {storage(part(0, n-1, n, data[:9])), errs.Unreachable, "9 bytes"},
		"all of it":       {storage(func(w http.ResponseWriter) { _, _ = w.Write([]byte(data)) }), errs.Config, "does not support range requests"},
		"encoded": {storage(func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "gzip")
			part(0, n-1, n, data)(w)
		}), errs.Unreachable, "encoded"},
		"shorter":        {storage(func(w http.ResponseWriter) { w.WriteHeader(http.StatusRequestedRangeNotSatisfiable) }), errs.Changed, "shorter"},
		"out of order":   {storage(func(w http.ResponseWriter) { w.WriteHeader(500) }), errs.Unreachable, "answered 500"},
		"another file":   {resolve("X-Linked-Etag", `"`+strings.Repeat("a", 64)+`"`, "Location", "http://127.0.0.1:1/x"), errs.Changed, "and is now aaaa"},
		"a longer file":  {resolve("X-Linked-Size", "1000", "X-Linked-Etag", fmt.Sprintf("%x", sha256.Sum256([]byte(data))), "Location", "http://127.0.0.1:1/x"), errs.Changed, "1000 bytes"},
		"another commit": {resolve("X-Repo-Commit", strings.Repeat("b", 40), "Location", "http://127.0.0.1:1/x"), errs.Unreachable, "of the commit bbbb"},
		"no hash":        {resolve("Location", "http://127.0.0.1:1/x"), errs.Unreachable, "has no hash"},
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
		"outside":           {page: `[{"type": "file", "path": "b/x", "size": 1, ` + hash + `}]`, says: "not of this folder"},
		"deeper":            {page: `[{"type": "file", "path": "a/b/x", "size": 1, ` + hash + `}]`, says: "not of this folder"},
		"dots":              {page: `[{"type": "file", "path": "a/..", "size": 1, ` + hash + `}]`, says: "not of this folder"},
		"negative":          {page: `[{"type": "file", "path": "a/x", "size": -1, ` + hash + `}]`, says: "a/x"},
		"no hash":           {page: `[{"type": "file", "path": "a/x", "size": 1, "oid": "W/1"}]`, says: "a malformed hash for a/x: W/1"},
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
				if !strings.Contains(r.URL.Path, "/tree/") || asked.Load() > 1000 { // long enough
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
	for name, want := range map[string]string{"hf://datasets/o/n/x": "redirects from HTTPS to http", "hf://datasets/o/n/y": "redirects in a loop"} {
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
