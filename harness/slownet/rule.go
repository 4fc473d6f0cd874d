package slownet

import (
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// SetRules replaces all rules, with their counts, and ends what the old ones did to the
// listener. Requests that an old rule holds go on being held.
//
// A rule is one line:
//
//	operation pattern [which ...] fault [option ...]
//
//	operation  get, range (a GET of a range), head (also GCS's question about an
//	           object), list, put (whatever writes), connect (a connection, before its
//	           first byte), or any (all but connect; connections if the server is tcp)
//	pattern    matches the base name of the path, or the whole path if it has a slash
//
//	#n, #n+    only the nth call that matches, or the nth and all later ones
//	p=0.01     only so many of them, by chance; the choice follows from the seed, the
//	           rule, and the number of the call
//	for=60s    only so long after the rules were set
//	query=*x*  only if the query matches, in which * stands for slashes, too
//
//	refuse=60s        connections are refused and those there are end; with for=, from
//	                  when the rules are set, and without a call
//	blackhole         nothing is answered, nor passed on, until the client goes
//	delay=1s          the answer begins so much later
//	reset=N           the connection is reset after N bytes of the body; without N, before
//	                  the answer
//	fin=N, stall=N    it is closed, or goes silent, after N bytes
//	drip=1KB/s        the body arrives this slowly
//	extra=N           the body is N bytes longer, and its length says so
//	stray=N           N bytes follow the answer that its length does not tell of
//	status=503        this is answered, instead of the server's; options: code=SlowDown
//	                  (a body like S3's and Azure's), retry-after=2, header=Name:value
//	status=200        the whole object, although a range was requested. Where the range is
//	                  signed, zeros stand in for what the server does not give
//	redirect=URL      options: status=302 (otherwise 307), header=, code=. URL may be an
//	                  address alone, which the path and query are appended to, or "loop"
//	shift=N           Content-Range says N bytes later
//	flip=N            one bit is wrong of the byte at offset N of the object; without N, of
//	                  any byte of the answer
//	gzip              the body is compressed, and Content-Encoding says so
//	date=20m          the Date header is so much later; -20m: earlier
//	skew=20m          so is the server's clock: requests that were signed at a time which
//	                  differs from it by more than 15 minutes are refused
//	cut=N             of a listing: only N bytes are there, or half, as if they were all
//	double            of a listing: every entry is there twice
//
// "range *.tar #3 reset=1000" resets the third ranged GET of any tar file after 1,000
// bytes. The first rule that takes a call has it, and later rules do not count it.
// Requests that the limit of the link turns away are not calls.
func (p *Proxy) SetRules(lines ...string) error {
	now := time.Now()
	var rules []*rule
	for _, line := range lines {
		r, err := parseRule(line, now, p.o.Seed, p.server.Scheme == "tcp")
		if err != nil {
			return err
		}
		rules = append(rules, r)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules, p.refuse = rules, time.Time{}
	for _, r := range rules {
		if r.always() {
			p.refuse, r.met = r.until, 1
		}
	}
	return p.listen()
}

// match returns the rule that takes a call, and counts the call.
func (p *Proxy) match(c call) hit {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, r := range p.rules {
		if r.takes(c, now) {
			return hit{r, r.seen}
		}
	}
	return hit{}
}

// met notes that a rule had its effect.
func (p *Proxy) met(r *rule) {
	p.mu.Lock()
	r.met++
	p.mu.Unlock()
}

// rule is a rule, and what became of it.
type rule struct {
	line               string
	op, pattern, query string
	nth                int64
	later              bool
	chance             float64 // 0: always
	until              time.Time
	fault, arg         string
	n                  int64 // bytes or offset; -1: none was given
	d                  time.Duration
	rate               Rate
	status             int
	code               string
	headers            []field
	seed               [2]uint64
	tcp                bool
	seen, met          int64 // under the proxy's mu
}

// hit is a rule that has taken a call.
type hit struct {
	*rule        // nil: none has
	number int64 // of the call among those that fit the rule, from 1
}

// The operations.
const (
	get     = "get"
	ranged  = "range"
	head    = "head"
	list    = "list"
	put     = "put"
	connect = "connect"
)

// call is what a rule looks at.
type call struct{ kind, method, path, query string }

func parseRule(line string, now time.Time, seed uint64, tcp bool) (*rule, error) {
	wrong := func(what string, a ...any) *errs.Error {
		return errs.New(errs.Config, what, a...).At(errs.Where{Member: line}).Try("write a rule as: operation pattern [which] fault, such as range *.tar #3 reset=1000")
	}
	w := strings.Fields(line)
	if len(w) < 3 {
		return nil, wrong("a rule has an operation, a pattern and a fault")
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(line))
	r := &rule{line: line, op: w[0], pattern: strings.TrimPrefix(w[1], "/"), n: -1, tcp: tcp, seed: [2]uint64{seed, hash.Sum64()}}
	if strings.HasPrefix(w[1], "/") && r.pattern != "" && !strings.Contains(r.pattern, "/") {
		return nil, wrong("%q is a whole path without a bucket or folder; leave the slash out", w[1])
	}
	if ops := []string{get, ranged, head, list, put, connect, "any"}; !slices.Contains(ops, r.op) {
		return nil, wrong("%q is not an operation", r.op).Try("the operations are %s", strings.Join(ops, ", "))
	}
	if _, err := path.Match(r.pattern, ""); err != nil {
		return nil, wrong("cannot read the pattern").Because(err)
	}
	w = w[2:]
	for ; len(w) > 0; w = w[1:] {
		if which, err := r.which(w[0], now); err != nil {
			return nil, wrong("cannot read %q", w[0]).Because(err)
		} else if !which {
			break
		}
	}
	if len(w) == 0 {
		return nil, wrong("there is no fault")
	}
	given := false
	r.fault, r.arg, given = strings.Cut(w[0], "=")
	faults := []string{
		"refuse", "blackhole", "delay", "reset", "fin", "stall", "drip", "extra", "stray", "status", "redirect", "shift", "flip", "gzip", "date", "skew", "cut", "double",
	}
	if !slices.Contains(faults, r.fault) {
		return nil, wrong("%q is not a fault", r.fault).Try("the faults are %s", strings.Join(faults, ", "))
	}
	if err := r.argument(given); err != nil {
		return nil, wrong("cannot read %q", w[0]).Because(err)
	}
	before := []string{"refuse", "blackhole", "delay", "reset", "fin", "stall"}
	if tcp && !slices.Contains(append(before, "drip", "flip"), r.fault) || !tcp && r.op == connect && (!slices.Contains(before, r.fault) || r.n > 0) {
		return nil, wrong("a connection cannot have %s", w[0])
	}
	for _, o := range w[1:] {
		if err := r.option(o); err != nil {
			return nil, wrong("cannot read %q", o).Because(err)
		}
	}
	return r, nil
}

// which reads a word that says which calls; false: it is the fault.
func (r *rule) which(w string, now time.Time) (bool, error) {
	key, value, _ := strings.Cut(w, "=")
	var err error
	switch {
	case strings.HasPrefix(w, "#"):
		value, r.later = strings.CutSuffix(w[1:], "+")
		if r.nth, err = strconv.ParseInt(value, 10, 64); err == nil && r.nth < 1 {
			err = errs.New(errs.Config, "calls are numbered from 1")
		}
	case key == "p":
		if r.chance, err = strconv.ParseFloat(value, 64); err == nil && (r.chance <= 0 || r.chance > 1) {
			err = errs.New(errs.Config, "a probability is above 0 and at most 1")
		}
	case key == "for":
		var d time.Duration
		if d, err = time.ParseDuration(value); err == nil {
			r.until = now.Add(d)
		}
	case key == "query":
		r.query = value
		_, err = path.Match(value, "")
	default:
		return false, nil
	}
	return true, err
}

// argument reads what follows the fault's name.
func (r *rule) argument(given bool) (err error) {
	if !given {
		switch r.fault {
		case "refuse":
			if r.until.IsZero() {
				return errs.New(errs.Config, "it needs a time, as refuse=60s or as for=60s")
			}
		case "delay", "drip", "status", "redirect", "date", "skew":
			return errs.New(errs.Config, "%s needs a value", r.fault)
		case "extra", "stray", "shift":
			r.n = 1
		case "fin", "stall":
			r.n = 0
		}
		return nil
	}
	switch r.fault {
	case "refuse", "delay", "date", "skew":
		r.d, err = time.ParseDuration(r.arg)
	case "drip":
		if err = r.rate.UnmarshalText([]byte(r.arg)); err == nil && r.rate == 0 {
			err = errs.New(errs.Config, "it needs a rate above 0")
		}
	case "status":
		if r.status, err = strconv.Atoi(r.arg); err == nil && r.status != 200 && (r.status < 300 || r.status > 599) {
			err = errs.New(errs.Config, "it is 200, or from 300 to 599")
		}
	case "redirect":
		r.status = http.StatusTemporaryRedirect
		var u *url.URL
		if u, err = url.Parse(r.arg); err == nil && r.arg != "loop" && u.Host == "" {
			err = errs.New(errs.Config, "it needs a URL with a host")
		}
	case "shift":
		r.n, err = strconv.ParseInt(r.arg, 10, 64)
	case "blackhole", "gzip", "double":
		err = errs.New(errs.Config, "%s has no value", r.fault)
	default:
		r.n, err = parseBytes(r.arg)
	}
	return err
}

// option reads a word after the fault.
func (r *rule) option(w string) (err error) {
	key, value, _ := strings.Cut(w, "=")
	if r.fault != "status" && r.fault != "redirect" {
		return errs.New(errs.Config, "%s has no options", r.fault)
	}
	switch key {
	case "code":
		r.code = value
	case "retry-after":
		r.headers = append(r.headers, field{"Retry-After", value})
	case "region":
		r.headers = append(r.headers, field{"x-amz-bucket-region", value})
	case "header":
		name, value, ok := strings.Cut(value, ":")
		if !ok {
			return errs.New(errs.Config, "it is header=Name:value")
		}
		r.headers = append(r.headers, field{name, value})
	case "status":
		r.status, err = strconv.Atoi(value)
	default:
		err = errs.New(errs.Config, "not an option")
	}
	return err
}

// always says whether the rule refuses connections by the clock, and needs no call.
func (r *rule) always() bool { return r.fault == "refuse" && !r.until.IsZero() && r.d == 0 }

// takes counts a call if the rule fits it, and says whether it has the fault.
func (r *rule) takes(c call, now time.Time) bool {
	if r.op != c.kind && (r.op != "any" || c.kind == connect && !r.tcp) || !r.until.IsZero() && now.After(r.until) {
		return false
	}
	if r.always() {
		return false
	}
	name := strings.TrimPrefix(c.path, "/")
	if !strings.Contains(r.pattern, "/") {
		name = strings.TrimPrefix(path.Base(c.path), "/")
	}
	if ok, _ := path.Match(r.pattern, name); !ok || r.query != "" && !matchesAll(r.query, c.query) {
		return false
	}
	r.seen++
	chosen := r.chance == 0 || r.draw(r.seen, 0) < r.chance
	return chosen && (r.nth == 0 || r.seen == r.nth || r.later && r.seen > r.nth)
}

// draw is a random number from 0 to 1 of a call: the nth of each call is always the same.
func (r *rule) draw(number int64, nth uint64) float64 {
	return rand.New(rand.NewPCG(r.seed[0]+nth, r.seed[1]^uint64(number))).Float64()
}

// matchesAll is path.Match of texts in which slashes are nothing special.
func matchesAll(pattern, s string) bool {
	ok, _ := path.Match(strings.ReplaceAll(pattern, "/", "\x00"), strings.ReplaceAll(s, "/", "\x00"))
	return ok
}

// callOf says what a request is. Stores differ in how they are asked: S3 and Azure list by
// queries, GCS and the Hub by paths, web servers by folders.
func callOf(h *message) (call, error) {
	method, rest, _ := strings.Cut(h.first, " ")
	target, _, _ := strings.Cut(rest, " ")
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return call{}, err
	}
	c := call{method: method, path: u.Path, query: u.RawQuery}
	if q, err := url.QueryUnescape(u.RawQuery); err == nil {
		c.query = q
	}
	switch method {
	case http.MethodHead:
		c.kind = head
	case http.MethodGet:
		c.kind = get
		gcs := strings.HasPrefix(u.Path, "/storage/v1/b/")
		_, object, _ := strings.Cut(strings.TrimPrefix(u.EscapedPath(), "/storage/v1/b/"), "/")
		switch q := u.Query(); {
		case h.has("Range") || h.has("X-Ms-Range"):
			c.kind = ranged
		case gcs && object == "o", strings.HasSuffix(u.Path, "/"), strings.HasPrefix(u.Path, "/api/") && strings.Contains(u.Path, "/tree/"),
			q.Has("list-type") || q.Has("prefix") || q.Has("delimiter") || q.Has("marker") || q.Has("versions") || q.Get("comp") == "list":
			c.kind = list
		case gcs && q.Get("alt") != "media":
			c.kind = head
		}
	default:
		c.kind = put
	}
	return c, nil
}
