package s3_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
	"github.com/stoker-data/stoker/internal/stage/source/s3"
	"github.com/stoker-data/stoker/internal/stagetest"
	"github.com/stoker-data/stoker/internal/stagetest/formats"
	"github.com/stoker-data/stoker/internal/stagetest/servers"
)

// reach is the source of S3, with connections of its own.
func reach(t *testing.T, access source.Access) source.Source {
	t.Helper()
	return reachBy(t, access, remote.Options{})
}

func reachBy(t *testing.T, access source.Access, opt remote.Options) source.Source {
	t.Helper()
	net := remote.NewNet(opt)
	t.Cleanup(net.Close)
	if access.Deadline == 0 {
		access.Deadline = 30 * time.Second
	}
	src, err := s3.Scheme(net).Open(access)
	stagetest.Must(t, err)
	return src
}

func stat(t *testing.T, src source.Source, name string) source.Info {
	t.Helper()
	st, err := src.Stat(t.Context(), name)
	if err != nil {
		t.Fatalf("%s: %v, %s", name, err, errs.From(err).Hint)
	}
	return st
}

// read is all of an object.
func read(t *testing.T, src source.Source, name string) []byte {
	t.Helper()
	p, err := source.ReadAll(t.Context(), src, name, 1<<20)
	if err != nil {
		t.Fatalf("%s: %v, %s", name, err, errs.From(err).Hint)
	}
	return p
}

func TestSource(t *testing.T) {
	server := servers.S3(t, servers.S3Options{})
	server.Use(t)
	stagetest.Source(t, func(t *testing.T, objects map[string][]byte) (source.Source, string, func(string, []byte)) {
		for name, data := range objects {
			server.Put("suite/"+name, data)
		}
		return reach(t, source.Access{}), "s3://data/suite/", func(name string, data []byte) { server.Put("suite/"+name, data) }
	})
}

func TestEveryFormat(t *testing.T) {
	server := servers.S3(t, servers.S3Options{})
	server.Use(t)
	formats.Read(t, formats.Store{Prefix: "s3://data", Put: func(path string, data []byte) { server.Put(path[1:], data) }})
}

// Keys are bytes: what a path, a URL or XML would change arrives as it is, and is signed
// as the server checks it.
func TestKeys(t *testing.T) {
	server := servers.S3(t, servers.S3Options{})
	server.Use(t)
	src := reach(t, source.Access{})
	long := strings.Repeat(strings.Repeat("n", 127)+"/", 8)
	for _, key := range []string{
		"a b", "a+b", "a%2Fb", "a?b", "a#b", "a&b=c", "a'b(c)*", "a=b;c:d@e,f$g!", "ä/ö.tar", "日本.png", "tab\there", "line\nbreak", "<x>&amp;", `quo"te`, `back\slash`, "~.-_", "...", long[:1024-1],
	} {
		server.Put("keys/"+key[:min(len(key), 1019)], []byte(key))
	}
	found := 0
	for it, err := range source.Walk(t.Context(), src, "s3://data/keys") {
		stagetest.Must(t, err)
		found++
		if got := read(t, src, it.Name); !strings.HasPrefix(string(got), strings.TrimPrefix(it.Name, "s3://data/keys/")) {
			t.Errorf("%q has the bytes of %q", it.Name, got)
		}
		if st := stat(t, src, it.Name); st != it {
			t.Errorf("%+v is listed as %+v", st, it)
		}
	}
	if found != 18 {
		t.Errorf("%d keys of 18 were found", found)
	}
}

// Keys that no file system has.
func TestKeysThatAreNoPaths(t *testing.T) {
	f := newFake(t, map[string][]byte{
		"d/": nil, "d/../up": []byte("up"), "d/./here": []byte("here"), "d//empty": []byte("empty"), "d/marked/": nil, "d/x": []byte("x"),
		"d/nul\x00": []byte("nul"), "d/" + strings.Repeat("k", 1022): []byte("long"), "d/marked/y": []byte("y"), "d/\xff\xfe": []byte("bytes"),
	})
	f.page = 3
	src := reach(t, source.Access{})
	names := func(all []source.Info, err error) (out []string) {
		stagetest.Must(t, err)
		for _, it := range all {
			out = append(out, strings.TrimPrefix(it.Name, "s3://some-bucket/d/"))
			if !it.Dir {
				if st := stat(t, src, it.Name); st != it {
					t.Errorf("%+v is listed as %+v", st, it)
				}
				if got := read(t, src, it.Name); !bytes.Equal(got, f.objects[strings.TrimPrefix(it.Name, "s3://some-bucket/")]) {
					t.Errorf("%q has the bytes of %q", it.Name, got)
				}
			}
		}
		return out
	}
	long := strings.Repeat("k", 1022)
	if got, want := names(source.Names(t.Context(), src, "s3://some-bucket/d")), []string{".", "..", long, "marked", "nul\x00", "x", "\xff\xfe"}; !slices.Equal(got, want) {
		t.Errorf("the folder has %q, want %q", got, want)
	}
	var all []source.Info
	for it, err := range source.Walk(t.Context(), src, "s3://some-bucket/d/") {
		stagetest.Must(t, err)
		all = append(all, it)
	}
	if got, want := names(all, nil), []string{"../up", "./here", "/empty", long, "marked/y", "nul\x00", "x", "\xff\xfe"}; !slices.Equal(got, want) {
		t.Errorf("below the folder are %q, want %q", got, want)
	}
	for _, name := range []string{"s3://some-bucket", "s3://some-bucket/", "s3://some-bucket/d", "s3://some-bucket/d/", "s3://some-bucket/d/marked", "s3://"} {
		if st := stat(t, src, name); !st.Dir || st.Version != "" {
			t.Errorf("%s is %+v", name, st)
		}
	}
}

// Thousands of objects come in pages, in the order of bytes, and a folder by itself.
func TestPages(t *testing.T) {
	server := servers.S3(t, servers.S3Options{})
	server.Use(t)
	src := reach(t, source.Access{})
	var want []string
	for _, dir := range []string{"a", "a.b", "a/c"} {
		at := filepath.Join(server.Dir, "many", dir)
		stagetest.Must(t, os.MkdirAll(at, 0o755))
		for i := range 1100 {
			name := string(rune('a'+i%26)) + strings.Repeat("x", i/26)
			stagetest.Must(t, os.WriteFile(filepath.Join(at, name+".bin"), nil, 0o644))
			want = append(want, "s3://data/many/"+dir+"/"+name+".bin")
		}
	}
	slices.Sort(want)
	var got []string
	for it, err := range source.Walk(t.Context(), src, "s3://data/many") {
		stagetest.Must(t, err)
		got = append(got, it.Name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d objects were listed, want %d", len(got), len(want))
	}
	all, err := source.Names(t.Context(), src, "s3://data/many/a")
	stagetest.Must(t, err)
	if len(all) != 1101 || !slices.IsSortedFunc(all, func(a, b source.Info) int { return strings.Compare(a.Name, b.Name) }) || !slices.ContainsFunc(all, func(i source.Info) bool { return i.Dir && i.Base() == "c" }) {
		t.Errorf("the folder has %d entries", len(all))
	}
}

// A million objects are listed in the memory of a few pages.
func TestAMillionObjects(t *testing.T) {
	const each, all = 1000, 1_000_000
	store := newFake(t, nil)
	store.before = func(w http.ResponseWriter, r *http.Request) bool {
		store.mu.Lock()
		store.seen = nil
		store.mu.Unlock()
		from, _ := strconv.Atoi(r.URL.Query().Get("continuation-token"))
		var page bytes.Buffer
		page.WriteString(`<ListBucketResult><EncodingType>url</EncodingType>`)
		if from+each < all {
			fmt.Fprintf(&page, "<IsTruncated>true</IsTruncated><NextContinuationToken>%d</NextContinuationToken>", from+each)
		}
		for i := range each {
			fmt.Fprintf(&page, "<Contents><Key>d/%02d/%07d.jpg</Key><Size>110000</Size><ETag>&quot;%032x&quot;</ETag></Contents>", (from+i)/50_000, from+i, from+i)
		}
		page.WriteString(`</ListBucketResult>`)
		_, err := w.Write(page.Bytes())
		stagetest.Must(t, err)
		return true
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, n := heap(), 0
	for _, err := range source.Walk(t.Context(), reach(t, source.Access{}), "s3://data/d") {
		stagetest.Must(t, err)
		if n++; n%200_000 == 0 {
			if now := heap(); now > before+(8<<20) {
				t.Errorf("after %d objects, %d bytes are in memory that were not before", n, now-before)
			}
		}
	}
	if n != all {
		t.Errorf("%d objects were listed", n)
	}
}

// The version is the ETag, which every read requires and checks; what is there in place of
// it is said.
func TestReplaced(t *testing.T) {
	server := servers.S3(t, servers.S3Options{})
	server.Use(t)
	src := reach(t, source.Access{})
	server.Put("x", []byte("before"))
	old := stat(t, src, "s3://data/x")
	if !strings.HasPrefix(old.Version, `"`) {
		t.Fatalf("the version is %q", old.Version)
	}
	server.Put("x", []byte("after!"))
	now := stat(t, src, "s3://data/x")
	err := src.ReadAt(t.Context(), old, make([]byte, 6), 0)
	if errs.CodeOf(err) != errs.Changed || !strings.Contains(err.Error(), old.Version) || !strings.Contains(err.Error(), now.Version) {
		t.Errorf("reading what was replaced: %v", err)
	}
	server.Remove("x")
	if err := src.ReadAt(t.Context(), now, make([]byte, 6), 0); errs.CodeOf(err) != errs.NotFound {
		t.Errorf("reading what was removed: %v", err)
	}
}

// A server that does not look at conditions gives other bytes: its answer says of which
// version they are.
func TestConditionsThatAreIgnored(t *testing.T) {
	f := newFake(t, map[string][]byte{"x": []byte("before")})
	f.before = func(_ http.ResponseWriter, r *http.Request) bool {
		r.Header.Del("If-Match")
		r.Header.Del("If-Unmodified-Since")
		return false
	}
	for _, versions := range [][2]http.Header{
		{{"Etag": {`"1"`}}, {"Etag": {`"2"`}}},
		{{"Etag": {`"1"`}}, {"Etag": {`W/"1"`}}},
		{{"Etag": {`W/"1"`}}, {"Etag": {`"1"`}}},
	} {
		src := reach(t, source.Access{})
		f.header = versions[0]
		old := stat(t, src, "s3://some-bucket/x")
		stagetest.Must(t, src.ReadAt(t.Context(), old, make([]byte, 6), 0))
		f.header = versions[1]
		if err := src.ReadAt(t.Context(), old, make([]byte, 6), 0); errs.CodeOf(err) != errs.Changed {
			t.Errorf("of %s, %s was read: %v", versions[0], versions[1], err)
		}
	}
}

// An answer whose ETag a proxy has dropped is asked for again. If none has one, nothing says
// that the object is the same.
func TestAnETagIsDropped(t *testing.T) {
	f := newFake(t, map[string][]byte{"x": []byte("before")})
	f.header = http.Header{"Etag": {`"1"`}}
	src := reach(t, source.Access{})
	st := stat(t, src, "s3://some-bucket/x")
	var drops atomic.Int64
	f.before = func(w http.ResponseWriter, _ *http.Request) bool {
		if drops.Add(-1) < 0 {
			return false
		}
		w.Header().Set("Content-Range", "bytes 0-5/6")
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write([]byte("before"))
		return true
	}
	drops.Store(1)
	p := make([]byte, 6)
	if err := src.ReadAt(t.Context(), st, p, 0); err != nil || string(p) != "before" {
		t.Errorf("%q, %v", p, err)
	}
	drops.Store(1 << 40)
	err := src.ReadAt(t.Context(), st, p, 0)
	if errs.CodeOf(err) != errs.Changed || !strings.Contains(err.Error(), "the answer has no ETag to compare with "+st.Version) {
		t.Errorf("no answer has an ETag: %v", err)
	}
}

// Objects without a strong ETag are told apart by the time of their last change, as it is
// in listings too.
func TestWithoutETag(t *testing.T) {
	f := newFake(t, map[string][]byte{"x": []byte("before")})
	f.header = http.Header{"Etag": {`W/"1"`}}
	src := reach(t, source.Access{})
	st := stat(t, src, "s3://some-bucket/x")
	if st.Version != "modified Sun, 09 Sep 2001 01:46:40 GMT" {
		t.Fatalf("the version is %q", st.Version)
	}
	stagetest.Must(t, src.ReadAt(t.Context(), st, make([]byte, 6), 0))
	all := f.requests()
	if got := all[len(all)-1].Header.Get("If-Unmodified-Since"); got != "Sun, 09 Sep 2001 01:46:40 GMT" {
		t.Errorf("the read required %q", got)
	}
	st.Version = "modified Sun, 09 Sep 2001 01:46:39 GMT"
	if err := src.ReadAt(t.Context(), st, make([]byte, 6), 0); errs.CodeOf(err) != errs.Changed {
		t.Errorf("an older version was read: %v", err)
	}
}

// Files that were put into the server's folder have no ETag, and a time with fractions of a
// second, which the server takes for a change.
func TestFilesOfTheServer(t *testing.T) {
	server := servers.S3(t, servers.S3Options{})
	server.Use(t)
	file := filepath.Join(server.Dir, "d", "x")
	put := func(text string, at time.Time) {
		stagetest.Put(t, file, []byte(text))
		stagetest.Must(t, os.Chtimes(file, at, at))
	}
	put("before", time.Unix(1_700_000_000, 123_456_789))
	src := reach(t, source.Access{})
	st := stat(t, src, "s3://data/d/x")
	if st.Version != "modified Tue, 14 Nov 2023 22:13:20 GMT" {
		t.Fatalf("the version is %q", st.Version)
	}
	if got := read(t, src, "s3://data/d/x"); string(got) != "before" {
		t.Errorf("%q", got)
	}
	all, err := source.Names(t.Context(), src, "s3://data/d")
	if err != nil || len(all) != 1 || all[0] != st {
		t.Errorf("it is listed as %+v, %v", all, err)
	}
	put("after!", time.Unix(1_700_000_001, 0))
	if err := src.ReadAt(t.Context(), st, make([]byte, 6), 0); errs.CodeOf(err) != errs.Changed {
		t.Errorf("reading what was replaced: %v", err)
	}
}

// Only a whole object's checksum is compared, and only AWS is asked for it unless the user
// wants it everywhere.
func TestChecksums(t *testing.T) {
	server := servers.S3(t, servers.S3Options{})
	server.Use(t)
	data := []byte("123456789")
	sum := sha256.Sum256(data)
	if res, body := server.Do(http.MethodPut, server.Path("x"), data, "x-amz-checksum-sha256", base64.StdEncoding.EncodeToString(sum[:])); res.StatusCode != 200 {
		t.Fatalf("%s: %s", res.Status, body)
	}
	var flips, asked atomic.Int32
	front(t, server, func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("X-Amz-Checksum-Mode") != "" {
			asked.Add(1)
		}
		return false
	}, func(r *http.Response) {
		if r.Request.Method == http.MethodGet && r.StatusCode == http.StatusPartialContent && flips.Add(-1) >= 0 {
			r.Body = &flipped{r.Body}
		}
	})
	flips.Store(1)
	if got := read(t, reach(t, source.Access{}), "s3://data/x"); bytes.Equal(got, data) || asked.Load() != 0 {
		t.Errorf("without checksums %q was read, and one was asked for %d times", got, asked.Load())
	}
	t.Setenv("AWS_RESPONSE_CHECKSUM_VALIDATION", "when_supported")
	flips.Store(1)
	src := reach(t, source.Access{})
	if got := read(t, src, "s3://data/x"); !bytes.Equal(got, data) || asked.Load() != 2 {
		t.Errorf("with checksums %q was read, and one was asked for %d times", got, asked.Load())
	}
	st := stat(t, src, "s3://data/x")
	p := make([]byte, 3)
	stagetest.Must(t, src.ReadAt(t.Context(), st, p, 3))
	if string(p) != "456" || asked.Load() != 2 {
		t.Errorf("a part is %q; checksums were asked for %d times", p, asked.Load())
	}
	flips.Store(1000)
	src = reach(t, source.Access{Deadline: time.Second / 4})
	if err := src.ReadAt(t.Context(), st, make([]byte, 9), 0); errs.CodeOf(err) != errs.Unreadable || !strings.Contains(err.Error(), "checksum") {
		t.Errorf("bytes that stay wrong: %v", err)
	}
}

// The published check values of each algorithm, for the text 123456789.
func TestEachChecksum(t *testing.T) {
	f := newFake(t, map[string][]byte{"x": []byte("123456789")})
	for name, value := range map[string]string{
		"X-Amz-Checksum-Crc32": "y/Q5Jg==", "X-Amz-Checksum-Crc32c": "4waSgw==", "X-Amz-Checksum-Crc64nvme": "rosUhgp5mIg=",
		"X-Amz-Checksum-Sha1": "98O8HYCOBHMq32eZZczDTKeuNEE=", "Content-Md5": "JfnnlDI7RTiF9RgfG2JNCw==",
	} {
		f.header = http.Header{name: {value}}
		src := reach(t, source.Access{Deadline: time.Second / 4})
		if got := read(t, src, "s3://some-bucket/x"); string(got) != "123456789" {
			t.Errorf("%s: %q", name, got)
		}
		f.header = http.Header{name: {"A" + value[1:]}}
		if err := src.ReadAt(t.Context(), stat(t, src, "s3://some-bucket/x"), make([]byte, 9), 0); errs.CodeOf(err) != errs.Unreadable {
			t.Errorf("a wrong %s: %v", name, err)
		}
		f.header["X-Amz-Checksum-Type"] = []string{"COMPOSITE"}
		if name != "Content-Md5" {
			read(t, src, "s3://some-bucket/x")
		}
	}
}

// flipped is a body whose first byte is wrong.
type flipped struct {
	body interface{ Read([]byte) (int, error) }
}

func (f *flipped) Read(p []byte) (int, error) {
	n, err := f.body.Read(p)
	if n > 0 {
		p[0] ^= 1
	}
	return n, err
}

func (f *flipped) Close() error { return nil }

// An object may be stored with an encoding, which is what was asked for; what is encoded
// on the way is not.
func TestEncoding(t *testing.T) {
	f := newFake(t, map[string][]byte{"x.gz": []byte("123456789")})
	f.header = http.Header{"Content-Encoding": {"gzip"}, "Content-Length": {"9"}}
	if got := read(t, reach(t, source.Access{}), "s3://some-bucket/x.gz"); string(got) != "123456789" {
		t.Errorf("%q", got)
	}
	f.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Encoding", "gzip")
			w.Header().Set("Content-Range", "bytes 0-8/9")
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write([]byte("1234"))
		}
		return r.Method == http.MethodGet
	}
	src := reach(t, source.Access{Deadline: time.Second / 4})
	if err := src.ReadAt(t.Context(), stat(t, src, "s3://some-bucket/x.gz"), make([]byte, 9), 0); errs.CodeOf(err) != errs.Unreachable || !strings.Contains(err.Error(), "encoded") {
		t.Errorf("an answer that was encoded on the way: %v", err)
	}
}

func TestTLS(t *testing.T) {
	server := servers.S3(t, servers.S3Options{Cert: servers.CA(t).Issue("127.0.0.1")})
	server.Use(t)
	server.Put("x", []byte("over TLS"))
	t.Setenv("SSL_CERT_FILE", "")
	if got := read(t, reach(t, source.Access{}), "s3://data/x"); string(got) != "over TLS" {
		t.Errorf("%q", got)
	}
	t.Setenv("AWS_CA_BUNDLE", servers.CA(t).File)
	_, err := reach(t, source.Access{}).Stat(t.Context(), "s3://data/x")
	if errs.CodeOf(err) != errs.Unreachable || !strings.Contains(errs.From(err).Hint, "AWS_CA_BUNDLE") {
		t.Errorf("a server that another authority vouches for: %v", err)
	}
}

// The address of Storage comes before those of the environment, and is checked.
func TestEndpoint(t *testing.T) {
	f := newFake(t, map[string][]byte{"some-bucket/x": []byte("x")})
	t.Setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
	if got := read(t, reach(t, source.Access{Storage: source.Storage{EndpointURL: f.URL + "/below/"}}), "s3://some-bucket/x"); string(got) != "x" {
		t.Errorf("%q", got)
	}
	for _, bad := range []string{"127.0.0.1:9000", "ftp://host", "http://", "http://user:secret@host", "http://host?x=1"} {
		_, err := reach(t, source.Access{Storage: source.Storage{EndpointURL: bad}}).Stat(t.Context(), "s3://some-bucket/x")
		if e := errs.From(err); e.Code != errs.Config || !strings.Contains(e.Hint, "endpoint_url") || strings.Contains(err.Error(), "secret") || e.Where.File != "s3://some-bucket/x" {
			t.Errorf("%s: %v", bad, err)
		}
	}
	for _, bad := range []string{"s3:///x", "s3://user@host/x", "s3://a:80/x", "s3://arn:aws:s3:us-west-2:1:accesspoint/x", "s3://b--use1-az1--x-s3/x"} {
		_, err := reach(t, source.Access{}).Stat(t.Context(), bad)
		if c := errs.CodeOf(err); c != errs.Config && c != errs.Unsupported {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestRequesterPays(t *testing.T) {
	f := newFake(t, map[string][]byte{"d/x": []byte("x")})
	src := reach(t, source.Access{Storage: source.Storage{RequesterPays: true}})
	read(t, src, "s3://some-bucket/d/x")
	_, err := source.Names(t.Context(), src, "s3://some-bucket/d")
	stagetest.Must(t, err)
	for _, r := range f.requests() {
		if r.Header.Get("X-Amz-Request-Payer") != "requester" || !strings.Contains(r.Header.Get("Authorization"), "x-amz-request-payer") {
			t.Errorf("%s %s does not say who pays, or does not sign it", r.Method, r.URL)
		}
	}
}
