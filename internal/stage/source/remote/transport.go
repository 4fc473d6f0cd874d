package remote

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// transport is an http.Transport for HTTP and another one for HTTPS, which is made with the
// certificates at the first request that needs any: reading them takes longer than many a
// local dataset takes to open.
type transport struct {
	plain  *http.Transport
	secure func() (*http.Transport, error)
	made   atomic.Pointer[http.Transport] // the secure one, if it was made
	proxy  error                          // what is wrong with the proxies of the environment
}

func newTransport(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *transport {
	with := func(pool *x509.CertPool) *http.Transport {
		return &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			OnProxyConnectResponse: connected,
			DialContext:            dial,
			TLSClientConfig:        &tls.Config{RootCAs: pool, ClientSessionCache: tls.NewLRUClientSessionCache(64)},
			TLSNextProto:           map[string]func(string, *tls.Conn) http.RoundTripper{},
			TLSHandshakeTimeout:    15 * time.Second,
			MaxIdleConnsPerHost:    1024,
			IdleConnTimeout:        30 * time.Second,
			DisableCompression:     true,
			ReadBufferSize:         8 << 10, // longer reads of a body go past it
			MaxResponseHeaderBytes: 256 << 10,
		}
	}
	t := &transport{plain: with(nil), proxy: checkProxies()}
	t.secure = sync.OnceValues(func() (*http.Transport, error) {
		pool, err := roots()
		if err != nil {
			return nil, err
		}
		secure := with(pool)
		t.made.Store(secure)
		return secure, nil
	})
	return t
}

// RoundTrip is http.RoundTripper's.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t.proxy != nil {
		return nil, t.proxy
	}
	if req.URL.Scheme != "https" {
		return t.plain.RoundTrip(req)
	}
	secure, err := t.secure()
	if err != nil {
		return nil, err
	}
	return secure.RoundTrip(req)
}

// CloseIdleConnections is called by http.Client's.
func (t *transport) CloseIdleConnections() {
	t.plain.CloseIdleConnections()
	if secure := t.made.Load(); secure != nil {
		secure.CloseIdleConnections()
	}
}

// roots are the certificates of the authorities that are trusted: those of the system
// (SSL_CERT_FILE and SSL_CERT_DIR say where they are) and those of AWS_CA_BUNDLE.
func roots() (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	for _, variable := range []string{"SSL_CERT_FILE", "AWS_CA_BUNDLE"} {
		file := os.Getenv(variable)
		if file == "" {
			continue
		}
		text, err := os.ReadFile(file)
		if err == nil && !addCertificates(pool, text) {
			err = errs.New(errs.Config, "it has no readable certificate")
		}
		if err != nil {
			return nil, errs.New(errs.Config, "the certificates that %s names cannot be read", variable).At(at(file)).Because(err).
				Try("set %s to a file of certificates in PEM, or unset it", variable)
		}
	}
	return orBuiltIn(pool), nil
}

// orBuiltIn is a pool or, if it has no certificates, as in containers with nothing but a
// program in them, those that Mozilla's browser trusted when this was built.
func orBuiltIn(pool *x509.CertPool) *x509.CertPool {
	if !pool.Equal(x509.NewCertPool()) {
		return pool
	}
	for root := range bundle.Roots() {
		cert, err := x509.ParseCertificate(root.Certificate)
		switch {
		case err != nil:
		case root.Constraint != nil:
			pool.AddCertWithConstraint(cert, root.Constraint)
		default:
			pool.AddCert(cert)
		}
	}
	return pool
}

// addCertificates adds those of a file. Some in files of systems cannot be read: the
// others are trusted all the same.
func addCertificates(pool *x509.CertPool, text []byte) (any bool) {
	for block, rest := pem.Decode(bytes.TrimSpace(text)); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			pool.AddCert(cert)
			any = true
		}
	}
	return any
}

// checkProxies finds a proxy that cannot be used: net/http would go without it. Its value
// may have a password, and is not shown.
func checkProxies() error {
	for _, variable := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"} {
		v := os.Getenv(variable)
		if v == "" {
			continue
		}
		if !strings.Contains(v, "://") { // HOST:PORT
			v = "http://" + v
		}
		u, err := url.Parse(v)
		if err != nil || u.Host == "" || !strings.Contains(" http https socks5 socks5h ", " "+u.Scheme+" ") {
			return errs.New(errs.Config, "%s is not the address of a proxy", variable).
				Try("set it to http://HOST:PORT, or unset it; NO_PROXY lists the hosts that are reached without it")
		}
	}
	return nil
}

// refusal is the answer of a proxy that does not connect.
type refusal struct{ status int }

func (r *refusal) Error() string { return "the proxy answered " + strconv.Itoa(r.status) }

func connected(_ context.Context, _ *url.URL, _ *http.Request, resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	return &refusal{resp.StatusCode}
}

// refusedBy is the error for a refusal by a proxy.
func refusedBy(name string, r *refusal) error {
	switch {
	case r.status == http.StatusProxyAuthRequired:
		return NoProxyAccess(name)
	case r.status < 500:
		return errs.New(errs.Denied, "the proxy forbids connections to this host").At(at(name)).Because(r).
			Try("ask for permission, or add the host to NO_PROXY")
	}
	return &Fault{Kind: Unreachable, Status: r.status, What: "the proxy could not connect", Cause: r}
}

// NoProxyAccess is the error of a proxy that wants a user name and a password.
func NoProxyAccess(name string) error {
	return errs.New(errs.Denied, "the proxy requires a user name and a password (407)").At(at(name)).
		Try("write them into HTTP_PROXY and HTTPS_PROXY, as http://USER:PASSWORD@HOST:PORT")
}

// publicOnly is the key of contexts in which no link-local address is connected to.
type publicOnly struct{}

// LinkLocal says whether an IP address is one at which clouds tell machines their keys:
// 169.254.0.0/16, fe80::/10, and fd00:ec2::/32. false for what is not an address.
func LinkLocal(ip string) bool {
	a, err := netip.ParseAddr(ip)
	if err != nil {
		return false
	}
	a = a.Unmap()
	return a.IsLinkLocalUnicast() || netip.MustParsePrefix("fd00:ec2::/32").Contains(a.WithZone(""))
}

// refusedAddress is the error of a host with such an address.
func refusedAddress(host string) error {
	return errs.New(errs.Unreadable, "%s has a link-local address, at which clouds provide credentials to machines: nothing was sent", errs.Name(host)).
		Try("check the name and what it resolves to: no data is stored there")
}

// watched is a connection on which a silence is an error: of an answer that does not
// come, of a body that stops, and of an idle connection, which is closed.
type watched struct {
	net.Conn
	stall time.Duration
}

func (c *watched) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

// Write puts off the end of a Read that waits, too: it may have begun when the connection
// became idle, and the server has all its time for what is asked of it now.
func (c *watched) Write(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}
