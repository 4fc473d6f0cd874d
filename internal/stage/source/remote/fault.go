package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Kind says why an attempt failed, and so what may help.
type Kind int

// The kinds.
const (
	Unreachable Kind = iota // no connection, one that broke, or a server that failed (5xx)
	Throttled               // the server wants fewer requests (429, 503 SlowDown)
	Broken                  // an answer that is not what was asked for
	Expired                 // credentials that have expired: renewed once
)

// Fault is why an attempt failed that another one may follow.
type Fault struct {
	Kind   Kind
	Status int           // of the answer; 0: there was none
	After  time.Duration // the server wants to be left alone that long; 0: it says nothing
	What   string        // what happened, in a few words: "the server answered 503 SlowDown"
	Cause  error
	// Final is the error if retries end; nil: one made of the faults.
	Final error

	got uint64 // a hash of the bytes that arrived; see Mismatch
}

func (f *Fault) Error() string {
	if f.Cause == nil {
		return f.What
	}
	return f.What + ": " + f.Cause.Error()
}

// Unwrap is the cause.
func (f *Fault) Unwrap() error { return f.Cause }

func broken(format string, a ...any) *Fault {
	return &Fault{Kind: Broken, What: fmt.Sprintf(format, a...)}
}

// Spoiled is the fault of bytes of an object that are all there, but do not match a checksum
// of them; p are the bytes. They may have changed on the way; if the same ones arrive three
// times, the store was reached, and its object is damaged.
func Spoiled(name, checksum string, p []byte) *Fault {
	return &Fault{
		Kind: Broken, What: "the bytes do not match the checksum that came with them (" + checksum + ")", got: xxhash.Sum64(p) | 1,
		Final: errs.New(errs.Unreadable, "the object does not match its checksum (%s)", checksum).At(at(name)).
			Try("check the network and any proxies; if other clients get the same, upload the object again"),
	}
}

// Foreign is the fault of an answer that is not what was requested, and may be of another kind
// of server; body is what came. If the same comes three times, it is not retried.
func Foreign(name, what string, cause error, body []byte) *Fault {
	return &Fault{
		Kind: Broken, What: what, Cause: cause, got: xxhash.Sum64(body) | 1,
		Final: errs.New(errs.Unreachable, "%s", what).At(at(name)).Because(cause).
			Try("check endpoint_url and any proxies: another kind of server may answer there"),
	}
}

// Unversioned is the fault of an answer that does not say which version of an object it has:
// proxies are known to drop headers. what is the one that is missing, such as "ETag". If three
// such answers come, nothing says that the object has not changed.
func Unversioned(obj source.Info, what string) *Fault {
	what = "the answer has no " + what
	return &Fault{
		Kind: Broken, What: what, got: xxhash.Sum64String(what) | 1,
		Final: errs.New(errs.Changed, "the object may not be the one that was indexed: %s to compare with %s", what, obj.Version).At(at(obj.Name)).
			Try("check the server and any proxies: each answer must have what the first one had (curl -i -r 0-0 shows it)"),
	}
}

// Failed says what a failed request means: a Fault, or an error that no retry mends. err
// is what an http.Client, or reading its body, returned for the object name.
func Failed(ctx context.Context, name string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	cause := bare(err)
	var (
		unknown  x509.UnknownAuthorityError
		host     x509.HostnameError
		invalid  x509.CertificateInvalidError
		verified *tls.CertificateVerificationError
		record   tls.RecordHeaderError
		dns      *net.DNSError
		address  *net.AddrError
		timeout  interface{ Timeout() bool }
		proxy    *refusal
		own      *errs.Error
	)
	switch {
	case errors.As(err, &own): // of this package's: what was not even tried
		e := *own
		if e.Where == (errs.Where{}) {
			e.Where = at(name)
		}
		return &e
	case errors.As(err, &proxy):
		return refusedBy(name, proxy)
	case errors.As(err, &unknown), errors.As(err, &host), errors.As(err, &invalid), errors.As(err, &verified):
		return errs.New(errs.Unreachable, "the server's certificate is not valid, so nothing was sent").At(at(name)).Because(cause).
			Try("check the address and the clock; if the store has its own certificate authority, set SSL_CERT_FILE or AWS_CA_BUNDLE to the file of its certificate")
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"), errors.As(err, &record) && string(record.RecordHeader[:]) == "HTTP/":
		return errs.New(errs.Config, "the server speaks HTTP, not HTTPS").At(at(name)).Because(cause).
			Try("write http:// in the address or in endpoint_url")
	case errors.As(err, &address) && address.Err == "invalid port":
		return errs.New(errs.Config, "the address has a port that does not exist").At(at(name)).Because(cause).Try("give a port from 1 to 65535")
	case errors.As(err, &dns) && dns.IsNotFound: // see Net.resolve: one that was known is not forgotten
		// On a machine that has just started, name servers may say this of every name.
		what := "there is no server named " + errs.Name(dns.Name)
		return &Fault{Kind: Unreachable, What: what, Final: errs.New(errs.Unreachable, "%s", what).At(at(name)).
			Try("check the spelling, and endpoint_url; a name of a private network needs that network's name servers, or a proxy (HTTPS_PROXY)")}
	case errors.As(err, &dns):
		return &Fault{Kind: Unreachable, What: "the name of the server did not resolve", Cause: cause}
	case errors.Is(err, syscall.ECONNREFUSED):
		return &Fault{Kind: Unreachable, What: "the connection was refused", Cause: cause}
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return &Fault{Kind: Unreachable, What: "the connection was reset", Cause: cause}
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return &Fault{Kind: Unreachable, What: "the server did not answer in time", Cause: cause}
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return &Fault{Kind: Unreachable, What: "the connection ended before the answer did", Cause: cause}
	}
	return &Fault{Kind: Unreachable, What: "the request failed", Cause: cause}
}

// bare is err without the URL that net/http puts before it: it may be signed.
func bare(err error) error {
	var u interface {
		error
		Unwrap() error
		Timeout() bool
	}
	if errors.As(err, &u) && strings.Contains(fmt.Sprintf("%T", u), "url.Error") {
		return u.Unwrap()
	}
	return err
}

// Answered says what the status of an answer means that is not the one that was wanted:
// the Fault of one that may pass, nil for one that will not and is the store's to word.
func Answered(h http.Header, status int, what string) *Fault {
	f := &Fault{Kind: Unreachable, Status: status, After: RetryAfter(h), What: "the server answered " + strconv.Itoa(status)}
	if what != "" {
		f.What += " " + what
	}
	switch {
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		f.Kind = Throttled
	case status == http.StatusRequestTimeout, status >= 500 && status != http.StatusNotImplemented && status != http.StatusHTTPVersionNotSupported:
	default:
		return nil
	}
	return f
}

// RetryAfter is how long a server wants to be left alone (RFC 9110, 10.2.3): seconds, or
// a date; 0: it does not say.
func RetryAfter(h http.Header) time.Duration {
	v := h.Get("Retry-After")
	if v == "" {
		return 0
	}
	const most = 24 * time.Hour
	if s, err := strconv.Atoi(v); err == nil {
		return time.Duration(min(max(s, 0), int(most/time.Second))) * time.Second
	}
	if t, err := http.ParseTime(v); err == nil {
		return min(max(time.Until(t), 0), most)
	}
	return 0
}

func at(name string) errs.Where { return errs.Where{File: strings.Clone(name)} }
