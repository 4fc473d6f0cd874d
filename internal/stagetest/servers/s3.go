package servers

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// S3Options are options of S3; their zero value is a server over plain HTTP.
type S3Options struct {
	Cert   *Cert    // serves TLS with it
	Domain string   // also serves http://BUCKET.DOMAIN:port, besides http://127.0.0.1:port/BUCKET
	Args   []string // more arguments of versitygw, before its backend
}

type s3 struct{ awsKey }

// S3 starts versitygw over a folder.
func S3(t testing.TB, o S3Options) *Server {
	t.Helper()
	program := installed(t, versitygw)
	key := awsKey{"AK" + rand.Text()[:18], rand.Text(), "us-east-1", "s3"}
	dir := t.TempDir()
	p, port := start(t, func(port int) *exec.Cmd {
		cmd := exec.Command(program, "-p", fmt.Sprint("127.0.0.1:", port), "--keep-alive", "-q")
		// Not as arguments: other processes see those.
		cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+key.id, "ROOT_SECRET_KEY="+key.secret)
		if o.Cert != nil {
			cmd.Args = append(cmd.Args, "--cert", o.Cert.File, "--key", o.Cert.Key)
		}
		if o.Domain != "" {
			cmd.Args = append(cmd.Args, "--virtual-domain", fmt.Sprint(o.Domain, ":", port))
		}
		cmd.Args = append(append(cmd.Args, o.Args...), "posix")
		if err := syscall.Setxattr(dir, "user.stoker", nil, 0); err != nil { // a file system without attributes
			cmd.Args = append(cmd.Args, "--sidecar", t.TempDir())
		}
		cmd.Args = append(cmd.Args, dir)
		return cmd
	})
	s := newServer(t, p, url(o.Cert, port), o.Cert, s3{key})
	s.Dir = filepath.Join(dir, Bucket)
	s.Env["AWS_ENDPOINT_URL_S3"] = s.URL
	s.Env["AWS_ACCESS_KEY_ID"] = key.id
	s.Env["AWS_SECRET_ACCESS_KEY"] = key.secret
	s.Env["AWS_REGION"] = key.region
	// Nothing of the user's own.
	s.Env["AWS_CONFIG_FILE"] = os.DevNull
	s.Env["AWS_SHARED_CREDENTIALS_FILE"] = os.DevNull
	s.Env["AWS_EC2_METADATA_DISABLED"] = "true"
	if o.Cert != nil {
		s.Env["AWS_CA_BUNDLE"] = o.Cert.Authority.File
	}
	return s.In(Bucket)
}

// url is where a server listens.
func url(cert *Cert, port int) string {
	if cert != nil {
		return fmt.Sprint("https://127.0.0.1:", port)
	}
	return fmt.Sprint("http://127.0.0.1:", port)
}

func (s3) makeBucket(s *Server) {
	s.t.Helper()
	s.must(http.MethodPut, "/"+s.Bucket, nil, http.StatusConflict)
}

func (s3) path(s *Server, name string) string { return "/" + s.Bucket + "/" + escaped(name) }

func (s3) put(s *Server, name string, data []byte) {
	s.t.Helper()
	s.must(http.MethodPut, s.Path(name), data, 0)
}

func (s3) remove(s *Server, name string) {
	s.t.Helper()
	s.must(http.MethodDelete, s.Path(name), nil, 0)
}
