// Package cloud runs the suites of sources against a bucket of whoever has one: `make
// cloud-test URL=s3://bucket/prefix` (or gs://, or az://container/prefix). What they need is
// uploaded below the prefix with the credentials of the environment, and removed. Against
// the servers of the other tests, it runs in `make test-remote`, and on S3 in `make test`.
package cloud

import (
	"context"
	"crypto/rand"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
	"github.com/stoker-data/stoker/internal/stagetest"
	"github.com/stoker-data/stoker/internal/stagetest/formats"
	"github.com/stoker-data/stoker/internal/stagetest/servers"
)

func TestMain(m *testing.M) { os.Exit(stagetest.OwnCache(m)) }

func TestCloud(t *testing.T) {
	url := strings.TrimSuffix(os.Getenv("STOKER_CLOUD_URL"), "/")
	if url == "" {
		t.Skip("make cloud-test URL=... runs this: it needs a bucket")
	}
	suites(t, url)
}

// The same on servers of this machine: what is written there is gone afterwards.
func TestServers(t *testing.T) {
	for scheme, start := range map[string]func(t *testing.T) *servers.Server{
		"s3": func(t *testing.T) *servers.Server { return servers.S3(t, servers.S3Options{}) },
		"gs": func(t *testing.T) *servers.Server { return servers.GCS(t, servers.GCSOptions{}) },
		"az": func(t *testing.T) *servers.Server { return servers.Azure(t, servers.AzureOptions{}) },
	} {
		t.Run(scheme, func(t *testing.T) {
			start(t).Use(t)
			url := scheme + "://" + servers.Bucket + "/prefix"
			t.Run("suites", func(t *testing.T) { suites(t, url) })
			src := open(t, scheme)
			for it, err := range src.List(t.Context(), scheme+"://"+servers.Bucket+"/") {
				if err == nil && !it.Dir { // a folder without objects may stay in a server that has folders
					t.Errorf("%s is left", it.Name)
				}
			}
			if walker, ok := src.(source.Walker); ok {
				for it, err := range walker.Walk(t.Context(), url) {
					if err == nil {
						t.Errorf("%s is left", it.Name)
					}
				}
			}
		})
	}
}

func open(t *testing.T, scheme string) source.Source {
	t.Helper()
	net := remote.NewNet(remote.Options{})
	t.Cleanup(net.Close)
	all := dataset.Sources(net)
	of := all[slices.IndexFunc(all, func(s source.Scheme) bool { return s.Name == scheme })]
	src, err := of.Open(source.Access{Deadline: time.Minute})
	stagetest.Must(t, err)
	return src
}

func suites(t *testing.T, url string) {
	scheme, path, _ := strings.Cut(url, "://")
	bucket, below, _ := strings.Cut(path, "/")
	w := newWriter(t.Context(), t, scheme, bucket)
	below = strings.TrimPrefix(below+"/stoker-cloud-test-"+strings.ToLower(rand.Text()[:10]), "/")
	prefix := scheme + "://" + bucket + "/" + below
	written := map[string]bool{}
	t.Cleanup(func() {
		ending := newWriter(context.Background(), t, scheme, bucket) // that of the test has ended
		for _, key := range slices.Sorted(maps.Keys(written)) {
			if err := ending.do(ending.remove, key, nil); err != nil {
				t.Errorf("%v: remove what is below %s", err, prefix)
				return
			}
		}
	})
	put := func(name string, data []byte) {
		t.Helper()
		written[below+name] = true
		stagetest.Must(t, w.do(w.put, below+name, data))
	}
	t.Run("source", func(t *testing.T) {
		stagetest.Source(t, func(t *testing.T, objects map[string][]byte) (source.Source, string, func(string, []byte)) {
			for name, data := range objects {
				put("/suite/"+name, data)
			}
			src := open(t, scheme)
			return src, prefix + "/suite/", func(name string, data []byte) { put("/suite/"+name, data) }
		})
	})
	t.Run("formats", func(t *testing.T) {
		formats.Read(t, formats.Store{Prefix: prefix + "/formats", Put: func(path string, data []byte) { put("/formats"+path, data) }})
	})
}
