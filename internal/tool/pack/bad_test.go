package pack_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stagetest"
	"github.com/stoker-data/stoker/internal/tool/pack"
	"github.com/stoker-data/stoker/internal/tool/pack/prepare"
)

// spoil makes two of an album's pictures unreadable: one is cut off in its middle,
// and one is not a picture.
func spoil(t testing.TB, root string) (cut, text string) {
	cut, text = root+"/c1/coffee.jpg", root+"/c0/retina.jpg"
	raw, err := os.ReadFile(cut)
	stagetest.Must(t, err)
	put(t, cut, raw[:len(raw)/2])
	put(t, text, []byte("<html>404 not found</html>"))
	return cut, text
}

// A picture that cannot be read ends a packing that works on pictures, whatever is
// to be done with them, and also if it would stay as it is.
func TestUnreadablePicturesEndIt(t *testing.T) {
	for name, o := range map[string]prepare.Options{
		"resize":                   {Resize: 64},
		"resize, small enough":     {Resize: 4000},
		"resize, crop":             {Resize: 64, Crop: 64},
		"crop":                     {Crop: 32},
		"quality":                  {Quality: 80},
		"decode":                   {Decode: true, Resize: 64, Crop: 64},
		"copies":                   {Augment: 2},
		"resize and restart marks": {Resize: 4000, JPEG: "index"},
	} {
		for _, which := range []string{"cut", "text"} {
			t.Run(name+", "+which, func(t *testing.T) {
				root := album(t)
				whole, err := os.ReadFile(root + "/c1/coffee.jpg")
				stagetest.Must(t, err)
				other, err := os.ReadFile(root + "/c0/retina.jpg")
				stagetest.Must(t, err)
				bad, good := spoil(t, root)
				if which == "text" {
					bad, good = good, bad
					put(t, good, whole)
				} else {
					put(t, good, other)
				}
				dst := filepath.Join(t.TempDir(), "packed")
				_, err = pack.Run(context.Background(), config(root, dst, pack.Options{Options: o}))
				e := errs.From(err)
				if err == nil || errs.Classes[e.Code].Exit != 3 || e.Where.File != bad || e.Where.Sample.Or(-1) < 0 {
					t.Errorf("%v", err)
				}
				if _, err := os.Stat(dst + "/manifest.json"); err == nil {
					t.Error("there is a manifest")
				}
			})
		}
	}
}

// With on_bad skip they are left out of every kind of shard, and the manifest names
// them. The packing goes on after a lost shard, in tasks, with the same bytes.
func TestUnreadablePicturesAreLeftOut(t *testing.T) {
	for _, output := range []string{"tar", "tfrecord", "npy"} {
		t.Run(output, func(t *testing.T) {
			root := album(t)
			cut, text := spoil(t, root)
			o := pack.Options{Output: output, ShardSize: 9000, OnBad: "skip", Options: prepare.Options{Resize: 64}}
			if output == "npy" {
				o.Options.Crop, o.Options.Decode, o.ShardSize = 64, true, 30_000
			}
			dst := t.TempDir()
			r := run(t, config(root, dst, o))
			m := r.Manifest
			if m.Samples != 4 || len(m.Bad()) != 2 {
				t.Fatalf("%d samples, %+v", m.Samples, m.Bad())
			}
			for _, b := range m.Bad() {
				if path := filepath.Join(root, string(b.File)); path != cut && path != text || b.Error == "" || strings.Contains(b.Error, root) {
					t.Errorf("%+v", b)
				}
			}
			place := int64(0)
			for _, s := range m.Shards {
				if s.First != place {
					t.Errorf("a shard begins at %d, after %d", s.First, place)
				}
				place += s.Samples
			}
			if place != 4 || m.Digests.Bytes != 32 {
				t.Errorf("%d samples, digests of %d bytes", place, m.Digests.Bytes)
			}
			want := tree(t, dst)
			if again := run(t, config(root, dst, o)); again.Made != 0 {
				t.Errorf("%d shards were made again", again.Made)
			}
			stagetest.Must(t, os.Remove(filepath.Join(dst, m.Shards[len(m.Shards)-1].Files[0].Name)))
			run(t, config(root, dst, o))
			same(t, want, tree(t, dst), "after a lost shard")
			parts := t.TempDir()
			for i := range 2 {
				c := config(root, parts, o)
				c.Task, c.Tasks = i, 2
				run(t, c)
			}
			_, err := pack.Finish(parts)
			stagetest.Must(t, err)
			same(t, want, tree(t, parts), "in tasks")
		})
	}
}

// A shard of which nothing can be read is an error: it would be an empty file.
func TestNothingCanBeRead(t *testing.T) {
	root := t.TempDir()
	for i := range 3 {
		put(t, fmt.Sprintf("%s/c/%d.jpg", root, i), []byte("no picture"))
	}
	_, err := pack.Run(context.Background(), config(root, filepath.Join(t.TempDir(), "p"), pack.Options{OnBad: "skip", Options: prepare.Options{Resize: 64}}))
	if e := errs.From(err); err == nil || e.Code != errs.Damaged {
		t.Errorf("%v", err)
	}
	root = album(t)
	_, bad := spoil(t, root)
	o := pack.Options{OnBad: "skip", ShardSize: 1, Options: prepare.Options{Resize: 64}}
	_, err = pack.Run(context.Background(), config(root, filepath.Join(t.TempDir(), "p"), o))
	if e := errs.From(err); err == nil || e.Code != errs.Damaged || !strings.Contains(e.What, "can be read, of 1; the first: ") {
		t.Errorf("a shard with %s alone: %v", bad, err)
	}
}

// A dry run counts no sample that it tried and cannot read, and says how many it did not
// try.
func TestDryRunWithUnreadableSamples(t *testing.T) {
	for _, n := range []int{30, 900} {
		var text strings.Builder
		for i := range n {
			line := fmt.Sprintf("{\"text\": \"%d\"}\n", i)
			if i%3 == 1 {
				line = "no object\n"
			}
			text.WriteString(line)
		}
		path := filepath.Join(t.TempDir(), "a.jsonl")
		put(t, path, []byte(text.String()))
		o := pack.Options{OnBad: "skip", Options: prepare.Options{Fields: []string{"text"}}}
		c := config(path, t.TempDir()+"/none", o)
		c.Dataset.Format = "lines"
		e, err := pack.DryRun(context.Background(), c)
		stagetest.Must(t, err)
		if int64(e.Measured+e.Bad)+e.Untried != int64(n) || e.Samples != int64(n-e.Bad) || e.Bad == 0 || (n == 30) != (e.Untried == 0) || n == 30 && e.Bad != 10 {
			t.Errorf("of %d samples: %+v", n, e)
		}
	}
}
