package slownet

import (
	"maps"
	"net"
	"sync"
)

// Counts is what passed through a proxy since it started, or since Reset.
//
// A request counts once its headers were read, bytes count before the client can receive
// them, and an answer counts as over before the client can receive its last byte. So a
// client that has an answer finds all of it counted.
type Counts struct {
	Tally                         // all requests
	Kinds       map[string]Tally  `json:"kinds"`   // by the operation of rules: get, range, head, list, put; connect if the server is tcp
	Methods     map[string]Tally  `json:"methods"` // by the method of HTTP
	Objects     map[string]Object `json:"objects"` // by path, without the query
	Statuses    map[int]int64     `json:"statuses"`
	AtOnce      int64             `json:"at_once"`     // requests now
	Highest     int64             `json:"highest"`     // the most at once
	Excess      int64             `json:"excess"`      // requests that the limit turned away
	Unreachable int64             `json:"unreachable"` // attempts to reach the server that failed
	Rules       []RuleCount       `json:"rules"`
	Connections ConnectionCounts  `json:"connections"`
}

// Tally is a number of requests, and the bytes of their bodies as they were sent.
type Tally struct {
	Requests int64 `json:"requests"`
	Bytes    int64 `json:"bytes"`    // of answers
	Uploaded int64 `json:"uploaded"` // of requests
}

// Object is what was asked of one path.
type Object struct {
	Tally
	Kinds map[string]Tally `json:"kinds"`
}

// RuleCount is what became of a rule.
type RuleCount struct {
	Rule string `json:"rule"`
	Seen int64  `json:"seen"` // calls that match its operation and patterns
	Met  int64  `json:"met"`  // those that had the fault; one that came too late for it, such as reset=1000 of 10 bytes, did not
}

// ConnectionCounts is how clients connected.
type ConnectionCounts struct {
	Opened int64            `json:"opened"`
	Open   int64            `json:"open"`   // now
	Remote map[string]int64 `json:"remote"` // opened, by the client's address
	Local  map[string]int64 `json:"local"`  // opened, by the address that the client connected to
}

// counts collects Counts.
type counts struct {
	mu  sync.Mutex
	now Counts // Rules are counted by themselves
}

// with calls f with the counts, whose maps are there.
func (c *counts) with(f func(*Counts)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := &c.now
	if n.Kinds == nil {
		n.Kinds, n.Methods, n.Objects, n.Statuses = map[string]Tally{}, map[string]Tally{}, map[string]Object{}, map[int]int64{}
		n.Connections.Remote, n.Connections.Local = map[string]int64{}, map[string]int64{}
	}
	f(n)
}

func (t Tally) and(more Tally) Tally {
	return Tally{t.Requests + more.Requests, t.Bytes + more.Bytes, t.Uploaded + more.Uploaded}
}

// add counts something of a call.
func (c *counts) add(of call, more Tally) {
	c.with(func(n *Counts) { n.add(of, more) })
}

func (n *Counts) add(of call, more Tally) {
	n.Tally = n.Tally.and(more)
	n.Kinds[of.kind] = n.Kinds[of.kind].and(more)
	if of.kind == connect {
		return
	}
	n.Methods[of.method] = n.Methods[of.method].and(more)
	o := n.Objects[of.path]
	if o.Kinds == nil {
		o.Kinds = map[string]Tally{}
	}
	o.Tally = o.Tally.and(more)
	o.Kinds[of.kind] = o.Kinds[of.kind].and(more)
	n.Objects[of.path] = o
}

// begin counts a request, which is under way until finished is called.
func (c *counts) begin(of call) {
	c.with(func(n *Counts) {
		n.add(of, Tally{Requests: 1})
		n.AtOnce++
		n.Highest = max(n.Highest, n.AtOnce)
	})
}

func (c *counts) opened(conn net.Conn) {
	c.with(func(n *Counts) {
		n.Connections.Opened++
		n.Connections.Open++
		n.Connections.Remote[host(conn.RemoteAddr())]++
		n.Connections.Local[host(conn.LocalAddr())]++
	})
}

func host(a net.Addr) string {
	h, _, _ := net.SplitHostPort(a.String())
	return h
}

// Counts is what passed through so far.
func (p *Proxy) Counts() Counts {
	var out Counts
	p.counts.with(func(n *Counts) {
		out = *n
		out.Kinds, out.Methods, out.Statuses = maps.Clone(n.Kinds), maps.Clone(n.Methods), maps.Clone(n.Statuses)
		out.Objects = make(map[string]Object, len(n.Objects))
		for path, o := range n.Objects {
			out.Objects[path] = Object{o.Tally, maps.Clone(o.Kinds)}
		}
		out.Connections.Remote, out.Connections.Local = maps.Clone(n.Connections.Remote), maps.Clone(n.Connections.Local)
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rules {
		out.Rules = append(out.Rules, RuleCount{r.line, r.seen, r.met})
	}
	return out
}

// Reset sets all counts to zero, except those of requests and connections under way. Rules
// count their calls from zero again.
func (p *Proxy) Reset() {
	p.counts.with(func(n *Counts) {
		*n = Counts{AtOnce: n.AtOnce, Highest: n.AtOnce, Connections: ConnectionCounts{Open: n.Connections.Open}}
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rules {
		r.seen, r.met = 0, 0
	}
}
