package s3_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stoker-data/stoker/internal/stagetest"
	"github.com/stoker-data/stoker/internal/stagetest/servers"
)

// cloud is what the tests have for the hosts of AWS: a proxy leads all connections to port
// 443 of other machines here. net/http reads the proxy's address once in a process.
type cloud struct {
	mu      sync.Mutex
	handler http.Handler
	server  *tls.Config
}

var amazon cloud

func TestMain(m *testing.M) {
	proxy := httptest.NewServer(&amazon)
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "https_proxy", "NO_PROXY", "no_proxy"} {
		_ = os.Unsetenv(name)
	}
	_ = os.Setenv("HTTPS_PROXY", proxy.URL)
	os.Exit(stagetest.OwnCache(m))
}

// serve makes f the server of AWS's hosts for the test.
func (a *cloud) serve(t *testing.T, f *fake, hosts ...string) {
	t.Helper()
	f.use(t)
	t.Setenv("AWS_ENDPOINT_URL_S3", "")
	ca := servers.CA(t)
	t.Setenv("AWS_CA_BUNDLE", ca.File)
	cert := ca.Issue(hosts...)
	pair, err := tls.LoadX509KeyPair(cert.File, cert.Key)
	stagetest.Must(t, err)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.handler, a.server = f, &tls.Config{Certificates: []tls.Certificate{pair}}
}

// ServeHTTP is the proxy: CONNECT host:443.
func (a *cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	handler, config := a.handler, a.server
	a.mu.Unlock()
	if r.Method != http.MethodConnect || handler == nil || !strings.HasSuffix(r.Host, ":443") {
		http.Error(w, "only CONNECT to port 443", http.StatusForbidden)
		return
	}
	c, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
	s := &http.Server{Handler: handler}
	_ = s.Serve(&single{c: tls.Server(c, config)})
}

// single is a listener with one connection.
type single struct {
	c    net.Conn
	done bool
}

func (l *single) Accept() (net.Conn, error) {
	if l.done {
		return nil, io.EOF
	}
	l.done = true
	return l.c, nil
}
func (l *single) Close() error   { return nil }
func (l *single) Addr() net.Addr { return l.c.LocalAddr() }
