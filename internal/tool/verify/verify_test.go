package verify_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stagetest"
	"github.com/stoker-data/stoker/internal/tool/verify"
)

// copied is a dataset of MosaicML's Streaming, whose index.json has hashes.
func copied(t *testing.T) string {
	t.Helper()
	t.Setenv("STOKER_CACHE", t.TempDir())
	dir := filepath.Join(t.TempDir(), "mds")
	if err := os.CopyFS(dir, os.DirFS("../../stage/format/mds/testdata/everything")); err != nil {
		t.Fatal(err)
	}
	return dir
}

func run(t *testing.T, c verify.Config) *verify.Report {
	t.Helper()
	r, err := verify.Run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func text(t *testing.T, r *verify.Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A bit within a value of an MDS shard is found by the hash in index.json, and by
// nothing else.
func TestHashesOfShards(t *testing.T) {
	dir := copied(t)
	c := verify.Config{Dataset: spec.Dataset{Path: spec.Paths{dir}}}
	r := run(t, c)
	if r.Hashed == 0 || r.Hashed != r.Files-1 || r.Err() != nil || !strings.Contains(text(t, r), "compared with the hashes that came with the data") {
		t.Fatalf("%d of %d files, %v: %s", r.Hashed, r.Files, r.Err(), text(t, r))
	}

	shard := filepath.Join(dir, "shard.00001.mds")
	raw, err := os.ReadFile(shard)
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(shard)
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)-1] ^= 1
	if err := os.WriteFile(shard, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(shard, st.ModTime(), st.ModTime()); err != nil {
		t.Fatal(err)
	}
	r = run(t, c)
	held := 0 // samples that the shard has
	for _, e := range r.Damage {
		if e.Where.Shard == shard {
			held++
		}
	}
	if len(r.Shards) != 1 || r.Shards[0].Where.Shard != shard || held == 0 || int64(held) != r.Damaged || len(r.Broken) != held {
		t.Fatalf("%+v, %d damaged samples", r.Shards, r.Damaged)
	}
	if e := errs.From(r.Err()); e.Code != errs.Damaged || !strings.Contains(e.What, "1 file does not match its hash") || !strings.Contains(e.Hint, "fetch") {
		t.Errorf("%v | %s", e, e.Hint)
	}
	if out := text(t, r); !strings.Contains(out, shard) || !strings.Contains(out, "index.json says") {
		t.Errorf("%s", out)
	}
	for name, c := range map[string]verify.Config{"quick": {Dataset: c.Dataset, Quick: true}, "a part": {Dataset: c.Dataset, Share: 0.5}} {
		if r := run(t, c); r.Hashed != 0 || r.Err() != nil {
			t.Errorf("%s: %d files are hashed, %v", name, r.Hashed, r.Err())
		}
	}

	// Shards that cannot be read at all are all named, though the dataset does not
	// open.
	cut := []string{shard, filepath.Join(dir, "shard.00000.mds")}
	if err := errors.Join(os.Truncate(cut[0], int64(len(raw)/2)), os.Truncate(cut[1], 3)); err != nil {
		t.Fatal(err)
	}
	r = run(t, c)
	if len(r.Shards) != 2 || r.Shards[1].Where.Shard != cut[0] || r.Shards[0].Where.Shard+r.Shards[0].Where.File != cut[1] || r.Checked != 0 {
		t.Fatalf("%+v", r)
	}
	if e := errs.From(r.Err()); e.Code != errs.Damaged || e.What != "2 of 2 files cannot be read" {
		t.Errorf("%v", e)
	}
	if out := text(t, r); !strings.Contains(out, "no sample was read\n2 files are damaged as a whole:") || !strings.Contains(out, cut[1]) {
		t.Errorf("%s", out)
	}
}

// A damaged dataset of an HDF5 file is left out where nobody asks for it, and the
// file is damaged all the same.
func TestDatasetsOfHDF5(t *testing.T) {
	t.Setenv("STOKER_CACHE", t.TempDir())
	raw := stagetest.Unzipped(t, "../../../testdata/hdf5/filters.h5.gz")
	path := filepath.Join(t.TempDir(), "x.h5")
	c := verify.Config{Dataset: spec.Dataset{Path: spec.Paths{path}}}
	stagetest.Must(t, os.WriteFile(path, raw, 0o600))
	if r := run(t, c); r.Err() != nil || len(r.Lost) != 0 {
		t.Fatalf("%v, %v", r.Err(), r.Lost)
	}
	raw[bytes.Index(raw, []byte("TREE\x01\x00"))] ^= 1 // the index of chunks of one of them
	stagetest.Must(t, os.WriteFile(path, raw, 0o600))
	r := run(t, c)
	if len(r.Lost) != 1 || r.Lost[0].Where.Member == "" || errs.CodeOf(r.Err()) != errs.Damaged || !strings.Contains(text(t, r), "1 dataset of the file is damaged") {
		t.Fatalf("%v, %v: %s", r.Err(), r.Lost, text(t, r))
	}
}

// Files of two hosts have no folder in common, in which digests could be: none are looked for.
func TestFilesOfTwoHosts(t *testing.T) {
	t.Setenv("STOKER_CACHE", t.TempDir())
	var paths spec.Paths
	for range 2 {
		server := httptest.NewServer(http.FileServer(http.Dir("../../../docs")))
		defer server.Close()
		paths = append(paths, server.URL+"/cli.md")
	}
	c := verify.Config{Dataset: spec.Dataset{Path: paths, Format: "lines"}}
	if r := run(t, c); r.Files != 2 || r.Err() != nil {
		t.Errorf("%d files: %v", r.Files, r.Err())
	}
	if _, _, err := verify.Write(t.Context(), c); errs.CodeOf(err) != errs.Unsupported || !strings.Contains(err.Error(), paths[0]) {
		t.Error(err)
	}
}
