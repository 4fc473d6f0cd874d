package s3_test

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/stagetest/servers"
)

// fake is a small store for what no real server does on request: keys that are not paths,
// other regions, wrong clocks. It checks no signatures; versitygw does.
type fake struct {
	URL     string
	objects map[string][]byte // by key, of any bucket
	page    int               // entries of a page of a listing; 0: 1000
	header  http.Header       // of every answer with an object

	// before may answer a request in the store's place, and says whether it did.
	before func(w http.ResponseWriter, r *http.Request) bool

	mu   sync.Mutex
	seen []*http.Request
}

func newFake(t *testing.T, objects map[string][]byte) *fake {
	f := &fake{objects: objects}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	f.URL = s.URL
	f.use(t)
	return f
}

// use sets the environment for the fake: keys, and nothing of the user's own.
func (f *fake) use(t *testing.T) {
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL_S3": f.URL, "AWS_ENDPOINT_URL": "", "AWS_ACCESS_KEY_ID": "AKIDFAKEFAKEFAKE1234", "AWS_SECRET_ACCESS_KEY": "fakefakesecret",
		"AWS_SESSION_TOKEN": "", "AWS_REGION": "us-east-1", "AWS_PROFILE": "", "AWS_CONFIG_FILE": os.DevNull,
		"AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_EC2_METADATA_DISABLED": "true", "AWS_CA_BUNDLE": "",
	} {
		t.Setenv(name, value)
	}
}

func (f *fake) requests() []*http.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.seen)
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.seen = append(f.seen, r.Clone(r.Context()))
	f.mu.Unlock()
	if f.before != nil && f.before(w, r) {
		return
	}
	key := r.URL.Path[1:]
	if !strings.HasSuffix(strings.Split(r.Host, ":")[0], ".amazonaws.com") {
		_, key, _ = strings.Cut(key, "/") // the bucket
	}
	if r.URL.Query().Get("list-type") == "2" {
		f.list(w, r.URL.Query())
		return
	}
	data, ok := f.objects[key]
	if !ok {
		refuse(w, 404, "NoSuchKey", "The specified key does not exist.")
		return
	}
	for k, v := range f.header {
		w.Header()[k] = v
	}
	if w.Header().Get("ETag") == "" {
		w.Header().Set("ETag", fmt.Sprintf(`"%d-%x"`, len(data), key))
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Unix(1e9, 0), bytes.NewReader(data))
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, "<?xml version=\"1.0\"?><Error><Code>%s</Code><Message>%s</Message><RequestId>1</RequestId></Error>", code, message)
}

func (f *fake) list(w http.ResponseWriter, q url.Values) {
	type entry struct{ Key, Prefix string }
	var all []entry
	for _, key := range slices.Sorted(maps.Keys(f.objects)) {
		rest, ok := strings.CutPrefix(key, q.Get("prefix"))
		if !ok {
			continue
		}
		e := entry{Key: key}
		if i := strings.IndexByte(rest, '/'); i >= 0 && q.Get("delimiter") == "/" {
			e = entry{Prefix: key[:len(key)-len(rest)+i+1]}
		}
		if len(all) == 0 || e.Prefix == "" || all[len(all)-1] != e {
			all = append(all, e)
		}
	}
	from, most := 0, f.page
	_, _ = fmt.Sscan(q.Get("continuation-token"), &from)
	if most == 0 {
		most = 1000
	}
	_, _ = fmt.Sscan(q.Get("max-keys"), &most)
	end := min(from+most, len(all))
	type contents struct {
		Key, ETag, LastModified string
		Size                    int
	}
	type prefixes struct{ Prefix string }
	var out struct {
		XMLName               xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListBucketResult"`
		EncodingType          string
		IsTruncated           bool
		NextContinuationToken string `xml:",omitempty"`
		Contents              []contents
		CommonPrefixes        []prefixes
	}
	out.EncodingType, out.IsTruncated = q.Get("encoding-type"), end < len(all)
	if out.IsTruncated {
		out.NextContinuationToken = fmt.Sprint(end)
	}
	for _, e := range all[from:end] {
		if e.Prefix != "" {
			out.CommonPrefixes = append(out.CommonPrefixes, prefixes{url.QueryEscape(e.Prefix)})
		} else {
			size := len(f.objects[e.Key])
			out.Contents = append(out.Contents, contents{url.QueryEscape(e.Key), fmt.Sprintf(`"%d-%x"`, size, e.Key), "2001-09-09T01:46:40.000Z", size})
		}
	}
	_ = xml.NewEncoder(w).Encode(out)
}

// front is a proxy before a real server, which may answer in its place or change answers.
func front(t *testing.T, server *servers.Server, before func(w http.ResponseWriter, r *http.Request) bool, after func(*http.Response)) {
	t.Helper()
	to, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:  func(r *httputil.ProxyRequest) { r.SetURL(to); r.Out.Host = r.In.Host }, // the host is signed
		ErrorLog: log.New(io.Discard, "", 0),
		ModifyResponse: func(r *http.Response) error {
			if after != nil {
				after(r)
			}
			return nil
		},
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if before == nil || !before(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.Close)
	t.Setenv("AWS_ENDPOINT_URL_S3", s.URL)
}
