package tiers

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
