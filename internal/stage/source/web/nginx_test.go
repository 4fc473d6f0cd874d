package web_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
	"github.com/stoker-data/stoker/internal/stagetest/fixture"
	"github.com/stoker-data/stoker/internal/stagetest/formats"
	"github.com/stoker-data/stoker/internal/stagetest/servers"
)

func TestMain(m *testing.M) { os.Exit(stagetest.OwnCache(m)) }

// nginx in the ways in which it serves files.
func TestNginx(t *testing.T) {
	ca := servers.CA(t)
	t.Setenv("SSL_CERT_FILE", ca.File)
	t.Setenv("STOKER_TEST_TOKEN", "hush")
	netrc := filepath.Join(t.TempDir(), "netrc")
	stagetest.Must(t, os.WriteFile(netrc, []byte("machine 127.0.0.1 login user password hush"), 0o600))
	t.Setenv("NETRC", netrc)
	for what, o := range map[string]servers.HTTPOptions{
		"json":               {Index: "json"},
		"html":               {Index: "html"},
		"TLS":                {Index: "json", Cert: ca.Issue("127.0.0.1")},
		"password":           {Index: "html", User: "user", Password: "hush"},
		"token":              {Index: "json", Token: "hush"},
		"without keep-alive": {Index: "json", NoKeepAlive: true},
		"compresses":         {Index: "html", Gzip: true},
	} {
		t.Run(what, func(t *testing.T) {
			stagetest.Source(t, func(t *testing.T, objects map[string][]byte) (source.Source, string, func(string, []byte)) {
				s := servers.HTTP(t, t.TempDir(), o)
				for name, data := range objects {
					s.Put(name, data)
				}
				access := source.Access{}
				if o.Token != "" {
					access = source.Access{Storage: source.Storage{TokenEnv: "STOKER_TEST_TOKEN"}, Written: &source.Written{Names: []string{s.URL}}}
				}
				return openWith(t, access), s.URL + "/", s.Put
			})
		})
	}
}

// What nginx answers is what this package makes of it: versions of listings and of files are
// the same, hidden files and odd names are there, and a folder without a page is said so.
func TestNginxLists(t *testing.T) {
	names := []string{"100%.tar", "a b?c#d&e;f=g+h.tar", "2026:11.tar", "\"quoted\" <b>.tar", "back\\slash", "'", "é\u0301", "\xff\xfe", "%41", strings.Repeat("long", 60)}
	for _, index := range []string{"html", "json"} {
		s := servers.HTTP(t, t.TempDir(), servers.HTTPOptions{Index: index})
		for _, name := range names {
			s.Put(name, []byte(name))
		}
		s.Put("sub/x", nil)
		src := open(t)
		left := map[string]bool{}
		for _, name := range names {
			left[name] = true
		}
		for it, err := range src.List(t.Context(), s.URL) {
			stagetest.Must(t, err)
			if it.Dir {
				continue
			}
			st, err := src.Stat(t.Context(), it.Name)
			if err != nil || st != it || st.Version == "" {
				t.Errorf("%s: %+v is listed as %+v, %v", index, st, it, err)
			}
			p := make([]byte, it.Size)
			stagetest.Must(t, src.ReadAt(t.Context(), it, p, 0))
			if !left[string(p)] {
				t.Errorf("%s: %q has the contents of %q", index, it.Name, p)
			}
			delete(left, string(p))
		}
		if len(left) != 0 {
			t.Errorf("%s: %v are not listed", index, left)
		}
	}
	s := servers.HTTP(t, t.TempDir(), servers.HTTPOptions{})
	s.Put("d/x", nil)
	if _, err := source.Names(t.Context(), open(t), s.URL+"/d"); errs.CodeOf(err) != errs.Denied || !strings.Contains(errs.From(err).Hint, "@https://") {
		t.Errorf("without a page: %v", err)
	}
}

// Who is asked by HTTPS is not left for a place where anybody could change the data.
func TestRedirectFromTLS(t *testing.T) {
	ca := servers.CA(t)
	t.Setenv("SSL_CERT_FILE", ca.File)
	plain := serve(t, good)
	s := servers.HTTP(t, t.TempDir(), servers.HTTPOptions{Cert: ca.Issue("127.0.0.1"), Config: "location /x { return 302 " + plain.URL + "/x; }"})
	if _, err := open(t).Stat(t.Context(), s.URL+"/x"); errs.CodeOf(err) != errs.Unreadable || !strings.Contains(err.Error(), "from https to http") {
		t.Errorf("%v", err)
	}
	up := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, s.URL+"/y", http.StatusFound) })
	s.Put("y", content)
	if st, err := open(t).Stat(t.Context(), up.URL+"/y"); err != nil || st.Size != 20 {
		t.Errorf("from http to https: %+v, %v", st, err)
	}
}

// Servers without ranges are listed, and reading from them is refused with the way out.
func TestServersWithoutRanges(t *testing.T) {
	for what, s := range map[string]*servers.Server{
		"nginx":  servers.HTTP(t, t.TempDir(), servers.HTTPOptions{Index: "html", NoRanges: true}),
		"python": servers.HTTPWithoutRanges(t, t.TempDir()),
	} {
		for name, data := range map[string]string{"d/é %.tar": "0123", "d/e/f": "x"} {
			s.Put(name, []byte(data))
		}
		src := open(t)
		var got []string
		for st, err := range src.List(t.Context(), s.URL+"/d") {
			stagetest.Must(t, err)
			got = append(got, strings.TrimPrefix(st.Name, s.URL))
		}
		if strings.Join(got, " ") != "/d/e /d/é %25.tar" {
			t.Errorf("%s: %q", what, got)
		}
		obj, err := src.Stat(t.Context(), s.URL+got[1])
		if err != nil || obj.Size != 4 || obj.Version == "" {
			t.Fatalf("%s: %+v, %v", what, obj, err)
		}
		err = src.ReadAt(t.Context(), obj, make([]byte, 2), 1)
		if e := errs.From(err); err == nil || e.Code != errs.Config || !strings.Contains(e.Hint, "download the files") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Every format over HTTP is what it is in local files.
func TestEveryFormat(t *testing.T) {
	s := servers.HTTP(t, t.TempDir(), servers.HTTPOptions{Index: "json"})
	formats.Read(t, formats.Store{Prefix: s.URL, Put: func(path string, data []byte) { s.Put(strings.TrimPrefix(path, "/"), data) }})
}

// A query has no part in what tells the kind of a file: neither its extension nor its name.
func TestFormatsOfNamesWithAQuery(t *testing.T) {
	s := servers.HTTP(t, t.TempDir(), servers.HTTPOptions{})
	t.Chdir("../../../dataset") // where the fixtures' relative paths begin
	array := t.TempDir()
	fixture.SaveArray(t, array, "x.npy", mem.Float32, "(7, 3)", fixture.Random(84, 1))
	all := fixture.Stores(t)
	all["npy"] = spec.Dataset{Path: spec.Paths{array + "/x.npy"}}
	tried := 0
	for what, d := range all {
		if len(d.Path) != 1 || strings.ContainsAny(d.Path[0], "{*") {
			continue
		}
		data, err := os.ReadFile(d.Path[0])
		if err != nil { // a folder
			continue
		}
		tried++
		here, err := dataset.Open(t.Context(), spec.Spec{Dataset: d}, dataset.Options{Stored: true})
		stagetest.Must(t, err)
		defer here.Close()
		name := filepath.Base(d.Path[0])
		s.Put(name, data)
		d.Path = spec.Paths{s.URL + "/" + name + "?download=1&x=/a//b.c/../"}
		there, err := dataset.Open(t.Context(), spec.Spec{Dataset: d}, dataset.Options{Stored: true})
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		defer there.Close()
		if there.Format() != here.Format() || there.Len() != here.Len() || !slices.Equal(there.Dataset().Index().Meta().Fields, here.Dataset().Index().Meta().Fields) {
			t.Errorf("%s: %s, %d samples, %q", what, there.Format(), there.Len(), there.Dataset().Index().Meta().Fields)
		}
	}
	if tried < 12 {
		t.Errorf("%d formats", tried)
	}
}

// A dataset by a list: the order is that of the list, and other hosts need the user's word.
// The token goes to hosts that he wrote, and the list cannot have it sent to others.
func TestDatasetOfAList(t *testing.T) {
	t.Setenv("STOKER_TEST_TOKEN", "hush")
	here := servers.HTTP(t, t.TempDir(), servers.HTTPOptions{Token: "hush"})
	var got seen
	there := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got.add(r)
		tagged(`"t"`, []byte("there"))(w, r)
	})
	for _, name := range []string{"d/b.txt", "d/a.txt"} {
		here.Put(name, []byte(name))
	}
	here.Put("d/mine", []byte("b.txt\n# and\na.txt\n"))
	here.Put("d/more", []byte("b.txt\n"+there.URL+"/x/c.txt\n"))
	open := func(list string, origins ...string) (texts []string, err error) {
		d := spec.Dataset{Path: spec.Paths{"@" + here.URL + list}, Format: "lines", Origins: origins, Storage: source.Storage{TokenEnv: "STOKER_TEST_TOKEN"}}
		c, err := dataset.Open(t.Context(), spec.Spec{Dataset: d}, dataset.Options{Stored: true})
		if err != nil {
			return nil, err
		}
		defer c.Close()
		for id := range c.Len() {
			raw, err := c.Read(t.Context(), id)
			stagetest.Must(t, err)
			texts = append(texts, string(raw[0]))
		}
		return texts, nil
	}
	if texts, err := open("/d/mine"); err != nil || !slices.Equal(texts, []string{"d/b.txt", "d/a.txt"}) {
		t.Errorf("%q, %v", texts, err)
	}
	if _, err := open("/d/more"); errs.CodeOf(err) != errs.Config || !strings.Contains(errs.From(err).Hint, "dataset.origins") || len(got.take()) != 0 {
		t.Errorf("another host without the user's word: %v", err)
	}
	if _, err := open("/d/more", there.URL+"/y/"); errs.CodeOf(err) != errs.Config || len(got.take()) != 0 {
		t.Errorf("another folder than the user's word: %v", err)
	}
	if texts, err := open("/d/more", there.URL+"/x/"); err != nil || !slices.Equal(texts, []string{"d/b.txt", "there"}) {
		t.Errorf("%q, %v", texts, err)
	}
	for _, r := range got.take() {
		if r.Header.Get("Authorization") != "Bearer hush" {
			t.Errorf("a host that the user wrote got %q", r.Header.Get("Authorization"))
		}
	}
}

// A signed URL of a file that was put into the folder of an S3 server: it has no ETag, and
// its time has fractions of a second, which the server takes for a change.
func TestSignedURLWithoutAnETag(t *testing.T) {
	server := servers.S3(t, servers.S3Options{})
	file := filepath.Join(server.Dir, "d", "x")
	put := func(text string, at time.Time) {
		stagetest.Put(t, file, []byte(text))
		stagetest.Must(t, os.Chtimes(file, at, at))
	}
	put("before", time.Unix(1_700_000_000, 123_456_789))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+server.Path("d/x")+"?X-Amz-Expires=600", nil)
	stagetest.Must(t, err)
	keys := aws.Credentials{AccessKeyID: server.Env["AWS_ACCESS_KEY_ID"], SecretAccessKey: server.Env["AWS_SECRET_ACCESS_KEY"]}
	url, _, err := v4.NewSigner().PresignHTTP(t.Context(), keys, req, "UNSIGNED-PAYLOAD", "s3", server.Env["AWS_REGION"], time.Now())
	stagetest.Must(t, err)
	src := open(t)
	obj, err := src.Stat(t.Context(), url)
	if err != nil || obj.Version != "modified Tue, 14 Nov 2023 22:13:20 GMT" {
		t.Fatalf("%+v, %v", obj, err)
	}
	p := make([]byte, 6)
	if err := src.ReadAt(t.Context(), obj, p, 0); err != nil || string(p) != "before" {
		t.Errorf("%q, %v", p, err)
	}
	put("after!", time.Unix(1_700_000_001, 0))
	for _, src := range []source.Source{src, open(t)} {
		if err := src.ReadAt(t.Context(), obj, p, 0); errs.CodeOf(err) != errs.Changed {
			t.Errorf("what was replaced is read: %q, %v", p, err)
		}
	}
}
