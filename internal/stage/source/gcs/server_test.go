package gcs_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
	"github.com/stoker-data/stoker/internal/stagetest/formats"
	"github.com/stoker-data/stoker/internal/stagetest/servers"
)

// The real emulator keeps the contract, and has every format.
func TestFakeServer(t *testing.T) {
	nobody(t)
	server := servers.GCS(t, servers.GCSOptions{})
	server.Use(t)
	stagetest.Source(t, func(t *testing.T, objects map[string][]byte) (source.Source, string, func(string, []byte)) {
		put := func(name string, data []byte) { server.Put("suite/"+name, data) }
		for name, data := range objects {
			put(name, data)
		}
		return open(t, source.Access{Deadline: time.Minute}), "gs://data/suite/", put
	})
	t.Run("names", func(t *testing.T) {
		src := open(t, source.Access{Deadline: time.Minute})
		for _, name := range []string{"n/a b+c&d=e?f#g.tar", "n/é日本", "n/it's (1)*!@$,;~"} {
			server.Put(name, []byte(name))
			if b, err := readAll(t, src, "gs://data/"+name); err != nil || string(b) != name {
				t.Errorf("%s: %q, %v", name, b, err)
			}
		}
		n := 0
		for it, err := range src.List(t.Context(), "gs://data/n") {
			stagetest.Must(t, err)
			if b, err := readAll(t, src, it.Name); err != nil || "gs://data/"+string(b) != it.Name {
				t.Errorf("%s: %q, %v", it.Name, b, err)
			}
			n++
		}
		if n != 3 {
			t.Errorf("%d of 3 names are listed", n)
		}
	})
	t.Run("stored compressed", func(t *testing.T) {
		const packed = "\x1f\x8b and so on"
		if resp, body := server.Do(http.MethodPost, "/upload/storage/v1/b/data/o?uploadType=media&contentEncoding=gzip&name="+url.QueryEscape("z.tar"), []byte(packed)); resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", resp.Status, body)
		}
		if b, err := readAll(t, open(t, source.Access{Deadline: time.Minute}), "gs://data/z.tar"); err != nil || string(b) != packed {
			t.Errorf("%q, %v", b, err)
		}
	})
	t.Run("every format", func(t *testing.T) {
		formats.Read(t, formats.Store{Prefix: "gs://data", Put: func(path string, data []byte) { server.Put(path[1:], data) }})
	})
}
