package slownet_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stoker-data/stoker/harness/slownet"
)

// ready is what the command says when it serves.
type ready struct {
	Address, URL, Control string
	PID                   int
}

func read(t *testing.T, from io.Reader) (r ready) {
	t.Helper()
	line, err := bufio.NewReader(from).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &r)
	}
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return r
}

// gone waits until nobody listens at an address.
func gone(t *testing.T, addr string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		_ = c.Close()
		if time.Now().After(end) {
			t.Fatal("the command still serves")
		}
	}
}

// The command is the proxy for other languages: its address, and its control.
func TestCommand(t *testing.T) {
	server, _ := store(t)
	bin := filepath.Join(t.TempDir(), "slownet")
	if out, err := exec.Command("go", "build", "-o", bin, "./cmd").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cert, err := slownet.Certify(time.Now().Add(time.Hour), "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	crt, key := filepath.Join(t.TempDir(), "crt"), filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(crt, cert.Cert, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, cert.Key, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, server.URL, "--latency=20ms", "--total=250MB/s", "--rule", "head * #2+ status=503 header=a:b,c", "--rule", "get * #2 reset=10", "--cert", crt, "--key", key)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill() //nolint:errcheck
	r := read(t, out)
	c := client(t)
	c.Transport.(*http.Transport).TLSClientConfig = cert.Client()
	control := func(method, path, body string, into any) string {
		req, _ := http.NewRequestWithContext(t.Context(), method, r.Control+path, strings.NewReader(body))
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		if into != nil {
			if err := json.Unmarshal(b, into); err != nil {
				t.Fatalf("%s: %v", b, err)
			}
		}
		return resp.Status + " " + string(b)
	}
	if r.URL != "https://"+r.Address || r.PID != cmd.Process.Pid {
		t.Errorf("%+v", r)
	}
	if a := ask(t, c, "GET", r.URL+"/a"); a.err != nil || !bytes.Equal(a.body, object) {
		t.Fatal(a.err)
	}
	if a := ask(t, c, "GET", r.URL+"/a"); a.err == nil || len(a.body) != 10 {
		t.Errorf("%d bytes: %v", len(a.body), a.err)
	}
	ask(t, c, "HEAD", r.URL+"/a")
	if a := ask(t, c, "HEAD", r.URL+"/a"); a.StatusCode != 503 || a.Header.Get("A") != "b,c" {
		t.Error(a.Status, a.err)
	}
	var n slownet.Counts
	control("GET", "/counts", "", &n)
	if n.Requests != 4 || n.Bytes != int64(len(object))+10 || n.Objects["/a"].Kinds["head"].Requests != 2 || len(n.Rules) != 2 || n.Rules[1].Met != 1 {
		t.Errorf("%+v", n)
	}
	var l slownet.Link
	control("POST", "/link", `{"latency": "1ms", "requests": 1e6}`, nil)
	control("GET", "/link", "", &l)
	if want := (slownet.Link{Latency: time.Millisecond, Total: 250e6, Requests: 1e6}); l != want {
		t.Errorf("%+v", l)
	}
	for _, rules := range []string{"get * status=404\n\nhead * status=403\n", `["get * status=404", "head * status=403"]`} {
		control("POST", "/rules", "", nil)
		if a := ask(t, c, "HEAD", r.URL+"/a"); a.StatusCode != 200 {
			t.Error(a.Status, a.err)
		}
		control("POST", "/rules", rules, nil)
		if a := ask(t, c, "HEAD", r.URL+"/a"); a.StatusCode != 403 {
			t.Error(a.Status, a.err)
		}
	}
	for path, body := range map[string]string{"/rules": "got * reset", "/link": `{"speed": 1}`} {
		if said := control("POST", path, body, nil); !strings.HasPrefix(said, "400 ") || !strings.Contains(said, `{"error":"`) {
			t.Errorf("%s: %s", path, said)
		}
	}
	control("POST", "/pause", "", nil)
	if a := ask(t, c, "HEAD", r.URL+"/a"); a.err == nil || !strings.Contains(a.err.Error(), "connection refused") {
		t.Error(a.err)
	}
	control("POST", "/resume", "", nil)
	control("POST", "/reset", "", nil)
	if a := ask(t, c, "HEAD", r.URL+"/a"); a.StatusCode != 403 {
		t.Error(a.err)
	}
	n = slownet.Counts{}
	if control("GET", "/counts", "", &n); n.Requests != 1 {
		t.Errorf("%+v", n)
	}
	_ = in.Close() // whoever started it is gone
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}

	// In the background of a shell, which ends: it has no standard input, and goes as well.
	shell := exec.Command("sh", "-c", `"$0" "$1" & read wait`, bin, server.URL)
	wait, err := shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if out, err = shell.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	r = read(t, out)
	if a := ask(t, c, "GET", r.URL+"/a"); a.err != nil {
		t.Error(a.err)
	}
	_ = wait.Close()
	_ = shell.Wait()
	gone(t, r.Address)
}
