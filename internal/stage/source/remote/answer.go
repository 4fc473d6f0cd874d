package remote

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/stoker-data/stoker/internal/stage/source"
)

// An answer is accepted only if it matches the request: the status, the
// range, the length and no encoding. What differs is a Fault: proxies and caches between
// here and the store are known to do each of these.

// ContentRange reads the header of a part: "bytes 0-99/1000" (RFC 9110, 14.4). size is -1
// if the server does not know it.
func ContentRange(v string) (first, last, size int64, ok bool) {
	v, found := strings.CutPrefix(v, "bytes ")
	if !found {
		return 0, 0, 0, false
	}
	part, whole, found := strings.Cut(v, "/")
	if !found {
		return 0, 0, 0, false
	}
	size = -1
	if whole != "*" {
		if size, ok = number(whole); !ok {
			return 0, 0, 0, false
		}
	}
	if part == "*" { // of an answer 416: there is no such range
		return -1, -1, size, size >= 0
	}
	a, b, found := strings.Cut(part, "-")
	first, ok1 := number(a)
	last, ok2 := number(b)
	if !found || !ok1 || !ok2 || last < first || size >= 0 && last >= size {
		return 0, 0, 0, false
	}
	return first, last, size, true
}

// number reads digits alone: no sign, no space.
func number(s string) (int64, bool) {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// Part checks the answer to a GET of n bytes at off: it is a part, this one, whole and
// not encoded. It returns the size of the object; -1 if the server does not say.
func Part(h http.Header, status int, off, n int64) (size int64, err error) {
	if status != http.StatusPartialContent {
		return 0, broken("the server answered %d instead of 206 to a range request", status)
	}
	if e := h.Get("Content-Encoding"); e != "" && e != "identity" {
		return 0, broken("the answer is encoded (%s), which was not requested", e)
	}
	first, last, size, ok := ContentRange(h.Get("Content-Range"))
	if !ok || first != off || last != off+n-1 {
		return 0, broken("the answer has %q, but bytes %d-%d were requested", h.Get("Content-Range"), off, off+n-1)
	}
	if l := h.Get("Content-Length"); l != "" && l != strconv.FormatInt(n, 10) {
		return 0, broken("the answer has %s bytes, but %d were requested", l, n)
	}
	return size, nil
}

// slow is the rate in bytes per second below which a body is given up, and patience how
// long that is watched, unless Options.Patience says otherwise: the rest is requested
// again, on another connection.
const (
	slow     = 16 << 10
	patience = 10 * time.Second
)

// Fill reads a body of exactly len(p) bytes into p, and returns how many have arrived.
func Fill(ctx context.Context, name string, body io.Reader, p []byte) (n int, err error) {
	m := meterOf(ctx)
	begin, mark, watch := time.Now(), 0, m.patience
	m.came(begin)
	for n < len(p) {
		got, err := body.Read(p[n:])
		n += got
		if err != nil && n < len(p) {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return n, Failed(ctx, name, err)
		}
		now := time.Now()
		m.came(now)
		if now.Sub(begin) >= watch {
			if rate := float64(n-mark) / now.Sub(begin).Seconds(); rate < slow && n < len(p) {
				return n, &Fault{Kind: Unreachable, What: "the answer came at " + strconv.Itoa(int(rate)) + " bytes per second"}
			}
			begin, mark = now, n
		}
	}
	var more [1]byte
	if got, _ := body.Read(more[:]); got > 0 {
		return 0, broken("the answer has more than the %d bytes that were requested", len(p))
	}
	return n, nil
}

// Body reads the answer to a GET of p at off of obj, whose size it says, into p. All of an
// object is compared by checked with what the headers say of it.
func Body(ctx context.Context, obj source.Info, resp *http.Response, p []byte, off int64, checked func(name string, h http.Header, p []byte) error) (int, error) {
	size, err := Part(resp.Header, resp.StatusCode, off, int64(len(p)))
	if err != nil {
		return 0, err
	}
	if size != obj.Size {
		return 0, Changed(obj, "it has %d bytes, and had %d", size, obj.Size)
	}
	n, err := Fill(ctx, obj.Name, resp.Body, p)
	if err == nil && int64(n) == obj.Size {
		if err := checked(obj.Name, resp.Header, p); err != nil {
			return 0, err
		}
	}
	return n, err
}
