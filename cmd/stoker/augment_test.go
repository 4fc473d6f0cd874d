package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// augmented is one case of testdata/augment.json: a chain with augmentations.
type augmented struct {
	Name string          `json:"name"`
	Ops  json.RawMessage `json:"transform"`
	Mix  json.RawMessage `json:"batch_transform"`
}

func augmentations(t *testing.T) (all []augmented) {
	t.Helper()
	raw, err := os.ReadFile("../../testdata/augment.json")
	if err == nil {
		err = json.Unmarshal(raw, &all)
	}
	if err != nil || len(all) < 20 {
		t.Fatalf("%d cases, %v", len(all), err)
	}
	return all
}

// drawn is a folder of five small pictures.
func drawn(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for i := range 5 {
		w, h := 40+i, 50-3*i
		body := fmt.Appendf(nil, "P6 %d %d 255\n", w, h)
		for k := range 3 * w * h {
			body = append(body, byte(k*k*(i+2)>>5))
		}
		write(t, filepath.Join(root, "ab"[i%2:i%2+1], fmt.Sprintf("%d.ppm", i)), body)
	}
	return root
}

// bench measures every augmentation in a Spec that is written by hand.
func TestBenchAugmentations(t *testing.T) {
	root := drawn(t)
	for _, a := range augmentations(t) {
		spec := fmt.Sprintf(`{"dataset": {"path": %q}, "fields": [{"name": "image", "decode": "rgb", "transform": %s}, {"name": "label", "decode": "int"}], "batch": {"size": 2}`, root, a.Ops)
		if a.Mix != nil {
			spec += fmt.Sprintf(`, "batch_transform": %s`, a.Mix)
		}
		path := filepath.Join(t.TempDir(), "train.json")
		write(t, path, []byte(spec+"}"))
		got := command(t, "bench", "--spec", path, "--epochs", "1", "--json")
		var r struct {
			Samples, Batches int64
			Bad              int64
		}
		if err := json.Unmarshal([]byte(got.out), &r); err != nil || got.status != 0 || r.Samples != 5 || r.Batches != 3 || r.Bad != 0 {
			t.Errorf("%s: %v, %+v", a.Name, err, got)
		}
	}
}
