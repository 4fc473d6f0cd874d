package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
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

// What --entries is given is checked: a run that was to be without them must not have them.
func TestEntriesOfBench(t *testing.T) {
	t.Setenv("STOKER_CACHE", t.TempDir())
	root := folder(t, 12) // lanes count sixteen pictures at a time
	for _, given := range []string{"OFF", "bananas", "-1", "0", ""} {
		if got := command(t, "bench", root, "--entries="+given, "--epochs", "1"); got.status != 2 || !strings.Contains(got.err, "--entries 1GiB") {
			t.Errorf("%q: status %d, %s", given, got.status, got.err)
		}
	}
	for _, given := range []string{"off", "auto", "1GiB"} {
		got := command(t, "bench", root, "--entries", given, "--epochs", "2")
		if got.status != 0 || strings.Contains(got.out, "entry points") == (given == "off") {
			t.Errorf("%q: status %d, %s%s", given, got.status, got.out, got.err)
		}
	}
}

// Files that have changed since they were indexed are an error, not samples that are left out;
// and pictures that are damaged are counted.
func TestEntriesOfOtherFiles(t *testing.T) {
	t.Setenv("STOKER_CACHE", t.TempDir())
	root := folder(t, 2)
	if got := command(t, "index", root, "--entries"); got.status != 0 {
		t.Fatalf("status %d, %s", got.status, got.err)
	}
	later := time.Now().Add(time.Hour)
	files, err := filepath.Glob(filepath.Join(root, "*", "*.jpg"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	if err := os.Chtimes(files[0], later, later); err != nil {
		t.Fatal(err)
	}
	if got := command(t, "index", root, "--entries"); got.status != errs.Classes[errs.Changed].Exit || !strings.Contains(got.err, filepath.Base(files[0])) {
		t.Errorf("status %d, %s%s", got.status, got.out, got.err)
	}
	raw, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	write(t, files[0], raw[:2*len(raw)/3])
	command(t, "index", root) // notices that the file has changed, or does with the next look
	if got := command(t, "index", root, "--entries"); got.status != 0 || !strings.Contains(got.out, "damaged: 1 JPEG") {
		t.Errorf("status %d, %s%s", got.status, got.out, got.err)
	}
}
