package fetch

import "slices"

// claim gives requests the chunks that are planned for them: both are in the order of the
// batch. What is left of the entries is dropped. The requests are not told before settle.
func (f *Fetcher) claim(reqs []*Request, entries []entry) (claims []use) {
	if len(entries) == 0 {
		return nil
	}
	next := 0
	f.mu.Lock()
	for _, r := range reqs {
		at := next
		for at < len(entries) && entries[at].Sample != r.Sample {
			at++
		}
		if at == len(entries) {
			continue // another sample than was planned
		}
		next = at + 1
		e := &entries[at]
		if !slices.Equal(e.Extents, r.Extents) {
			continue
		}
		for i, c := range e.chunks {
			if c == nil || c.plan.state == dead || c.plan.state == done && c.plan.err != nil {
				continue
			}
			r.chunks[i], e.chunks[i] = c, nil
			claims = append(claims, use{r, i})
		}
	}
	f.ahead.counts.Claimed += int64(len(claims))
	f.mu.Unlock()
	f.forget(entries)
	return claims
}

// settle has the requests of claims answered when their chunks are read. Those of which all
// chunks have been read are answered here.
func (f *Fetcher) settle(claims []use) {
	if len(claims) == 0 {
		return
	}
	var ready, failed []use
	var causes []error
	f.mu.Lock()
	for _, u := range claims {
		c := u.req.chunks[u.i]
		switch {
		case c.plan.state == done && c.plan.err != nil:
			failed, causes = append(failed, u), append(causes, c.plan.err)
			continue
		case c.plan.state == done:
			ready = append(ready, u)
			continue
		}
		c.uses = append(c.uses, u)
		if c.plan.state == waiting && !c.plan.urgent {
			c.plan.urgent = true
			st := c.plan.store
			st.queue = append(st.queue, c)
			st.staff(1)
		}
	}
	f.mu.Unlock()
	for _, u := range ready {
		f.deliver(u, u.req.chunks[u.i])
	}
	for i, u := range failed {
		f.alone(u, u.req.chunks[u.i], causes[i])
	}
}

// deliver gives a request a part of a chunk that was read.
func (f *Fetcher) deliver(u use, c *chunk) {
	e := u.req.Extents[u.i]
	at := e.Off - c.off
	u.req.Raw[u.i] = c.buf.Bytes[at : at+e.Len : at+e.Len]
	if u.req.pending.Add(-1) == 0 {
		f.ready(u.req)
	}
}

// alone reads one part of a chunk whose read has failed with err. If a link to a store failed,
// the source has already retried until the deadline.
func (f *Fetcher) alone(u use, c *chunk, err error) {
	c2 := f.newChunk(c.ctx, u.req.Extents[u.i])
	u.req.chunks[u.i] = c2
	c2.uses = append(c2.uses, u)
	c2.refs.Add(1)
	if !final(err) && c.ctx.Err() == nil {
		c2.held = c2.length
		f.budget.Force(c2.held)
		if f.enqueue([]*chunk{c2}) {
			c.release()
			return
		}
		err = ErrStopped
	}
	c.release()
	f.arrived(c2, err)
}

// begins takes a planned chunk to be read, unless that has begun or nobody needs it any
// more. Fetcher.mu is held.
func (c *chunk) begins() bool {
	if c.plan.state != waiting || !c.hold() {
		return false
	}
	c.plan.state = reading
	return true
}

// landed is arrived for a planned chunk.
func (f *Fetcher) landed(c *chunk, err error) {
	f.mu.Lock()
	held := c.plan.state == reading // not if Close has ended it
	c.plan.state, c.plan.err = done, err
	uses := c.uses
	c.uses = nil
	f.mu.Unlock()
	for _, u := range uses {
		if err == nil {
			f.deliver(u, c)
		} else {
			f.alone(u, c, err)
		}
	}
	if held {
		c.release()
	}
}

// ended gives back the room of a planned chunk without a reference.
func (f *Fetcher) ended(c *chunk) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c.plan.state = dead
	c.plan.of.used -= c.length
	f.ahead.used -= c.held
	c.buf = nil
	f.ahead.room.Broadcast()
}
