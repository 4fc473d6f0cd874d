package servers

import (
	"bytes"
	"crypto/tls"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Bucket is the bucket or container that every server of objects begins with.
const Bucket = "data"

// Server is a server that runs until its test ends. Its methods fail that test, so its
// goroutine calls them.
type Server struct {
	URL    string            // scheme://127.0.0.1:port, without a slash at the end
	Bucket string            // bucket or container of Put, Remove and Path; "": the server has none
	Env    map[string]string // what tells clients of the server: addresses, keys, authorities; Use sets it
	PID    int               // its process leads a process group of its own

	// Dir is where objects of Bucket are stored as files: Dir/NAME; "" if they are not.
	// What is copied or linked there is served, as the server's function describes it.
	Dir string

	t      testing.TB
	said   *output
	client *http.Client
	kind   kind
}

// kind is what servers differ in.
type kind interface {
	makeBucket(s *Server)
	put(s *Server, name string, data []byte)
	remove(s *Server, name string)
	path(s *Server, name string) string
	sign(req *http.Request, body []byte)
}

func newServer(t testing.TB, p *process, url string, cert *Cert, k kind) *Server {
	s := &Server{URL: url, Env: map[string]string{}, PID: p.pid, t: t, said: p.said, kind: k}
	// Its own server, whose certificate a test may want to be wrong.
	trusting := &tls.Config{InsecureSkipVerify: true}
	s.client = &http.Client{
		Transport:     &http.Transport{DisableCompression: true, TLSClientConfig: trusting},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	t.Cleanup(s.client.CloseIdleConnections)
	if cert != nil {
		s.Env["SSL_CERT_FILE"] = cert.Authority.File
	}
	return s
}

// Use sets Env for the test.
func (s *Server) Use(t *testing.T) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		t.Setenv(name, s.Env[name])
	}
}

// In is the same server with another bucket, which is made if it is not there.
func (s *Server) In(bucket string) *Server {
	s.t.Helper()
	other := *s
	other.Bucket = bucket
	if s.Dir != "" {
		other.Dir = filepath.Join(filepath.Dir(s.Dir), bucket)
	}
	other.kind.makeBucket(&other)
	return &other
}

// Put makes or replaces an object. It is there when Put returns.
func (s *Server) Put(name string, data []byte) {
	s.t.Helper()
	s.kind.put(s, name, data)
}

// Remove removes an object, which is there.
func (s *Server) Remove(name string) {
	s.t.Helper()
	s.kind.remove(s, name)
}

// Path is where an object is below URL: escaped, with a slash at its beginning.
func (s *Server) Path(name string) string { return s.kind.path(s, name) }

// Do makes one request with the server's keys, by plain net/http: path, perhaps with a
// query, is below URL; headers are names and values in turn. It trusts any certificate and
// follows no redirect.
func (s *Server) Do(method, path string, body []byte, headers ...string) (*http.Response, []byte) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.URL+path, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
			continue
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	s.kind.sign(req, body)
	res, err := s.client.Do(req)
	if err != nil {
		s.t.Fatalf("%v; the server said:\n%s", err, s.said)
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	return res, got
}

// must is Do of a request that has to succeed, or to meet one of the other statuses.
func (s *Server) must(method, path string, body []byte, other int, headers ...string) {
	s.t.Helper()
	res, got := s.Do(method, path, body, headers...)
	if res.StatusCode/100 != 2 && res.StatusCode != other {
		s.t.Fatalf("%s %s: %s: %s; the server said:\n%s", method, path, res.Status, got, s.said)
	}
}

// files is the kind of a server whose objects are the files of a folder.
type files struct{}

func (files) makeBucket(s *Server)               { s.t.Fatal("this server has no buckets") }
func (files) path(_ *Server, name string) string { return "/" + escaped(name) }
func (files) sign(*http.Request, []byte)         {}

// Renamed, so that who reads it has one or the other.
func (files) put(s *Server, name string, data []byte) {
	s.t.Helper()
	path := filepath.Join(s.Dir, filepath.FromSlash(name))
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path+".new", data, 0o644)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (files) remove(s *Server, name string) {
	s.t.Helper()
	if err := os.Remove(filepath.Join(s.Dir, filepath.FromSlash(name))); err != nil {
		s.t.Fatal(err)
	}
}
