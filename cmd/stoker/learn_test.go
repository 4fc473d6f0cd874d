package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stoker-data/stoker/internal/tool/learn"
)

// A second run of index --entries decodes only what the first one did not, or what has changed.
func TestEntriesAreLearnedOnce(t *testing.T) {
	t.Setenv("STOKER_CACHE", t.TempDir())
	dir := photoShards(t)
	run := func() *learn.Report {
		t.Helper()
		got := command(t, "index", filepath.Join(dir, "{0..1}.tar"), "--entries", "--json")
		var said struct{ Entries *learn.Report }
		if err := json.Unmarshal([]byte(got.out), &said); err != nil || said.Entries == nil {
			t.Fatalf("%d: %s%s", got.status, got.out, got.err)
		}
		return said.Entries
	}
	if r := run(); r.Pictures != 6 || r.Learned != 6 || r.Known != 0 || r.Bytes == 0 {
		t.Errorf("%+v", *r)
	}
	if r := run(); r.Learned != 6 || r.Known != 6 {
		t.Errorf("%+v", *r)
	}
	// A shard that is replaced has a new version, and nothing is known of it.
	if err := os.Remove(filepath.Join(dir, "1.tar")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "1.tar"), photoShard(t, 1, "coffee", "rocket"))
	if r := run(); r.Pictures != 5 || r.Learned != 5 || r.Known != 3 {
		t.Errorf("%+v", *r)
	}
}
