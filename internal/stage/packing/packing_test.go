package packing_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/packing"
)

const whole = `{
 "stoker_pack": 2,
 "source": {
  "format": "folder",
  "digest": "00c0ffee00c0ffee",
  "samples": 3
 },
 "options": {
  "output": "npy",
  "shuffle": false,
  "augment": 0,
  "tokenize": "",
  "resize": 64,
  "crop": 0,
  "quality": 0
 },
 "classes": [
  "cat",
  "dog"
 ],
 "samples": 3,
 "left_out": [
  {
   "name": "x",
   "reason": "a map"
  }
 ],
 "bytes": 30,
 "shards": [
  {
   "files": [
    {
     "name": "jpg-000000.npy",
     "bytes": 30,
     "sha256": "ab"
    }
   ],
   "first": 0,
   "samples": 3,
   "converted": 2
  }
 ],
 "sample_digests": {
  "algorithm": "xxh64",
  "name": "samples.xxh64",
  "bytes": 24,
  "sha256": "cd"
 }
}`

// The shape is stored with data: what is written today must be read for ever, and
// written the same.
func TestShape(t *testing.T) {
	m, err := packing.Read[packing.Options](strings.NewReader(whole + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := &packing.Manifest[packing.Options]{
		Identity: packing.Identity[packing.Options]{
			Version: 2, Source: packing.Source{Format: "folder", Digest: "00c0ffee00c0ffee", Samples: 3},
			Options: packing.Options{Output: "npy", Resize: 64},
		},
		Layout: packing.Layout{Classes: []string{"cat", "dog"}, Samples: 3, LeftOut: []format.Left{{Name: "x", Reason: "a map"}}},
		Bytes:  30,
		Shards: []packing.Shard{{Files: []packing.File{{Name: "jpg-000000.npy", Bytes: 30, SHA256: "ab"}}, Samples: 3, Converted: 2}},
		Digests: packing.Digests{
			Algorithm: "xxh64", File: packing.File{Name: packing.DigestsName, Bytes: 24, SHA256: "cd"},
		},
	}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if b, _ := json.MarshalIndent(m, "", " "); string(b) != whole {
		t.Errorf("written again: %s", cmp.Diff(whole, string(b)))
	}
	if m.Converted() != 2 || !packing.KeepsOrder(m) || !packing.Ours([]byte(whole)) {
		t.Errorf("%d converted, keeps order %v", m.Converted(), packing.KeepsOrder(m))
	}
}

// A reader that needs little reads manifests with options that it does not know.
func TestLaterOptions(t *testing.T) {
	m, err := packing.Read[packing.Options](strings.NewReader(`{"stoker_pack": 9, "options": {"output": "tar", "transform": {"op": ["of", "later"]}}, "samples": 1}`))
	if err != nil || m == nil || m.Options.Output != "tar" {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestOtherFiles(t *testing.T) {
	for text, c := range map[string]struct{ ours, broken bool }{
		`{"version": 1}`:                     {},
		`{"samples": 3}` + "\n" + `{"a": 1}`: {},
		`[1, 2]`:                             {broken: true},
		``:                                   {broken: true},
		`{"stoker_pack": 2, "samples": "x"}`: {ours: true, broken: true},
		`{"stoker_pack": 2, "samples": 3`:    {ours: true, broken: true},
		`{"stoker_pack": "two"}`:             {ours: true, broken: true},
	} {
		m, err := packing.Read[packing.Options](strings.NewReader(text))
		if m != nil || (err != nil) != c.broken || packing.Ours([]byte(text)) != c.ours {
			t.Errorf("%q: %+v, %v, ours %v", text, m, err, packing.Ours([]byte(text)))
		}
	}
}

// Any single change of an option that moves samples or copies them is noticed.
func TestKeepsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, err := packing.Read[packing.Options](strings.NewReader(whole))
		if err != nil {
			t.Fatal(err)
		}
		m.Options.Augment = rapid.Int64Range(0, 1).Draw(t, "one copy")
		m.Options.Quality = rapid.IntRange(0, 100).Draw(t, "quality")
		change := rapid.SampledFrom([]func(){
			func() { m.Options.Shuffle = true },
			func() { m.Options.Augment = rapid.Int64Range(2, 9).Draw(t, "copies") },
			func() { m.Options.Output = "tokens" },
			func() { m.Options.Tokenize = "gpt2" },
			func() { m.Samples = 2 },
			func() { m.Source.Digest = "" },
		}).Draw(t, "change")
		if !packing.KeepsOrder(m) {
			t.Fatal("resizing and encoding do not change the order")
		}
		if change(); packing.KeepsOrder(m) {
			t.Fatalf("keeps the order: %+v", m)
		}
	})
}

// No bytes make it panic, and whatever it reads has a version.
func FuzzRead(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte(`{"stoker_pack": 2, "shards": [{"first": -1}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := packing.Read[packing.Options](bytes.NewReader(b))
		if m == nil {
			return
		}
		if err != nil || m.Version == 0 {
			t.Errorf("%+v, %v", m, err)
		}
		if m.Converted(); packing.KeepsOrder(m) && packing.Unlike(m) != "" {
			t.Errorf("%+v keeps the order", m)
		}
	})
}
