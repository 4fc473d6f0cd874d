// Package slownet is a proxy before a real server, which is as slow as requested, breaks
// what rules say, and counts exactly what passed through it. Clients in any language meet
// the same network: they are given its address in place of the server's.
//
//	client ──► slownet ──► versitygw, nginx, azurite, ...
//	             │ Link: latency, bandwidth, requests a second
//	             │ rules: "range *.tar #3 reset=1000"
//	             └ Counts
//
// A connection of a client has one of its own to the server. Requests and answers pass
// through it unchanged, with the spelling and order of their headers, unless a rule
// changes them: signatures that cover the address as Host hold if the client signed the
// proxy's. Of HTTP it knows version 1.1 (and 1.0), without upgrades; a client that closes
// its side of a connection is gone. With a server of the scheme tcp, bytes are forwarded
// that the proxy does not look into, such as TLS that must not end before the server; an
// answer is what the server sends after the client has sent something.
//
// Answers are slow, not requests: the first byte of an answer leaves when the latency of
// the link has passed since the request was read, or later if the server needs longer,
// and the bytes of its body leave as the bandwidths allow. Headers are free. All of it
// may be changed while requests are under way.
//
// For faults of names there is a DNS server, [Names]; for addresses that nobody answers,
// [Dead]; for certificates, [Certify].
package slownet

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// Options of a proxy.
type Options struct {
	Server    string      // http://host:port, https://host:port or tcp://host:port
	ServerTLS *tls.Config // how an https server is trusted; nil: by the system's roots

	Listen string      // "": 127.0.0.1 and a free port
	TLS    *tls.Config // if the proxy itself speaks TLS to clients
	Host   string      // sent to the server in place of the client's Host; "": the client's

	Link  Link
	Rules []string // see SetRules
	Seed  uint64   // of the random choices of rules
}

// Proxy is a running proxy. Its methods may be called concurrently.
type Proxy struct {
	server  *url.URL
	o       Options
	address *net.TCPAddr
	guard   int // a socket bound to the address, which keeps the port while nobody listens

	link   atomic.Pointer[Link]
	total  bucket // of all connections
	limit  limit
	counts counts
	bufs   sync.Pool // of *[chunk]byte

	all  context.Context // ends with Close
	end  context.CancelFunc
	live sync.WaitGroup // every goroutine

	mu       sync.Mutex
	rules    []*rule
	listener net.Listener // nil while connections are refused
	conns    map[*conn]struct{}
	paused   bool
	refuse   time.Time // until when a rule has connections refused
	reopen   *time.Timer
	closed   bool
}

// New starts a proxy, which serves until Close.
func New(o Options) (*Proxy, error) {
	server, err := url.Parse(o.Server)
	if err != nil || server.Host == "" || server.Port() == "" || server.Scheme != "http" && server.Scheme != "https" && server.Scheme != "tcp" {
		return nil, errs.New(errs.Config, "%q is not the address of a server", o.Server).Because(err).Try("write http://HOST:PORT, https://HOST:PORT or tcp://HOST:PORT")
	}
	p := &Proxy{server: server, o: o, conns: map[*conn]struct{}{}}
	p.bufs.New = func() any { return new([chunk]byte) }
	p.all, p.end = context.WithCancel(context.Background())
	p.SetLink(o.Link)
	if err := p.hold(o.Listen); err != nil {
		p.end()
		return nil, err
	}
	if err := p.SetRules(o.Rules...); err != nil { // which listens
		_ = p.Close()
		return nil, err
	}
	return p, nil
}

// hold binds the address with a socket that never listens: the kernel refuses
// connections to it, and gives the port to nobody else.
func (p *Proxy) hold(listen string) error {
	if listen == "" {
		listen = "127.0.0.1:0"
	}
	failed := func(err error) error {
		return errs.New(errs.Config, "cannot listen at %s", listen).Because(err).Try("choose another address, or port 0 for a free one")
	}
	addr, err := net.ResolveTCPAddr("tcp", listen)
	if err != nil {
		return failed(err)
	}
	family, at := unix.AF_INET, unix.Sockaddr(nil)
	if ip := addr.IP.To4(); ip != nil || addr.IP == nil {
		v4 := &unix.SockaddrInet4{Port: addr.Port}
		copy(v4.Addr[:], ip)
		at = v4
	} else {
		v6 := &unix.SockaddrInet6{Port: addr.Port}
		copy(v6.Addr[:], addr.IP)
		family, at = unix.AF_INET6, v6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return failed(err)
	}
	p.guard = fd
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err == nil {
		err = unix.Bind(fd, at)
	}
	if err == nil {
		at, err = unix.Getsockname(fd)
	}
	if err != nil {
		_ = unix.Close(fd)
		return failed(err)
	}
	switch at := at.(type) {
	case *unix.SockaddrInet4:
		p.address = &net.TCPAddr{IP: net.IP(at.Addr[:]), Port: at.Port}
	case *unix.SockaddrInet6:
		p.address = &net.TCPAddr{IP: net.IP(at.Addr[:]), Port: at.Port}
	}
	return nil
}

// listen opens the listener, or closes it with all connections, as pauses and rules say.
// The caller holds mu.
func (p *Proxy) listen() error {
	now := time.Now()
	shut := p.closed || p.paused || now.Before(p.refuse)
	if p.reopen != nil {
		p.reopen.Stop()
		p.reopen = nil
	}
	if !p.closed && now.Before(p.refuse) {
		p.reopen = time.AfterFunc(p.refuse.Sub(now), func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			_ = p.listen()
		})
	}
	switch {
	case shut && p.listener != nil:
		_ = p.listener.Close()
		p.listener = nil
		for c := range p.conns {
			c.cancel()
		}
	case !shut && p.listener == nil:
		l, err := net.ListenTCP("tcp", p.address)
		if err != nil {
			return errs.New(errs.Config, "cannot listen at %s", p.address).Because(err)
		}
		p.listener = l
		p.live.Go(func() { p.accept(l) })
	}
	return nil
}

func (p *Proxy) accept(l *net.TCPListener) {
	for {
		raw, err := l.AcceptTCP()
		if err != nil {
			if p.all.Err() == nil && isTemporary(err) {
				time.Sleep(5 * time.Millisecond) // out of descriptors
				continue
			}
			return
		}
		c := newConn(p, raw)
		p.mu.Lock()
		if p.listener != l {
			c.cancel() // it was accepted while the listener was closed
		}
		p.conns[c] = struct{}{}
		p.mu.Unlock()
		p.live.Go(func() {
			c.run()
			p.mu.Lock()
			delete(p.conns, c)
			p.mu.Unlock()
		})
	}
}

func isTemporary(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ECONNABORTED)
}

// Addr is the address that clients are given: host and port.
func (p *Proxy) Addr() string { return p.address.String() }

// URL is the address with the scheme that clients need.
func (p *Proxy) URL() string {
	switch {
	case p.server.Scheme == "tcp":
		return "tcp://" + p.Addr()
	case p.o.TLS != nil:
		return "https://" + p.Addr()
	}
	return "http://" + p.Addr()
}

// Link is the link as it is now.
func (p *Proxy) Link() Link { return *p.link.Load() }

// SetLink changes the link, also of answers that are under way. A limit of requests
// begins anew.
func (p *Proxy) SetLink(l Link) {
	p.link.Store(&l)
	p.limit.restart()
}

// refuseFor closes the listener and all connections for a while.
func (p *Proxy) refuseFor(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if until := time.Now().Add(d); until.After(p.refuse) {
		p.refuse = until
	}
	_ = p.listen()
}

// Pause is the server gone: the listener and all connections are closed, and new ones
// are refused until Resume. The port stays the proxy's.
func (p *Proxy) Pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = true
	_ = p.listen()
}

// Resume ends a Pause.
func (p *Proxy) Resume() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = false
	return p.listen()
}

// Close ends the proxy with all its connections. It returns when nothing of it is left.
func (p *Proxy) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	err := p.listen()
	p.mu.Unlock()
	p.end()
	p.live.Wait()
	_ = unix.Close(p.guard)
	return err
}
