package slownet_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stoker-data/stoker/harness/slownet"
	"github.com/stoker-data/stoker/internal/base/errs"
)

// met is how often a proxy's first rule had its effect.
func met(p *slownet.Proxy) int64 { return p.Counts().Rules[0].Met }

// differs is the number of bits that differ, and the first byte that does.
func differs(a, b []byte) (n, first int) {
	first = -1
	for i := range min(len(a), len(b)) {
		if d := bits.OnesCount8(a[i] ^ b[i]); d > 0 {
			if n += d; first < 0 {
				first = i
			}
		}
	}
	return n, first
}

// Every fault is what its rule promises, to a client that knows nothing of it.
func TestFaults(t *testing.T) {
	nothingLeft(t)
	server, saw := store(t)
	p := proxy(t, slownet.Options{Server: server.URL, Seed: 7})
	const part = "Range: bytes=1000-9999"
	date := func(a answered) time.Time { d, _ := http.ParseTime(a.Header.Get("Date")); return d }
	signed := func(ago time.Duration) string {
		return "X-Amz-Date: " + time.Now().Add(-ago).UTC().Format("20060102T150405Z")
	}
	whole := object[1000:10000]

	for _, c := range []struct {
		rule    string
		method  string
		path    string
		headers []string
		holds   func(a answered) bool
	}{
		{"range *.tar reset=2500", "GET", "/b/a.tar", []string{part}, func(a answered) bool {
			return bytes.Equal(a.body, whole[:2500]) && errors.Is(a.err, syscall.ECONNRESET)
		}},
		{"range *.tar reset=0", "GET", "/b/a.tar", []string{part}, func(a answered) bool {
			return len(a.body) == 0 && errors.Is(a.err, syscall.ECONNRESET) && a.StatusCode == 206
		}},
		{"range *.tar reset", "GET", "/b/a.tar", []string{part}, func(a answered) bool {
			return a.Response == nil && errors.Is(a.err, syscall.ECONNRESET)
		}},
		{"get chunked/* reset=100001", "GET", "/chunked/x", nil, func(a answered) bool {
			return bytes.Equal(a.body, object[:100001]) && errors.Is(a.err, syscall.ECONNRESET)
		}},
		{"range *.tar fin=2500", "GET", "/b/a.tar", []string{part}, func(a answered) bool {
			return bytes.Equal(a.body, whole[:2500]) && errors.Is(a.err, io.ErrUnexpectedEOF)
		}},
		{"range *.tar extra=7", "GET", "/b/a.tar", []string{part}, func(a answered) bool {
			return len(a.body) == 9007 && bytes.Equal(a.body[:9000], whole) && a.err == nil && a.ContentLength == 9007
		}},
		{"get chunked/* extra", "GET", "/chunked/x", nil, func(a answered) bool {
			return len(a.body) == len(object)+1 && a.err == nil
		}},
		{"range *.tar shift=10", "GET", "/b/a.tar", []string{part}, func(a answered) bool {
			return bytes.Equal(a.body, whole) && a.Header.Get("Content-Range") == fmt.Sprintf("bytes 1010-10009/%d", len(object))
		}},
		{"range *.tar shift=-1", "GET", "/b/a.tar", []string{part}, func(a answered) bool {
			return a.Header.Get("Content-Range") == fmt.Sprintf("bytes 999-9998/%d", len(object))
		}},
		{"range *.tar flip=1234", "GET", "/b/a.tar", []string{part}, func(a answered) bool {
			n, first := differs(a.body, whole)
			return a.err == nil && len(a.body) == len(whole) && n == 1 && first == 234
		}},
		{"get *.tar flip=299999", "GET", "/b/a.tar", nil, func(a answered) bool {
			n, first := differs(a.body, object)
			return a.err == nil && n == 1 && first == 299999
		}},
		{"range *.tar flip", "GET", "/b/a.tar", []string{part}, func(a answered) bool {
			n, _ := differs(a.body, whole)
			return a.err == nil && n == 1
		}},
		{"range *.tar gzip", "GET", "/b/a.tar", []string{part}, func(a answered) bool {
			r, err := gzip.NewReader(bytes.NewReader(a.body))
			if err != nil || a.Header.Get("Content-Encoding") != "gzip" {
				return false
			}
			b, err := io.ReadAll(r)
			return err == nil && bytes.Equal(b, whole) && a.StatusCode == 206
		}},
		{"range *.tar status=200", "GET", "/b/a.tar", []string{part}, func(a answered) bool {
			return a.StatusCode == 200 && a.err == nil && bytes.Equal(a.body, object) && !a.has("Content-Range")
		}},
		{"range *.tar status=200", "GET", "/b/a.tar", []string{part, "Authorization: AWS4-HMAC-SHA256 Credential=x, SignedHeaders=host;range;x-amz-date, Signature=y"}, func(a answered) bool {
			return a.StatusCode == 200 && a.err == nil && len(a.body) == len(object) && bytes.Equal(a.body[1000:10000], whole) && !a.has("Content-Range") && a.body[0] == 0
		}},
		{"any * status=503 code=SlowDown retry-after=2", "GET", "/b/a.tar", []string{part}, func(a answered) bool {
			return a.StatusCode == 503 && a.Header.Get("Retry-After") == "2" && bytes.Contains(a.body, []byte("<Error><Code>SlowDown</Code>"))
		}},
		{"any * status=429", "GET", "/b/a.tar", nil, func(a answered) bool {
			return a.StatusCode == 429 && !a.has("Retry-After") && !bytes.Contains(a.body, []byte("<"))
		}},
		{"head * status=404", "HEAD", "/b/a.tar", nil, func(a answered) bool { return a.StatusCode == 404 && len(a.body) == 0 && a.err == nil }},
		{"any * status=412 header=x-why:because", "GET", "/b/a.tar", nil, func(a answered) bool { return a.StatusCode == 412 && a.Header.Get("X-Why") == "because" }},
		{"put * status=500", "PUT", "/b/a.tar", nil, func(a answered) bool { return a.StatusCode == 500 }},
		{"any * status=301 code=PermanentRedirect region=eu-west-1", "GET", "/b/a.tar", nil, func(a answered) bool {
			return a.StatusCode == 301 && a.Header.Get("X-Amz-Bucket-Region") == "eu-west-1" && bytes.Contains(a.body, []byte("PermanentRedirect"))
		}},
		{"any *.tar redirect=" + server.URL + "/elsewhere", "GET", "/b/a.tar", nil, func(a answered) bool {
			return a.StatusCode == 200 && a.Request.URL.String() == server.URL+"/elsewhere" && bytes.Equal(a.body, object)
		}},
		{"any *.tar redirect=" + server.URL + " status=302", "GET", "/b/a.tar?x=1", nil, func(a answered) bool {
			return a.StatusCode == 200 && a.Request.URL.String() == server.URL+"/b/a.tar?x=1"
		}},
		{"any *.tar #1+ redirect=loop", "GET", "/b/a.tar", nil, func(a answered) bool {
			return a.Response == nil && strings.Contains(fmt.Sprint(a.err), "stopped after 10 redirects")
		}},
		{"any * #1 delay=300ms", "GET", "/b/a.tar", nil, func(a answered) bool { return a.StatusCode == 200 && bytes.Equal(a.body, object) }},
		{"range * drip=30KB/s", "GET", "/b/a.tar", []string{part}, func(a answered) bool { return a.err == nil && bytes.Equal(a.body, whole) }},
		{"any * date=20m", "GET", "/b/a.tar", nil, func(a answered) bool { return time.Until(date(a)).Round(5*time.Minute) == 20*time.Minute }},
		{"any * skew=20m", "GET", "/b/a.tar", []string{signed(0)}, func(a answered) bool {
			return a.StatusCode == 403 && bytes.Contains(a.body, []byte("RequestTimeTooSkewed")) && time.Until(date(a)).Round(5*time.Minute) == 20*time.Minute
		}},
		{"list * cut", "GET", "/b?list-type=2&prefix=a/", nil, func(a answered) bool {
			return a.err == nil && string(a.body) == xmlList[:len(xmlList)/2]
		}},
		{"list * query=*prefix=a/* cut=20", "GET", "/b?list-type=2&prefix=a%2Fb", nil, func(a answered) bool {
			return a.err == nil && string(a.body) == xmlList[:20]
		}},
		{"list * double", "GET", "/b?list-type=2", nil, func(a answered) bool {
			return strings.Count(string(a.body), "<Key>a</Key>") == 2 && strings.Count(string(a.body), "<Key>b</Key>") == 2
		}},
		{"list * double", "GET", "/api/datasets/o/d/tree/main", nil, func(a answered) bool {
			return string(a.body) == `[{"path":"a"},{"path":"b"},{"path":"a"},{"path":"b"}]`
		}},
		{"list b/*/o double", "GET", "/storage/v1/b/bucket/o", nil, nil},
		{"list storage/v1/b/*/o double", "GET", "/storage/v1/b/bucket/o", nil, func(a answered) bool {
			return string(a.body) == `{"items":[{"name":"a","size":9007199254740993},{"name":"a","size":9007199254740993}],"kind":"list"}`
		}},
		{"list * double", "GET", "/folder/", nil, func(a answered) bool {
			return strings.Count(string(a.body), `<a href="a">`) == 2 && strings.Count(string(a.body), `<a href="b">`) == 2
		}},

		// What a rule has no effect on is passed on, and is not met.
		{"range *.tar reset=9000", "GET", "/b/a.tar", []string{part}, nil},
		{"range *.tar flip=10000", "GET", "/b/a.tar", []string{part}, nil},
		{"any * shift=10", "GET", "/b/a.tar", nil, nil},
		{"any * skew=20m", "GET", "/b/a.tar", []string{signed(-18 * time.Minute)}, nil},
		{"any *.zip status=500", "GET", "/b/a.tar", nil, nil},
		{"any c/a.tar status=500", "GET", "/b/a.tar", nil, nil},
		{"get *.tar status=500", "GET", "/b/a.tar", []string{part}, nil},
		{"list * query=*prefix=z* status=500", "GET", "/b?list-type=2&prefix=a", nil, nil},
		{"any * #2 status=500", "GET", "/b/a.tar", nil, nil},
		{"connect * status=500", "", "", nil, nil},
	} {
		t.Run(c.rule, func(t *testing.T) {
			err := p.SetRules(c.rule)
			if c.method == "" {
				if err == nil {
					t.Error("a connection has no status")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			before := saw.asked()
			a := ask(t, client(t), c.method, p.URL()+c.path, c.headers...)
			if c.holds == nil {
				if a.err != nil || a.StatusCode >= 300 || met(p) != 0 || saw.asked() != before+1 {
					t.Errorf("%+v, met %d times", a, met(p))
				}
				return
			}
			if !c.holds(a) {
				t.Errorf("%d bytes, %v: %+v", len(a.body), a.err, a.Response)
			}
			if n := met(p); n != 1 && !(n == 10 && strings.HasSuffix(c.rule, "loop")) {
				t.Errorf("met %d times", met(p))
			}
		})
	}
}

// has says whether an answer has a header.
func (a answered) has(name string) bool { return len(a.Header.Values(name)) > 0 }

// Connections are refused while a rule lasts, and those there are end.
func TestRefuse(t *testing.T) {
	nothingLeft(t)
	server, _ := store(t)
	p := proxy(t, slownet.Options{Server: server.URL})
	c := client(t)
	for _, rule := range []string{"any * for=1h refuse", "get * #2 refuse=1h"} {
		for range 2 {
			if a := ask(t, c, "GET", p.URL()+"/a"); a.err != nil {
				t.Fatal(a.err)
			}
			if err := p.SetRules(rule); err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(rule, "get") {
				if a := ask(t, c, "GET", p.URL()+"/a"); a.err != nil {
					t.Fatal(a.err)
				}
				if a := ask(t, c, "GET", p.URL()+"/a"); a.err == nil {
					t.Fatal("the second request was answered")
				}
			}
			if a := ask(t, c, "GET", p.URL()+"/a"); !errors.Is(a.err, syscall.ECONNREFUSED) || met(p) != 1 {
				t.Errorf("%s: %v, met %d times", rule, a.err, met(p))
			}
			if err := p.SetRules(); err != nil { // which ends it
				t.Fatal(err)
			}
		}
	}
	if err := p.SetRules("any * for=200ms refuse"); err != nil {
		t.Fatal(err)
	}
	if a := ask(t, c, "GET", p.URL()+"/a"); !errors.Is(a.err, syscall.ECONNREFUSED) {
		t.Error(a.err)
	}
	for end := time.Now().Add(20 * time.Second); ask(t, c, "GET", p.URL()+"/a").err != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the listener did not come back")
		}
	}
}

// What follows an answer spoils the connection, and nothing else.
func TestStray(t *testing.T) {
	nothingLeft(t)
	server, _ := store(t)
	p := proxy(t, slownet.Options{Server: server.URL, Rules: []string{"get * #1 stray=9"}})
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, "GET /folder/ HTTP/1.1\r\nHost: x\r\n\r\n") // not a get
	_, _ = io.WriteString(c, "GET /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	b, err := io.ReadAll(c)
	if err != nil || !bytes.HasSuffix(b, append(slices.Clone(object), make([]byte, 9)...)) || met(p) != 1 {
		t.Errorf("%d bytes, met %d times: %v", len(b), met(p), err)
	}
}

func TestConnectionsHaveFaults(t *testing.T) {
	nothingLeft(t)
	server, _ := store(t)
	p := proxy(t, slownet.Options{Server: server.URL, Rules: []string{"connect * #2 reset", "connect * #3 fin"}})
	tunnel := proxy(t, slownet.Options{Server: "tcp://" + strings.TrimPrefix(server.URL, "http://"), Rules: []string{
		"any * #2 reset=1000", "any * #2 flip=200000", "connect * #3 fin=2000", "connect * #3 drip=3MB/s",
	}})
	for _, rule := range []string{"any * stall=1000", "any * blackhole"} {
		held := proxy(t, slownet.Options{Server: "tcp://" + strings.TrimPrefix(server.URL, "http://"), Rules: []string{rule}})
		c := client(t)
		c.Timeout = 200 * time.Millisecond
		if a := ask(t, c, "GET", "http://"+held.Addr()+"/a"); a.err == nil || len(a.body) >= 1000 || met(held) != 1 {
			t.Errorf("%s: %d bytes, %v", rule, len(a.body), a.err)
		}
		for end := time.Now().Add(20 * time.Second); held.Counts().Connections.Open > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: the client is gone, and its connection still there", rule)
			}
		}
	}
	fresh := func(p *slownet.Proxy) answered {
		return ask(t, client(t), "GET", "http://"+p.Addr()+"/a")
	}
	var got []string
	for range 4 {
		a := fresh(p)
		got = append(got, fmt.Sprint(a.err == nil))
	}
	// The first rule that takes a call has it: the others' numbers are of the rest.
	if n := p.Counts(); fmt.Sprint(got) != "[true false true false]" || n.Rules[0].Met != 1 || n.Rules[1].Met != 1 || n.Connections.Opened != 4 {
		t.Errorf("%v: %+v", got, n.Rules)
	}
	if a := fresh(tunnel); a.err != nil || !bytes.Equal(a.body, object) {
		t.Error(a.err)
	}
	if a := fresh(tunnel); !errors.Is(a.err, syscall.ECONNRESET) || len(a.body) >= 1000 {
		t.Error(len(a.body), a.err)
	}
	a := fresh(tunnel)
	if n, _ := differs(a.body, object); a.err != nil || n != 1 {
		t.Error(n, a.err)
	}
	if a := fresh(tunnel); a.err != nil || !bytes.Equal(a.body, object) {
		t.Error(a.err)
	}
	if a := fresh(tunnel); !errors.Is(a.err, io.ErrUnexpectedEOF) || len(a.body) >= 2000 {
		t.Error(len(a.body), a.err)
	}
}

// Chance is of the seed: the same one chooses the same calls.
func TestChance(t *testing.T) {
	nothingLeft(t)
	server, _ := store(t)
	of := func(seed uint64) (chosen []int) {
		p := proxy(t, slownet.Options{Server: server.URL, Seed: seed, Rules: []string{"head *.tar p=0.1 status=503"}})
		c := client(t)
		for i := range 400 {
			if a := ask(t, c, "HEAD", p.URL()+"/a.tar"); a.err != nil {
				t.Fatal(a.err)
			} else if a.StatusCode == 503 {
				chosen = append(chosen, i)
			}
		}
		if r := p.Counts().Rules[0]; r.Seen != 400 || r.Met != int64(len(chosen)) {
			t.Errorf("%+v, and %d were met", r, len(chosen))
		}
		return chosen
	}
	one, same, other := of(1), of(1), of(2)
	if len(one) < 20 || len(one) > 70 || !slices.Equal(one, same) || slices.Equal(one, other) {
		t.Errorf("%v\n%v\n%v", one, same, other)
	}
}

// Rules have the calls in their order, and a number is of the calls that a rule has seen.
func TestTheFirstRuleThatTakesACallHasIt(t *testing.T) {
	nothingLeft(t)
	server, _ := store(t)
	p := proxy(t, slownet.Options{Server: server.URL, Rules: []string{"head * #2 status=500", "head *.tar #2+ status=502", "any * #4 status=504"}})
	c := client(t)
	var got []int
	for range 6 {
		got = append(got, ask(t, c, "HEAD", p.URL()+"/a.tar").StatusCode)
	}
	if want := []int{200, 500, 502, 502, 502, 502}; !slices.Equal(got, want) {
		t.Errorf("%v, and not %v", got, want)
	}
	if n := p.Counts().Rules; n[0].Seen != 6 || n[1].Seen != 5 || n[1].Met != 4 || n[2].Seen != 1 {
		t.Errorf("%+v", n)
	}
}

func TestRulesThatAreNone(t *testing.T) {
	server, _ := store(t)
	p := proxy(t, slownet.Options{Server: server.URL, Rules: []string{"head * status=500"}})
	for _, rule := range []string{
		"", "get", "get *", "got * reset", "get [ reset", "get * #0 reset", "get * #x reset", "get * p=2 reset", "get * for=1 reset", "get * #1",
		"get * rest=1", "get * reset=x", "get * refuse", "get * delay", "get * delay=1", "get * drip=0", "get * status=99", "get * status=201", "get * redirect=/a",
		"get * gzip=1", "get * reset=1 code=x", "get * status=500 colour=x", "get * status=500 header=x", "connect * drip=1KB/s", "connect * reset=10", "get /a reset",
	} {
		if err := p.SetRules(rule); errs.CodeOf(err) != errs.Config {
			t.Errorf("%q: %v", rule, err)
		}
	}
	if a := ask(t, client(t), "HEAD", p.URL()+"/a"); a.StatusCode != 500 {
		t.Error("the rules before were lost")
	}
}
