package slownet

import (
	"crypto/tls"
	"errors"
	"io"
	"time"
)

// exchange is one request and its answer.
type exchange struct {
	*conn
	call
	effect

	req    *message
	upload body
	waits  bool // the client sends its body only if the server wants it, which has not said so

	first time.Time     // when the first byte of the answer may leave
	over  bool          // it no longer counts as one that is under way
	ended chan struct{} // closed when the client has sent its next request, or is gone
	sent  chan struct{} // closed when the body of the request has been read
}

// reply is an answer on its way to the client.
type reply struct {
	*message
	body
	from *upstream // where a trailer comes from; nil: the proxy wrote the body
}

// exchange passes on one request and its answer. False: the connection is over.
func (c *conn) exchange() bool {
	x := &exchange{conn: c, effect: noEffect()}
	var err error
	if x.req, err = readMessage(c.r); err == nil {
		if x.call, err = callOf(x.req); err == nil {
			x.upload, err = x.req.bodyOf(c.r, "")
			x.waits = x.upload.Reader != nil && x.req.has("Expect")
		}
	}
	arrived := time.Now()
	if err != nil {
		if errors.Is(err, errHead) {
			_, _ = io.WriteString(c.client, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
		}
		return false
	}
	c.p.counts.begin(x.call)
	defer x.done()
	link := c.p.link.Load()
	x.first = arrived.Add(link.Latency)
	var kept bool
	if c.p.limit.take(arrived, link) {
		kept = x.pass(c.p.match(x.call))
	} else {
		c.p.counts.with(func(n *Counts) { n.Excess++ })
		kept = x.instead(link.Excess.reply(x.method))
	}
	x.done()
	if !kept {
		if t, ok := c.client.(*tls.Conn); ok {
			_ = t.CloseWrite() // which fails if a rule has ended the connection below it
		}
		_ = c.raw.Close()
	}
	if x.ended != nil {
		<-x.ended
	}
	return kept && c.ctx.Err() == nil
}

// done counts the answer as over.
func (x *exchange) done() {
	if !x.over {
		x.over = true
		x.p.counts.with(func(n *Counts) { n.AtOnce-- })
	}
}

// listen reads the rest of the request, and then waits for what the client does next, so
// that a client that goes away is noticed, whatever its answer waits for.
func (x *exchange) listen(to io.Writer) {
	x.ended, x.sent = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(x.ended)
		err := x.uploaded(to)
		close(x.sent)
		if err == nil {
			_, err = x.r.Peek(1)
		}
		if err != nil {
			x.cancel()
		}
	}()
}

// uploaded copies the body of the request. A server that stops reading it may have answered,
// so the rest is read and dropped. The error is the client's.
func (x *exchange) uploaded(to io.Writer) error {
	if x.upload.Reader == nil {
		return nil
	}
	send := func(b []byte) {
		if to != nil {
			if _, err := to.Write(b); err != nil {
				to = nil
			}
		}
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := x.upload.Read(buf)
		if n > 0 {
			x.p.counts.add(x.call, Tally{Uploaded: int64(n)})
			if x.upload.chunked {
				send(chunkHead(n))
			}
			send(buf[:n])
			if x.upload.chunked {
				send([]byte("\r\n"))
			}
		}
		if err == io.EOF && x.upload.chunked {
			trailer, err := readTrailer(x.r)
			send(append([]byte("0\r\n"), trailer...))
			return err
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// instead answers without the server.
func (x *exchange) instead(a *reply) bool {
	if x.waits {
		a.set("Connection", "close") // the client waits, and nobody wants its body
	} else {
		x.listen(nil)
	}
	return x.send(a)
}

// pass passes the request on, unless a rule answers it, and then the answer, with what
// the rule does to it.
func (x *exchange) pass(h hit) bool {
	if a, over := x.before(h); over {
		return false
	} else if a != nil {
		return x.instead(a)
	}
	a, err := x.ask()
	for err == nil && a.status() < 200 {
		x.waits = x.waits && a.status() != 100
		if err = x.write(x.call, a.bytes()); err == nil {
			a, err = x.next()
		}
	}
	if err != nil {
		x.done()
		x.fail(err)
		return false
	}
	if err := x.after(h, a); err != nil {
		x.done()
		x.fail(err)
		return false
	}
	return x.send(a)
}

// fail shows the client the failure that the proxy saw.
func (x *exchange) fail(err error) {
	x.drop()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		x.stop("fin")
	} else {
		x.stop("reset")
	}
}

// ask sends the request to the server, and reads the head of the answer. A connection
// that the server has closed since the last one is replaced.
func (x *exchange) ask() (*reply, error) {
	if x.p.o.Host != "" {
		x.req.set("Host", x.p.o.Host)
	}
	for {
		if err := x.dial(); err != nil {
			return nil, err
		}
		old := x.server.used
		_, err := x.server.conn.Write(x.req.bytes())
		if err == nil {
			if x.ended == nil {
				x.listen(x.server.conn)
			}
			var a *reply
			if a, err = x.next(); err == nil {
				return a, nil
			}
		}
		if !old || x.upload.Reader != nil || x.ctx.Err() != nil {
			return nil, err
		}
		x.drop()
	}
}

// next reads the head of the next answer.
func (x *exchange) next() (*reply, error) {
	m, err := readMessage(x.server.r)
	if err != nil {
		return nil, err
	}
	if m.status() == 0 {
		return nil, errHead
	}
	b, err := m.bodyOf(x.server.r, x.method)
	x.server.used = true
	return &reply{m, b, x.server}, err
}

// send sends an answer, as fast as the link and as far as the rule allows. False: the
// connection is over.
func (x *exchange) send(a *reply) bool {
	if !x.begin(x.first) {
		return false
	}
	x.p.counts.with(func(n *Counts) { n.Statuses[a.status()]++ })
	if !x.sendBody(a) {
		return false
	}
	if x.stray > 0 && x.write(x.call, nil, make([]byte, x.stray)) != nil {
		return false
	}
	if a.from != nil && !a.keeps() {
		x.drop()
	}
	if x.upload.Reader != nil {
		if x.waits {
			return false // the rest of the request goes to nobody
		}
		select {
		case <-x.sent:
		case <-x.ctx.Done():
			return false
		}
	}
	return x.req.keeps() && a.keeps() && !a.toEnd
}

func (x *exchange) sendBody(a *reply) bool {
	lead := a.message.bytes() // until it is sent
	if a.Reader == nil {
		x.done()
		return x.write(x.call, lead) == nil
	}
	for at := int64(0); at != a.size; {
		size, bound := x.size(x.slow)
		if a.size >= 0 {
			size = int(min(int64(size), a.size-at))
		}
		if at < x.at {
			size = int(min(int64(size), x.at-at))
		}
		var n int
		var err error
		if bound && a.size >= 0 {
			n, err = io.ReadFull(a, x.buf[:size])
		} else {
			n, err = a.Read(x.buf[:size])
		}
		if (bound || at == x.at || err != nil) && lead != nil {
			if x.write(x.call, lead) != nil {
				return false
			}
			lead = nil
		}
		if n > 0 && at == x.at {
			x.p.met(x.rule)
			if x.how != "stall" {
				x.done()
			}
			x.stop(x.how)
			return false
		}
		if n > 0 && !x.sendPiece(a, lead, x.buf[:n], at) {
			return false
		}
		if n > 0 {
			lead = nil
		}
		at += int64(n)
		if err == io.EOF && a.size < 0 {
			break
		}
		if err != nil && at != a.size {
			x.done()
			x.fail(err)
			return false
		}
	}
	x.done()
	if lead != nil && x.write(x.call, lead) != nil {
		return false
	}
	if !a.chunked {
		return true
	}
	end := []byte("0\r\n\r\n")
	if a.from != nil {
		trailer, err := readTrailer(a.from.r)
		if err != nil {
			x.fail(err)
			return false
		}
		end = append([]byte("0\r\n"), trailer...)
	}
	return x.write(x.call, end) == nil
}

// sendPiece sends some bytes of the body, after the head if that is still to be sent.
func (x *exchange) sendPiece(a *reply, lead, b []byte, at int64) bool {
	x.spoil(x.p, b, at)
	if !x.pace(len(b), x.slow) {
		return false
	}
	if a.chunked {
		return x.write(x.call, append(lead, chunkHead(len(b))...), b, []byte("\r\n")) == nil
	}
	if at+int64(len(b)) == a.size {
		x.done()
	}
	return x.write(x.call, lead, b) == nil
}
