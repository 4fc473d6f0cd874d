package pack_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/rng"
	"github.com/stoker-data/stoker/internal/stage/transform"
	"github.com/stoker-data/stoker/internal/stagetest"
	"github.com/stoker-data/stoker/internal/tool/pack"
	"github.com/stoker-data/stoker/internal/tool/pack/prepare"
)

// Copies of every augmentation have the bytes of the program that loaders run, for the key
// of the copy and the sample.
func TestEveryAugmentation(t *testing.T) {
	raw, err := os.ReadFile("../../../testdata/augment.json")
	stagetest.Must(t, err)
	var all []struct {
		Name string         `json:"name"`
		Ops  []transform.Op `json:"transform"`
		Mix  *transform.Op  `json:"batch_transform"`
	}
	stagetest.Must(t, json.Unmarshal(raw, &all))
	src := album(t)
	want := stored(t, src)
	lane := transform.NewLane()
	defer lane.Close()
	packed := 0
	for _, c := range all {
		if c.Mix != nil || c.Name == "Views" { // of batches, and of several pictures
			continue
		}
		packed++
		dst := t.TempDir()
		run(t, config(src, dst, pack.Options{Seed: 9, Options: prepare.Options{Augment: 2, Decode: true, Transform: c.Ops}}))
		members, _ := members(t, dst, "")
		bodies := map[string]string{}
		for _, m := range members {
			bodies[m.name] = m.body
		}
		p, err := transform.Compile("rgb", c.Ops, "")
		stagetest.Must(t, err)
		seen := map[string]bool{}
		for id, w := range want {
			key := strings.TrimSuffix(w["__key__"], filepath.Ext(w["__key__"]))
			for n := range int64(2) {
				shape, err := p.Begin(lane, []byte(w["image"]), rng.Sample(9, n, int64(id)))
				stagetest.Must(t, err)
				px := make([]byte, shape.Elems()*p.DType().Size())
				stagetest.Must(t, p.Finish(lane, px))
				if !strings.HasSuffix(bodies[fmt.Sprintf("%s-%d.image.npy", key, n)], string(px)) {
					t.Errorf("%s: copy %d of %s is another", c.Name, n, key)
				}
				seen[string(px)] = true
			}
		}
		if len(seen) <= len(want) {
			t.Errorf("%s: copies are alike", c.Name)
		}
	}
	if packed < 16 {
		t.Errorf("only %d cases", packed)
	}
}

// What is for batches, or makes several pictures of one, is refused with advice.
func TestWhatMakesNoCopies(t *testing.T) {
	for text, wanted := range map[string]string{
		`[{"op": "Views", "transforms": [["RandomHorizontalFlip"], []]}]`:                    "--augment",
		`[{"op": "Resize", "size": 9}, {"op": "MixUp", "num_classes": 2}]`:                   "batch_transform",
		`[{"op": "RandomChoice", "transforms": [{"op": "CutMix"}, "RandomHorizontalFlip"]}]`: "batch_transform",
	} {
		o := pack.Options{Options: prepare.Options{Augment: 2, Decode: true, Transform: ops(text)}}
		_, err := pack.Run(context.Background(), config(album(t), t.TempDir(), o))
		if e := errs.From(err); err == nil || e.Code != errs.Config || !strings.Contains(e.Hint, wanted) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
