package web_test

import (
	"bytes"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/pattern"
	"github.com/stoker-data/stoker/internal/stagetest"
)

var content = []byte("0123456789abcdefghij")

// good answers as a server should.
func good(w http.ResponseWriter, r *http.Request) { tagged(`"v1"`, content)(w, r) }

func tagged(etag string, body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if etag != "" {
			w.Header().Set("ETag", etag)
		}
		http.ServeContent(w, r, "x", noTime, bytes.NewReader(body))
	}
}

// raw is an answer to every GET, as its bytes.
func raw(status, headers, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			good(w, r)
			return
		}
		c, out, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer c.Close()
		fmt.Fprintf(out, "HTTP/1.1 %s\r\n%s\r\n%s", status, headers, body)
		_ = out.Flush()
	}
}

// An answer is believed only if it is what was asked for. What is not is asked for again,
// so a fault that passes is not seen, and one that stays is an error before the deadline.
func TestHostileAnswers(t *testing.T) {
	const ok = "ETag: \"v1\"\r\nContent-Length: 10\r\nContent-Range: bytes 5-14/20\r\n"
	sum := func(b []byte) string { s := sha256.Sum256(b); return base64.StdEncoding.EncodeToString(s[:]) }
	for what, c := range map[string]struct {
		status, headers, body string
		code                  errs.Code
		says                  string
		passes                bool // another answer would mend it
	}{
		"200 for 206":        {"200 OK", "ETag: \"v1\"\r\nContent-Length: 20\r\n", string(content), errs.Unreachable, "answered 200", true},
		"shifted":            {"206 Partial Content", "ETag: \"v1\"\r\nContent-Length: 10\r\nContent-Range: bytes 6-15/20\r\n", "6789abcdef", errs.Unreachable, "bytes 5-14 were requested", true},
		"shorter range":      {"206 Partial Content", "ETag: \"v1\"\r\nContent-Length: 5\r\nContent-Range: bytes 5-9/20\r\n", "56789", errs.Unreachable, "bytes 5-14 were requested", true},
		"longer range":       {"206 Partial Content", "ETag: \"v1\"\r\nContent-Length: 15\r\nContent-Range: bytes 5-19/20\r\n", "56789abcdefghij", errs.Unreachable, "bytes 5-14 were requested", true},
		"no range":           {"206 Partial Content", "ETag: \"v1\"\r\nContent-Length: 10\r\n", "56789abcde", errs.Unreachable, "bytes 5-14 were requested", true},
		"several ranges":     {"206 Partial Content", "ETag: \"v1\"\r\nContent-Type: multipart/byteranges; boundary=x\r\nContent-Length: 4\r\n", "--x-", errs.Unreachable, "bytes 5-14 were requested", true},
		"short":              {"206 Partial Content", strings.Replace(ok, "10", "9", 1), "56789abcd", errs.Unreachable, "9 bytes", true},
		"short and closed":   {"206 Partial Content", strings.Replace(ok, "Content-Length: 10\r\n", "", 1), "56789abcd", errs.Unreachable, "ended before", true},
		"long and closed":    {"206 Partial Content", strings.Replace(ok, "Content-Length: 10\r\n", "", 1), "56789abcdef", errs.Unreachable, "more than the 10", true},
		"cut":                {"206 Partial Content", ok, "56789", errs.Unreachable, "ended before", true},
		"chunks too many":    {"206 Partial Content", "ETag: \"v1\"\r\nContent-Range: bytes 5-14/20\r\nTransfer-Encoding: chunked\r\n", "b\r\n56789abcdef\r\n0\r\n\r\n", errs.Unreachable, "more than the 10", true},
		"chunks cut":         {"206 Partial Content", "ETag: \"v1\"\r\nContent-Range: bytes 5-14/20\r\nTransfer-Encoding: chunked\r\n", "5\r\n56789\r\n", errs.Unreachable, "ended before", true},
		"encoded":            {"206 Partial Content", ok + "Content-Encoding: gzip\r\n", "56789abcde", errs.Unreachable, "encoded (gzip)", true},
		"a digest of others": {"206 Partial Content", ok + "Content-Digest: md5=:x:, sha-256=:" + sum([]byte("other")) + ":\r\n", "56789abcde", errs.Unreadable, "Content-Digest", true},
		"not HTTP":           {"2x6", "", "", errs.Unreachable, "request failed", true},
		"endless headers":    {"206 Partial Content", strings.Repeat("X-A: "+strings.Repeat("a", 1000)+"\r\n", 300), "", errs.Unreachable, "request failed", true},
		"throttled":          {"503 Slow Down", "Content-Length: 0\r\n", "", errs.Throttled, "answered 503", true},
		"failing":            {"500 Oh", "Content-Length: 0\r\n", "", errs.Unreachable, "answered 500", true},
		"another ETag":       {"206 Partial Content", strings.Replace(ok, "v1", "v2", 1), "56789abcde", errs.Changed, "v2", false},
		"a weak ETag":        {"206 Partial Content", strings.Replace(ok, `"v1"`, `W/"v1"`, 1), "56789abcde", errs.Changed, "no ETag", true},
		"no ETag":            {"206 Partial Content", strings.Replace(ok, "ETag: \"v1\"\r\n", "", 1), "56789abcde", errs.Changed, "no ETag", true},
		"another size":       {"206 Partial Content", strings.Replace(ok, "/20", "/21", 1), "56789abcde", errs.Changed, "21 bytes", false},
		"412":                {"412 Precondition Failed", "Content-Length: 0\r\n", "", errs.Changed, "412", false},
		"416":                {"416 Range Not Satisfiable", "Content-Range: bytes */4\r\nContent-Length: 0\r\n", "", errs.Changed, "416", false},
		"gone":               {"410 Gone", "Content-Length: 0\r\n", "", errs.NotFound, "no such", false},
		"removed":            {"404 Not Found", "Content-Length: 0\r\n", "", errs.NotFound, "no such", false},
		"denied":             {"403 Forbidden", "Content-Length: 0\r\n", "", errs.Denied, "403 Forbidden to a request without credentials", false},
		"a proxy":            {"407 Proxy Authentication Required", "Content-Length: 0\r\n", "", errs.Denied, "the proxy requires", false},
		"another status":     {"418 I'm a teapot", "Content-Length: 0\r\n", "", errs.Unreadable, "418", false},
	} {
		t.Run(what, func(t *testing.T) {
			var bad, all atomic.Int64
			bad.Store(1)
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				all.Add(1)
				if r.Method == http.MethodGet && r.Header.Get("Range") == "bytes=5-14" && bad.Add(-1) >= 0 {
					raw(c.status, c.headers, c.body)(w, r)
					return
				}
				good(w, r)
			})
			src := open(t)
			obj, err := src.Stat(t.Context(), s.URL+"/x")
			if err != nil || obj.Size != 20 || obj.Version != `"v1"` {
				t.Fatalf("%+v, %v", obj, err)
			}
			p := make([]byte, 1)
			stagetest.Must(t, src.ReadAt(t.Context(), obj, p, 0)) // this server does answer ranges
			p = make([]byte, 10)
			err = src.ReadAt(t.Context(), obj, p, 5)
			if c.passes && (err != nil || string(p) != "56789abcde") {
				t.Errorf("a fault that passes: %q, %v", p, err)
			}
			if !c.passes && errs.CodeOf(err) != c.code {
				t.Errorf("%v, want %s", err, c.code)
			}
			bad.Store(1 << 30)
			err = src.ReadAt(t.Context(), obj, p, 5)
			e := errs.From(err)
			if err == nil || e.Code != c.code || !strings.Contains(e.Error(), c.says) || e.Hint == "" || e.Where.File != obj.Name {
				t.Errorf("got %v (%s), want %s, %q", err, e.Hint, c.code, c.says)
			}
		})
	}
}

// A checksum of the whole counts if the whole was requested.
func TestChecksums(t *testing.T) {
	sha := func(b []byte) string { s := sha256.Sum256(b); return base64.StdEncoding.EncodeToString(s[:]) }
	sum := md5.Sum(content)
	right, wrong := base64.StdEncoding.EncodeToString(sum[:]), base64.StdEncoding.EncodeToString(make([]byte, 16))
	for header, c := range map[string]struct {
		value string
		ok    bool
	}{
		"Content-MD5":    {wrong, false},
		"content-md5":    {right, true},
		"Repr-Digest":    {"sha-512=:AAAA:, sha-256=:" + sha(nil) + ":", false},
		"repr-digest":    {"sha-256=:" + sha(content) + ":", true},
		"Digest":         {"SHA-256=" + sha(nil) + ",MD5=x", false},
		"digest":         {"unixsum=1, sha-256=" + sha(content), true},
		"Content-Digest": {"sha-256=:no base64:", true}, // nothing that can be compared
	} {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(header, c.value)
			good(w, r)
		})
		src := open(t)
		obj, err := src.Stat(t.Context(), s.URL+"/x")
		stagetest.Must(t, err)
		err = src.ReadAt(t.Context(), obj, make([]byte, len(content)), 0)
		if c.ok != (err == nil) || err != nil && !strings.Contains(err.Error(), "checksum") {
			t.Errorf("%s: %s: %v", header, c.value, err)
		}
		stagetest.Must(t, src.ReadAt(t.Context(), obj, make([]byte, len(content)-1), 0))
	}
}

// Versions: a strong ETag, else the time, else the size alone.
func TestVersions(t *testing.T) {
	const when, later = "Tue, 24 Nov 2026 01:00:00 GMT", "Tue, 24 Nov 2026 02:00:00 GMT"
	for _, c := range []struct {
		etag, modified, then, thenModified string
		found                              bool
	}{
		{`"a"`, when, `"b"`, when, true},
		{`"a"`, when, `"a"`, later, false},
		{`W/"a"`, when, `W/"a"`, later, true},
		{`W/"a"`, when, `W/"b"`, when, false},
		{"", when, "", later, true},
		{"", "", "", "", false},
		{"a", "", "b", "", false}, // an ETag has quotation marks
	} {
		etag, modified := c.etag, c.modified
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if modified != "" {
				w.Header().Set("Last-Modified", modified)
			}
			r.Header.Del("If-Match") // as a server that does not know it
			r.Header.Del("If-Unmodified-Since")
			tagged("", content)(header{w, etag}, r)
		})
		src := open(t)
		obj, err := src.Stat(t.Context(), s.URL+"/x")
		stagetest.Must(t, err)
		stagetest.Must(t, src.ReadAt(t.Context(), obj, make([]byte, 10), 3))
		etag, modified = c.then, c.thenModified
		if err := src.ReadAt(t.Context(), obj, make([]byte, 10), 3); (errs.CodeOf(err) == errs.Changed) != c.found || !c.found && err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}

	// A part may leave out the time that was a condition of it (RFC 9110, 15.3.7).
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead {
			w.Header().Set("Last-Modified", when)
		} else if r.Header.Get("If-Unmodified-Since") != when {
			t.Errorf("the time is not a condition of the read: %v", r.Header)
		}
		tagged("", content)(w, r)
	})
	src := open(t)
	obj, err := src.Stat(t.Context(), s.URL+"/x")
	stagetest.Must(t, err)
	stagetest.Must(t, src.ReadAt(t.Context(), obj, make([]byte, 10), 3))
}

// Some servers compare If-Unmodified-Since with fractions of a second, which Last-Modified
// leaves out, and refuse what has not changed: it is read without the condition, and what
// has changed is still found. The condition is not sent again.
func TestTimesWithFractions(t *testing.T) {
	at, body, timeless := time.Unix(1_700_000_000, 123_456_789), content, false
	var refused atomic.Int64
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if since, err := http.ParseTime(r.Header.Get("If-Unmodified-Since")); err == nil && at.After(since) {
			refused.Add(1)
			w.WriteHeader(http.StatusPreconditionFailed)
			return
		}
		if !timeless {
			w.Header().Set("Last-Modified", at.UTC().Format(http.TimeFormat))
		}
		http.ServeContent(w, r, "x", noTime, bytes.NewReader(body))
	})
	src := open(t)
	obj, err := src.Stat(t.Context(), s.URL+"/x")
	stagetest.Must(t, err)
	p := make([]byte, 10)
	for range 3 {
		if err := src.ReadAt(t.Context(), obj, p, 3); err != nil || !bytes.Equal(p, content[3:13]) {
			t.Fatalf("%q, %v", p, err)
		}
	}
	if refused.Load() != 1 {
		t.Errorf("%d requests were refused", refused.Load())
	}
	for what, change := range map[string]func(){
		"the time":   func() { at = at.Add(time.Second) },
		"the size":   func() { body = content[:15] },
		"not at all": func() { timeless = true }, // but nothing says so
	} {
		for _, first := range []source.Source{src, open(t)} {
			at, body, timeless = time.Unix(1_700_000_000, 123_456_789), content, false
			change()
			if err := first.ReadAt(t.Context(), obj, p, 3); errs.CodeOf(err) != errs.Changed {
				t.Errorf("what changed is %s: %v", what, err)
			}
		}
	}
}

// header sets an ETag after http.ServeContent, which would refuse some.
type header struct {
	http.ResponseWriter
	etag string
}

func (h header) WriteHeader(status int) {
	if h.etag != "" {
		h.Header().Set("ETag", h.etag)
	}
	h.ResponseWriter.WriteHeader(status)
}

// The size is asked for in another way where HEAD does not tell it.
func TestSizes(t *testing.T) {
	get := func(h http.HandlerFunc, refuse int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodHead && refuse != 0 {
				w.WriteHeader(refuse)
				return
			}
			h(w, r)
		}
	}
	chunked := func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		_, _ = w.Write(content)
	}
	noSize := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Range", "bytes 0-0/*")
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(content[:1])
	}
	for what, c := range map[string]struct {
		h    http.HandlerFunc
		size int64
		code errs.Code
		says string
	}{
		"HEAD refused, 405":       {get(good, 405), 20, "", ""},
		"HEAD refused, 403":       {get(good, 403), 20, "", ""}, // signed for GET alone
		"HEAD refused, 501":       {get(good, 501), 20, "", ""},
		"HEAD without length":     {get(good, 200), 20, "", ""},
		"empty":                   {tagged(`"e"`, nil), 0, "", ""},
		"empty, 416":              {get(raw("416 Range Not Satisfiable", "Content-Range: bytes */0\r\nContent-Length: 0\r\n", ""), 405), 0, "", ""},
		"all refused":             {get(get(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) }, 403), 0), 0, errs.Denied, "403"},
		"chunked":                 {chunked, 0, errs.Unsupported, "the size"},
		"chunked, HEAD refused":   {get(chunked, 405), 0, errs.Unsupported, "the size"},
		"a range of unknown size": {get(noSize, 405), 0, errs.Unsupported, "the size"},
		"encoded": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			good(w, r)
		}, 0, errs.Unsupported, "Content-Encoding: gzip"},
		"encoded, HEAD refused": {get(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			good(w, r)
		}, 405), 0, errs.Unsupported, "Content-Encoding: br"},
	} {
		t.Run(what, func(t *testing.T) {
			s := serve(t, c.h)
			src := open(t)
			name := s.URL + "/x"
			obj, err := src.Stat(t.Context(), name)
			if c.code != "" {
				if e := errs.From(err); err == nil || e.Code != c.code || !strings.Contains(e.What, c.says) || e.Hint == "" || e.Where.File != name {
					t.Fatalf("%+v, %v", obj, err)
				}
				return
			}
			if err != nil || obj.Size != c.size || obj.Dir {
				t.Fatalf("%+v, %v", obj, err)
			}
			p := make([]byte, obj.Size)
			if err := src.ReadAt(t.Context(), obj, p, 0); err != nil || !bytes.Equal(p, content[:c.size]) {
				t.Errorf("%q, %v", p, err)
			}
		})
	}
}

// The beginning of a file is one request.
func TestHead(t *testing.T) {
	for size := range 5 {
		for room := range 5 {
			var asked atomic.Int64
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				if r.Header.Get("Accept-Encoding") != "identity" {
					t.Errorf("encodings were requested: %v", r.Header)
				}
				tagged(`"v"`, content[:size])(w, r)
			})
			p := make([]byte, room)
			n, err := open(t).Head(t.Context(), s.URL+"/x", p)
			if err != nil || n != min(size, room) || !bytes.Equal(p[:n], content[:n]) || room > 0 && asked.Load() != 1 {
				t.Errorf("%d bytes of %d: %d, %v, in %d requests", room, size, n, err, asked.Load())
			}
		}
	}
	s := httptest.NewServer(http.FileServer(http.Dir(t.TempDir())))
	defer s.Close()
	for name, code := range map[string]errs.Code{"/nothing": errs.NotFound, "/": errs.Unreadable} {
		if _, err := open(t).Head(t.Context(), s.URL+name, make([]byte, 3)); errs.CodeOf(err) != code {
			t.Errorf("%s: %v", name, err)
		}
	}
	short := serve(t, raw("206 Partial Content", "Content-Range: bytes 0-1/20\r\nContent-Length: 2\r\n", "01"))
	if n, err := open(t).Head(t.Context(), short.URL+"/x", make([]byte, 4)); err == nil {
		t.Errorf("%d bytes of a file of 20 are its beginning", n)
	}
}

// A server without ranges is refused, and the error says what to do.
func TestWithoutRanges(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		if r.Method != http.MethodHead {
			_, _ = w.Write(content)
		}
	})
	src := open(t)
	obj, err := src.Stat(t.Context(), s.URL+"/x")
	stagetest.Must(t, err)
	for _, err := range []error{
		src.ReadAt(t.Context(), obj, make([]byte, 3), 2),
		src.ReadAt(t.Context(), obj, make([]byte, 20), 0),
		func() error { _, err := src.Head(t.Context(), obj.Name, make([]byte, 3)); return err }(),
	} {
		if e := errs.From(err); err == nil || e.Code != errs.Config || !strings.Contains(e.Hint, "download the files") {
			t.Errorf("%v", err)
		}
	}
}

// A signature in the query is part of every request, and of the name.
func TestQuery(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "X-Amz-Signature=a%2Fb&c=d//e/../f" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		good(w, r)
	})
	src := open(t)
	name := s.URL + "/x.tar?X-Amz-Signature=a%2Fb&c=d//e/../f"
	paths, err := pattern.Expand(t.Context(), src, []string{name})
	if err != nil || len(paths) != 1 || paths[0] != name {
		t.Fatalf("%q, %v", paths, err)
	}
	name, err = source.Abs(paths[0])
	stagetest.Must(t, err)
	obj, err := src.Stat(t.Context(), name)
	stagetest.Must(t, err)
	p := make([]byte, 4)
	if err := src.ReadAt(t.Context(), obj, p, 2); err != nil || string(p) != "2345" {
		t.Errorf("%q, %v", p, err)
	}
	_, err = src.Stat(t.Context(), s.URL+"/x.tar?X-Amz-Signature=old")
	if e := errs.From(err); err == nil || e.Code != errs.Denied || !strings.Contains(e.Hint, "expired") || strings.Contains(e.What, "old") {
		t.Errorf("%v (%s)", err, e.Hint)
	}
	for _, err := range src.List(t.Context(), name) {
		if errs.CodeOf(err) != errs.Unsupported {
			t.Errorf("a folder with a query: %v", err)
		}
	}
}

// A query may follow a slash, and is then that of a file.
func TestQueryAfterASlash(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/get/" || r.URL.RawQuery != "id=/3/" {
			http.NotFound(w, r)
			return
		}
		good(w, r)
	})
	name, err := source.Abs(s.URL + "/get/?id=/3/")
	stagetest.Must(t, err)
	if st, err := open(t).Stat(t.Context(), name); err != nil || st.Dir || st.Size != 20 || st.Name != name {
		t.Errorf("%+v, %v", st, err)
	}
}

// What is not a URL is said so, without what may be a password.
func TestNotAURL(t *testing.T) {
	for _, name := range []string{"http://", "http:///x", "http://user:pa%ss@h/x", "http://h/100%", "http://user:hush/word@h:x/", "http://h/a\x01", "http://h#@evil/x", "http://h\\@evil/x"} {
		_, err := open(t).Stat(t.Context(), name)
		e := errs.From(err)
		if err == nil || e.Code != errs.Config || e.Hint == "" || strings.Contains(e.What+e.Hint, "hush") || e.Cause != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}
