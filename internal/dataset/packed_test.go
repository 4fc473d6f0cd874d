package dataset

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/spec"
)

// A folder of stoker pack is opened where it is as the manifest says; what is
// missing, cut or too much, and what is still being packed, is refused by name.
func TestPackedFolderIsWhole(t *testing.T) {
	part := func(dir string, i int) string { return filepath.Join(dir, fmt.Sprintf("shard-%06d.tfrecord", i)) }
	body, err := os.ReadFile("../../testdata/tfrecord/raw.tfrec")
	if err != nil {
		t.Fatal(err)
	}
	manifest := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`{"files": [{"name": "shard-%06d.tfrecord", "bytes": %d}], "first": 0, "samples": 1}`, i, len(body)))
		}
		return `{"stoker_pack": 1, "source": {}, "shards": [` + strings.Join(all, ",") + `]}`
	}
	write := func(path, text string) error { return os.WriteFile(path, []byte(text), 0o644) }
	for name, c := range map[string]struct {
		change func(dir string) error
		says   string // "": it is opened
	}{
		"whole":        {func(string) error { return nil }, ""},
		"missing":      {func(dir string) error { return os.Remove(part(dir, 2)) }, "missing: shard-000002.tfrecord"},
		"cut":          {func(dir string) error { return os.Truncate(part(dir, 1), 16) }, "size that was written: shard-000001.tfrecord"},
		"empty":        {func(dir string) error { return os.Truncate(part(dir, 0), 0) }, "size that was written: shard-000000.tfrecord"},
		"more":         {func(dir string) error { return os.WriteFile(part(dir, 9), body, 0o644) }, "not of this packing: shard-000009.tfrecord"},
		"cut manifest": {func(dir string) error { return write(dir+"/manifest.json", manifest(3)[:80]) }, "manifest of a packing cannot be read"},
		"not UTF-8": {func(dir string) error {
			return write(dir+"/manifest.json", strings.Replace(manifest(3), "shard-000001", "shard\xff000001", 1))
		}, "manifest of a packing cannot be read"},
		"somebody else's manifest": {func(dir string) error {
			return write(dir+"/manifest.json", `{"shards": [{"files": [{"name": "gone", "bytes": 1}]}]}`)
		}, ""},
		"not finished": {func(dir string) error {
			if err := os.Remove(dir + "/manifest.json"); err != nil {
				return err
			}
			if err := os.Mkdir(dir+"/.pack", 0o755); err != nil {
				return err
			}
			return write(dir+"/.pack/plan.json", "{}")
		}, "packing is not finished"},
		"finished, not tidied": {func(dir string) error {
			if err := os.Mkdir(dir+"/.pack", 0o755); err != nil {
				return err
			}
			return write(dir+"/.pack/plan.json", "{}")
		}, ""},
	} {
		for _, format := range []string{"", "tfrecord"} {
			t.Run(name+"/"+format, func(t *testing.T) {
				dir := t.TempDir()
				for i := range 3 {
					if err := os.WriteFile(part(dir, i), body, 0o644); err != nil {
						t.Fatal(err)
					}
				}
				if err := write(dir+"/manifest.json", manifest(3)); err != nil {
					t.Fatal(err)
				}
				if err := c.change(dir); err != nil {
					t.Fatal(err)
				}
				l, err := Open(context.Background(), spec.Spec{Dataset: spec.Dataset{Path: spec.Paths{dir}, Format: format}, Batch: spec.Batch{Size: 3}}, Options{})
				if err == nil {
					l.Close()
				}
				if c.says == "" && err != nil || c.says != "" && (errs.CodeOf(err) != errs.Damaged || !strings.Contains(err.Error(), c.says) || errs.From(err).Hint == "") {
					t.Errorf("%v", err)
				}
			})
		}
	}
}

// What a glob finds of a packing is held against its manifest: it would have
// matched what is gone. Files that are named are a choice, as long as each is whole.
func TestGlobsOverAPacking(t *testing.T) {
	body, err := os.ReadFile("../../testdata/tfrecord/raw.tfrec")
	if err != nil {
		t.Fatal(err)
	}
	const n = 4
	root := t.TempDir()
	packing := func(name string, change func(dir string) error) {
		dir := filepath.Join(root, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		var all []string
		for i := range n {
			shard := fmt.Sprintf("shard-%06d.tfrecord", i)
			if err := os.WriteFile(filepath.Join(dir, shard), body, 0o644); err != nil {
				t.Fatal(err)
			}
			all = append(all, fmt.Sprintf(`{"files": [{"name": %q, "bytes": %d}]}`, shard, len(body)))
		}
		text := `{"stoker_pack": 1, "shards": [` + strings.Join(all, ",") + `]}`
		if err := os.WriteFile(filepath.Join(dir, "manifest.json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := change(dir); err != nil {
			t.Fatal(err)
		}
	}
	shard := func(dir string, i int) string { return filepath.Join(dir, fmt.Sprintf("shard-%06d.tfrecord", i)) }
	packing("whole", func(string) error { return nil })
	packing("missing", func(dir string) error { return os.Remove(shard(dir, 3)) })
	packing("cut", func(dir string) error { return os.Truncate(shard(dir, 1), 0) })
	packing("more", func(dir string) error { return os.WriteFile(shard(dir, 9), body, 0o644) })
	packing("damaged", func(dir string) error { return os.Truncate(filepath.Join(dir, "manifest.json"), 60) })
	packing("unfinished", func(dir string) error {
		if err := os.Remove(filepath.Join(dir, "manifest.json")); err != nil {
			return err
		}
		if err := os.Mkdir(filepath.Join(dir, ".pack"), 0o755); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, ".pack", "plan.json"), []byte("{}"), 0o644)
	})
	for pattern, says := range map[string]string{
		"whole/*.tfrecord":                          "",
		"whole/*-00000[!0].tfrecord":                "",
		"missing/*.tfrecord":                        "missing: shard-000003.tfrecord",
		"missing/shard-00000?.tfrecord":             "missing: shard-000003.tfrecord",
		"missing/**":                                "missing: shard-000003.tfrecord",
		"m*g/shard-00000{1,3}*":                     "nothing matches", // the glob alone says it
		"missing/{shard-00000[01],shard-*3*,*}.tf*": "nothing matches",
		"missing/shard-00000[0-2].tfrecord":         "", // which asks for no more
		"missing/shard-00000{0,1,2}.tfrecord":       "",
		"missing/shard-000000.tfrecord":             "",
		"{whole,missing}/*.tfrecord":                "missing: shard-000003.tfrecord",
		"cut/*.tfrecord":                            "size that was written: shard-000001.tfrecord",
		"cut/shard-000001.tfrecord":                 "size that was written: shard-000001.tfrecord",
		"cut/shard-00000[023].tfrecord":             "",
		"more/*.tfrecord":                           "not of this packing: shard-000009.tfrecord",
		"more/shard-000009.tfrecord":                "",
		"damaged/*.tfrecord":                        "manifest of a packing cannot be read",
		"damaged/shard-00000{0..3}.tfrecord":        "",
		"unfinished/*.tfrecord":                     "packing is not finished",
		"unfinished/shard-00000{0..3}.tfrecord":     "",
	} {
		l, err := Open(context.Background(), spec.Spec{Dataset: spec.Dataset{Path: spec.Paths{filepath.Join(root, pattern)}}, Batch: spec.Batch{Size: 3}}, Options{})
		if err == nil {
			l.Close()
		}
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says) || errs.From(err).Hint == "") {
			t.Errorf("%s: %v", pattern, err)
		}
	}
}
