package tiers

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
	"github.com/stoker-data/stoker/internal/stagetest/servers"
	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
)

// A dataset in a store: what its requests bring is measured for the verdict, and shown
// again as the tiers of the storage.
func TestADatasetFarAway(t *testing.T) {
	s := servers.S3(t, servers.S3Options{})
	s.Use(t)
	t.Setenv("STOKER_CACHE", t.TempDir())
	picture, err := os.ReadFile(filepath.Join("../../../../testdata/photos", "chelsea.jpg"))
	if err != nil {
		t.Fatal(err)
	}
	var shard bytes.Buffer
	w := tar.NewWriter(&shard)
	for i := range 60 {
		err = errors.Join(err, w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%02d.jpg", i), Mode: 0o644, Size: int64(len(picture))}))
		_, bad := w.Write(picture)
		err = errors.Join(err, bad)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	s.Put("a.tar", shard.Bytes())
	net := remote.NewNet(remote.Options{})
	defer net.Close()
	var of spec.Spec
	of.Dataset.Path, of.Batch.Size, of.Order.Shuffle = spec.Paths{"s3://" + s.Bucket + "/a.tar"}, 8, "full"
	r, err := LoadIt(t.Context(), Load{Spec: of, Sources: dataset.Sources(net), Network: net, Name: "far", Time: 500 * time.Millisecond, Tiers: 3 * time.Second, hurry: 5})
	if err != nil {
		t.Fatal(err)
	}
	got := r.Evidence.Storage
	if "http://"+got.Remote != s.URL || !got.Latency.Known() || got.Alone.Value <= 0 || got.Rate.Value <= 0 || got.Streams < 1 || got.Refused.Value != 0 || !got.Refused.Known() {
		t.Errorf("%+v", got)
	}
	if r.Evidence.Loops[0].Settings.Shuffle != "full" {
		t.Errorf("%+v", r.Evidence.Loops[0].Settings)
	}
	for _, name := range []string{smallRequests, oneConnection, allConnections} {
		if tier := r.Evidence.Tier(evidence.OfStorage, name); tier.Cut != "" || tier.Source() != fromRequests {
			t.Errorf("%s: %+v", name, tier)
		}
	}
}

// A folder of pictures: what connections bring is measured on whole objects, several of them,
// and one connection never seems to bring more than it does because waits were taken off.
func TestAFolderFarAway(t *testing.T) {
	s := servers.S3(t, servers.S3Options{})
	s.Use(t)
	t.Setenv("STOKER_CACHE", t.TempDir())
	picture, err := os.ReadFile(filepath.Join("../../../../testdata/photos", "chelsea.jpg"))
	if err != nil {
		t.Fatal(err)
	}
	const objects = 12
	var asked sync.Map // names
	for i := range objects {
		s.Put(fmt.Sprintf("train/%d/%02d.jpg", i%2, i), picture)
	}
	at, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	var long atomic.Int64 // reads of whole objects, by anyone
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(at); r.Out.Host = r.In.Host }}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Range") == fmt.Sprintf("bytes=0-%d", len(picture)-1) {
			asked.Store(r.URL.Path, true)
			long.Add(1)
		}
		time.Sleep(5 * time.Millisecond) // an answer takes longer than the bytes of one
		proxy.ServeHTTP(w, r)
	}))
	defer front.Close()
	t.Setenv("AWS_ENDPOINT_URL_S3", front.URL)
	net := remote.NewNet(remote.Options{})
	defer net.Close()
	var of spec.Spec
	of.Dataset.Path = spec.Paths{"s3://" + s.Bucket + "/train"}
	var names []string
	for i := range objects {
		names = append(names, fmt.Sprintf("s3://%s/train/%d/%02d.jpg", s.Bucket, i%2, i))
	}
	f := newFar(t.Context(), dataset.Sources(net), of, names)
	if f == nil {
		t.Fatal("nothing was found")
	}
	began := time.Now()
	one := f.together(t.Context(), oneConnection, 1, 200*time.Millisecond)
	most := float64(long.Load()*int64(len(picture))) / (0.2)
	if one.Name != "one connection, whole objects" || one.Cut != "" || one.Bytes.Value <= 0 || one.Bytes.Value > most {
		t.Errorf("in %v: %+v, at most %g", time.Since(began), one, most)
	}
	all := f.together(t.Context(), allConnections, 4, 200*time.Millisecond)
	n := 0
	asked.Range(func(any, any) bool { n++; return true })
	if all.Name != "all connections, whole objects" || all.Cut != "" || all.Bytes.Value <= 0 || n < 2 {
		t.Errorf("%+v, of %d objects", all, n)
	}
}
