package slownet_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stoker-data/stoker/harness/slownet"
)

func TestNames(t *testing.T) {
	nothingLeft(t)
	n, err := slownet.NewNames()
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	one, two := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")
	n.Set("Bucket.example", one, two)
	n.Set("empty.example")
	r := n.Resolver()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	dial := r.Dial
	r.Dial = func(of context.Context, network, addr string) (net.Conn, error) { // a resolver waits on when its caller does not
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		c, err := dial(of, network, addr)
		if err == nil {
			context.AfterFunc(ctx, func() { _ = c.Close() })
		}
		return c, err
	}
	look := func(host string) ([]netip.Addr, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		return r.LookupNetIP(ctx, "ip4", host+".")
	}
	if got, err := look("bucket.example"); err != nil || !slices.Equal(got, []netip.Addr{one, two}) && !slices.Equal(got, []netip.Addr{two, one}) {
		t.Error(got, err)
	}
	var dns *net.DNSError
	for _, host := range []string{"other.example", "empty.example"} {
		if got, err := look(host); !errors.As(err, &dns) || !dns.IsNotFound {
			t.Error(host, got, err)
		}
	}
	asked := n.Asked("bucket.example")
	n.Fail(slownet.Failing)
	if _, err := look("bucket.example"); !errors.As(err, &dns) || dns.IsNotFound || n.Asked("bucket.example") <= asked {
		t.Error(err)
	}
	n.Fail(slownet.Unknown)
	if _, err := look("bucket.example"); !errors.As(err, &dns) || !dns.IsNotFound {
		t.Error(err)
	}
	n.Fail(slownet.Silent)
	if _, err := look("bucket.example"); err == nil || errors.As(err, &dns) && dns.IsNotFound {
		t.Error(err)
	}
	n.Fail(slownet.Works)
	n.Set("bucket.example", two)
	if got, err := look("bucket.example"); err != nil || !slices.Equal(got, []netip.Addr{two}) {
		t.Error(got, err)
	}
}

// Of a name with two addresses, one of which answers nothing, the other serves: a client
// that tries both has its answer, and the counts say at which address.
func TestOneDeadAddressOfTwo(t *testing.T) {
	nothingLeft(t)
	server, _ := store(t)
	p := proxy(t, slownet.Options{Server: server.URL, Listen: "127.0.0.3:0"})
	at := netip.MustParseAddrPort(p.Addr())
	dead, err := slownet.NewDead(netip.MustParseAddr("127.0.0.2"), at.Port())
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	if c, err := net.DialTimeout("tcp", dead.Addr().String(), 300*time.Millisecond); err == nil {
		_ = c.Close()
		t.Error("a dead address answered")
	} else if e := net.Error(nil); !errors.As(err, &e) || !e.Timeout() {
		t.Errorf("a dead address says %v", err)
	}
	n, err := slownet.NewNames()
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	n.Set("data.example", dead.Addr().Addr(), at.Addr())
	c := client(t)
	c.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		host, port, _ := net.SplitHostPort(addr)
		addresses, err := n.Resolver().LookupHost(ctx, host)
		for _, a := range addresses {
			var conn net.Conn
			if conn, err = (&net.Dialer{Timeout: 300 * time.Millisecond}).DialContext(ctx, network, net.JoinHostPort(a, port)); err == nil {
				return conn, nil
			}
		}
		return nil, err
	}
	if a := ask(t, c, "GET", "http://data.example.:"+strings.Split(p.Addr(), ":")[1]+"/a"); a.err != nil || len(a.body) != len(object) {
		t.Error(a.err)
	}
	if n := p.Counts().Connections; n.Local["127.0.0.3"] != 1 {
		t.Errorf("%+v", n)
	}
}
