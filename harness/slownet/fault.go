package slownet

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// effect is what a rule does to the bytes of an answer.
type effect struct {
	rule  *rule
	how   string // it ends: reset, fin or stall
	at    int64  // after so many bytes of the body; -1: never
	flip  int64  // the byte of the body that has a wrong bit; -1: none
	slow  Rate   // 0: as fast as the link
	stray int64  // bytes after the end
}

func noEffect() effect { return effect{at: -1, flip: -1} }

// spoil flips the bit if its byte is among those at an offset of the body.
func (e *effect) spoil(p *Proxy, b []byte, at int64) {
	if e.flip >= at && e.flip < at+int64(len(b)) {
		b[e.flip-at] ^= 1
		p.met(e.rule)
	}
}

// before does what a rule says before the server is asked: it answers instead, or ends
// the connection.
func (x *exchange) before(h hit) (a *reply, over bool) {
	r := h.rule
	if r == nil {
		return nil, false
	}
	x.rule = r
	switch r.fault {
	case "refuse":
		x.p.met(r)
		x.done()
		x.p.refuseFor(r.d)
		return nil, true
	case "blackhole":
		x.p.met(r)
		x.listen(nil)
		<-x.ctx.Done()
		return nil, true
	case "delay":
		x.p.met(r)
		x.first = x.first.Add(r.d)
	case "reset":
		if r.n < 0 {
			x.p.met(r)
			x.done()
			x.stop("reset")
			return nil, true
		}
	case "status":
		if r.status != http.StatusOK {
			x.p.met(r)
			return synthetic(x.method, r.status, r.code, r.headers), false
		}
		if auth := x.req.get("Authorization"); !strings.HasPrefix(auth, "SharedKey") && !signs(auth, "range") {
			x.req.remove("Range")
			x.req.remove("X-Ms-Range")
		}
	case "redirect":
		x.p.met(r)
		return x.redirected(r), false
	case "skew":
		if signed, ok := x.signedAt(); ok && signed.Sub(time.Now().Add(r.d)).Abs() > 15*time.Minute {
			x.p.met(r)
			code := "RequestTimeTooSkewed"
			if x.req.has("X-Ms-Date") { // as Azure says it
				code = "AuthenticationFailed"
			}
			return synthetic(x.method, http.StatusForbidden, code, []field{{"Date", time.Now().Add(r.d).UTC().Format(http.TimeFormat)}}), false
		}
	}
	return nil, false
}

// signs says whether a signature of AWS covers a header.
func signs(authorization, name string) bool {
	_, signed, _ := strings.Cut(authorization, "SignedHeaders=")
	signed, _, _ = strings.Cut(signed, ",")
	for one := range strings.SplitSeq(signed, ";") {
		if strings.EqualFold(strings.TrimSpace(one), name) {
			return true
		}
	}
	return false
}

// signedAt is when the client says that it is.
func (x *exchange) signedAt() (time.Time, bool) {
	for _, one := range [][2]string{{"X-Amz-Date", "20060102T150405Z"}, {"X-Ms-Date", http.TimeFormat}, {"Date", http.TimeFormat}} {
		if t, err := time.Parse(one[1], x.req.get(one[0])); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// redirected sends the client elsewhere, or in a loop.
func (x *exchange) redirected(r *rule) *reply {
	_, rest, _ := strings.Cut(x.req.first, " ")
	target, _, _ := strings.Cut(rest, " ")
	to := r.arg
	if to == "loop" {
		to = target
	} else if u, err := url.Parse(to); err == nil && u.Path == "" {
		to += target
	}
	return synthetic(x.method, r.status, r.code, append([]field{{"Location", to}}, r.headers...))
}

// after does what a rule says to an answer of the server.
func (x *exchange) after(h hit, a *reply) error {
	r := h.rule
	if r == nil {
		return nil
	}
	from, to, size, part := contentRange(a.get("Content-Range"))
	part = part && a.status() == http.StatusPartialContent
	met := false
	var err error
	switch r.fault {
	case "status":
		if met = a.status() == http.StatusOK && x.kind == ranged; part {
			a.first = "HTTP/1.1 200 OK"
			a.remove("Content-Range")
			a.replace(io.MultiReader(zeros(from), a.Reader, zeros(size-to-1)), size)
			met = true
		}
	case "reset", "fin", "stall":
		x.how, x.at = r.fault, r.n
	case "drip":
		x.slow, met = r.rate, a.Reader != nil
	case "flip":
		x.flip = h.flipAt(from, a.size)
	case "extra":
		if met = a.Reader != nil; met {
			n := int64(-1)
			if a.size >= 0 {
				n = a.size + r.n
			}
			a.replace(io.MultiReader(a.Reader, zeros(r.n)), n)
		}
	case "stray":
		x.stray, met = r.n, true
	case "shift":
		if met = part; met {
			a.set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from+r.n, to+r.n, size))
		}
	case "gzip":
		met, err = a.rewrite(func(b []byte) []byte {
			var out bytes.Buffer
			w := gzip.NewWriter(&out)
			_, _ = w.Write(b)
			_ = w.Close()
			return out.Bytes()
		})
		if met {
			a.set("Content-Encoding", "gzip")
		}
	case "date", "skew":
		if t, err := http.ParseTime(a.get("Date")); err == nil {
			a.set("Date", t.Add(r.d).UTC().Format(http.TimeFormat))
			met = r.fault == "date"
		}
	case "cut":
		met, err = a.rewrite(func(b []byte) []byte {
			if r.n >= 0 {
				return b[:min(r.n, int64(len(b)))]
			}
			return b[:len(b)/2]
		})
	case "double":
		doubled := false
		_, err = a.rewrite(func(b []byte) []byte {
			out := double(b)
			doubled = len(out) > len(b)
			return out
		})
		met = doubled
	}
	if met {
		x.p.met(r)
	}
	return err
}

// flipAt is the byte of the body that is wrong, which begins at an offset of the object.
func (h hit) flipAt(from, size int64) int64 {
	if h.n >= 0 {
		return max(-1, h.n-from)
	}
	if size <= 0 {
		return -1
	}
	return int64(h.draw(h.number, 1) * float64(size))
}

// replace gives an answer another body of the same kind, with its length if that is known.
func (a *reply) replace(r io.Reader, size int64) {
	a.Reader, a.size = r, size
	if size >= 0 {
		a.set("Content-Length", strconv.FormatInt(size, 10))
	}
}

// rewrite changes a body as a whole; false: there is none.
func (a *reply) rewrite(f func([]byte) []byte) (bool, error) {
	if a.Reader == nil {
		return false, nil
	}
	b, err := io.ReadAll(a.Reader)
	if err == nil && a.chunked {
		_, err = readTrailer(a.from.r)
		a.remove("Transfer-Encoding")
	}
	if err == nil && a.size >= 0 && int64(len(b)) < a.size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return false, err
	}
	b = f(b)
	a.body = body{toEnd: a.toEnd}
	a.replace(bytes.NewReader(b), int64(len(b)))
	return true, nil
}

// zeros is some bytes that nobody asked for.
func zeros(n int64) io.Reader { return io.LimitReader(zero{}, n) }

type zero struct{}

func (zero) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// double writes every entry of a listing twice: of S3's and Azure's XML, of GCS's, the
// Hub's and nginx's JSON, and of an index page.
func double(b []byte) []byte {
	var parsed any
	if dec := json.NewDecoder(bytes.NewReader(b)); decoded(dec, &parsed) {
		switch v := parsed.(type) {
		case []any:
			parsed = append(v, v...)
		case map[string]any:
			if items, ok := v["items"].([]any); ok {
				v["items"] = append(items, items...)
			}
		}
		if out, err := json.Marshal(parsed); err == nil {
			return out
		}
	}
	entry := regexp.MustCompile(`(?s)<Contents>.*?</Contents>|<CommonPrefixes>.*?</CommonPrefixes>|<Blob>.*?</Blob>|<BlobPrefix>.*?</BlobPrefix>|<a href=[^\n]*\n`)
	return entry.ReplaceAll(b, []byte("$0$0"))
}

func decoded(dec *json.Decoder, to *any) bool {
	dec.UseNumber()
	return dec.Decode(to) == nil
}

// synthetic is an answer of the proxy's own to a method.
func synthetic(method string, status int, code string, headers []field) *reply {
	m := &message{first: fmt.Sprintf("HTTP/1.1 %d %s", status, http.StatusText(status))}
	m.fields = append(m.fields, headers...)
	if !m.has("Date") {
		m.set("Date", time.Now().UTC().Format(http.TimeFormat))
	}
	text, kind := http.StatusText(status)+"\n", "text/plain"
	if code != "" {
		text = `<?xml version="1.0" encoding="UTF-8"?>` + "\n<Error><Code>" + code + "</Code><Message>A fault of the test.</Message><RequestId>slownet</RequestId></Error>"
		kind = "application/xml"
		m.set("x-ms-error-code", code)
	}
	m.set("Content-Type", kind)
	a := &reply{message: m}
	a.replace(strings.NewReader(text), int64(len(text)))
	if method == http.MethodHead || status == http.StatusNotModified {
		a.body = body{}
	}
	return a
}

// reply is the answer to a request beyond the limit.
func (e Excess) reply(method string) *reply {
	status, code := e.Status, e.Code
	if status == 0 {
		status = http.StatusServiceUnavailable
	}
	switch code {
	case "":
		code = "SlowDown"
	case "plain":
		code = ""
	}
	var headers []field
	if e.RetryAfter > 0 {
		headers = []field{{"Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds())))}}
	}
	return synthetic(method, status, code, headers)
}
