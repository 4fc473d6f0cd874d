package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/testdata/photos"
)

// A command says what it waits for while a server does not answer: in a line, or in one of
// JSON if machines read what it writes. Standard output has nothing of it.
func TestCommandsSayWhatTheyWaitFor(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	l.Close()
	for flag, says := range map[string]string{
		"--check=1": "stoker: " + at + " does not answer: 1 request has waited for ",
		"--json":    `{"waiting":"` + at + ` does not answer: 1 request has waited for `,
	} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			var out bytes.Buffer
			first := &firstLine{then: cancel}
			status := run(ctx, []string{"inspect", "http://" + at + "/a.tar", flag}, &out, first)
			if status != 130 || out.Len() > 0 || !strings.HasPrefix(first.String(), says) || !strings.Contains(first.String(), "the connection was refused") {
				t.Errorf("exit %d, output %q, errors:\n%s", status, &out, first)
			}
		})
	}
}

// firstLine keeps what is written, and does something when there is any.
type firstLine struct {
	mu   sync.Mutex
	text bytes.Buffer
	then func()
}

func (f *firstLine) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.then()
	return f.text.Write(b)
}

func (f *firstLine) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.text.String()
}

// bench says what was asked of a server, and with which trouble; its host is all that is
// named of it.
func TestBenchReportsSources(t *testing.T) {
	shard := filepath.Join(t.TempDir(), "a.tar")
	writePhotos(t, shard, 20)
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 4 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		http.ServeFile(w, r, shard)
	}))
	defer s.Close()
	url := strings.Replace(s.URL, "://", "://user:HUSH@", 1) + "/a.tar?sig=HUSH"
	r := command(t, "bench", url, "--epochs", "1", "--json")
	var report struct {
		Sources map[string]stats.Source `json:"sources"`
	}
	if err := json.Unmarshal([]byte(r.out), &report); err != nil {
		t.Fatal(err, r.err)
	}
	host := strings.TrimPrefix(s.URL, "http://")
	got := report.Sources[host]
	info, err := os.Stat(shard)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Sources) != 1 || got.Requests < 1 || got.Requests > asked.Load() || got.Bytes < info.Size()/2 || strings.Contains(r.out+r.err, "HUSH") {
		t.Errorf("%d requests for a shard of %d bytes: %s%s", asked.Load(), info.Size(), r.out, r.err)
	}
	asked.Store(-1 << 40) // no trouble
	r = command(t, "bench", url, "--epochs", "1")
	if !strings.Contains(r.out, "source") || !strings.Contains(r.out, host+": ") || !strings.Contains(r.out, " request") || strings.Contains(r.out+r.err, "HUSH") {
		t.Errorf("%s%s", r.out, r.err)
	}
}

// writePhotos writes a shard with so many copies of a photograph.
func writePhotos(t *testing.T, path string, n int) {
	t.Helper()
	raw, err := photos.Files.ReadFile("chelsea.jpg")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range n {
		err = errors.Join(err, w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%03d.jpg", i), Mode: 0o644, Size: int64(len(raw))}))
		_, bad := w.Write(raw)
		err = errors.Join(err, bad)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	write(t, path, b.Bytes())
}

// What a server refuses is an error of the command, not damage of the samples.
func TestARefusingServerIsNotDamage(t *testing.T) {
	dir := t.TempDir()
	writePhotos(t, filepath.Join(dir, "a.tar"), 3)
	for name, c := range map[string]struct {
		status int
		says   string
		answer func(w http.ResponseWriter, r *http.Request)
	}{
		"no ranges": {2, "does not support range requests", func(w http.ResponseWriter, r *http.Request) {
			r.Header.Del("Range")
			http.ServeFile(w, r, filepath.Join(dir, r.URL.Path))
		}},
		"denied": {5, "answered 403", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }},
	} {
		var closed atomic.Bool // to ranges: what is indexed is read again
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if closed.Load() && r.Method == http.MethodGet {
				c.answer(w, r)
				return
			}
			http.ServeFile(w, r, filepath.Join(dir, r.URL.Path))
		}))
		defer s.Close()
		if got := command(t, "inspect", s.URL+"/a.tar"); got.status != 0 {
			t.Fatalf("%s: %+v", name, got)
		}
		closed.Store(true)
		for _, verb := range [][]string{{"inspect"}, {"inspect", "--json"}, {"verify"}, {"stats"}} {
			got := command(t, append(verb, s.URL+"/a.tar")...)
			if got.status != c.status || got.out != "" || !strings.Contains(got.err, c.says) || strings.Contains(got.err, "damaged") {
				t.Errorf("%s, %q: %+v", name, verb, got)
			}
		}
	}
}
