package slownet_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/stoker-data/stoker/harness/slownet"
)

// noise is some bytes that are the same every time.
func noise(seed byte, n int) []byte {
	out := make([]byte, 0, n+32)
	for h := sha256.Sum256([]byte{seed}); len(out) < n; h = sha256.Sum256(h[:]) {
		out = append(out, h[:]...)
	}
	return out[:n]
}

// object is what every path of the server has but those of listings.
var object = noise(1, 300_000)

const xmlList = `<ListBucketResult><Contents><Key>a</Key></Contents><Contents><Key>b</Key></Contents></ListBucketResult>`

// seen is what the server was asked.
type seen struct {
	mu   sync.Mutex
	host string
	n    int
	body []byte
}

// asked is how many requests there were.
func (s *seen) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

// store is a server of objects and listings, with ranges.
func store(t *testing.T) (*httptest.Server, *seen) {
	s := &seen{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var b []byte
		if r.URL.Path != "/refused" {
			b, _ = io.ReadAll(r.Body)
		}
		s.mu.Lock()
		s.host, s.n, s.body = r.Host, s.n+1, b
		s.mu.Unlock()
		switch {
		case r.Method == http.MethodPut && r.URL.Path == "/refused":
			w.WriteHeader(http.StatusForbidden)
		case r.Method == http.MethodPut:
			w.Header().Set("ETag", fmt.Sprintf(`"%x"`, sha256.Sum256(b)))
		case strings.HasPrefix(r.URL.Path, "/toend"): // as servers of HTTP/1.0 answer
			c, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_, _ = c.Write(append([]byte("HTTP/1.0 200 OK\r\n\r\n"), object...))
				_ = c.Close()
			}
		case strings.HasPrefix(r.URL.Path, "/chunked"):
			w.Header().Set("Trailer", "X-Sum")
			for at := 0; at < len(object); at += 50_000 {
				_, _ = w.Write(object[at : at+50_000])
				w.(http.Flusher).Flush()
			}
			w.Header().Set("X-Sum", "right")
		case r.URL.Query().Has("list-type"):
			_, _ = io.WriteString(w, xmlList)
		case strings.HasPrefix(r.URL.Path, "/api/datasets/"):
			_, _ = io.WriteString(w, `[{"path":"a"},{"path":"b"}]`)
		case r.URL.Path == "/storage/v1/b/bucket/o":
			_, _ = io.WriteString(w, `{"items":[{"name":"a","size":9007199254740993}],"kind":"list"}`)
		case strings.HasSuffix(r.URL.Path, "/"):
			_, _ = io.WriteString(w, "<pre>\n<a href=\"a\">a</a>  1\n<a href=\"b\">b</a>  2\n</pre>")
		default:
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(object))
		}
	}))
	server.Start()
	t.Cleanup(server.Close)
	return server, s
}

// proxy is before a server until the test ends, which nothing of it outlives.
func proxy(t *testing.T, o slownet.Options) *slownet.Proxy {
	t.Helper()
	p, err := slownet.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// client is one of its own, whose connections end with the test.
func client(t *testing.T) *http.Client { return counting(t, nil) }

// counting is a client that counts its connections.
func counting(t *testing.T, dialled *atomic.Int64) *http.Client {
	tr := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}
	if dialled != nil {
		tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			dialled.Add(1)
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 30 * time.Second}
}

// answered is what a client has of an answer: the body as far as it came, and how it ended.
type answered struct {
	*http.Response
	body []byte
	err  error
}

// ask sends a request; headers are "Name: value".
func ask(t *testing.T, c *http.Client, method, url string, headers ...string) answered {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := c.Do(req)
	if err != nil {
		return answered{err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answered{resp, b, err}
}

// nothingLeft fails a test that leaves a goroutine, or a descriptor.
func nothingLeft(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	before := descriptors(t)
	t.Cleanup(func() {
		goleak.VerifyNone(t, ignore)
		if after := descriptors(t); after > before {
			t.Errorf("%d descriptors are left", after-before)
		}
	})
}

// descriptors is how many sockets and files are open.
func descriptors(t *testing.T) (n int) {
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range all {
		of, err := os.Readlink("/proc/self/fd/" + fd.Name())
		if err == nil && !strings.HasPrefix(of, "anon_inode:") && !strings.HasPrefix(of, "/proc/") { // the runtime's own, and this folder
			n++
		}
	}
	return n
}

func TestPassesOn(t *testing.T) {
	nothingLeft(t)
	server, saw := store(t)
	p := proxy(t, slownet.Options{Server: server.URL})
	c := client(t)
	host := strings.TrimPrefix(p.URL(), "http://")

	if a := ask(t, c, "GET", p.URL()+"/bucket/a.tar"); a.err != nil || a.StatusCode != 200 || !bytes.Equal(a.body, object) {
		t.Errorf("an object: %d bytes, %v", len(a.body), a.err)
	}
	if saw.host != host {
		t.Errorf("the server was told it is %q, and the client said %q", saw.host, host)
	}
	if a := ask(t, c, "GET", p.URL()+"/bucket/a.tar", "Range: bytes=100-299"); a.err != nil || a.StatusCode != 206 || !bytes.Equal(a.body, object[100:300]) {
		t.Errorf("a range: %d bytes, %v", len(a.body), a.err)
	}
	if a := ask(t, c, "HEAD", p.URL()+"/bucket/a.tar"); a.err != nil || a.ContentLength != int64(len(object)) || len(a.body) > 0 {
		t.Errorf("a head: %+v", a)
	}
	if a := ask(t, c, "GET", p.URL()+"/chunked/a"); a.err != nil || !bytes.Equal(a.body, object) || a.Trailer.Get("X-Sum") != "right" {
		t.Errorf("chunks: %d bytes, %v, %v", len(a.body), a.Trailer, a.err)
	}
	for name, upload := range map[string]io.Reader{"sized": bytes.NewReader(object), "chunked": io.MultiReader(bytes.NewReader(object))} {
		req, _ := http.NewRequestWithContext(t.Context(), "PUT", p.URL()+"/bucket/"+name, upload)
		req.Header.Set("Expect", "100-continue")
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if want := fmt.Sprintf(`"%x"`, sha256.Sum256(object)); resp.Header.Get("ETag") != want || !bytes.Equal(saw.body, object) {
			t.Errorf("%s: %d bytes arrived", name, len(saw.body))
		}
	}
	got := p.Counts()
	if got.Connections.Opened != 1 || got.Requests != 6 || got.Highest != 1 {
		t.Errorf("six requests one after the other on a connection: %+v", got)
	}
	size := int64(len(object))
	want := map[string]slownet.Object{
		"/bucket/a.tar": {Tally: slownet.Tally{Requests: 3, Bytes: size + 200}, Kinds: map[string]slownet.Tally{
			"get": {Requests: 1, Bytes: size}, "range": {Requests: 1, Bytes: 200}, "head": {Requests: 1},
		}},
		"/chunked/a":      {Tally: slownet.Tally{Requests: 1, Bytes: size}, Kinds: map[string]slownet.Tally{"get": {Requests: 1, Bytes: size}}},
		"/bucket/sized":   {Tally: slownet.Tally{Requests: 1, Uploaded: size}, Kinds: map[string]slownet.Tally{"put": {Requests: 1, Uploaded: size}}},
		"/bucket/chunked": {Tally: slownet.Tally{Requests: 1, Uploaded: size}, Kinds: map[string]slownet.Tally{"put": {Requests: 1, Uploaded: size}}},
	}
	if d := cmp.Diff(want, got.Objects); d != "" {
		t.Error(d)
	}
}

// A server that does not want a body answers before it has it, and the client does not
// send it if it asked first.
func TestBodiesThatNobodyWants(t *testing.T) {
	nothingLeft(t)
	server, _ := store(t)
	p := proxy(t, slownet.Options{Server: server.URL})
	for range 2 { // by the server, and by a rule
		for _, expect := range []string{"", "100-continue"} {
			c := client(t)
			c.Transport.(*http.Transport).ExpectContinueTimeout = 20 * time.Second
			req, _ := http.NewRequestWithContext(t.Context(), "PUT", p.URL()+"/refused", bytes.NewReader(object[:50_000]))
			if expect != "" {
				req.Header.Set("Expect", expect)
			}
			resp, err := c.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if n := p.Counts().Uploaded; resp.StatusCode != http.StatusForbidden || expect != "" && n > 0 {
				t.Errorf("%s, and %d bytes were sent", resp.Status, n)
			}
			if a := ask(t, c, "GET", p.URL()+"/a"); a.err != nil || !bytes.Equal(a.body, object) {
				t.Errorf("the next answer: %d bytes, %v", len(a.body), a.err)
			}
			p.Reset()
		}
		if err := p.SetRules("put * status=403"); err != nil {
			t.Fatal(err)
		}
	}
}

// What a client writes arrives to the byte, and so does what the server does.
func TestChangesNoByte(t *testing.T) {
	nothingLeft(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const answer = "HTTP/1.1 200 Fine\r\nX-ODD-case: 1\r\nx-twice: a\r\nX-Twice: b\r\nContent-Length: 2\r\n\r\nok"
	got := make(chan string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		b := make([]byte, 4096)
		n, _ := c.Read(b)
		got <- string(b[:n])
		_, _ = io.WriteString(c, answer)
		_, _ = io.Copy(io.Discard, c)
	}()
	p := proxy(t, slownet.Options{Server: "http://" + l.Addr().String()})
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const request = "GET /a%2Fb//c?x=%20&y HTTP/1.1\r\nhOST: Bucket.example:99\r\nauthorization: AWS4 x\r\nX-Empty: \r\nx-AMZ-date: 1\r\n\r\n"
	_, _ = io.WriteString(c, request)
	b := make([]byte, len(answer))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != answer {
		t.Errorf("%q, %v", b, err)
	}
	if s := <-got; s != request {
		t.Errorf("%q arrived", s)
	}
}

func TestHostAndTLS(t *testing.T) {
	nothingLeft(t)
	inner, saw := store(t)
	cert, err := slownet.Certify(time.Now().Add(time.Hour), "127.0.0.1", "data.example")
	if err != nil {
		t.Fatal(err)
	}
	config, err := cert.Server()
	if err != nil {
		t.Fatal(err)
	}
	// A proxy that speaks TLS before a plain server, and one that speaks plainly before it.
	outer := proxy(t, slownet.Options{Server: inner.URL, TLS: config, Host: "bucket.example"})
	plain := proxy(t, slownet.Options{Server: outer.URL(), ServerTLS: cert.Client()})
	// And bytes that nobody looks into, with TLS in them.
	tunnel := proxy(t, slownet.Options{Server: "tcp://" + outer.Addr()})
	c := client(t)
	c.Transport.(*http.Transport).TLSClientConfig = cert.Client()
	for _, at := range []string{outer.URL(), plain.URL(), "https://" + tunnel.Addr()} {
		for _, path := range []string{"/a", "/chunked/a", "/toend/a"} {
			a := ask(t, c, "GET", at+path)
			if a.err != nil || !bytes.Equal(a.body, object) || saw.host != "bucket.example" {
				t.Errorf("%s: %d bytes, host %q: %v", at+path, len(a.body), saw.host, a.err)
			}
		}
	}
	if n := tunnel.Counts(); n.Bytes <= 3*int64(len(object)) || n.Connections.Opened != 1 || n.Kinds["connect"].Uploaded == 0 {
		t.Errorf("the tunnel: %+v", n)
	}

	for name, bad := range map[string]struct {
		until time.Time
		host  string
		says  string
	}{"expired": {time.Now().Add(-time.Hour), "127.0.0.1", "expired"}, "another's": {time.Now().Add(time.Hour), "other.example", "127.0.0.1"}} {
		cert, err := slownet.Certify(bad.until, bad.host)
		if err != nil {
			t.Fatal(err)
		}
		config, _ := cert.Server()
		p := proxy(t, slownet.Options{Server: inner.URL, TLS: config})
		c := client(t)
		c.Transport.(*http.Transport).TLSClientConfig = cert.Client()
		if a := ask(t, c, "GET", p.URL()+"/a"); a.err == nil || !strings.Contains(a.err.Error(), bad.says) {
			t.Errorf("%s: %v", name, a.err)
		}
	}
}

// Counts are exact when an answer is there, also of many at once.
func TestCountsAreExact(t *testing.T) {
	nothingLeft(t)
	server, _ := store(t)
	p := proxy(t, slownet.Options{Server: server.URL})
	var dialled atomic.Int64 // net/http may dial more often than it needs to
	c := counting(t, &dialled)
	const clients, each = 16, 25
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for k := range each {
				a := ask(t, c, "GET", fmt.Sprintf("%s/bucket/%d", p.URL(), k%5), fmt.Sprintf("Range: bytes=%d-%d", k, k+1000*i))
				if a.err != nil || len(a.body) != 1000*i+1 {
					t.Errorf("%d bytes: %v", len(a.body), a.err)
				}
			}
		})
	}
	all.Wait()
	got := p.Counts()
	want := int64(0)
	for i := range clients {
		want += each * (1000*int64(i) + 1)
	}
	if got.Requests != clients*each || got.Bytes != want || got.AtOnce != 0 || got.Highest < 1 || got.Highest > clients || got.Statuses[206] != clients*each {
		t.Errorf("%+v, and %d bytes were received", got.Tally, want)
	}
	sum := slownet.Tally{}
	for k := range 5 {
		o := got.Objects[fmt.Sprintf("/bucket/%d", k)]
		if o.Requests != clients*each/5 || o.Kinds["range"] != o.Tally {
			t.Errorf("object %d: %+v", k, o)
		}
		sum.Requests += o.Requests
		sum.Bytes += o.Bytes
	}
	if sum != got.Tally || got.Methods["GET"] != sum || got.Kinds["range"] != sum {
		t.Errorf("objects have %+v of %+v", sum, got.Tally)
	}
	if n := got.Connections; n.Opened != dialled.Load() || n.Remote["127.0.0.1"] != n.Opened || n.Local["127.0.0.1"] != n.Opened {
		t.Errorf("connections: %+v of %d", n, dialled.Load())
	}
	p.Reset()
	if got := p.Counts(); got.Requests != 0 || got.Bytes != 0 || len(got.Objects) != 0 || got.Highest != 0 {
		t.Errorf("after a reset: %+v", got)
	}
}

// A client that has its answer is not under way any more: one after another is one at once.
func TestHighestIsOfThoseAtOnce(t *testing.T) {
	nothingLeft(t)
	server, _ := store(t)
	p := proxy(t, slownet.Options{Server: server.URL})
	one, two := client(t), client(t) // of a connection each
	for range 50 {
		for _, c := range []*http.Client{one, two} {
			for _, path := range []string{"/a", "/chunked/a"} {
				if a := ask(t, c, "GET", p.URL()+path); a.err != nil {
					t.Fatal(a.err)
				}
			}
		}
	}
	if got := p.Counts(); got.Highest != 1 || got.Requests != 200 {
		t.Errorf("%d at once of %d", got.Highest, got.Requests)
	}
	// Four that wait for a second are four.
	if err := p.SetRules("any * delay=1s"); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { ask(t, one, "HEAD", p.URL()+"/a") })
	}
	all.Wait()
	if got := p.Counts(); got.Highest != 4 || got.AtOnce != 0 {
		t.Errorf("%d at once, %d still", got.Highest, got.AtOnce)
	}
}

// Paused, the server is gone, and comes back at the same port.
func TestPauses(t *testing.T) {
	nothingLeft(t)
	server, _ := store(t)
	p := proxy(t, slownet.Options{Server: server.URL, Link: slownet.Link{Connection: 100_000}})
	c := client(t)
	done := make(chan answered, 1)
	go func() { done <- ask(t, c, "GET", p.URL()+"/a") }()
	for p.Counts().Bytes < 10_000 {
		time.Sleep(time.Millisecond)
	}
	p.Pause()
	if a := <-done; a.err == nil || len(a.body) >= len(object) {
		t.Errorf("an answer under way went on: %d bytes, %v", len(a.body), a.err)
	}
	for range 3 {
		if a := ask(t, c, "GET", p.URL()+"/a"); a.err == nil || !strings.Contains(a.err.Error(), "connection refused") {
			t.Errorf("a paused proxy: %v", a.err)
		}
	}
	if err := p.Resume(); err != nil {
		t.Fatal(err)
	}
	p.SetLink(slownet.Link{})
	if a := ask(t, c, "GET", p.URL()+"/a"); a.err != nil || !bytes.Equal(a.body, object) {
		t.Error(a.err)
	}
}

// A server that ends its connections between requests, or is not there, is what the
// client meets, too.
func TestServersThatGo(t *testing.T) {
	nothingLeft(t)
	server, _ := store(t)
	p := proxy(t, slownet.Options{Server: server.URL})
	c := client(t)
	for range 3 {
		if a := ask(t, c, "GET", p.URL()+"/a"); a.err != nil || !bytes.Equal(a.body, object) {
			t.Fatal(a.err)
		}
		server.CloseClientConnections()
	}
	if n := p.Counts().Connections.Opened; n != 1 {
		t.Errorf("the client had %d connections", n)
	}
	server.Close()
	if a := ask(t, c, "GET", p.URL()+"/a"); a.err == nil {
		t.Error("a server that is gone answered")
	}
	if p.Counts().Unreachable == 0 {
		t.Error("the proxy did not notice")
	}
}

// A client that goes away while it is held takes its connection with it.
func TestClientsThatGo(t *testing.T) {
	nothingLeft(t)
	server, saw := store(t)
	p := proxy(t, slownet.Options{Server: server.URL, Rules: []string{"get hole blackhole", "get stall stall=10", "get late delay=1h", "get drip drip=100B/s"}})
	for i, path := range []string{"/hole", "/stall", "/late", "/drip"} { // in the order of the rules
		c := client(t)
		ctx, cancel := context.WithCancel(t.Context())
		req, _ := http.NewRequestWithContext(ctx, "GET", p.URL()+path, nil)
		failed := make(chan error, 1)
		go func() {
			resp, err := c.Do(req)
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				_ = resp.Body.Close()
			}
			failed <- err
		}()
		for p.Counts().Rules[i].Met == 0 || saw.asked() < i { // what is in a black hole is not passed on
			time.Sleep(time.Millisecond)
		}
		cancel()
		if err := <-failed; err == nil {
			t.Errorf("%s: an answer", path)
		}
		for end := time.Now().Add(20 * time.Second); p.Counts().AtOnce > 0 || p.Counts().Connections.Open > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: the connection is still there", path)
			}
		}
	}
	if saw.asked() != 3 {
		t.Errorf("the server saw %d requests", saw.asked())
	}
}

func TestRefusals(t *testing.T) {
	for server, says := range map[string]string{"": "not the address", "ftp://a:1": "not the address", "http://127.0.0.1": "not the address"} {
		if _, err := slownet.New(slownet.Options{Server: server}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", server, err)
		}
	}
	if _, err := slownet.New(slownet.Options{Server: "http://127.0.0.1:1", Listen: "192.0.2.1:1"}); err == nil || !strings.Contains(err.Error(), "cannot listen") {
		t.Error(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := slownet.New(slownet.Options{Server: "http://127.0.0.1:1", Listen: l.Addr().String()}); err == nil || !strings.Contains(err.Error(), "cannot listen") {
		t.Error(err)
	}
}
