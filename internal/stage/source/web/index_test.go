package web

import (
	"errors"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func page(t testing.TB, at string) *url.URL {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// The pages of servers, as they send them.
var pages = map[string]struct{ kind, body string }{
	"nginx": {"text/html", "<html>\r\n<head><title>Index of /d/</title></head>\r\n<body>\r\n<h1>Index of /d/</h1><hr><pre><a href=\"../\">../</a>\r\n" +
		"<a href=\"b/\">b/</a>                 24-Nov-2026 01:00      -\r\n<a href=\"%C3%A9%20%25%3F%23%3A.tar\">é %?..&gt;</a>  24-Nov-2026 01:00   3\r\n" +
		"<a href=\"a%2Etar\">a.tar</a>\r\n</pre><hr></body>\r\n</html>\r\n"},
	"nginx json": {"application/json", "[\r\n{ \"name\":\"b\", \"type\":\"directory\", \"mtime\":\"Tue, 24 Nov 2026 01:00:00 GMT\" },\r\n" +
		"{ \"name\":\"a.tar\", \"type\":\"file\", \"mtime\":\"Tue, 24 Nov 2026 01:00:00 GMT\", \"size\":3 },\r\n{ \"name\":\"é %?#:.tar\", \"type\":\"file\", \"size\":3 }\r\n]"},
	"apache": {"text/html;charset=UTF-8", `<!DOCTYPE HTML PUBLIC "-//W3C//DTD HTML 3.2 Final//EN"><html><head><title>Index of /d</title></head><body><h1>Index of /d</h1>
<table><tr><th valign="top"><img src="/icons/blank.gif" alt="[ICO]"></th><th><a href="?C=N;O=D">Name</a></th><th><a href="?C=M;O=A">Last modified</a></th></tr>
<tr><td><a href="/">Parent Directory</a></td></tr><tr><td><a href="a.tar">a.tar</a></td></tr><tr><td><a href="b/">b/</a></td></tr>
<tr><td><a href="%c3%a9%20%25%3f%23:.tar">x</a></td></tr></table><address>Apache/2.4 Server at h Port 80</address></body></html>`},
	"python": {"text/html; charset=utf-8", "<!DOCTYPE HTML>\n<html lang=\"en\">\n<head>\n<title>Directory listing for /d/</title>\n</head>\n<body>\n<ul>\n<li><a href=\"a.tar\">a.tar</a></li>\n" +
		"<li><a href=\"b/\">b/</a></li>\n<li><a href=\"%C3%A9%20%25%3F%23%3A.tar\">é %?#:.tar</a></li>\n</ul>\n<hr>\n</body>\n</html>\n"},
	"go": {"text/html; charset=utf-8", "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n<a href=\"a.tar\">a.tar</a>\n<a href=\"b/\">b/</a>\n" +
		"<a href=\"%C3%A9%20%25%3F%23:.tar\">é %?#:.tar</a>\n</pre>\n"},
	"caddy": {"text/html; charset=utf-8", `<!DOCTYPE html><html><head><link rel="canonical" href="/d/" /><style>a{}</style><script>var s='<a href="no.js">';</script></head><body>
<a href="/">root</a><a href="./?layout=grid&sort=namedirfirst">grid</a><a href="https://caddyserver.com">Caddy</a><a href=..>up</a>
<a href="./a.tar"><span class="name">a.tar</span></a><A HREF='./b/'>b</A><a href="./%C3%A9%20%25%3F%23:.tar">x</a></body></html>`},
	"caddy json": {"application/json; charset=utf-8", `[{"name":"b/","size":0,"url":"./b/","mod_time":"2026-11-24T01:00:00Z","mode":2147484141,"is_dir":true,"is_symlink":false},
{"name":"a.tar","size":3,"url":"./a.tar","is_dir":false},{"name":"\u00e9 %?#:.tar","is_dir":false}]`},
	"of a bucket": {"text/html", `<html><body><a href="https://h:8080/d/a.tar">a</a><a href="//h:8080/d/b/">b</a><a href="/d/%C3%A9%20%25%3F%23%3A.tar">c</a>
<a href="a.tar">again</a><a href="a.tar#top">and again</a><a href="javascript:void(0)">x</a><a href="mailto:a@b">x</a><a href="https://other/d/e.tar">x</a>
<a href="https://h:8081/d/e.tar">x</a><a href="http://h:8080/d/e.tar">x</a><a href="/d/b/deep.tar">x</a><a href="/other/e.tar">x</a><a href="q.tar?download=1">x</a>
<a name="e.tar">x</a><a href="">x</a><a href="#">x</a><a href="./">x</a><a href="%2e%2e/">x</a><a href="%2E">x</a><a href="/d%2Fe.tar">x</a></body></html>`},
	"based": {"text/html", `<html><head><base href="/d/"><base href="https://other/"></head><body><a href="a.tar">x</a><a href="b/">x</a><a href="é %25%3F%23%3A.tar">x</a></body></html>`},
}

func TestIndexPages(t *testing.T) {
	want := []string{"a.tar", "b/", "é %25%3F%23:.tar"}
	for server, p := range pages {
		got, ended, err := readIndex(p.kind, page(t, "https://h:8080/d/"), iotest.OneByteReader(strings.NewReader(p.body)))
		if err != nil || !ended || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v, %v", server, got, ended, err)
		}
		for _, name := range got { // a name is a URL: the one of the link
			u, err := address("https://h:8080/d/" + name)
			if err != nil || !slices.Contains([]string{"/d/a.tar", "/d/b/", "/d/é %?#:.tar"}, u.Path) || u.RawQuery != "" {
				t.Errorf("%s: %s is %v, %v", server, name, u, err)
			}
		}
		// What is cut off is not taken for a whole page.
		for cut := range len(p.body) - 1 {
			got, ended, err := readIndex(p.kind, page(t, "https://h:8080/d/"), strings.NewReader(p.body[:cut]))
			if err == nil && ended && len(got) < len(want) && cut < strings.LastIndex(p.body, "%")-2 {
				t.Fatalf("%s: cut after %d bytes it has %q", server, cut, got)
			}
		}
		broken := errors.New("broken")
		if _, _, err := readIndex(p.kind, page(t, "https://h:8080/d/"), io.MultiReader(strings.NewReader(p.body[:len(p.body)/2]), iotest.ErrReader(broken))); !errors.Is(err, broken) {
			t.Errorf("%s: of a page that broke off: %v", server, err)
		}
	}
}

// Names that are not escaped as they should be, and names that are not text.
func TestOddLinks(t *testing.T) {
	for href, want := range map[string]string{
		"100%.tar": "100%25.tar", "%zz": "%25zz", "2026:01.tar": "2026:01.tar", "a b": "a b", "a&amp;b": "a&b", "&#233;": "é",
		"%FF%FE.tar": "\xff\xfe.tar", "a\\b": "a\\b", " a.tar\n": "a.tar", "a/../b.tar": "b.tar", "[1].tar": "[1].tar", "a;b=c,d": "a;b=c,d", "a+b": "a+b",
	} {
		got, _, err := readIndex("text/html", page(t, "http://h/é/"), strings.NewReader(`<a href="`+href+`">x</a>`))
		if err != nil || !slices.Equal(got, []string{want}) {
			t.Errorf("%q is %q, %v; want %q", href, got, err, want)
			continue
		}
		if u, err := address("http://h/é/" + got[0]); err != nil || strings.Count(u.Path, "/") != 2 {
			t.Errorf("%q: %v", href, err)
		}
	}
	got, _, err := readIndex("application/json", page(t, "http://h/d/"), strings.NewReader("[{\"name\":\"\xff.tar\"},{\"NAME\":\"b\\\"c\",\"more\":[1,{}]}]"))
	if err != nil || !slices.Equal(got, []string{"b\"c", "\xff.tar"}) {
		t.Errorf("%q, %v", got, err)
	}
}

// What no folder has is an error: a dataset must not become smaller without a word.
func TestHostileIndexes(t *testing.T) {
	long := strings.Repeat("x", mostName+1)
	for body, want := range map[string]string{
		`<a href="a%00b">`:                                  "cannot be that of a file",
		`<a href="a%0Ab">`:                                  "cannot be that of a file",
		`<a href="a%7Fb">`:                                  "cannot be that of a file",
		"<a href=\"a\x01b\">":                               "cannot be that of a file",
		`<a href="..%2F..%2Fetc%2Fpasswd">`:                 "cannot be that of a file",
		`<a href="` + long + `">`:                           "a name of 1025 bytes",
		`<a href="` + strings.Repeat("y", mostToken) + `">`: "more than 1048576 bytes",
	} {
		names, _, err := readIndex("text/html", page(t, "http://h/d/"), strings.NewReader("<html>"+body+"</html>"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %.40q, %v", body, names, err)
		}
	}
	for body, want := range map[string]string{
		`[{"name":"a/b"}]`:          "cannot be that of a file",
		`[{"name":"../x"}]`:         "cannot be that of a file",
		`[{"name":"a\u0000"}]`:      "cannot be that of a file",
		`[{"name":"` + long + `"}]`: "a name of 1025 bytes",
		`[{"name":1}]`:              "not a list of objects",
		`[{"type":"file"}]`:         "not a list of objects",
		`[{"name":"a","type":[]}]`:  "not a list of objects",
		`{"name":"a"}`:              "not a list of objects",
		`["a"]`:                     "not a list of objects",
		`[{"name":"a"},]`:           "not a list of objects",
		`[{"name":"a"}`:             "no end",
		``:                          "no end",
		`[{"name":"` + strings.Repeat("y", 4*mostToken) + `"}]`:         "longer than",
		`[{"name":"a","x":"` + strings.Repeat("y", 4*mostToken) + `"}]`: "longer than",
	} {
		names, _, err := readIndex("application/json", page(t, "http://h/d/"), strings.NewReader(body))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %.40q, %v", body, names, err)
		}
	}
	if _, _, err := readIndex("application/octet-stream", page(t, "http://h/d/"), strings.NewReader("")); err == nil || !strings.Contains(err.Error(), "octet-stream") {
		t.Error(err)
	}

	// A page without end is given up.
	long1 := strings.Repeat(`<a href="same">x</a>`, 1000)
	at := page(t, "http://h/d/")
	for _, x := range []*index{
		{page: at, base: at, names: make([]string, mostEntries-1)},
		{page: at, base: at, bytes: mostNames - 1},
	} {
		if err := x.readHTML(&bounded{r: strings.NewReader(long1), left: mostIndex}); err != errTooLong {
			t.Errorf("%d names, %v", len(x.names), err)
		}
	}
	for _, read := range []func(*index, *bounded) error{(*index).readHTML, (*index).readJSON} {
		if err := read(&index{page: at, base: at}, &bounded{r: strings.NewReader("[" + long1), left: 1}); err != errTooLong {
			t.Errorf("a page that is too long: %v", err)
		}
	}
}

func FuzzIndex(f *testing.F) {
	for _, p := range pages {
		f.Add(p.body, strings.Contains(p.kind, "json"))
	}
	at := page(f, "https://h:8080/d%20d/é/")
	f.Fuzz(func(t *testing.T, body string, isJSON bool) {
		kind := "text/html"
		if isJSON {
			kind = "application/json"
		}
		names, _, err := readIndex(kind, at, strings.NewReader(body))
		if err != nil {
			return
		}
		if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
			t.Fatalf("%q", names)
		}
		for _, name := range names {
			u, err := address("https://h:8080/d d/é/" + name)
			if err != nil {
				t.Fatalf("%q is not a URL", name)
			}
			base, ok := strings.CutPrefix(u.Path, "/d d/é/")
			base = strings.TrimSuffix(base, "/")
			if !ok || base == "" || base == "." || base == ".." || strings.ContainsAny(base, "/\x00\n") || len(base) > mostName || u.RawQuery != "" || u.Host != "h:8080" {
				t.Fatalf("%q is %v", name, u)
			}
		}
	})
}

func FuzzNetrc(f *testing.F) {
	f.Add("machine h login u password \"p \\\" q\"\nmacdef init\ncd /x\n\ndefault login a password b # c\n")
	f.Fuzz(func(t *testing.T, text string) {
		if all, err := parseNetrc(text); err == nil && len(all) > len(text) {
			t.Fatal("more machines than words")
		}
	})
}
