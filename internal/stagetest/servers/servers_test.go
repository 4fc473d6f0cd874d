package servers

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// object is one that ranges can tell apart.
var object = []byte("0123456789abcdefghijklmnopqrstuvwxyz")

// holds puts an object whose name has to be escaped, and reads a range of it.
func holds(t *testing.T, s *Server, reads ...string) {
	t.Helper()
	const name = "a folder/é+%41"
	s.Put(name, object)
	res, got := s.Do(http.MethodGet, s.Path(name), nil, append(reads, "Range", "bytes=10-15")...)
	if res.StatusCode != http.StatusPartialContent || string(got) != "abcdef" || res.Header.Get("Content-Range") != "bytes 10-15/36" {
		t.Errorf("%s: %s, %q of %s", name, res.Status, got, res.Header.Get("Content-Range"))
	}
	if s.Dir != "" {
		if got, err := os.ReadFile(filepath.Join(s.Dir, name)); err != nil || !bytes.Equal(got, object) {
			t.Errorf("as a file: %q, %v", got, err)
		}
	}
	s.Put(name, object[:3])
	if res, got = s.Do(http.MethodGet, s.Path(name), nil, reads...); res.StatusCode != http.StatusOK || string(got) != "012" {
		t.Errorf("replaced: %s, %q", res.Status, got)
	}
	s.Remove(name)
	if res, got = s.Do(http.MethodGet, s.Path(name), nil, reads...); res.StatusCode != http.StatusNotFound {
		t.Errorf("removed: %s, %q", res.Status, got)
	}
}

func TestS3(t *testing.T) {
	s := S3(t, S3Options{})
	holds(t, s)
	holds(t, s.In("another"))

	s.Put("one", object)
	if res, err := http.Get(s.URL + s.Path("one")); err != nil || res.StatusCode != http.StatusForbidden {
		t.Errorf("without a key: %v, %v", res, err)
	}
	if res, _ := s.Do(http.MethodGet, s.Path("one"), nil, "If-Match", `"another"`); res.StatusCode != http.StatusPreconditionFailed {
		t.Errorf("another version: %s", res.Status)
	}
	if err := os.Link(filepath.Join(s.Dir, "one"), filepath.Join(s.Dir, "linked")); err != nil {
		t.Fatal(err)
	}
	if _, got := s.Do(http.MethodGet, s.Path("linked"), nil); !bytes.Equal(got, object) {
		t.Errorf("a linked file: %q", got)
	}
	s.Use(t)
	if os.Getenv("AWS_ENDPOINT_URL_S3") != s.URL || os.Getenv("AWS_SECRET_ACCESS_KEY") == "" {
		t.Error("clients are not told where it is")
	}
}

// Buckets in host names, as AWS has them.
func TestS3Domain(t *testing.T) {
	s := S3(t, S3Options{Domain: "s3.localhost"})
	s.Put("one", object)
	res, got := s.Do(http.MethodGet, "/one", nil, "Host", Bucket+".s3.localhost"+s.URL[strings.LastIndexByte(s.URL, ':'):])
	if res.StatusCode != http.StatusOK || !bytes.Equal(got, object) {
		t.Errorf("%s, %q", res.Status, got)
	}
}

func TestHTTP(t *testing.T) {
	t.Run("files", func(t *testing.T) { holds(t, HTTP(t, t.TempDir(), HTTPOptions{})) })
	t.Run("index", func(t *testing.T) {
		for format, want := range map[string]string{"html": `<a href="a%20b.tar">`, "json": `"name":"a b.tar", "type":"file"`} {
			s := HTTP(t, t.TempDir(), HTTPOptions{Index: format})
			s.Put("in/a b.tar", object)
			if _, got := s.Do(http.MethodGet, "/in/", nil); !strings.Contains(string(got), want) {
				t.Errorf("%s: %s", format, got)
			}
		}
	})
	t.Run("no ranges", func(t *testing.T) {
		for _, s := range []*Server{HTTP(t, t.TempDir(), HTTPOptions{NoRanges: true}), HTTPWithoutRanges(t, t.TempDir())} {
			s.Put("a/one", object)
			res, got := s.Do(http.MethodGet, s.Path("a/one"), nil, "Range", "bytes=1-2")
			if res.StatusCode != http.StatusOK || !bytes.Equal(got, object) {
				t.Errorf("%s, %q", res.Status, got)
			}
		}
	})
	t.Run("password", func(t *testing.T) {
		s := HTTP(t, t.TempDir(), HTTPOptions{User: "ada", Password: "pass word"})
		holds(t, s, "Authorization", "Basic YWRhOnBhc3Mgd29yZA==")
		if res, _ := s.Do(http.MethodGet, "/one", nil); res.StatusCode != http.StatusUnauthorized {
			t.Errorf("without: %s", res.Status)
		}
	})
	t.Run("token", func(t *testing.T) {
		s := HTTP(t, t.TempDir(), HTTPOptions{Token: "t0ken"})
		holds(t, s, "Authorization", "Bearer t0ken")
		if res, _ := s.Do(http.MethodGet, "/one", nil, "Authorization", "Bearer another"); res.StatusCode != http.StatusUnauthorized {
			t.Errorf("with another: %s", res.Status)
		}
	})
	t.Run("gzip", func(t *testing.T) {
		s := HTTP(t, t.TempDir(), HTTPOptions{Gzip: true})
		s.Put("one", bytes.Repeat(object, 100))
		res, _ := s.Do(http.MethodGet, "/one", nil, "Accept-Encoding", "gzip")
		if res.Header.Get("Content-Encoding") != "gzip" || !strings.HasPrefix(res.Header.Get("ETag"), "W/") {
			t.Errorf("%v", res.Header)
		}
		holds(t, s)
	})
	t.Run("closing", func(t *testing.T) {
		s := HTTP(t, t.TempDir(), HTTPOptions{NoKeepAlive: true})
		s.Put("one", object)
		if res, _ := s.Do(http.MethodGet, "/one", nil); !res.Close {
			t.Error("the connection is kept")
		}
	})
	t.Run("error page", func(t *testing.T) {
		s := HTTP(t, t.TempDir(), HTTPOptions{Config: "location /busy/ { return 503; }"})
		if res, got := s.Do(http.MethodGet, "/busy/x", nil); res.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(got), "<html>") {
			t.Errorf("%s, %s", res.Status, got)
		}
	})
}

func TestGCS(t *testing.T) {
	s := GCS(t, GCSOptions{})
	holds(t, s)
	holds(t, s.In("another"))
	ca := CA(t)
	holds(t, GCS(t, GCSOptions{Cert: ca.Issue("127.0.0.1")}))
}

func TestAzure(t *testing.T) {
	s := Azure(t, AzureOptions{})
	holds(t, s)
	holds(t, s.In("another"))
	s.Put("one", object)
	if res, err := http.Get(s.URL + s.Path("one")); err != nil || res.StatusCode/100 != 4 {
		t.Errorf("without a key: %v, %v", res, err)
	}
	ca := CA(t)
	holds(t, Azure(t, AzureOptions{Cert: ca.Issue("127.0.0.1"), OAuth: true}))
}

func TestMoto(t *testing.T) {
	s := Moto(t)
	holds(t, s)
	// It tells services by what a request is signed for.
	s.kind = s3{awsKey{"testing", "testing", "us-east-1", "sts"}}
	res, got := s.Do(http.MethodPost, "/", []byte("Action=AssumeRole&Version=2011-06-15&RoleArn=arn:aws:iam::123456789012:role/reader&RoleSessionName=stoker"),
		"Content-Type", "application/x-www-form-urlencoded")
	if res.StatusCode != http.StatusOK || !strings.Contains(string(got), "<SessionToken>") {
		t.Errorf("AssumeRole: %s, %s", res.Status, got)
	}
}

// The clients of the Hub are those that tools/servers.sh pins.
func TestHub(t *testing.T) {
	out, err := exec.Command(Hub(t), "-c", "import huggingface_hub, datasets; print(huggingface_hub.__version__, datasets.__version__)").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	script, err := os.ReadFile(filepath.Join(top(t), "tools/servers.sh"))
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range strings.Fields(string(out)) {
		if !strings.Contains(string(script), "=="+version) {
			t.Errorf("%s: tools/servers.sh pins another", out)
		}
	}
}

// Each certificate is what its maker says, at every server that has one.
func TestCertificates(t *testing.T) {
	ca := CA(t)
	get := func(url string, pool *Authority) error {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool.Pool}}}
		res, err := client.Get(url)
		if err == nil {
			err = res.Body.Close()
		}
		return err
	}
	s := S3(t, S3Options{Cert: ca.Issue("127.0.0.1", "localhost")})
	holds(t, s)
	if err := get(s.URL, ca); err != nil {
		t.Error(err)
	}
	if err := get(strings.Replace(s.URL, "127.0.0.1", "localhost", 1), ca); err != nil {
		t.Error(err)
	}
	for want, c := range map[string]struct {
		cert  *Cert
		trust *Authority
	}{
		"":                       {ca.Issue("127.0.0.1"), ca},
		"expired":                {ca.Expired("127.0.0.1"), ca},
		"doesn't contain any IP": {ca.Issue("elsewhere.example"), ca},
		"unknown authority":      {ca.Issue("127.0.0.1"), CA(t)},
	} {
		s := HTTP(t, t.TempDir(), HTTPOptions{Cert: c.cert})
		holds(t, s)
		if err := get(s.URL, c.trust); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// A server ends with its test.
func TestEndsWithItsTest(t *testing.T) {
	installed(t, versitygw)
	installed(t, nginx)
	var pids []int
	t.Run("servers", func(t *testing.T) {
		pids = append(pids, S3(t, S3Options{}).PID, HTTP(t, t.TempDir(), HTTPOptions{}).PID)
	})
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d is still there", pid)
		}
	}
}

// A server ends with the process of its test, however that ends.
func TestEndsWithItsProcess(t *testing.T) {
	if os.Getenv("STOKER_TEST_LINGER") != "" {
		s := S3(t, S3Options{})
		if err := os.WriteFile(os.Getenv("STOKER_TEST_LINGER"), []byte(strconv.Itoa(s.PID)), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
	}
	installed(t, versitygw)
	file := filepath.Join(t.TempDir(), "pid")
	test := exec.Command(os.Args[0], "-test.run=^TestEndsWithItsProcess$")
	test.Env = append(os.Environ(), "STOKER_TEST_LINGER="+file)
	if err := test.Start(); err != nil {
		t.Fatal(err)
	}
	pid := 0
	until(t, "the server of the other process", func() bool {
		text, _ := os.ReadFile(file)
		pid, _ = strconv.Atoi(string(text))
		return pid != 0
	})
	if !alive(pid) {
		t.Fatal("the server has not started")
	}
	_ = test.Process.Kill()
	_ = test.Wait()
	until(t, "the server's end", func() bool { return !alive(pid) })
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// alive tells whether a process runs: one that has ended, and nobody has waited for, does not.
func alive(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return !strings.Contains(string(stat), ") Z ")
}
