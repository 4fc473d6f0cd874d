package web_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/pattern"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
	"github.com/stoker-data/stoker/internal/stage/source/web"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// seen are requests that a server got.
type seen struct {
	mu  sync.Mutex
	all []*http.Request
}

func (s *seen) add(r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, r)
}

func (s *seen) take() (all []*http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, s.all = s.all, nil
	return all
}

// Redirects are followed with the range and the version, to another host without the
// credentials; where they led is asked first, until that is no longer valid.
func TestRedirects(t *testing.T) {
	var here, there seen
	var signature atomic.Int64
	store := serve(t, func(w http.ResponseWriter, r *http.Request) {
		there.add(r)
		if r.URL.Query().Get("sig") != fmt.Sprint(signature.Load()) {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		good(w, r)
	})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		here.add(r)
		switch r.URL.Path {
		case "/x":
			http.Redirect(w, r, "/y", http.StatusMovedPermanently)
		case "/y":
			http.Redirect(w, r, strings.Replace(store.URL, "http://", "http://evil:evil@", 1)+fmt.Sprintf("/z?sig=%d", signature.Load()), http.StatusFound)
		}
	})
	src := open(t)
	name := strings.Replace(s.URL, "http://", "http://user:hush@", 1) + "/x"
	obj, err := src.Stat(t.Context(), name)
	if err != nil || obj.Size != 20 || obj.Version != `"v1"` || obj.Dir || obj.Name != name {
		t.Fatalf("%+v, %v", obj, err)
	}
	read := func() {
		t.Helper()
		p := make([]byte, 4)
		if err := src.ReadAt(t.Context(), obj, p, 2); err != nil || string(p) != "2345" {
			t.Errorf("%q, %v", p, err)
		}
	}
	read()
	for _, r := range here.take() {
		if user, password, _ := r.BasicAuth(); user != "user" || password != "hush" {
			t.Errorf("%s %s came without the credentials", r.Method, r.URL)
		}
	}
	for _, r := range there.take() {
		if r.Header.Get("Authorization") != "" || r.Header.Get("Referer") != "" || r.Header.Get("Cookie") != "" {
			t.Errorf("another host got %v", r.Header)
		}
		if r.Method == http.MethodGet && (r.Header.Get("Range") != "bytes=2-5" || r.Header.Get("If-Match") != `"v1"`) {
			t.Errorf("the last request is not for the range of the version: %v", r.Header)
		}
	}

	for range 3 {
		read()
	}
	if a, b := len(here.take()), len(there.take()); a != 0 || b != 3 {
		t.Errorf("three reads made %d requests for redirects and %d for data", a, b)
	}
	signature.Add(1)
	read()
	read()
	if a, b := len(here.take()), len(there.take()); a != 2 || b != 3 {
		t.Errorf("two reads after the signature ended made %d requests for redirects and %d for data", a, b)
	}

	signature.Store(-1)
	store.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusForbidden) })
	err = src.ReadAt(t.Context(), obj, make([]byte, 4), 2)
	if e := errs.From(err); err == nil || e.Code != errs.Denied || !strings.Contains(e.What, "to which no credentials are sent") || strings.Contains(e.Error(), "sig=") || strings.Contains(e.What+e.Hint, "hush") {
		t.Errorf("denied after a redirect: %v", err)
	}
}

// Where a redirect must not lead. Nothing is sent there.
func TestRedirectsThatAreRefused(t *testing.T) {
	hops := func(n int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			var i int
			_, _ = fmt.Sscanf(r.URL.Path, "/%d", &i)
			if i == n {
				good(w, r)
				return
			}
			w.Header().Set("Location", fmt.Sprintf("/%d", i+1))
			w.WriteHeader(http.StatusTemporaryRedirect)
		}
	}
	src := open(t)
	if obj, err := src.Stat(t.Context(), serve(t, hops(5)).URL+"/0"); err != nil || obj.Size != 20 {
		t.Errorf("five redirects: %+v, %v", obj, err)
	}
	to := func(where string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", where)
			w.WriteHeader(http.StatusFound)
		}
	}
	for says, h := range map[string]http.HandlerFunc{
		"more than 5 times": hops(6),
		"form a loop":       to("/0"),
		"169.254.169.254":   to("http://169.254.169.254/latest/meta-data/"),
		"fd00:ec2::254":     to("http://[fd00:ec2::254]/latest/meta-data/"),
		"fe80::1":           to("http://[fe80::1%25eth0]/"),
		"::ffff:169.254":    to("http://[::ffff:169.254.169.254]/x"),
		"not the URL":       to("file:///etc/passwd"),
		"is not the URL":    to("http://"),
		"not the URL of":    to("ftp://h/x"),
		"redirected to":     to("http://h:x/"),
	} {
		s := serve(t, h)
		_, err := src.Stat(t.Context(), s.URL+"/0")
		if e := errs.From(err); err == nil || e.Code != errs.Unreadable || !strings.Contains(e.What, says) || e.Hint == "" || e.Where.File != s.URL+"/0" {
			t.Errorf("%s: %v", says, err)
		}
	}
}

// A name whose address is link-local is found out when it is resolved, whoever wrote it.
func TestLinkLocalNames(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://harmless.test/latest/meta-data/", http.StatusFound)
	})
	for _, ip := range []string{"169.254.169.254", "fe80::1", "fd00:ec2::254"} {
		net := remote.NewNet(remote.Options{Resolver: stagetest.Resolver(func(string) ([]string, error) { return []string{ip, "127.0.0.1"}, nil })})
		defer net.Close()
		src := web.New(net, source.Access{Deadline: 300 * time.Millisecond})
		for _, name := range []string{s.URL + "/x", "http://harmless.test/x"} {
			if _, err := src.Stat(t.Context(), name); errs.CodeOf(err) != errs.Unreadable || !strings.Contains(err.Error(), "link-local") {
				t.Errorf("%s at %s: %v", name, ip, err)
			}
		}
	}
}

// Folders are found by the slash that a server adds, also after other redirects.
func TestFolders(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/old":
			http.Redirect(w, r, "/new", http.StatusMovedPermanently)
		case "/new", "/empty":
			http.Redirect(w, r, r.URL.Path+"/", http.StatusPermanentRedirect)
		case "/new/", "/old/":
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, `<a href="a">a</a><a href="gone">x</a><a href="sub/">s</a><a href="sub">s</a><a href="plain">p</a></body>`)
		case "/":
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, `<a href="new/">n</a><a href="old/">o</a></body>`)
		case "/empty/":
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `[]`)
		case "/plain":
			http.Redirect(w, r, "/plain/", http.StatusFound)
		case "/new/plain", "/old/plain", "/new/sub":
			http.Redirect(w, r, r.URL.Path+"/", http.StatusFound)
		case "/new/a", "/old/a":
			good(w, r)
		default:
			http.NotFound(w, r)
		}
	})
	src := open(t)
	for _, name := range []string{"/old", "/new", "/empty", ""} {
		if st, err := src.Stat(t.Context(), s.URL+name); err != nil || !st.Dir || st.Name != s.URL+name {
			t.Errorf("%s: %+v, %v", name, st, err)
		}
	}
	for st, err := range src.List(t.Context(), s.URL+"/empty") {
		t.Errorf("an empty folder has %+v, %v", st, err)
	}
	for _, dir := range []string{"/new", "/old/"} {
		var got []string
		for st, err := range src.List(t.Context(), s.URL+dir) {
			stagetest.Must(t, err)
			got = append(got, fmt.Sprintf("%s %v %d %s", strings.TrimPrefix(st.Name, s.URL+strings.TrimSuffix(dir, "/")), st.Dir, st.Size, st.Version))
		}
		// What is on the page and nowhere else stays a name, as a link to nowhere does.
		if want := `/a false 20 "v1", /gone false 0 , /plain true 0 , /sub true 0 `; strings.Join(got, ", ") != want {
			t.Errorf("%s: %s, want %s", dir, strings.Join(got, ", "), want)
		}
	}
	if _, err := pattern.Expand(t.Context(), src, []string{s.URL + "/new/plian"}); !strings.Contains(errs.From(err).Hint, "did you mean \""+s.URL+"/new/plain\"?") {
		t.Errorf("%v (%s)", err, errs.From(err).Hint)
	}
	if _, err := pattern.Expand(t.Context(), src, []string{s.URL + "/nwe/{a,b}"}); !strings.Contains(errs.From(err).Hint, "did you mean \""+s.URL+"/new/a\"?") {
		t.Errorf("%v (%s)", err, errs.From(err).Hint)
	}
	got, err := pattern.Expand(t.Context(), src, []string{s.URL + "/new/[a-f]*", s.URL + "/new/{a,plain}", s.URL + "/n?w/a"})
	if want := "/new/a /new/a /new/plain /new/a"; err != nil || strings.ReplaceAll(strings.Join(got, " "), s.URL, "") != want {
		t.Errorf("%q, %v", got, err)
	}
}

// Names alone cost one request; entries one more each.
func TestRequestsOfAListing(t *testing.T) {
	var asked seen
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked.add(r)
		if r.URL.Path != "/" {
			good(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		for i := range 300 {
			fmt.Fprintf(w, `<a href="%03d.tar">x</a>`, i)
		}
		fmt.Fprint(w, "</html>")
	})
	src := open(t)
	names, err := src.Names(t.Context(), s.URL)
	if n := len(asked.take()); err != nil || len(names) != 300 || n != 1 || names[7] != (source.Info{Name: s.URL + "/007.tar"}) {
		t.Errorf("%d names by %d requests, %v", len(names), n, err)
	}
	n := 0
	for st, err := range src.List(t.Context(), s.URL+"/") {
		if err != nil || st.Version == "" || st.Name != fmt.Sprintf("%s/%03d.tar", s.URL, n) {
			t.Fatalf("%+v, %v", st, err)
		}
		n++
	}
	if got := len(asked.take()); n != 300 || got != 301 {
		t.Errorf("%d entries by %d requests", n, got)
	}
	for range src.List(t.Context(), s.URL) {
		break
	}
	if got := len(asked.take()); got > 150 {
		t.Errorf("one entry took %d requests", got)
	}
}

// A page that cannot be read as an index is an error with what to do instead.
func TestNoIndex(t *testing.T) {
	for says, h := range map[string]http.HandlerFunc{
		"may not list": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusForbidden) },
		"image/png": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "image/png")
			w.WriteHeader(200)
		},
		"cannot be that of a file": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, `<a href="a%00">`)
		},
		"not a list": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"error": 1}`)
		},
		"ended before": raw("200 OK", "Content-Type: text/html\r\nContent-Length: 100\r\n", `<a href="a">a</a></html>`),
		"no end":       raw("200 OK", "Content-Type: text/html\r\n", `<a href="a">a</a>`),
		"has no end":   raw("200 OK", "Content-Type: application/json\r\nContent-Length: 14\r\n", `[{"name": "a"}`),
		"gzip":         raw("200 OK", "Content-Type: text/html\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n", `x`),
	} {
		s := serve(t, h)
		for st, err := range open(t).List(t.Context(), s.URL+"/d") {
			if e := errs.From(err); err == nil || !strings.Contains(e.Error(), says) || e.Hint == "" || !strings.HasPrefix(e.Where.File, s.URL) {
				t.Errorf("%s: %+v, %v (%s)", says, st, err, e.Hint)
			}
		}
	}
}

// One misbehaving link must not end the listing of all with a wrong place.
func TestAnEntryThatIsDenied(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, `<a href="a">a</a><a href="b">b</a></html>`)
		case "/a":
			good(w, r)
		default:
			w.WriteHeader(http.StatusForbidden)
		}
	})
	var got []string
	for st, err := range open(t).List(t.Context(), s.URL) {
		got = append(got, fmt.Sprint(st.Name, errs.CodeOf(err)))
		if err != nil && errs.From(err).Where.File != s.URL+"/b" {
			t.Errorf("%v", err)
		}
	}
	if len(got) != 2 || !strings.HasSuffix(got[1], string(errs.Denied)) {
		t.Errorf("%q", got)
	}
}
