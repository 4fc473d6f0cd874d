package remote_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
	"github.com/stoker-data/stoker/internal/stagetest"
)

func get(t *testing.T, n *remote.Net, url string) (body string, err error) {
	t.Helper()
	resp, err := n.Client().Get(url)
	if err != nil {
		return "", remote.Failed(t.Context(), url, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%d, %w", resp.StatusCode, err)
	}
	return string(b), nil
}

// ok is a server on 127.0.0.1, and its port.
func ok(t *testing.T) (port string) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
	t.Cleanup(s.Close)
	_, port, _ = net.SplitHostPort(s.Listener.Addr().String())
	return port
}

// Connections are spread over all addresses of a name; one that does not answer is avoided
// afterwards.
func TestDeadAddress(t *testing.T) {
	port := ok(t)
	var asked atomic.Int64
	n := remote.NewNet(remote.Options{Resolver: stagetest.Resolver(func(string) ([]string, error) {
		asked.Add(1)
		return []string{"127.0.0.2", "127.0.0.1"}, nil // nothing listens on the port at the first
	})})
	defer n.Close()
	for range 6 {
		if body, err := get(t, n, "http://two.test:"+port); err != nil || body != "ok" {
			t.Fatalf("%q, %v", body, err)
		}
		n.Close() // another connection
	}
	if asked.Load() > 2 { // A and AAAA
		t.Errorf("the name was resolved %d times", asked.Load())
	}
}

func TestSpread(t *testing.T) {
	first, err := net.Listen("tcp", "127.0.0.1:0")
	stagetest.Must(t, err)
	_, port, _ := net.SplitHostPort(first.Addr().String())
	second, err := net.Listen("tcp", "127.0.0.2:"+port)
	stagetest.Must(t, err)
	var mu sync.Mutex
	at := map[string]int{}
	for _, l := range []net.Listener{first, second} {
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			at[r.Context().Value(http.LocalAddrContextKey).(net.Addr).String()]++
			fmt.Fprint(w, "ok")
		})}
		go func() { _ = s.Serve(l) }()
		defer s.Close()
	}
	n := remote.NewNet(remote.Options{Resolver: stagetest.Resolver(func(string) ([]string, error) { return []string{"127.0.0.1", "127.0.0.2"}, nil })})
	for range 10 {
		if _, err := get(t, n, "http://two.test:"+port); err != nil {
			t.Fatal(err)
		}
		n.Close()
	}
	if len(at) != 2 || at["127.0.0.1:"+port] != 5 {
		t.Errorf("connections: %v", at)
	}
}

// A name that is not there may be there soon; one that was known is believed while its name
// servers fail.
func TestNames(t *testing.T) {
	port := ok(t)
	answer := func() ([]string, error) { return nil, nil }
	n := remote.NewNet(remote.Options{Resolver: stagetest.Resolver(func(string) ([]string, error) { return answer() })})
	defer n.Close()
	_, err := get(t, n, "http://misspelt.test:"+port)
	if f := (*remote.Fault)(nil); !errors.As(err, &f) || f.Kind != remote.Unreachable || !strings.Contains(f.What, "no server named misspelt.test") || !strings.Contains(errs.From(f.Final).Hint, "spelling") {
		t.Errorf("%v", err)
	}
	answer = func() ([]string, error) { return nil, errors.New("down") }
	_, err = get(t, n, "http://there.test:"+port)
	if f := (*remote.Fault)(nil); !errors.As(err, &f) || f.Kind != remote.Unreachable {
		t.Errorf("a name server that fails: %v", err)
	}
	answer = func() ([]string, error) { return []string{"127.0.0.1"}, nil }
	if body, err := get(t, n, "http://there.test:"+port); err != nil || body != "ok" {
		t.Errorf("%q, %v", body, err)
	}
}

// While name servers are silent, what they said before is believed: one connection waits for
// them, and not long, and those after it do not.
func TestOldAddresses(t *testing.T) {
	port := ok(t)
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		silent := make(chan struct{})
		close(silent)
		n := remote.NewNet(remote.Options{Resolver: stagetest.Resolver(func(string) ([]string, error) {
			asked.Add(1)
			<-silent
			return []string{"127.0.0.1"}, nil
		})})
		connect := func() time.Duration {
			begin := time.Now()
			if body, err := get(t, n, "http://there.test:"+port); err != nil || body != "ok" {
				t.Fatalf("%q, %v", body, err)
			}
			n.Close() // another connection; and nothing of this one reads, which time would wait for
			return time.Since(begin)
		}
		connect()
		time.Sleep(time.Minute)
		silent = make(chan struct{})
		if took := connect(); took > 6*time.Second {
			t.Errorf("a connection waited %s for addresses that were known", took)
		}
		before := asked.Load()
		for range 5 {
			if took := connect(); took > 0 || asked.Load() != before {
				t.Errorf("after one that waited, another waited for %s", took)
			}
		}
		close(silent)
		time.Sleep(10 * time.Second)
		if connect(); asked.Load() == before {
			t.Error("the name servers are not asked again")
		}
	})
}

// A server has all its time for a request on a connection that was idle for most of it.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) > 1 {
			time.Sleep(time.Second)
		}
		fmt.Fprint(w, "ok")
	}))
	defer s.Close()
	n := remote.NewNet(remote.Options{Stall: 2 * time.Second})
	defer n.Close()
	for i := range 2 {
		time.Sleep(time.Duration(i) * 1500 * time.Millisecond)
		if body, err := get(t, n, s.URL); err != nil || body != "ok" {
			t.Errorf("%q, %v", body, err)
		}
	}
	if asked.Load() != 2 {
		t.Errorf("two requests were made %d times", asked.Load())
	}
}

// A connection that is silent is given up.
func TestSilence(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	stagetest.Must(t, err)
	defer l.Close()
	n := remote.NewNet(remote.Options{Stall: 50 * time.Millisecond})
	defer n.Close()
	_, err = get(t, n, "http://"+l.Addr().String())
	if f := (*remote.Fault)(nil); !errors.As(err, &f) || f.What != "the server did not answer in time" {
		t.Errorf("%v", err)
	}
}

// authority makes a certificate for hosts, and the file of the one that signed it.
func authority(t *testing.T, hosts ...string) (file string, cert tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	stagetest.Must(t, err)
	of := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a test"}, DNSNames: hosts,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, of, of, &key.PublicKey, key)
	stagetest.Must(t, err)
	file = filepath.Join(t.TempDir(), "ca.pem")
	stagetest.Must(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644))
	return file, tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// Authorities of one's own; what names them and cannot be read is an error, and only where
// certificates are needed.
func TestAuthorities(t *testing.T) {
	file, cert := authority(t, "there.test")
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	resolver := stagetest.Resolver(func(string) ([]string, error) { return []string{"127.0.0.1"}, nil })
	empty := filepath.Join(t.TempDir(), "empty")
	stagetest.Must(t, os.WriteFile(empty, []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), 0o644))
	for _, c := range []struct{ variable, value, host, code, says string }{
		{"AWS_CA_BUNDLE", file, "there.test", "", ""},
		{"SSL_CERT_FILE", file, "there.test", "", ""},
		{"AWS_CA_BUNDLE", file, "other.test", "unreachable", "certificate is not valid"},
		{"AWS_CA_BUNDLE", "", "there.test", "unreachable", "certificate is not valid"},
		{"AWS_CA_BUNDLE", empty + "x", "there.test", "config", "AWS_CA_BUNDLE names cannot be read"},
		{"AWS_CA_BUNDLE", empty, "there.test", "config", "no readable certificate"},
		{"SSL_CERT_FILE", empty, "there.test", "config", "SSL_CERT_FILE names"},
		{"SSL_CERT_FILE", filepath.Dir(empty), "there.test", "config", "SSL_CERT_FILE names"},
	} {
		t.Run(c.variable, func(t *testing.T) {
			t.Setenv(c.variable, c.value)
			n := remote.NewNet(remote.Options{Resolver: resolver})
			defer n.Close()
			body, err := get(t, n, "https://"+c.host+":"+port)
			if c.code == "" {
				if err != nil || body != "ok" {
					t.Errorf("%q, %v", body, err)
				}
				return
			}
			if e := errs.From(err); err == nil || string(e.Code) != c.code || !strings.Contains(e.Error(), c.says) || e.Hint == "" {
				t.Errorf("%q, %v", body, err)
			}
			if body, err := get(t, n, "http://there.test:"+ok(t)); err != nil || body != "ok" {
				t.Errorf("without TLS: %q, %v", body, err)
			}
		})
	}
	n := remote.NewNet(remote.Options{Resolver: resolver})
	defer n.Close()
	if _, err := get(t, n, "https://there.test:"+ok(t)); errs.CodeOf(err) != errs.Config || !strings.Contains(err.Error(), "speaks HTTP, not HTTPS") {
		t.Errorf("a server without TLS: %v", err)
	}
}

// net/http reads the proxies of the environment once in a process, so each case is one of
// its own: TestProxyChild, which prints what came of a request.
func TestProxies(t *testing.T) {
	var mu sync.Mutex
	var got []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		got = append(got, r.Method+" "+r.Host+" "+r.Header.Get("Proxy-Authorization"))
		mu.Unlock()
		switch {
		case strings.HasPrefix(r.Host, "wants."):
			w.WriteHeader(http.StatusProxyAuthRequired)
		case strings.HasPrefix(r.Host, "forbidden."):
			w.WriteHeader(http.StatusForbidden)
		case strings.HasPrefix(r.Host, "down."):
			w.WriteHeader(http.StatusBadGateway)
		default:
			fmt.Fprint(w, "by proxy")
		}
	}))
	defer proxy.Close()
	direct := ok(t)
	withUser := strings.Replace(proxy.URL, "://", "://user:hush@", 1)
	for _, c := range []struct {
		env  []string
		url  string
		want string // in what is printed
		seen string // what the proxy saw; "": nothing
	}{
		{[]string{"HTTP_PROXY=" + withUser}, "http://data.test/x", "by proxy", "GET data.test Basic dXNlcjpodXNo"},
		{[]string{"http_proxy=" + strings.TrimPrefix(proxy.URL, "http://")}, "http://data.test/x", "by proxy", "GET data.test "},
		{[]string{"HTTP_PROXY=" + proxy.URL, "NO_PROXY=.test"}, "http://data.test:" + direct + "/x", "ok", ""},
		{[]string{"HTTPS_PROXY=" + withUser}, "https://wants.test/x", "denied: the proxy requires a user name and a password (407)", "CONNECT wants.test:443 Basic dXNlcjpodXNo"},
		{[]string{"HTTPS_PROXY=" + proxy.URL}, "https://forbidden.test/x", "denied: the proxy forbids", "CONNECT forbidden.test:443 "},
		{[]string{"HTTPS_PROXY=" + proxy.URL}, "https://down.test/x", "fault: the proxy could not connect: the proxy answered 502", "CONNECT down.test:443 "},
		{[]string{"HTTP_PROXY=http://user:hush@[::1/"}, "http://data.test/x", "config: HTTP_PROXY is not the address of a proxy", ""},
		{[]string{"https_proxy=ftp://hush/"}, "http://data.test/x", "config: https_proxy is not the address of a proxy", ""},
	} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestProxyChild$", "-test.v")
		cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.Contains(strings.ToLower(v), "_proxy=") }), append(c.env, "STOKER_TEST_URL="+c.url)...)
		out, err := cmd.CombinedOutput()
		mu.Lock()
		seen := strings.Join(got, ", ")
		got = nil
		mu.Unlock()
		if err != nil || !strings.Contains(string(out), c.want) || seen != c.seen || strings.Contains(string(out), "hush") {
			t.Errorf("%q, %s: %v, the proxy saw %q:\n%s", c.env, c.url, err, seen, out)
		}
	}
}

// TestProxyChild is the process of a case of TestProxies.
func TestProxyChild(t *testing.T) {
	url := os.Getenv("STOKER_TEST_URL")
	if url == "" {
		return
	}
	n := remote.NewNet(remote.Options{Resolver: stagetest.Resolver(func(string) ([]string, error) { return []string{"127.0.0.1"}, nil })})
	body, err := get(t, n, url)
	var f *remote.Fault
	switch {
	case err == nil:
		fmt.Println(body)
	case errors.As(err, &f):
		fmt.Println("fault:", f)
	default:
		fmt.Printf("%s: %v\n", errs.CodeOf(err), errs.From(err))
	}
}

func TestLinkLocal(t *testing.T) {
	for ip, want := range map[string]bool{
		"169.254.169.254": true, "169.254.0.1": true, "::ffff:169.254.169.254": true, "fe80::1": true, "fe80::1%eth0": true, "febf::": true, "fd00:ec2::254": true, "fd00:ec2::23": true,
		"127.0.0.1": false, "10.0.0.1": false, "169.253.0.1": false, "fd00::1": false, "fec0::1": false, "::1": false, "example.com": false, "": false,
	} {
		if remote.LinkLocal(ip) != want {
			t.Errorf("%q: %v", ip, !want)
		}
	}
}
