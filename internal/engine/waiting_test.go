package engine

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/wire"
)

// A loader's client is told what its own requests wait for, and nothing of a server that
// another loader uses: its patience would begin again with each line.
func TestWhatALoaderWaitsFor(t *testing.T) {
	down := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	defer down.Close()
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(3 * time.Second):
		case <-r.Context().Done():
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	defer slow.Close()
	c, _ := start(t, os.Getpid(), testVersion)
	opening := func(url string) (req int64) {
		spec, _ := json.Marshal(map[string]any{"dataset": map[string]any{"path": url + "/x.tar", "format": "tar"}})
		c.req++
		c.send(&wire.Message{Type: wire.TypeOpen, Req: c.req, Spec: spec})
		return c.req
	}
	first := opening(down.URL)
	for {
		if m := c.read(); m.Req == first && m.Waiting != "" {
			if !strings.Contains(m.Waiting, strings.TrimPrefix(down.URL, "http://")) || !strings.Contains(m.Waiting, "503") {
				t.Errorf("the first loader waits for %q", m.Waiting)
			}
			break
		} else if m.Req == first && m.Type != wire.TypeProgress {
			t.Fatalf("the answer is %+v", m.Error)
		}
	}
	second := opening(slow.URL)
	for {
		m := c.read()
		if m.Req == second && m.Type != wire.TypeProgress {
			break
		}
		if m.Req == second && m.Waiting != "" {
			t.Fatalf("a loader whose server answers waits for %q", m.Waiting)
		}
	}
}
