package remote

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/stoker-data/stoker/internal/base/errs"
)

func TestContentRange(t *testing.T) {
	for v, want := range map[string][3]int64{
		"bytes 0-99/1000": {0, 99, 1000}, "bytes 5-5/6": {5, 5, 6}, "bytes 0-0/*": {0, 0, -1}, "bytes */7": {-1, -1, 7}, "bytes */0": {-1, -1, 0},
		"bytes 9223372036854775806-9223372036854775806/9223372036854775807": {1<<63 - 2, 1<<63 - 2, 1<<63 - 1},
	} {
		first, last, size, ok := ContentRange(v)
		if !ok || [3]int64{first, last, size} != want {
			t.Errorf("%q: %d-%d/%d, %v", v, first, last, size, ok)
		}
	}
	for _, v := range []string{
		"", "bytes", "bytes ", "bytes 0-99", "bytes 0-/5", "bytes -5/10", "bytes 5-4/10", "bytes 0-10/10", "bytes */*", "bytes 0-1/", "bytes 0-1/x", "items 0-1/2",
		"bytes 0 - 1/2", "bytes +0-1/2", "bytes 0--1/2", "bytes 0-1/-2", "bytes  0-1/2", "bytes 0-1/2 ", "bytes 0-9223372036854775808/*", "bytes=0-1/2", "Bytes 0-1/2", "bytes 0-1/2/3",
	} {
		if first, last, size, ok := ContentRange(v); ok {
			t.Errorf("%q is %d-%d/%d", v, first, last, size)
		}
	}
}

func FuzzContentRange(f *testing.F) {
	for _, v := range []string{"bytes 0-99/1000", "bytes 5-5/*", "bytes */7", "bytes 0-9223372036854775807/*", "bytes -1-2/3"} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, v string) {
		first, last, size, ok := ContentRange(v)
		switch {
		case !ok:
			return
		case first == -1 && last == -1 && size >= 0: // there is no such range
		case first < 0, last < first, size != -1 && last >= size:
			t.Fatalf("%q is %d-%d/%d", v, first, last, size)
		}
		again := fmt.Sprintf("bytes %d-%d/%d", first, last, size)
		if size < 0 {
			again = fmt.Sprintf("bytes %d-%d/*", first, last)
		}
		if first < 0 {
			again = fmt.Sprintf("bytes */%d", size)
		}
		if a, b, c, ok := ContentRange(again); !ok || a != first || b != last || c != size {
			t.Fatalf("%q is not %q", v, again)
		}
	})
}

func TestPart(t *testing.T) {
	h := func(kv ...string) http.Header {
		h := http.Header{}
		for i := 0; i < len(kv); i += 2 {
			h.Set(kv[i], kv[i+1])
		}
		return h
	}
	if size, err := Part(h("Content-Range", "bytes 5-14/20", "Content-Length", "10", "Content-Encoding", "identity"), 206, 5, 10); err != nil || size != 20 {
		t.Errorf("%d, %v", size, err)
	}
	for _, c := range []struct {
		status int
		h      http.Header
	}{
		{200, h("Content-Range", "bytes 5-14/20")},
		{206, h("Content-Range", "bytes 5-14/20", "Content-Encoding", "gzip")},
		{206, h("Content-Range", "bytes 5-14/20", "Content-Length", "11")},
		{206, h("Content-Range", "bytes 5-14/20", "Content-Length", "010")},
		{206, h("Content-Range", "bytes 4-13/20")},
		{206, h()},
	} {
		var f *Fault
		if _, err := Part(c.h, c.status, 5, 10); !errors.As(err, &f) || f.Kind != Broken {
			t.Errorf("%d %v: %v", c.status, c.h, err)
		}
	}
}

// What failed is a fault that may pass, or an error with what to do. None shows the URL,
// which may be signed.
func TestFailed(t *testing.T) {
	const name = "https://h/x"
	in := func(err error) error {
		return &url.Error{Op: "Get", URL: "https://h/x?sig=hush", Err: err}
	}
	for says, err := range map[string]error{
		"refused":            in(&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}),
		"reset":              in(&net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}),
		"was reset":          in(&net.OpError{Op: "write", Err: os.NewSyscallError("write", syscall.EPIPE)}),
		"in time":            in(&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}),
		"ended before":       in(io.ErrUnexpectedEOF),
		"ended before the":   io.EOF,
		"did not resolve":    in(&net.DNSError{Err: "server misbehaving", Name: "h", IsTemporary: true}),
		"server named h":     in(&net.DNSError{Err: "no such host", Name: "h", IsNotFound: true}),
		"the request failed": in(errors.New("malformed HTTP response")),
	} {
		var f *Fault
		if got := Failed(t.Context(), name, err); !errors.As(got, &f) || f.Kind != Unreachable || !strings.Contains(f.What, says) || strings.Contains(f.Error(), "hush") {
			t.Errorf("%v: %v, want %s", err, got, says)
		}
	}
	for says, err := range map[string]error{
		"certificate":       in(x509.UnknownAuthorityError{}),
		"certificate is":    in(x509.HostnameError{Certificate: &x509.Certificate{}, Host: "h"}),
		"not valid":         in(x509.CertificateInvalidError{Cert: &x509.Certificate{}, Reason: x509.Expired}),
		"not HTTPS":         in(errors.New("http: server gave HTTP response to HTTPS client")),
		"already an":        in(errs.New(errs.Config, "already an error").Try("this")),
		"requires a user":   in(&refusal{407}),
		"the proxy forbids": in(&refusal{403}),
	} {
		got := Failed(t.Context(), name, err)
		e := errs.From(got)
		if f := (*Fault)(nil); errors.As(got, &f) || !strings.Contains(e.What, says) || e.Where.File != name || e.Hint == "" || strings.Contains(got.Error(), "hush") {
			t.Errorf("%v: %v, want %s", err, got, says)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := Failed(ended, name, io.EOF); err != context.Canceled {
		t.Errorf("after the context has ended: %v", err)
	}
}

func TestAnswered(t *testing.T) {
	for status, want := range map[int]Kind{429: Throttled, 503: Throttled, 500: Unreachable, 502: Unreachable, 504: Unreachable, 408: Unreachable, 599: Unreachable} {
		f := Answered(http.Header{"Retry-After": {"7"}}, status, "SlowDown")
		if f == nil || f.Kind != want || f.Status != status || f.After != 7*time.Second || !strings.Contains(f.What, fmt.Sprint(status)+" SlowDown") {
			t.Errorf("%d: %+v", status, f)
		}
	}
	for _, status := range []int{200, 206, 301, 400, 401, 403, 404, 410, 412, 416, 501, 505} {
		if f := Answered(http.Header{}, status, ""); f != nil {
			t.Errorf("%d: %+v", status, f)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	for v, want := range map[string]time.Duration{
		"": 0, "0": 0, "12": 12 * time.Second, "-5": 0, "1e3": 0, "99999999999999999999": 0, "9999999": 24 * time.Hour, "soon": 0, "Tue, 24 Nov 1998 01:00:00 GMT": 0,
	} {
		if got := RetryAfter(http.Header{"Retry-After": {v}}); got != want {
			t.Errorf("%q is %s, want %s", v, got, want)
		}
	}
	date := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
	if got := RetryAfter(http.Header{"Retry-After": {date}}); got <= 59*time.Minute || got > time.Hour {
		t.Errorf("an hour from now is %s", got)
	}
	date = time.Now().Add(1000 * time.Hour).UTC().Format(http.TimeFormat)
	if got := RetryAfter(http.Header{"Retry-After": {date}}); got > 24*time.Hour {
		t.Errorf("a date far away is %s", got)
	}
}

// A body is exactly what was requested, or counts what came of it.
func TestFill(t *testing.T) {
	p := make([]byte, 6)
	for body, want := range map[string]struct {
		n    int
		says string
	}{
		"012345": {6, ""}, "0123456": {0, "more than the 6"}, "012": {3, "ended before"}, "": {0, "ended before"},
	} {
		for how, wrap := range map[string]func(io.Reader) io.Reader{"at once": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader, "with EOF": iotest.DataErrReader} {
			n, err := Fill(t.Context(), "x", wrap(strings.NewReader(body)), p)
			if n != want.n || (err == nil) != (want.says == "") || err != nil && !strings.Contains(err.Error(), want.says) || string(p[:n]) != body[:n] {
				t.Errorf("%q, %s: %d, %v", body, how, n, err)
			}
		}
	}
	n, err := Fill(t.Context(), "x", io.MultiReader(strings.NewReader("0123"), iotest.ErrReader(syscall.ECONNRESET)), p)
	if f := (*Fault)(nil); n != 4 || !errors.As(err, &f) || f.What != "the connection was reset" {
		t.Errorf("%d, %v", n, err)
	}
}

// Where the system trusts nobody, the built-in roots are trusted; otherwise they are not.
func TestBuiltInRoots(t *testing.T) {
	var roots []*x509.Certificate
	for root := range bundle.Roots() {
		cert, err := x509.ParseCertificate(root.Certificate)
		if err != nil {
			t.Fatal(err)
		}
		if root.Constraint == nil && time.Now().Before(cert.NotAfter) {
			roots = append(roots, cert)
		}
	}
	own := x509.NewCertPool()
	own.AddCert(roots[0])
	for want, pool := range map[int]*x509.CertPool{1: orBuiltIn(own), len(roots): orBuiltIn(x509.NewCertPool())} {
		n := 0
		for _, cert := range roots {
			if _, err := cert.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err == nil {
				n++
			}
		}
		if n != want || n == 0 {
			t.Errorf("%d of %d roots are trusted, want %d", n, len(roots), want)
		}
	}
}

// A token goes to this machine, or over TLS.
func TestWhereTokensMayGo(t *testing.T) {
	for address, want := range map[string]bool{
		"https://huggingface.co": true, "http://127.0.0.1:80": true, "http://localhost:80": true, "http://[::1]:80": true,
		"http://huggingface.co": false, "http://10.0.0.1": false, "http://localhost.example.com": false,
	} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if got := Private(u); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
}
