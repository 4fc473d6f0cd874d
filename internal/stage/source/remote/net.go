package remote

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Net is what all sources of a process share: connections, and for each host what it
// accepts and how it was used. Safe for concurrent use. Nothing is set up before the
// first request.
type Net struct {
	*common
	of *sync.Map // the hosts that sources of a Part use, *host to true; nil: all
}

// common is what all parts of a Net share.
type common struct {
	opt    Options
	once   sync.Once
	http   *http.Client
	public *http.Client
	mu     sync.Mutex
	hosts  map[string]*host
	names  map[string]*addresses
}

// Options are a Net's; the zero value is every default.
type Options struct {
	// Resolver finds the addresses of names; nil: the system's.
	Resolver *net.Resolver
	// Stall is how long a connection may be silent before the request on it is given
	// up; 0: 30 seconds.
	Stall time.Duration
	// Connect is how long one address of a host is given to accept a connection; 0: 10
	// seconds, or 3 if the host has others.
	Connect time.Duration
	// Patience is how long a body may come slower than 16 KiB a second before the rest
	// is requested again; 0: 10 seconds.
	Patience time.Duration
	// Now is the clock that requests are signed by; nil: the machine's.
	Now func() time.Time
}

// NewNet makes a Net.
func NewNet(opt Options) *Net {
	if opt.Resolver == nil {
		opt.Resolver = net.DefaultResolver
	}
	if opt.Stall == 0 {
		opt.Stall = 30 * time.Second
	}
	if opt.Patience == 0 {
		opt.Patience = patience
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	return &Net{common: &common{opt: opt, hosts: map[string]*host{}, names: map[string]*addresses{}}}
}

// Part is the Net for one of those who share it: all is shared, but what it says that requests
// wait for is of the hosts that sources made with it use. Only the Net is closed.
func (n *Net) Part() *Net { return &Net{common: n.common, of: &sync.Map{}} }

// uses says whether sources of this part use a host.
func (n *Net) uses(h *host) bool {
	if n.of == nil {
		return true
	}
	_, ok := n.of.Load(h)
	return ok
}

// Client makes requests: HTTP/1.1, since a separate connection for each request is
// what gives a range its bandwidth. It does not follow redirects, decompresses nothing,
// and has no time limit but that of a silent connection.
func (n *Net) Client() *http.Client {
	n.once.Do(n.setUp)
	return n.http
}

// Public is Client for requests whose addresses somebody else may have written: it never
// connects to a link-local address, where clouds give machines their keys.
func (n *Net) Public() *http.Client {
	n.once.Do(n.setUp)
	return n.public
}

func (n *Net) setUp() {
	n.http = n.client(n.dial)
	n.public = n.client(func(ctx context.Context, network, addr string) (net.Conn, error) {
		return n.dial(context.WithValue(ctx, publicOnly{}, true), network, addr)
	})
}

func (n *Net) client(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *http.Client {
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     newTransport(dial),
	}
}

// Now is the time that requests are signed with. Silences and deadlines are measured by
// the machine's own clock.
func (n *Net) Now() time.Time { return n.opt.Now() }

// Stall is how long a server may be silent.
func (n *Net) Stall() time.Duration { return n.opt.Stall }

// Close closes the connections that are idle.
func (n *Net) Close() {
	n.Client().CloseIdleConnections()
	n.Public().CloseIdleConnections()
}

// addresses are those of one name of a host. Connections are spread over them: a store
// has many servers of one name, and one of them may be gone.
type addresses struct {
	all   []string
	until time.Time            // when they are asked for again
	dead  map[string]time.Time // when an address may be tried again
	next  int
}

const (
	resolved = 30 * time.Second // how long addresses are believed
	refresh  = 5 * time.Second  // how long the name servers have if there are older ones, and until they are asked once more
	avoided  = 30 * time.Second // how long one that did not answer is avoided
)

// dial connects to the next address of a host, and to the others if that does not answer.
func (n *Net) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	all, err := n.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	if ctx.Value(publicOnly{}) != nil {
		if i := slices.IndexFunc(all, LinkLocal); i >= 0 {
			return nil, refusedAddress(host)
		}
	}
	timeout := 10 * time.Second
	if len(all) > 1 {
		timeout = 3 * time.Second
	}
	if n.opt.Connect > 0 {
		timeout = n.opt.Connect
	}
	d := net.Dialer{Timeout: timeout, KeepAlive: 15 * time.Second}
	var first error
	for _, ip := range all {
		c, err := d.DialContext(ctx, network, net.JoinHostPort(ip, port))
		if err == nil {
			return &watched{Conn: c, stall: n.opt.Stall}, nil
		}
		if first == nil {
			first = err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		n.avoid(host, ip)
	}
	return nil, first
}

// resolve returns the addresses of a host in the order in which they are to be tried.
func (n *Net) resolve(ctx context.Context, name string) ([]string, error) {
	if net.ParseIP(name) != nil {
		return []string{name}, nil
	}
	n.mu.Lock()
	a := n.names[name]
	if a == nil {
		a = &addresses{dead: map[string]time.Time{}}
		n.names[strings.Clone(name)] = a
	}
	known := len(a.all) > 0
	ask := !known || !time.Now().Before(a.until)
	if ask && known {
		a.until = time.Now().Add(refresh) // one asks, and the others go on with what is known
	}
	n.mu.Unlock()
	if ask {
		limited, cancel := ctx, context.CancelFunc(func() {})
		if known {
			limited, cancel = context.WithTimeout(ctx, refresh)
		}
		all, err := n.opt.Resolver.LookupHost(limited, name)
		cancel()
		n.mu.Lock()
		switch {
		case err == nil:
			a.all, a.until = all, time.Now().Add(resolved)
		case !known || ctx.Err() != nil:
			n.mu.Unlock()
			return nil, err
		default: // what was known is better than nothing
			a.until = time.Now().Add(refresh)
		}
		n.mu.Unlock()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	now, later := time.Now(), []string(nil)
	out := make([]string, 0, len(a.all))
	for i := range a.all {
		ip := a.all[(a.next+i)%len(a.all)]
		if now.Before(a.dead[ip]) {
			later = append(later, ip)
			continue
		}
		out = append(out, ip)
	}
	a.next++
	return append(out, later...), nil
}

func (n *Net) avoid(name, ip string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if a := n.names[name]; a != nil {
		a.dead[ip] = time.Now().Add(avoided)
	}
}
