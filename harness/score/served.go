package score

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/stoker-data/stoker/harness/slownet"
)

// served is a dataset on a web server, which a link leads to. Pages of folders are JSON, as nginx's.
type served struct {
	server *http.Server
	proxy  *slownet.Proxy
}

func serve(folder string, link slownet.Link) (*served, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	files := http.FileServer(http.Dir(folder))
	s := &served{server: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/") {
			files.ServeHTTP(w, r)
			return
		}
		entries, err := os.ReadDir(filepath.Join(folder, filepath.FromSlash(r.URL.Path)))
		if err != nil {
			http.NotFound(w, r)
			return
		}
		page := []map[string]any{}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil {
				continue
			}
			one := map[string]any{"name": e.Name(), "type": "directory", "mtime": info.ModTime().UTC().Format(http.TimeFormat)}
			if !e.IsDir() {
				one["type"], one["size"] = "file", info.Size()
			}
			page = append(page, one)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(page)
	})}}
	go func() { _ = s.server.Serve(l) }()
	if s.proxy, err = slownet.New(slownet.Options{Server: "http://" + l.Addr().String(), Link: link}); err != nil {
		return nil, errors.Join(err, s.server.Close())
	}
	return s, nil
}

func (s *served) url() string { return s.proxy.URL() }

func (s *served) close() error { return errors.Join(s.proxy.Close(), s.server.Close()) }
