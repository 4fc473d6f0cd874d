package slownet

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// Names is a DNS server for tests. A client of this process asks it by Resolver, for
// example through net.Dialer.Resolver or http.Transport.DialContext; other programs ask
// whatever their resolv.conf names, and cannot be told of it.
//
// Its answers may be changed at any time, and clients may keep none of them.
type Names struct {
	conn  net.PacketConn
	ended chan struct{}

	mu    sync.Mutex
	hosts map[string][]netip.Addr
	fault string
	asked map[string]int
}

// The faults of a DNS server.
const (
	Works   = ""        // answers what Set says, and that other names do not exist
	Failing = "failing" // answers every question with a failure of the server
	Silent  = "silent"  // does not answer
	Unknown = "unknown" // answers that no name exists
)

// NewNames starts a DNS server on 127.0.0.1, which knows no name.
func NewNames() (*Names, error) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return nil, errs.New(errs.Config, "cannot start the DNS server").Because(err)
	}
	n := &Names{conn: conn, ended: make(chan struct{}), hosts: map[string][]netip.Addr{}, asked: map[string]int{}}
	go n.serve()
	return n, nil
}

// Addr is where the server answers, over UDP.
func (n *Names) Addr() string { return n.conn.LocalAddr().String() }

// Resolver asks this server only.
func (n *Names) Resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", n.Addr())
	}}
}

// Set gives a host its IPv4 addresses, in the order of the answer; none: it exists
// without an address.
func (n *Names) Set(host string, addresses ...netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[plain(host)] = addresses
}

// Fail has all questions meet a fault from now on.
func (n *Names) Fail(fault string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fault = fault
}

// Asked is how often the IPv4 addresses of a host were asked for, with the times that a
// fault was the answer.
func (n *Names) Asked(host string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked[plain(host)]
}

// Close ends the server.
func (n *Names) Close() error {
	err := n.conn.Close()
	<-n.ended
	return err
}

// plain is a name without the dot at its end, in small letters.
func plain(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

func (n *Names) serve() {
	defer close(n.ended)
	buf := make([]byte, 4096)
	for {
		size, from, err := n.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		var p dnsmessage.Parser
		head, err := p.Start(buf[:size])
		if err != nil || head.Response {
			continue
		}
		q, err := p.Question()
		if err != nil {
			continue
		}
		if answer := n.answer(head.ID, q); answer != nil {
			_, _ = n.conn.WriteTo(answer, from)
		}
	}
}

// answer is the answer to a question; nil: none is sent.
func (n *Names) answer(id uint16, q dnsmessage.Question) []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	name := plain(q.Name.String())
	if q.Type == dnsmessage.TypeA {
		n.asked[name]++
	}
	addresses, known := n.hosts[name]
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: id, Response: true, Authoritative: true, RecursionAvailable: true},
		Questions: []dnsmessage.Question{q},
	}
	switch {
	case n.fault == Silent:
		return nil
	case n.fault == Failing:
		m.RCode = dnsmessage.RCodeServerFailure
	case n.fault == Unknown, !known:
		m.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA:
		for _, a := range addresses {
			if a.Is4() {
				m.Answers = append(m.Answers, dnsmessage.Resource{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
					Body:   &dnsmessage.AResource{A: a.As4()},
				})
			}
		}
	}
	out, err := m.Pack()
	if err != nil {
		return nil
	}
	return out
}

// Dead is an address that answers no attempt to connect, as that of a machine which is
// down: connecting to it takes until the client gives up.
type Dead struct {
	addr  netip.AddrPort
	fd    int
	conns []net.Conn
}

// NewDead takes a port of a loopback address. A listener that nobody accepts from, and
// whose queue is full, drops what else comes.
func NewDead(ip netip.Addr, port uint16) (*Dead, error) {
	failed := func(err error) (*Dead, error) {
		return nil, errs.New(errs.Config, "cannot listen at %s", netip.AddrPortFrom(ip, port)).Because(err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return failed(err)
	}
	d := &Dead{fd: fd}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err = unix.Bind(fd, &unix.SockaddrInet4{Port: int(port), Addr: ip.As4()}); err == nil {
		err = unix.Listen(fd, 0)
	}
	var at unix.Sockaddr
	if err == nil {
		at, err = unix.Getsockname(fd)
	}
	if err != nil {
		_ = d.Close()
		return failed(err)
	}
	d.addr = netip.AddrPortFrom(ip, uint16(at.(*unix.SockaddrInet4).Port))
	for range 16 {
		c, err := net.DialTimeout("tcp", d.addr.String(), 200*time.Millisecond)
		if err != nil {
			return d, nil // the queue is full
		}
		d.conns = append(d.conns, c)
	}
	_ = d.Close()
	return failed(errs.New(errs.Unsupported, "the queue of a listener does not fill"))
}

// Addr is the address.
func (d *Dead) Addr() netip.AddrPort { return d.addr }

// Close gives the address back.
func (d *Dead) Close() error {
	for _, c := range d.conns {
		_ = c.Close()
	}
	d.conns = nil
	return unix.Close(d.fd)
}
