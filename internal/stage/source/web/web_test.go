package web_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
	"github.com/stoker-data/stoker/internal/stage/source/web"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// openWith is a source of all HTTP servers, whose requests are given up soon.
func openWith(t *testing.T, a source.Access) *web.Source {
	t.Helper()
	net := remote.NewNet(remote.Options{Stall: 5 * time.Second})
	t.Cleanup(net.Close)
	if a.Deadline == 0 {
		a.Deadline = 300 * time.Millisecond
	}
	return web.New(net, a)
}

// noTime is that of files whose servers tell none.
var noTime time.Time

func open(t *testing.T) *web.Source { return openWith(t, source.Access{}) }

// serve is a server of this test's own.
func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

func save(t *testing.T, dir, name string, data []byte) {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	stagetest.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	stagetest.Must(t, os.WriteFile(path, data, 0o644))
}

// Go's file server: no ETags, and links that are relative.
func TestSourceOfAFileServer(t *testing.T) {
	stagetest.Source(t, func(t *testing.T, objects map[string][]byte) (source.Source, string, func(string, []byte)) {
		dir := t.TempDir()
		for name, data := range objects {
			save(t, dir, name, data)
		}
		s := httptest.NewServer(http.FileServer(http.Dir(dir)))
		t.Cleanup(s.Close)
		return open(t), s.URL + "/", func(name string, data []byte) { save(t, dir, name, data) }
	})
}
