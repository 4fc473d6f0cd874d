package servers

import (
	"fmt"
	"net/http"
	neturl "net/url"
	"os/exec"
	"testing"
)

// GCSOptions are options of GCS; their zero value is a server over plain HTTP.
type GCSOptions struct {
	Cert *Cert    // serves TLS with it
	Args []string // more arguments of fake-gcs-server
}

type gcs struct{}

// GCS starts fake-gcs-server over a folder. It asks for no token.
func GCS(t testing.TB, o GCSOptions) *Server {
	t.Helper()
	program := installed(t, fakeGCS)
	dir := t.TempDir()
	p, port := start(t, func(port int) *exec.Cmd {
		cmd := exec.Command(program, "-backend", "filesystem", "-filesystem-root", dir, "-host", "127.0.0.1", "-port", fmt.Sprint(port),
			"-public-host", fmt.Sprint("127.0.0.1:", port), "-external-url", url(o.Cert, port), "-log-level", "warn")
		if o.Cert != nil {
			cmd.Args = append(cmd.Args, "-scheme", "https", "-cert-location", o.Cert.File, "-private-key-location", o.Cert.Key)
		} else {
			cmd.Args = append(cmd.Args, "-scheme", "http")
		}
		cmd.Args = append(cmd.Args, o.Args...)
		return cmd
	})
	s := newServer(t, p, url(o.Cert, port), o.Cert, gcs{})
	s.Env["STORAGE_EMULATOR_HOST"] = s.URL
	return s.In(Bucket)
}

func (gcs) sign(*http.Request, []byte) {}

func (gcs) makeBucket(s *Server) {
	s.t.Helper()
	s.must(http.MethodPost, "/storage/v1/b?project=stoker", fmt.Appendf(nil, `{"name": %q}`, s.Bucket), http.StatusConflict, "Content-Type", "application/json")
}

// path is that of the object's bytes.
func (g gcs) path(s *Server, name string) string { return g.metadata(s, name) + "?alt=media" }

func (gcs) metadata(s *Server, name string) string {
	return "/storage/v1/b/" + s.Bucket + "/o/" + neturl.PathEscape(name)
}

func (gcs) put(s *Server, name string, data []byte) {
	s.t.Helper()
	s.must(http.MethodPost, "/upload/storage/v1/b/"+s.Bucket+"/o?uploadType=media&name="+neturl.QueryEscape(name), data, 0, "Content-Type", "application/octet-stream")
}

func (g gcs) remove(s *Server, name string) {
	s.t.Helper()
	s.must(http.MethodDelete, g.metadata(s, name), nil, 0)
}
