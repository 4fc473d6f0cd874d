package slownet_test

import (
	"bytes"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/stoker-data/stoker/harness/slownet"
)

// takes asserts that something took as long as it should. Sleeps are never shorter than
// they say. How much longer they are is the machine's matter, within what a test may wait
// for at all.
func takes(t *testing.T, what string, least time.Duration, do func()) {
	t.Helper()
	begin := time.Now()
	do()
	if took := time.Since(begin); took < least || took > least+20*time.Second {
		t.Errorf("%s took %v, and should take %v", what, took, least)
	}
}

func TestLink(t *testing.T) {
	nothingLeft(t)
	server, _ := store(t)
	p := proxy(t, slownet.Options{Server: server.URL})
	tunnel := proxy(t, slownet.Options{Server: "tcp" + server.URL[4:]})
	c := client(t)
	whole := func(p *slownet.Proxy) {
		if a := ask(t, c, "GET", "http://"+p.Addr()+"/a"); a.err != nil || !bytes.Equal(a.body, object) {
			t.Errorf("%d bytes: %v", len(a.body), a.err)
		}
	}
	for _, p := range []*slownet.Proxy{p, tunnel} {
		p.SetLink(slownet.Link{Latency: 50 * time.Millisecond})
		takes(t, "four answers, one after the other", 200*time.Millisecond, func() {
			for range 4 {
				whole(p)
			}
		})
		// Latencies pass side by side.
		p.SetLink(slownet.Link{Latency: 500 * time.Millisecond})
		takes(t, "a hundred answers at once", 500*time.Millisecond, func() { // 50 s, one after the other
			var all sync.WaitGroup
			for range 100 {
				all.Go(func() { whole(p) })
			}
			all.Wait()
		})
		// A bandwidth of each connection, and one of all.
		p.SetLink(slownet.Link{Connection: 1_000_000})
		takes(t, "four answers at once at 1 MB/s each", 290*time.Millisecond, func() {
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() { whole(p) })
			}
			all.Wait()
		})
		p.SetLink(slownet.Link{Total: 2_000_000})
		takes(t, "four answers at once at 2 MB/s together", 590*time.Millisecond, func() {
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() { whole(p) })
			}
			all.Wait()
		})
	}

	// An answer that would take five minutes goes on at once when the link is free.
	p.SetLink(slownet.Link{Connection: 1000})
	takes(t, "an answer whose link changes", 0, func() {
		done := make(chan struct{})
		go func() { defer close(done); whole(p) }()
		for p.Counts().AtOnce == 0 {
			time.Sleep(time.Millisecond)
		}
		p.SetLink(slownet.Link{})
		<-done
	})
}

// Requests beyond the limit are turned away, and do not reach the server.
func TestLimit(t *testing.T) {
	nothingLeft(t)
	server, saw := store(t)
	p := proxy(t, slownet.Options{Server: server.URL, Rules: []string{"head * #4 status=404"}})
	c := client(t)
	for _, e := range []struct {
		slownet.Excess
		status int
		after  string
		body   string
	}{
		{slownet.Excess{}, 503, "", "<Code>SlowDown</Code>"},
		{slownet.Excess{Code: "plain", RetryAfter: 1500 * time.Millisecond}, 503, "2", "Service Unavailable"},
		{slownet.Excess{Status: 429, Code: "plain"}, 429, "", "Too Many Requests"},
	} {
		// One in an hour, after the three that may come at once.
		p.SetLink(slownet.Link{Requests: 1. / 3600, Burst: 3, Excess: e.Excess})
		before := saw.asked()
		p.Reset()
		for i := range 8 {
			a := ask(t, c, "GET", p.URL()+"/a")
			switch {
			case a.err != nil:
				t.Fatal(a.err)
			case i < 3 && a.StatusCode == 200 && bytes.Equal(a.body, object):
			case i >= 3 && a.StatusCode == e.status && a.Header.Get("Retry-After") == e.after && bytes.Contains(a.body, []byte(e.body)):
			default:
				t.Errorf("request %d: %s %q", i, a.Status, a.body[:min(200, len(a.body))])
			}
		}
		if n := p.Counts(); n.Excess != 5 || n.Requests != 8 || n.Statuses[e.status] != 5 || saw.asked() != before+3 || n.Rules[0].Seen != 0 {
			t.Errorf("%d of %d were turned away, the server saw %d", n.Excess, n.Requests, saw.asked()-before)
		}
		p.SetLink(slownet.Link{}) // the limit is lifted, and forgotten
		if a := ask(t, c, "GET", p.URL()+"/a"); a.err != nil || a.StatusCode != 200 {
			t.Error(a.err)
		}
	}
	// What is evenly spaced passes.
	p.SetLink(slownet.Link{Requests: 100})
	p.Reset()
	for begin := time.Now(); time.Since(begin) < 300*time.Millisecond; time.Sleep(11 * time.Millisecond) {
		ask(t, c, "GET", p.URL()+"/folder/")
	}
	if n := p.Counts(); n.Excess > 0 || n.Requests < 3 {
		t.Errorf("%d of %d were turned away", n.Excess, n.Requests)
	}
}

func TestLinksAsText(t *testing.T) {
	var l slownet.Link
	for _, change := range []string{`{"latency": "20ms", "connection": "90MB/s"}`, `{"total": 250000000, "requests": 400, "code": "plain", "retry_after": "2s"}`, `{"latency": "5ms"}`} {
		if err := json.Unmarshal([]byte(change), &l); err != nil {
			t.Fatal(err)
		}
	}
	want := slownet.Link{Latency: 5 * time.Millisecond, Connection: 90e6, Total: 250e6, Requests: 400, Excess: slownet.Excess{Code: "plain", RetryAfter: 2 * time.Second}}
	if l != want {
		t.Errorf("%+v", l)
	}
	b, err := json.Marshal(l)
	var again slownet.Link
	if err == nil {
		err = json.Unmarshal(b, &again)
	}
	if err != nil || again != want {
		t.Errorf("%s: %v", b, err)
	}
	for _, wrong := range []string{`{"latency": 20}`, `{"speed": 1}`, `{"total": "fast"}`, `{"total": -1}`, `{"connection": "9XB/s"}`} {
		if err := json.Unmarshal([]byte(wrong), &l); err == nil || l != want {
			t.Errorf("%s was read: %+v", wrong, l)
		}
	}
	for text, n := range map[string]slownet.Rate{"0": 0, "1000": 1000, "1KB/s": 1000, "1kB/s": 1000, "64KiB/s": 65536, "1.5MB/s": 1_500_000, "2GiB/s": 2 << 30, "7B/s": 7} {
		var r slownet.Rate
		if err := r.UnmarshalText([]byte(text)); err != nil || r != n {
			t.Errorf("%s is %d: %v", text, r, err)
		}
	}
}
