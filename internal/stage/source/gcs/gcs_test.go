package gcs_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/browse"
	"github.com/stoker-data/stoker/internal/stage/source/gcs"
	"github.com/stoker-data/stoker/internal/stage/source/pattern"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
	"github.com/stoker-data/stoker/internal/stagetest"
)

func TestMain(m *testing.M) { os.Exit(stagetest.OwnCache(m)) }

// api answers as the reference of the JSON API says, of one bucket: conditions on reads,
// pages of two entries, errors in JSON for metadata and as text for bytes.
type api struct {
	t       *testing.T
	mu      sync.Mutex
	objects map[string]object
	allowed func(r *http.Request) bool                        // nil: everybody
	spoil   func(w http.ResponseWriter, r *http.Request) bool // true: it has answered
	header  func(h http.Header)                               // changes the answer to a read
	seen    []*http.Request
}

type object struct {
	data       []byte
	generation int
	encoding   string
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen = append(a.seen, r)
	if a.spoil != nil && a.spoil(w, r) {
		return
	}
	q := r.URL.Query()
	if a.allowed != nil && !a.allowed(r) {
		refuse(w, q.Get("alt") == "media", 401, "authError", "Invalid Credentials")
		return
	}
	path, ok := strings.CutPrefix(r.URL.EscapedPath(), "/storage/v1/b")
	switch {
	case !ok:
		a.t.Errorf("%s is not a path of the API", r.URL)
	case path == "":
		_ = json.NewEncoder(w).Encode(map[string]any{"items": []any{map[string]any{"name": "photos"}, map[string]any{"name": "pictures"}}})
	case path == "/photos/o":
		a.list(w, q.Get("prefix"), q.Get("delimiter"), q.Get("pageToken"))
	case strings.HasPrefix(path, "/photos/o/"):
		a.object(w, r, strings.TrimPrefix(r.URL.Path, "/storage/v1/b/photos/o/"))
	default:
		refuse(w, q.Get("alt") == "media", 404, "notFound", "The specified bucket does not exist.")
	}
}

func (a *api) list(w http.ResponseWriter, prefix, delimiter, token string) {
	found := map[string]any{}
	for name, o := range a.objects {
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		if first, _, deeper := strings.Cut(rest, "/"); deeper && delimiter != "" {
			found[prefix+first+"/"] = nil
		} else {
			found[name] = map[string]string{"name": name, "size": strconv.Itoa(len(o.data)), "generation": strconv.Itoa(o.generation)}
		}
	}
	var keys []string
	for key := range found {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	if token != "" {
		at, _ := slices.BinarySearch(keys, token)
		keys = keys[at:]
	}
	page := map[string]any{}
	if len(keys) > 2 {
		page["nextPageToken"] = keys[2]
		keys = keys[:2]
	}
	var items []any
	var prefixes []string
	for _, key := range keys {
		if found[key] == nil {
			prefixes = append(prefixes, key)
		} else {
			items = append(items, found[key])
		}
	}
	page["items"], page["prefixes"] = items, prefixes
	_ = json.NewEncoder(w).Encode(page)
}

func (a *api) object(w http.ResponseWriter, r *http.Request, name string) {
	o, ok := a.objects[name]
	media := r.URL.Query().Get("alt") == "media"
	generation := strconv.Itoa(o.generation)
	switch want := r.URL.Query().Get("ifGenerationMatch"); {
	case !ok:
		refuse(w, media, 404, "notFound", "No such object: photos/"+name)
		return
	case want != "" && want != generation:
		refuse(w, media, 412, "conditionNotMet", "At least one of the pre-conditions you specified did not hold.")
		return
	case !media:
		_ = json.NewEncoder(w).Encode(map[string]string{"name": name, "size": strconv.Itoa(len(o.data)), "generation": generation})
		return
	}
	sum := make([]byte, 4)
	binary.BigEndian.PutUint32(sum, crc32.Checksum(o.data, crc32.MakeTable(crc32.Castagnoli)))
	h := w.Header()
	h.Set("X-Goog-Generation", generation)
	h.Add("X-Goog-Hash", "crc32c="+base64.StdEncoding.EncodeToString(sum))
	h.Add("X-Goog-Hash", "md5=not/looked/at")
	h.Set("X-Goog-Stored-Content-Encoding", "identity")
	if o.encoding != "" {
		h.Set("X-Goog-Stored-Content-Encoding", o.encoding)
		if !strings.Contains(r.Header.Get("Accept-Encoding"), o.encoding) { // decompressed on the way, without ranges
			_, _ = w.Write([]byte("what was in it"))
			return
		}
		h.Set("Content-Encoding", o.encoding)
	}
	var first, last int
	if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last); err != nil {
		a.t.Errorf("the range %q: %v", r.Header.Get("Range"), err)
	}
	if first >= len(o.data) {
		refuse(w, media, 416, "requestedRangeNotSatisfiable", "Request range not satisfiable")
		return
	}
	last = min(last, len(o.data)-1)
	h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(o.data)))
	h.Set("Content-Length", strconv.Itoa(last-first+1))
	if a.header != nil {
		a.header(h)
	}
	w.WriteHeader(http.StatusPartialContent)
	_, _ = w.Write(o.data[first : last+1])
}

func refuse(w http.ResponseWriter, media bool, status int, reason, message string) {
	if media {
		http.Error(w, message, status)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"code": status, "message": message, "errors": []any{map[string]any{"message": message, "domain": "global", "reason": reason}}}})
}

// serve starts the API, with its address as the endpoint, and no credentials to be found
// anywhere.
func serve(t *testing.T, objects map[string]object) (*api, source.Access) {
	t.Helper()
	a := &api{t: t, objects: objects}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	nobody(t)
	return a, source.Access{Storage: source.Storage{EndpointURL: server.URL}, Deadline: 2 * time.Second}
}

// nobody hides the credentials of whoever runs the tests.
func nobody(t *testing.T) {
	for _, env := range []string{"GOOGLE_APPLICATION_CREDENTIALS", "STORAGE_EMULATOR_HOST", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_QUOTA_PROJECT", "GCLOUD_PROJECT", "K_SERVICE"} {
		t.Setenv(env, "")
	}
	t.Setenv("CLOUDSDK_CONFIG", t.TempDir())
	t.Setenv("GCE_METADATA_HOST", "127.0.0.1:1") // refused at once
}

func open(t *testing.T, a source.Access) source.Source {
	t.Helper()
	net := remote.NewNet(remote.Options{})
	t.Cleanup(net.Close)
	src, err := gcs.Scheme("gs", net).Open(a)
	stagetest.Must(t, err)
	return src
}

func readAll(t *testing.T, src source.Source, name string) ([]byte, error) {
	return source.ReadAll(t.Context(), src, name, 1<<20)
}

func TestSource(t *testing.T) {
	stagetest.Source(t, func(t *testing.T, objects map[string][]byte) (source.Source, string, func(string, []byte)) {
		a, access := serve(t, map[string]object{})
		n := 0
		put := func(name string, data []byte) {
			a.mu.Lock()
			defer a.mu.Unlock()
			n++
			a.objects["x/"+name] = object{data: data, generation: 1700000000 + n}
		}
		for name, data := range objects {
			put(name, data)
		}
		return open(t, access), "gs://photos/x/", put
	})
}

// Names are sent as they are, whatever is in them; folders that the console makes are
// none of the objects; pages are put together.
func TestNames(t *testing.T) {
	names := []string{"a b/c+d&e=f?g#h%2F.tar", "a b/é\x01", "z/" + strings.Repeat("n", 1000), "z/000", "z/001", "z/002.tar", "z/002/x", "y/"}
	objects := map[string]object{"z/": {generation: 1}}
	for i, name := range names {
		objects[name] = object{data: []byte(strings.Repeat("x", i)), generation: i + 1}
	}
	_, access := serve(t, objects)
	src := open(t, access)
	for i, name := range names[:7] {
		if b, err := readAll(t, src, "gs://photos/"+name); err != nil || len(b) != i {
			t.Errorf("%q: %d bytes, %v", name, len(b), err)
		}
	}
	var listed, walked []string
	for it, err := range src.List(t.Context(), "gs://photos/z/") {
		stagetest.Must(t, err)
		listed = append(listed, strings.TrimPrefix(it.Name, "gs://photos/"))
	}
	if want := []string{"z/000", "z/001", "z/002", "z/002.tar", names[2]}; !slices.Equal(listed, want) {
		t.Errorf("listed %q", listed)
	}
	for it, err := range source.Walk(t.Context(), src, "gs://photos") {
		stagetest.Must(t, err)
		walked = append(walked, strings.TrimPrefix(it.Name, "gs://photos/"))
	}
	want := slices.Clone(names[:7])
	slices.Sort(want)
	if !slices.Equal(walked, want) {
		t.Errorf("walked %q", walked)
	}
	for _, name := range []string{"gs://photos", "gs://photos/", "gs://photos/z", "gs://photos/z/", "gs://photos/y"} {
		if st, err := src.Stat(t.Context(), name); err != nil || !st.Dir || st.Name != strings.TrimSuffix(name, "/") {
			t.Errorf("%s: %+v, %v", name, st, err)
		}
	}
}

// Keys that no path leads to are read by the names that a flat listing gives them.
func TestKeysThatAreNoPaths(t *testing.T) {
	keys := []string{"/x", "a/../b", "a/./b", "a//b", "a/b"}
	objects := map[string]object{}
	for i, key := range keys {
		objects[key] = object{data: []byte(key), generation: i + 1}
	}
	_, access := serve(t, objects)
	src := open(t, access)
	var walked []string
	for it, err := range source.Walk(t.Context(), src, "gs://photos") {
		stagetest.Must(t, err)
		key := strings.TrimPrefix(it.Name, "gs://photos/")
		walked = append(walked, key)
		if b, err := readAll(t, src, it.Name); err != nil || string(b) != key {
			t.Errorf("%s: %q, %v", it.Name, b, err)
		}
	}
	if !slices.Equal(walked, keys) {
		t.Errorf("walked %q", walked)
	}
	for _, dir := range []string{"gs://photos", "gs://photos/a"} {
		for it, err := range src.List(t.Context(), dir) {
			if err != nil || strings.HasSuffix(it.Name, "/") {
				t.Errorf("%s: %+v, %v", dir, it, err)
			}
		}
	}
}

// What is not an answer to the request is not delivered.
func TestAnswersAreChecked(t *testing.T) {
	data := []byte("the bytes of an object, which are these")
	whole := map[string]object{"x": {data: data, generation: 7}}
	for name, c := range map[string]struct {
		spoil  func(w http.ResponseWriter, r *http.Request) bool
		header func(h http.Header)
		code   errs.Code
		says   string
	}{
		"as it should be":    {},
		"another generation": {header: func(h http.Header) { h.Set("X-Goog-Generation", "8") }, code: errs.Changed, says: "its generation was 7 and is now 8"},
		"no generation":      {header: func(h http.Header) { h.Del("X-Goog-Generation") }, code: errs.Changed, says: "the answer has no generation"},
		"another checksum":   {header: func(h http.Header) { h.Set("X-Goog-Hash", "crc32c=AAAAAA==") }, code: errs.Unreadable, says: "checksum"},
		"no checksum":        {header: func(h http.Header) { h.Del("X-Goog-Hash") }},
		"encoded on the way": {header: func(h http.Header) { h.Set("Content-Encoding", "gzip") }, code: errs.Unreachable, says: "encoded"},
		"another range":      {header: func(h http.Header) { h.Set("Content-Range", fmt.Sprintf("bytes 1-%d/%d", len(data), len(data)+1)) }, code: errs.Unreachable, says: "were requested"},
		"another size":       {header: func(h http.Header) { h.Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", len(data)-1, len(data)+1)) }, code: errs.Changed, says: "40 bytes"},
		"no size":            {header: func(h http.Header) { h.Set("Content-Range", fmt.Sprintf("bytes 0-%d/*", len(data)-1)) }, code: errs.Changed, says: "and had 39"},
		"all of it": {spoil: func(w http.ResponseWriter, r *http.Request) bool {
			_, _ = w.Write(data)
			return true
		}, code: errs.Unreachable, says: "answered 200 instead of 206"},
		"elsewhere": {spoil: func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, "http://169.254.169.254/x", http.StatusFound)
			return true
		}, code: errs.Unreadable, says: "302"},
		"changed": {spoil: func(w http.ResponseWriter, r *http.Request) bool {
			refuse(w, true, 412, "conditionNotMet", "pre-conditions")
			return true
		}, code: errs.Changed, says: "no longer 7"},
		"shorter": {spoil: func(w http.ResponseWriter, r *http.Request) bool {
			refuse(w, true, 416, "requestedRangeNotSatisfiable", "range")
			return true
		}, code: errs.Changed, says: "shorter"},
		"gone": {spoil: func(w http.ResponseWriter, r *http.Request) bool {
			refuse(w, true, 404, "notFound", "No such object")
			return true
		}, code: errs.NotFound, says: "no such object"},
		"not allowed": {spoil: func(w http.ResponseWriter, r *http.Request) bool {
			refuse(w, true, 403, "forbidden", "me@example.com does not have storage.objects.get access")
			return true
		}, code: errs.Denied, says: "does not have storage.objects.get"},
		"a proxy": {spoil: func(w http.ResponseWriter, r *http.Request) bool {
			w.WriteHeader(http.StatusProxyAuthRequired)
			return true
		}, code: errs.Denied, says: "the proxy requires a user name and a password (407)"},
		"out of order": {spoil: func(w http.ResponseWriter, r *http.Request) bool {
			refuse(w, true, 500, "backendError", "try again")
			return true
		}, code: errs.Unreachable, says: "answered 500"},
		"too many requests": {spoil: func(w http.ResponseWriter, r *http.Request) bool {
			refuse(w, true, 429, "rateLimitExceeded", "slow down")
			return true
		}, code: errs.Throttled, says: "answered 429"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &api{t: t, objects: whole, header: c.header, spoil: c.spoil}
			server := httptest.NewServer(a)
			defer server.Close()
			net := remote.NewNet(remote.Options{})
			defer net.Close()
			src, err := gcs.Scheme("gs", net).Open(source.Access{Storage: source.Storage{EndpointURL: server.URL, Anonymous: true}, Deadline: 200 * time.Millisecond})
			stagetest.Must(t, err)
			p := make([]byte, len(data))
			err = src.ReadAt(t.Context(), source.Info{Name: "gs://photos/x", Size: int64(len(data)), Version: "7"}, p, 0)
			if c.code == "" {
				if err != nil || !bytes.Equal(p, data) {
					t.Errorf("%q, %v", p, err)
				}
				return
			}
			if e := errs.From(err); err == nil || e.Code != c.code || !strings.Contains(err.Error(), c.says) || e.Where.File != "gs://photos/x" || e.Hint == "" {
				t.Errorf("%v (%s)", err, errs.From(err).Hint)
			}
		})
	}
}

// An object that was uploaded compressed ("gsutil cp -Z") is what is stored, in ranges.
func TestStoredCompressed(t *testing.T) {
	a, access := serve(t, map[string]object{"x.tar": {data: []byte("\x1f\x8b and so on"), generation: 1, encoding: "gzip"}})
	src := open(t, access)
	st, err := src.Stat(t.Context(), "gs://photos/x.tar")
	stagetest.Must(t, err)
	p := make([]byte, 5)
	stagetest.Must(t, src.ReadAt(t.Context(), st, p, 2))
	if b, err := readAll(t, src, st.Name); err != nil || !bytes.Equal(b, a.objects["x.tar"].data) || !bytes.Equal(p, b[2:7]) {
		t.Errorf("%q, %v", b, err)
	}
	for _, r := range a.seen { // the store refuses another generation before it sends any of it
		if q := r.URL.Query(); q.Get("alt") == "media" && q.Get("ifGenerationMatch") != "1" {
			t.Errorf("%s has no condition", r.URL)
		}
	}
}

// A server that is out of order for a while is waited for.
func TestTrouble(t *testing.T) {
	a, access := serve(t, map[string]object{"x": {data: []byte("data"), generation: 1}})
	troubles := []func(w http.ResponseWriter){
		func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "0")
			refuse(w, false, 429, "rateLimitExceeded", "slow")
		},
		func(w http.ResponseWriter) { refuse(w, false, 403, "userRateLimitExceeded", "slow") },
		func(w http.ResponseWriter) { _, _ = w.Write([]byte(`{"name": "x", "si`)) },
	}
	a.spoil = func(w http.ResponseWriter, r *http.Request) bool {
		if len(troubles) == 0 {
			return false
		}
		troubles[0](w)
		troubles = troubles[1:]
		return true
	}
	access.Deadline = time.Minute
	src := open(t, access)
	for range 2 {
		if b, err := readAll(t, src, "gs://photos/x"); err != nil || string(b) != "data" {
			t.Errorf("%q, %v", b, err)
		}
	}
	if len(troubles) != 0 {
		t.Errorf("%d troubles were not met", len(troubles))
	}
}

// The nearest bucket, folder and name that there are.
func TestErrorsTeach(t *testing.T) {
	_, access := serve(t, map[string]object{"train/000.tar": {generation: 1}})
	t.Setenv("GOOGLE_CLOUD_PROJECT", "p")
	src := open(t, access)
	for name, want := range map[string]string{
		"gs://photo/train/000.tar":         `did you mean "gs://photos/train/000.tar"?`,
		"gs://photos/trian/000.tar":        `did you mean "gs://photos/train/000.tar"?`,
		"gs://photos/train/{000..001}.tar": `has one entry: 000.tar`,
		"gs://photos/train/*.npz":          `has one entry: 000.tar`,
	} {
		_, err := pattern.Expand(t.Context(), src, []string{name})
		if e := errs.From(err); err == nil || e.Code != errs.NotFound || !strings.Contains(e.Hint, want) {
			t.Errorf("%s: %v (%s)", name, err, e.Hint)
		}
	}
	err := src.ReadAt(t.Context(), source.Info{Name: "gs://photo/x", Size: 1}, make([]byte, 1), 0)
	if e := errs.From(err); e.Code != errs.NotFound || !strings.Contains(e.What, "no bucket photo") {
		t.Errorf("a bucket that does not exist: %v", err)
	}
	access.Storage.EndpointURL = "localhost:80"
	if _, err := open(t, access).Stat(t.Context(), "gs://photos/x"); errs.CodeOf(err) != errs.Config || !strings.Contains(err.Error(), "endpoint_url") {
		t.Errorf("an endpoint without a scheme: %v", err)
	}
}

// STORAGE_EMULATOR_HOST is written with a scheme or without; nobody is asked who reads.
func TestEmulator(t *testing.T) {
	a, access := serve(t, map[string]object{"x": {data: []byte("data"), generation: 1}})
	at := access.Storage.EndpointURL
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", filepath.Join(t.TempDir(), "not there"))
	for _, host := range []string{at, at + "/", at + "/storage/v1/", strings.TrimPrefix(at, "http://")} {
		t.Setenv("STORAGE_EMULATOR_HOST", host)
		if b, err := readAll(t, open(t, source.Access{Deadline: time.Second}), "gs://photos/x"); err != nil || string(b) != "data" {
			t.Errorf("%s: %q, %v", host, b, err)
		}
	}
	for _, r := range a.seen {
		if r.Header.Get("Authorization") != "" {
			t.Error("a token was sent to the emulator")
		}
	}
}

// Listings are data: pages that come twice, do not end, or are of another folder.
func TestHostileListings(t *testing.T) {
	for body, want := range map[string]string{
		`{"items": [{"name": "b/x", "size": "1", "generation": "1"}]}`:                                                  "not of this folder",
		`{"items": [{"name": "a/x", "size": "1", "generation": "1"}, {"name": "a/x", "size": "1", "generation": "1"}]}`: "not in order",
		`{"prefixes": ["a/x/"], "nextPageToken": "t"}`:                                                                  "not in order",
		`{"nextPageToken": "t"}`: "does not end",
		`{"items": [{"name": "a/x", "size": "1e9", "generation": "1"}]}`:        "reports size",
		`{"items": [{"name": "a/x", "size": "1", "generation": "1&alt=json"}]}`: "and generation",
		`[]`: "not the JSON",
	} {
		a, access := serve(t, nil)
		a.spoil = func(w http.ResponseWriter, r *http.Request) bool { _, _ = w.Write([]byte(body)); return true }
		access.Deadline = 200 * time.Millisecond
		var err error
		for _, e := range open(t, access).List(t.Context(), "gs://photos/a") {
			err = errors.Join(err, e)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// FuzzListing: whatever a page says, entries are in order, below the bucket, and objects.
func FuzzListing(f *testing.F) {
	f.Add(`{"items": [{"name": "a/x", "size": "1", "generation": "1"}], "prefixes": ["a/y/"], "nextPageToken": "t"}`)
	f.Add(`{"items": [{"name": "a//../x"}]}`)
	f.Add(`{"prefixes": ["/", "", "a"]}`)
	body := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(body)) }))
	f.Cleanup(server.Close)
	net := remote.NewNet(remote.Options{})
	f.Cleanup(net.Close)
	src, err := gcs.Scheme("gs", net).Open(source.Access{Storage: source.Storage{EndpointURL: server.URL, Anonymous: true}, Deadline: time.Microsecond})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, page string) {
		body = page
		last := ""
		for it, err := range src.List(context.Background(), "gs://photos/a") {
			if err != nil {
				var e *errs.Error
				if !errors.As(err, &e) || e.Code == errs.Bug || e.Hint == "" {
					t.Fatalf("%v", err)
				}
				return
			}
			if it.Name < last || !strings.HasPrefix(it.Name, "gs://photos/a/") || strings.HasSuffix(it.Name, "/") || it.Size < 0 || !it.Dir && it.Version == "" {
				t.Fatalf("%+v after %q", it, last)
			}
			last = it.Name
		}
	})
}

// Keys that a path cannot be are found, and read as what they are.
func TestPatternsOverKeysThatAreNoPaths(t *testing.T) {
	_, access := serve(t, map[string]object{
		"a/x":   {data: []byte("a/x"), generation: 1},
		"a//x":  {data: []byte("a//x"), generation: 2},
		"a//y":  {data: []byte("a//y"), generation: 3},
		"a///x": {data: []byte("a///x"), generation: 4},
		"/x":    {data: []byte("/x"), generation: 5},
		"x":     {data: []byte("x"), generation: 6},
		"z":     {data: []byte("z"), generation: 7},
	})
	src := browse.New(t.Context(), open(t, access), nil)
	defer src.End()
	for given, want := range map[string][]string{
		"a/x": {"a/x"}, "a//x": {"a//x"}, "a//{y,x}": {"a//y", "a//x"}, "/x": {"/x"}, "a/*": {"a/x"}, "a//*": {"a//x", "a//y"}, "a///*": {"a///x"}, "/*": {"/x"}, "*": {"a", "x", "z"},
		"*/x": {"a/x"}, "*//x": {"a//x"}, "**/x": {"/x", "a///x", "a//x", "a/x", "x"}, "z*": {"z"}, "/z*": nil, "/z": nil, "a/y": nil,
	} {
		const root = "gs://photos/"
		got, err := pattern.Expand(t.Context(), src, []string{root + given})
		for i, name := range got {
			if got[i] = strings.TrimPrefix(name, root); want == nil || got[i] == "a" {
				continue
			}
			clean, err := source.Abs(name)
			stagetest.Must(t, err)
			if b, err := readAll(t, src, clean); err != nil || string(b) != got[i] {
				t.Errorf("%s has the bytes of %q, %v", clean, b, err)
			}
		}
		if !slices.Equal(got, want) || (want == nil) != (errs.CodeOf(err) == errs.NotFound) {
			t.Errorf("%s: %q, want %q (%v)", given, got, want, err)
		}
	}
}
