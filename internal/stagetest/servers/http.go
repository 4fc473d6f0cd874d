package servers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// HTTPOptions are options of HTTP; their zero value is a server of files over plain HTTP,
// with ranges and without pages for folders.
type HTTPOptions struct {
	Cert           *Cert  // serves TLS with it
	Index          string // html or json: what the page of a folder is; "": 403
	NoRanges       bool   // answers a range with 200 and the whole file
	User, Password string // requires them (basic authentication)
	Token          string // requires it as a bearer token
	Gzip           bool   // compresses for who accepts it, and then has weak ETags and no ranges
	NoKeepAlive    bool   // closes each connection after one answer
	Config         string // more of nginx's configuration, in the block of the server
}

// HTTP starts nginx over a folder. The files have ETags of their times and sizes; times
// count whole seconds, so that what replaces a file of the same size within one has its
// ETag. Links may lead out of the folder.
func HTTP(t testing.TB, dir string, o HTTPOptions) *Server {
	t.Helper()
	program := installed(t, nginx)
	own := t.TempDir()
	p, port := start(t, func(port int) *exec.Cmd {
		config := filepath.Join(own, "nginx.conf")
		if err := os.WriteFile(config, []byte(o.config(t, dir, own, port)), 0o600); err != nil {
			t.Fatal(err)
		}
		return exec.Command(program, "-p", own, "-c", config, "-e", "stderr")
	})
	s := newServer(t, p, url(o.Cert, port), o.Cert, files{})
	s.Dir = dir
	return s
}

// config is one process without a master, so that its end is the server's.
func (o HTTPOptions) config(t testing.TB, dir, own string, port int) string {
	t.Helper()
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("daemon off; master_process off; pid %s/pid; error_log stderr error;", own)
	line("events { worker_connections 1024; }")
	line("http {")
	line("access_log off; default_type application/octet-stream; sendfile on; tcp_nodelay on; keepalive_requests 1000000;")
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		line("%s_temp_path %s/%s;", kind, own, kind)
	}
	line("server {")
	if o.Cert != nil {
		line("listen 127.0.0.1:%d ssl; ssl_protocols TLSv1.2 TLSv1.3; ssl_certificate %s; ssl_certificate_key %s;", port, o.Cert.File, o.Cert.Key)
	} else {
		line("listen 127.0.0.1:%d;", port)
	}
	line("root %q;", dir)
	if o.Index != "" {
		line("autoindex on; autoindex_format %s;", o.Index)
	}
	if o.NoRanges {
		line("max_ranges 0;")
	}
	if o.NoKeepAlive {
		line("keepalive_timeout 0;")
	}
	if o.Gzip {
		line("gzip on; gzip_types *; gzip_min_length 1;")
	}
	if o.User != "" {
		users := filepath.Join(own, "users")
		if err := os.WriteFile(users, []byte(o.User+":{PLAIN}"+o.Password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		line("auth_basic stoker; auth_basic_user_file %s;", users)
	}
	if o.Token != "" {
		line(`if ($http_authorization != "Bearer %s") { return 401; }`, o.Token)
	}
	line("%s\n}\n}", o.Config)
	return b.String()
}

// HTTPWithoutRanges starts Python's http.server over a folder: it answers a range with 200
// and the whole file, has no ETags, and pages in HTML for folders.
func HTTPWithoutRanges(t testing.TB, dir string) *Server {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal(err)
	}
	p, port := start(t, func(port int) *exec.Cmd {
		return exec.Command(python, "-m", "http.server", "--bind", "127.0.0.1", "--directory", dir, fmt.Sprint(port))
	})
	s := newServer(t, p, url(nil, port), nil, files{})
	s.Dir = dir
	return s
}
