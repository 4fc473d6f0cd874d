package slownet

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// conn is a connection of a client, together with its connection to the server. Only its
// own goroutine uses it, except for cancel, which anyone may call.
type conn struct {
	p      *Proxy
	raw    *net.TCPConn // to the client
	client net.Conn     // the same, or TLS over it
	r      *bufio.Reader

	server *upstream // nil before the first request, and after one that spoiled it

	ctx    context.Context // ends when the client is gone, or when nobody serves it any more
	cancel context.CancelFunc

	own, fault bucket    // the bandwidth of the connection, and that of a rule
	due        time.Time // when the last bytes were due: what comes next is paced from there
	buf        *[chunk]byte
}

// upstream is a connection to the server.
type upstream struct {
	raw  *net.TCPConn
	conn net.Conn // the same, or TLS over it
	r    *bufio.Reader
	used bool        // it has answered, and may have been closed since
	free func() bool // it no longer ends with the client's
}

// readerSize has room for a long line of a header.
const readerSize = 32 << 10

func newConn(p *Proxy, raw *net.TCPConn) *conn {
	c := &conn{p: p, raw: raw, client: raw}
	c.ctx, c.cancel = context.WithCancel(p.all)
	return c
}

// run serves a connection to its end.
func (c *conn) run() {
	c.p.counts.opened(c.raw)
	defer c.p.counts.with(func(n *Counts) { n.Connections.Open-- })
	// Whoever cancels closes: that ends reads and writes, wherever they are.
	free := context.AfterFunc(c.ctx, func() { _ = c.raw.Close() })
	defer func() {
		if free() {
			_ = c.raw.Close()
		}
		c.cancel()
		c.drop()
	}()
	c.buf = c.p.bufs.Get().(*[chunk]byte)
	defer func() { c.p.bufs.Put(c.buf) }()

	of := call{kind: connect, path: "/"}
	r := c.p.match(of).rule
	if !c.connected(r) {
		return
	}
	if c.p.server.Scheme == "tcp" {
		c.tunnel(of, r)
		return
	}
	if c.p.o.TLS != nil {
		t := tls.Server(c.raw, c.p.o.TLS)
		if err := t.HandshakeContext(c.ctx); err != nil {
			return
		}
		c.client = t
	}
	c.r = bufio.NewReaderSize(c.client, readerSize)
	for c.exchange() {
	}
}

// connected has a connection meet the fault of a rule before its first byte; nil: none.
// False: there will be no byte.
func (c *conn) connected(r *rule) bool {
	if r == nil {
		return true
	}
	switch r.fault {
	case "refuse":
		c.p.met(r)
		c.p.refuseFor(r.d)
		return false
	case "blackhole":
		c.p.met(r)
		// What the client sends is ignored, except for its end.
		_, _ = io.Copy(io.Discard, c.raw)
		return false
	case "delay":
		c.p.met(r)
		return pause(c.ctx, time.Now().Add(r.d))
	case "reset", "fin", "stall":
		if r.n > 0 {
			return true // the tunnel counts to it
		}
		c.p.met(r)
		c.stop(r.fault)
		return false
	}
	return true
}

// stop ends a connection in a way that a client does not expect.
func (c *conn) stop(how string) {
	switch how {
	case "reset":
		// A reset throws away what the client has not received.
		if raw, err := c.raw.SyscallConn(); err == nil {
			for end := time.Now().Add(2 * time.Second); c.ctx.Err() == nil && time.Now().Before(end); time.Sleep(200 * time.Microsecond) {
				left := 0
				if raw.Control(func(fd uintptr) { left, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }) != nil || left == 0 {
					break
				}
			}
		}
		_ = c.raw.SetLinger(0)
		_ = c.raw.Close()
	case "fin":
		// Not TLS's own end, either: the client may not take this for all.
		_ = c.raw.CloseWrite()
	case "stall":
		<-c.ctx.Done()
	}
}

// dial connects to the server, unless that has been done.
func (c *conn) dial() error {
	if c.server != nil {
		return nil
	}
	n, err := (&net.Dialer{}).DialContext(c.ctx, "tcp", c.p.server.Host)
	if err != nil {
		c.p.counts.with(func(n *Counts) { n.Unreachable++ })
		return err
	}
	u := &upstream{raw: n.(*net.TCPConn), conn: n}
	u.free = context.AfterFunc(c.ctx, func() { _ = u.raw.Close() })
	c.server = u
	if c.p.server.Scheme == "https" {
		config := &tls.Config{}
		if c.p.o.ServerTLS != nil {
			config = c.p.o.ServerTLS.Clone()
		}
		if config.ServerName == "" {
			config.ServerName = c.p.server.Hostname()
		}
		config.NextProtos = []string{"http/1.1"}
		t := tls.Client(n, config)
		if err := t.HandshakeContext(c.ctx); err != nil {
			c.p.counts.with(func(n *Counts) { n.Unreachable++ })
			c.drop()
			return err
		}
		u.conn = t
	}
	u.r = bufio.NewReaderSize(u.conn, readerSize)
	return nil
}

// drop closes the connection to the server.
func (c *conn) drop() {
	if c.server != nil {
		c.server.free()
		_ = c.server.raw.Close()
		c.server = nil
	}
}

// begin waits until an answer may begin: at a moment, or now if that is over.
func (c *conn) begin(first time.Time) bool {
	if c.due = time.Now(); first.After(c.due) {
		c.due = first
	}
	return pauseExactly(c.ctx, first)
}

// pace waits until n more bytes have passed the link. False: nobody waits for them.
func (c *conn) pace(n int, slow Rate) bool {
	l := c.p.link.Load()
	now := time.Now()
	if l.Connection <= 0 && l.Total <= 0 && slow <= 0 {
		c.due = now
		return c.ctx.Err() == nil
	}
	from := c.due
	if early := now.Add(-credit); from.Before(early) {
		from = early
	}
	until := from
	for _, one := range []struct {
		b *bucket
		r Rate
	}{{&c.own, l.Connection}, {&c.p.total, l.Total}, {&c.fault, slow}} {
		if one.r > 0 {
			if t := one.b.take(from, n, one.r); t.After(until) {
				until = t
			}
		}
	}
	c.due = until
	return pause(c.ctx, until)
}

// size is how many bytes may pass at once now; false: there is no limit, and bytes may pass
// as they arrive.
func (c *conn) size(slow Rate) (int, bool) {
	l := c.p.link.Load()
	return piece(l.Connection, l.Total, slow), l.Connection > 0 || l.Total > 0 || slow > 0
}

// write sends to the client, and counts the data of a call, which is the second of bufs,
// before the client has it.
func (c *conn) write(of call, bufs ...[]byte) error {
	before, data := len(bufs[0]), 0
	if len(bufs) > 1 {
		data = len(bufs[1])
		c.p.counts.add(of, Tally{Bytes: int64(data)})
	}
	all := net.Buffers(bufs) // which WriteTo empties
	n, err := all.WriteTo(c.client)
	if sent := min(max(0, int(n)-before), data); err != nil && sent < data {
		c.p.counts.add(of, Tally{Bytes: int64(sent - data)})
	}
	return err
}

// tunnel forwards bytes both ways. It applies the parts of a rule that do not depend on
// answers.
func (c *conn) tunnel(of call, r *rule) {
	c.p.counts.begin(of)
	defer c.p.counts.with(func(n *Counts) { n.AtOnce-- })
	if c.dial() != nil {
		c.stop("reset")
		return
	}
	u := c.server
	asked := make(chan time.Time, 1) // when the client sent something that nothing has answered yet
	asked <- time.Now()
	up := make(chan struct{})
	go func() {
		defer close(up)
		buf := make([]byte, 32<<10)
		for {
			n, err := c.client.Read(buf)
			if n > 0 {
				select {
				case asked <- time.Now():
				default:
				}
				c.p.counts.add(of, Tally{Uploaded: int64(n)})
				if _, err := u.conn.Write(buf[:n]); err != nil {
					return
				}
			}
			if err != nil {
				if errors.Is(err, io.EOF) {
					_ = u.raw.CloseWrite()
				} else {
					c.cancel()
				}
				return
			}
		}
	}()
	how := c.answer(of, r, asked)
	if how != "stall" {
		c.stop(how)
	}
	if how != "reset" {
		// The client ends its side when it has read ours to its end. One that is held may
		// take all its time.
		var enough <-chan time.Time
		if how == "fin" {
			enough = time.After(time.Second)
		}
		select {
		case <-up:
		case <-c.ctx.Done():
		case <-enough:
		}
	}
	c.cancel()
	<-up
}

// answer is the way of a tunnel to the client, and says how it ends: reset, fin or stall.
func (c *conn) answer(of call, r *rule, asked <-chan time.Time) string {
	e := noEffect()
	if r != nil {
		switch r.fault {
		case "reset", "fin", "stall":
			e.how, e.at, e.rule = r.fault, max(0, r.n), r
		case "drip":
			e.slow = r.rate
			c.p.met(r)
		case "flip":
			e.flip, e.rule = max(0, r.n), r
		}
	}
	for at := int64(0); ; {
		size, _ := c.size(e.slow)
		if e.at >= 0 {
			if at == e.at {
				c.p.met(e.rule)
				return e.how
			}
			size = int(min(int64(size), e.at-at))
		}
		n, err := c.server.conn.Read(c.buf[:size])
		if n > 0 {
			select {
			case t := <-asked:
				if !c.begin(t.Add(c.p.link.Load().Latency)) {
					return "reset"
				}
			default:
			}
			e.spoil(c.p, c.buf[:n], at)
			if !c.pace(n, e.slow) || c.write(of, nil, c.buf[:n]) != nil {
				return "reset"
			}
			at += int64(n)
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				return "fin"
			}
			return "reset"
		}
	}
}
