package azure_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/azure"
	"github.com/stoker-data/stoker/internal/stage/source/browse"
	"github.com/stoker-data/stoker/internal/stage/source/pattern"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// cloud is where the tests have Azure's own hosts: a proxy leads all connections to port
// 443 there. net/http reads the proxy's address once in a process.
var cloud atomic.Pointer[string]

func TestMain(m *testing.M) {
	proxy := httptest.NewServer(http.HandlerFunc(connect))
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "https_proxy", "NO_PROXY", "no_proxy"} {
		_ = os.Unsetenv(name)
	}
	_ = os.Setenv("HTTPS_PROXY", proxy.URL)
	os.Exit(stagetest.OwnCache(m))
}

// connect answers CONNECT host:443.
func connect(w http.ResponseWriter, r *http.Request) {
	at := cloud.Load()
	if r.Method != http.MethodConnect || at == nil || !strings.HasSuffix(r.Host, ":443") {
		http.Error(w, "only CONNECT to port 443", http.StatusForbidden)
		return
	}
	there, err := net.Dial("tcp", *at)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer there.Close()
	here, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer here.Close()
	_, _ = io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n")
	go func() { _, _ = io.Copy(there, here) }()
	_, _ = io.Copy(here, there)
}

// The emulator's account, which is the same everywhere and no secret.
const (
	account = "devstoreaccount1"
	key     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// nobody hides the credentials of whoever runs the tests.
func nobody(t *testing.T) {
	for _, env := range []string{
		"AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN",
		"AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_CLIENT_CERTIFICATE_PATH", "AZURE_USERNAME", "MSI_ENDPOINT", "MSI_SECRET", "IDENTITY_ENDPOINT", "IDENTITY_HEADER", "AZURE_AUTHORITY_HOST",
	} {
		t.Setenv(env, "")
	}
	t.Setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")
}

func open(t *testing.T, a source.Access) source.Source {
	t.Helper()
	net := remote.NewNet(remote.Options{})
	t.Cleanup(net.Close)
	if a.Deadline == 0 {
		a.Deadline = 2 * time.Second
	}
	src, err := azure.Scheme("az", net).Open(a)
	stagetest.Must(t, err)
	return src
}

func readAll(t *testing.T, src source.Source, name string) ([]byte, error) {
	return source.ReadAll(t.Context(), src, name, 1<<20)
}

// api answers as the reference of the REST API says, of one container: pages of two
// entries, errors in XML and in a header.
type api struct {
	t      *testing.T
	mu     sync.Mutex
	blobs  map[string]blob
	hns    bool                                              // the namespace is hierarchical: folders are blobs, in an order of its own
	spoil  func(w http.ResponseWriter, r *http.Request) bool // true: it has answered
	change func(h http.Header)                               // changes the answer to a read
	seen   []*http.Request
}

type blob struct {
	data   []byte
	etag   string
	folder bool
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen = append(a.seen, r)
	if a.spoil != nil && a.spoil(w, r) {
		return
	}
	q := r.URL.Query()
	name, isBlob := strings.CutPrefix(r.URL.Path, "/"+account+"/photos/")
	o, there := a.blobs[name]
	switch {
	case q.Get("comp") == "list" && r.URL.Path == "/"+account+"/":
		fmt.Fprint(w, "\ufeff<?xml version=\"1.0\"?><EnumerationResults><Containers><Container><Name>photos</Name></Container><Container><Name>archive</Name></Container></Containers><NextMarker /></EnumerationResults>")
	case q.Get("comp") == "list" && r.URL.Path == "/"+account+"/photos":
		a.list(w, q.Get("prefix"), q.Get("delimiter"), q.Get("marker"))
	case !isBlob:
		refuse(w, 404, "ContainerNotFound", "The specified container does not exist.")
	case !there:
		refuse(w, 404, "BlobNotFound", "The specified blob does not exist.")
	case r.Header.Get("If-Match") != "" && r.Header.Get("If-Match") != `"`+o.etag+`"`:
		refuse(w, 412, "ConditionNotMet", "The condition specified using HTTP conditional header(s) is not met.")
	default:
		a.blob(w, r, o)
	}
}

func (a *api) blob(w http.ResponseWriter, r *http.Request, o blob) {
	h := w.Header()
	h.Set("ETag", `"`+o.etag+`"`)
	h.Set("X-Ms-Blob-Type", "BlockBlob")
	if o.folder {
		h.Set("X-Ms-Resource-Type", "directory")
	}
	if r.Method == http.MethodHead {
		h.Set("Content-Length", strconv.Itoa(len(o.data)))
		return
	}
	var first, last int
	if _, err := fmt.Sscanf(r.Header.Get("X-Ms-Range"), "bytes=%d-%d", &first, &last); err != nil {
		a.t.Errorf("the range %q: %v", r.Header.Get("X-Ms-Range"), err)
	}
	if first >= len(o.data) {
		refuse(w, 416, "InvalidRange", "The range specified is invalid for the current size of the resource.")
		return
	}
	last = min(last, len(o.data)-1)
	sum := md5.Sum(o.data)
	h.Set("X-Ms-Blob-Content-Md5", base64.StdEncoding.EncodeToString(sum[:]))
	h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(o.data)))
	h.Set("Content-Length", strconv.Itoa(last-first+1))
	if a.change != nil {
		a.change(h)
	}
	w.WriteHeader(http.StatusPartialContent)
	_, _ = w.Write(o.data[first : last+1])
}

func (a *api) list(w http.ResponseWriter, prefix, delimiter, marker string) {
	found := map[string]string{}
	for name, o := range a.blobs {
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		label := "<Name>" + html.EscapeString(name) + "</Name>"
		if strings.ContainsAny(name, "\x01") {
			label = `<Name Encoded="true">` + url.PathEscape(name) + "</Name>"
		}
		kind := ""
		if a.hns {
			kind = "<ResourceType>" + map[bool]string{true: "directory", false: "file"}[o.folder] + "</ResourceType>"
		}
		if first, _, deeper := strings.Cut(rest, "/"); deeper && delimiter != "" {
			found[prefix+first+"/"] = "<BlobPrefix><Name>" + html.EscapeString(prefix+first) + "/</Name></BlobPrefix>"
		} else if !o.folder || delimiter == "" {
			found[name] = fmt.Sprintf("<Blob>%s<Properties><Content-Length>%d</Content-Length><Etag>%s</Etag>%s</Properties><Metadata><Author>me</Author></Metadata></Blob>", label, len(o.data), o.etag, kind)
		}
	}
	keys := slices.Collect(maps.Keys(found))
	order := func(a, b string) int { return strings.Compare(a, b) }
	if a.hns {
		order = func(a, b string) int { return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/")) }
	}
	slices.SortFunc(keys, order)
	if marker != "" {
		from, _ := url.PathUnescape(marker)
		keys = keys[slices.Index(keys, from):]
	}
	next := ""
	if len(keys) > 2 {
		next, keys = keys[2], keys[:2]
	}
	fmt.Fprint(w, "\ufeff<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults><Blobs>")
	for _, key := range keys {
		fmt.Fprint(w, found[key])
	}
	fmt.Fprintf(w, "</Blobs><NextMarker>%s</NextMarker></EnumerationResults>", url.PathEscape(next))
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("X-Ms-Error-Code", code)
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "\ufeff<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>%s</Code><Message>%s\nRequestId:1\nTime:2</Message></Error>", code, message)
}

// serve starts the API, with its address as the endpoint, and no credentials to be found
// anywhere.
func serve(t *testing.T, blobs map[string]blob) (*api, source.Access) {
	t.Helper()
	a := &api{t: t, blobs: blobs}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	nobody(t)
	return a, source.Access{Storage: source.Storage{EndpointURL: server.URL + "/" + account, Anonymous: true}, Deadline: 2 * time.Second}
}

func TestSource(t *testing.T) {
	stagetest.Source(t, func(t *testing.T, objects map[string][]byte) (source.Source, string, func(string, []byte)) {
		a, access := serve(t, map[string]blob{})
		n := 0
		put := func(name string, data []byte) {
			a.mu.Lock()
			defer a.mu.Unlock()
			n++
			a.blobs["x/"+name] = blob{data: data, etag: fmt.Sprintf("0x8D%d", n)}
		}
		for name, data := range objects {
			put(name, data)
		}
		return open(t, access), "az://photos/x/", put
	})
}

func list(t *testing.T, src source.Source, dir string, walk bool) (names []string) {
	t.Helper()
	all := src.List(t.Context(), dir)
	if walk {
		all = source.Walk(t.Context(), src, dir)
	}
	for it, err := range all {
		if err != nil {
			t.Fatalf("%v (%s)", err, errs.From(err).Hint)
		}
		names = append(names, strings.TrimPrefix(it.Name, "az://photos/"))
	}
	return names
}

// Where folders are objects, they are none of the dataset; what is listed in another order
// arrives in that of bytes.
func TestHierarchicalNamespace(t *testing.T) {
	blobs := map[string]blob{}
	for i, name := range []string{"t/", "t/a/", "t/a/dat1", "t/a-b/", "t/a-b/dat2", "t/a-c", "t/a.c/", "t/a.c/dat3", "t/ab/", "t/ab/ab", "t/ab.txt", "t/empty/", "t/c\x01"} {
		plain, folder := strings.CutSuffix(name, "/")
		blobs[plain] = blob{data: []byte(name), etag: fmt.Sprintf("0x%d", i), folder: folder}
	}
	a, access := serve(t, blobs)
	a.hns = true
	src := open(t, access)
	if got, want := list(t, src, "az://photos", true), []string{"t/a-b/dat2", "t/a-c", "t/a.c/dat3", "t/a/dat1", "t/ab.txt", "t/ab/ab", "t/c\x01"}; !slices.Equal(got, want) {
		t.Errorf("walked %q", got)
	}
	if got, want := list(t, src, "az://photos/t", false), []string{"t/a", "t/a-b", "t/a-c", "t/a.c", "t/ab", "t/ab.txt", "t/c\x01"}; !slices.Equal(got, want) {
		t.Errorf("listed %q", got)
	}
	for _, name := range []string{"az://photos", "az://photos/t", "az://photos/t/a", "az://photos/t/a/", "az://photos/t/empty"} {
		if st, err := src.Stat(t.Context(), name); err != nil || !st.Dir || st.Name != strings.TrimSuffix(name, "/") {
			t.Errorf("%s: %+v, %v", name, st, err)
		}
	}
	if b, err := readAll(t, src, "az://photos/t/c\x01"); err != nil || string(b) != "t/c\x01" {
		t.Errorf("%q, %v", b, err)
	}
	for _, r := range a.seen { // the store refuses another version before it sends any of it
		if r.Header.Get("X-Ms-Range") != "" && !strings.HasPrefix(r.Header.Get("If-Match"), `"0x`) {
			t.Errorf("%s has no condition", r.URL)
		}
	}
}

// What is not an answer to the request is not delivered.
func TestAnswersAreChecked(t *testing.T) {
	data := []byte("the bytes of a blob, which are these")
	answer := func(status int, code string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodHead {
				return false
			}
			refuse(w, status, code, "The sentence of the server.")
			return true
		}
	}
	nobody(t)
	for name, c := range map[string]struct {
		spoil  func(w http.ResponseWriter, r *http.Request) bool
		change func(h http.Header)
		code   errs.Code
		says   string
	}{
		"as it should be":    {},
		"another ETag":       {change: func(h http.Header) { h.Set("ETag", `"0x8"`) }, code: errs.Changed, says: "its ETag was 0x7 and is now 0x8"},
		"no ETag":            {change: func(h http.Header) { h.Del("ETag") }, code: errs.Changed, says: "the answer has no ETag"},
		"another checksum":   {change: func(h http.Header) { h.Set("X-Ms-Blob-Content-Md5", "AAAAAAAAAAAAAAAAAAAAAA==") }, code: errs.Unreadable, says: "checksum"},
		"no checksum":        {change: func(h http.Header) { h.Del("X-Ms-Blob-Content-Md5") }},
		"stored encoded":     {change: func(h http.Header) { h.Set("Content-Encoding", "gzip") }},
		"encoded by a proxy": {change: func(h http.Header) { h.Set("Content-Encoding", "gzip"); h.Del("X-Ms-Blob-Type") }, code: errs.Unreachable, says: "encoded"},
		"another range":      {change: func(h http.Header) { h.Set("Content-Range", fmt.Sprintf("bytes 1-%d/%d", len(data), len(data)+1)) }, code: errs.Unreachable, says: "were requested"},
		"another size":       {change: func(h http.Header) { h.Set("Content-Range", fmt.Sprintf("bytes 0-%d/99", len(data)-1)) }, code: errs.Changed, says: "99 bytes"},
		"all of it": {spoil: func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("ETag", `"0x7"`)
			_, _ = w.Write(data)
			return true
		}, code: errs.Unreachable, says: "200 instead of 206"},
		"elsewhere": {spoil: func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, "http://169.254.169.254/x", http.StatusFound)
			return true
		}, code: errs.Unreadable, says: "302"},
		"changed":           {spoil: answer(412, "ConditionNotMet"), code: errs.Changed, says: "no longer 0x7"},
		"shorter":           {spoil: answer(416, "InvalidRange"), code: errs.Changed, says: "shorter"},
		"gone":              {spoil: answer(404, "BlobNotFound"), code: errs.NotFound, says: "no such object"},
		"no container":      {spoil: answer(404, "ContainerNotFound"), code: errs.NotFound, says: "no container photos in the storage account " + account},
		"nothing for you":   {spoil: answer(404, "ResourceNotFound"), code: errs.Denied, says: "not public"},
		"not public":        {spoil: answer(409, "PublicAccessNotPermitted"), code: errs.Denied, says: "PublicAccessNotPermitted: The sentence"},
		"not allowed":       {spoil: answer(403, "AuthorizationPermissionMismatch"), code: errs.Denied, says: "AuthorizationPermissionMismatch"},
		"a proxy":           {spoil: answer(407, "x"), code: errs.Denied, says: "the proxy requires a user name and a password (407)"},
		"archived":          {spoil: answer(409, "BlobArchived"), code: errs.Unreadable, says: "archived"},
		"out of order":      {spoil: answer(500, "InternalError"), code: errs.Unreachable, says: "500 InternalError"},
		"too many requests": {spoil: answer(503, "ServerBusy"), code: errs.Throttled, says: "503 ServerBusy"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(&api{t: t, blobs: map[string]blob{"x": {data: data, etag: "0x7"}}, change: c.change, spoil: c.spoil})
			defer server.Close()
			net := remote.NewNet(remote.Options{})
			defer net.Close()
			src, err := azure.Scheme("az", net).Open(source.Access{Storage: source.Storage{EndpointURL: server.URL + "/" + account, Anonymous: true}, Deadline: 200 * time.Millisecond})
			stagetest.Must(t, err)
			p := make([]byte, len(data))
			err = src.ReadAt(t.Context(), source.Info{Name: "az://photos/x", Size: int64(len(data)), Version: "0x7"}, p, 0)
			if c.code == "" {
				if err != nil || !bytes.Equal(p, data) {
					t.Errorf("%q, %v", p, err)
				}
				return
			}
			if e := errs.From(err); err == nil || e.Code != c.code || !strings.Contains(err.Error(), c.says) || e.Where.File != "az://photos/x" || e.Hint == "" {
				t.Errorf("%v (%s)", err, errs.From(err).Hint)
			}
		})
	}
}

// The nearest container, folder and name that there are.
func TestErrorsTeach(t *testing.T) {
	_, access := serve(t, map[string]blob{"train/000.tar": {etag: "1"}})
	src := open(t, access)
	for name, want := range map[string]string{
		"az://photo/train/000.tar":         `did you mean "az://photos/train/000.tar"?`,
		"az://photos/trian/000.tar":        `did you mean "az://photos/train/000.tar"?`,
		"az://photos/train/{000..001}.tar": `has one entry: 000.tar`,
		"az://photos/train/*.npz":          `has one entry: 000.tar`,
	} {
		_, err := pattern.Expand(t.Context(), src, []string{name})
		if e := errs.From(err); err == nil || e.Code != errs.NotFound || !strings.Contains(e.Hint, want) {
			t.Errorf("%s: %v (%s)", name, err, e.Hint)
		}
	}
	for name, says := range map[string]string{
		"az://photos@mine.example.com/x":                      "not a host of Azure",
		"az://photos@mine.dfs.core.windows.net.example.com/x": "not a host of Azure",
		"az://photos@169.254.169.254/x":                       "not a host of Azure",
		"az://photos/../archive/x":                            "no blob has",
		"az://../x":                                           "no blob has",
		"az:///x":                                             "the name has no container",
	} {
		if _, err := src.Stat(t.Context(), name); errs.CodeOf(err) != errs.Config || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := open(t, source.Access{}).Stat(t.Context(), "az://photos/x"); errs.CodeOf(err) != errs.Config || !strings.Contains(err.Error(), "account is not known") {
		t.Errorf("without an account: %v", err)
	}
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", "HUSH")
	if _, err := open(t, source.Access{}).Stat(t.Context(), "az://photos/x"); errs.CodeOf(err) != errs.Config || strings.Contains(err.Error(), "HUSH") {
		t.Errorf("a connection string that is none: %v", err)
	}
}

// Listings are data.
func TestHostileListings(t *testing.T) {
	page := func(blobs, next string) string {
		return "<EnumerationResults><Blobs>" + blobs + "</Blobs><NextMarker>" + next + "</NextMarker></EnumerationResults>"
	}
	one := func(name string) string {
		return "<Blob><Name>" + name + "</Name><Properties><Content-Length>1</Content-Length><Etag>1</Etag></Properties></Blob>"
	}
	for body, want := range map[string]string{
		page(one("b/x"), ""):                                       "not of this folder",
		page(one("a/x")+one("a/x"), ""):                            "not in order",
		page(one("a/x"), "t"):                                      "does not end",
		page("<BlobPrefix><Name>a/</Name></BlobPrefix>", ""):       "not of this folder",
		page("<Blob><Name>a/x</Name></Blob>", ""):                  `a blob of "" bytes`,
		page(`<Blob><Name Encoded="true">a/%zz</Name></Blob>`, ""): "wrongly encoded",
		"<!DOCTYPE x [<!ENTITY a 'b'>]><EnumerationResults><Blobs><Blob><Name>&a;</Name></Blob></Blobs></EnumerationResults>": "not the XML",
	} {
		a, access := serve(t, nil)
		a.spoil = func(w http.ResponseWriter, r *http.Request) bool { _, _ = w.Write([]byte(body)); return true }
		access.Deadline = 200 * time.Millisecond
		var err error
		for _, e := range open(t, access).List(t.Context(), "az://photos/a") {
			err = errors.Join(err, e)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// FuzzListing: whatever a page says, entries are in order, below the folder, and have names.
func FuzzListing(f *testing.F) {
	f.Add(`<EnumerationResults><Blobs><Blob><Name>a/x</Name><Properties><Content-Length>1</Content-Length><Etag>1</Etag></Properties><Metadata><hdi_isfolder>true</hdi_isfolder></Metadata></Blob><BlobPrefix><Name>a/y/</Name></BlobPrefix></Blobs><NextMarker>t</NextMarker></EnumerationResults>`)
	f.Add(`<EnumerationResults><Blobs><Blob><Name Encoded="true">a%2F%01</Name></Blob><BlobPrefix><Name>/</Name></BlobPrefix></Blobs></EnumerationResults>`)
	body := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(body)) }))
	f.Cleanup(server.Close)
	net := remote.NewNet(remote.Options{})
	f.Cleanup(net.Close)
	src, err := azure.Scheme("az", net).Open(source.Access{Storage: source.Storage{EndpointURL: server.URL + "/" + account, Anonymous: true}, Deadline: time.Microsecond})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, page string) {
		body = page
		last := ""
		for it, err := range src.List(context.Background(), "az://photos/a") {
			if err != nil {
				var e *errs.Error
				if !errors.As(err, &e) || e.Code == errs.Bug || e.Hint == "" {
					t.Fatalf("%v", err)
				}
				return
			}
			if it.Name < last || !strings.HasPrefix(it.Name, "az://photos/a/") || strings.HasSuffix(it.Name, "/") || it.Size < 0 {
				t.Fatalf("%+v after %q", it, last)
			}
			last = it.Name
		}
	})
}

// Keys that a path cannot be are found, and read as what they are.
func TestPatternsOverKeysThatAreNoPaths(t *testing.T) {
	_, access := serve(t, map[string]blob{
		"a/x":   {data: []byte("a/x"), etag: "1"},
		"a//x":  {data: []byte("a//x"), etag: "2"},
		"a//y":  {data: []byte("a//y"), etag: "3"},
		"a///x": {data: []byte("a///x"), etag: "4"},
		"/x":    {data: []byte("/x"), etag: "5"},
		"x":     {data: []byte("x"), etag: "6"},
		"z":     {data: []byte("z"), etag: "7"},
	})
	src := browse.New(t.Context(), open(t, access), nil)
	defer src.End()
	for given, want := range map[string][]string{
		"a/x": {"a/x"}, "a//x": {"a//x"}, "a//{y,x}": {"a//y", "a//x"}, "/x": {"/x"}, "a/*": {"a/x"}, "a//*": {"a//x", "a//y"}, "a///*": {"a///x"}, "/*": {"/x"}, "*": {"a", "x", "z"},
		"*/x": {"a/x"}, "*//x": {"a//x"}, "**/x": {"/x", "a///x", "a//x", "a/x", "x"}, "z*": {"z"}, "/z*": nil, "/z": nil, "a/y": nil,
	} {
		const root = "az://photos/"
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
