package stoker_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	stoker "github.com/stoker-data/stoker"
)

// A Spec file has MixUp and CutMix as batch_transform, and batches have float labels.
func TestBatchTransform(t *testing.T) {
	root := t.TempDir()
	for _, class := range []string{"a", "b"} {
		if err := os.MkdirAll(filepath.Join(root, class), 0o755); err != nil {
			t.Fatal(err)
		}
		body := append([]byte("P6 2 2 255\n"), make([]byte, 12)...)
		for _, name := range []string{"1.ppm", "2.ppm"} {
			if err := os.WriteFile(filepath.Join(root, class, name), body, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	const text = `
dataset: {path: ROOT}
fields:
  - {name: image, decode: rgb, transform: [ToTensor]}
  - {name: label, decode: int}
batch: {size: 4}
batch_transform:
  op: RandomChoice
  transforms: [{op: MixUp, alpha: 0.2, num_classes: 2}, {op: CutMix, num_classes: 2}]
`
	spec, err := stoker.ParseSpec([]byte(strings.Replace(text, "ROOT", root, 1)))
	if err != nil {
		t.Fatal(err)
	}
	l, err := stoker.Open(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if c := l.Columns()[1]; c.Name != "label" || c.DType != "float32" || len(c.Shape) != 1 || c.Shape[0] != 2 {
		t.Errorf("%+v", c)
	}
	steps := 0
	for batch, err := range l.Batches(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		labels, err := batch.Float32("label")
		if err != nil {
			t.Fatal(err)
		}
		for r := range batch.Rows {
			if row := labels.Row(r); row[0]+row[1] < 0.999 || row[0]+row[1] > 1.001 {
				t.Errorf("row %d: %v", r, row)
			}
		}
		steps++
	}
	if steps != 1 {
		t.Errorf("%d steps", steps)
	}
	if _, err := stoker.ParseSpec([]byte("batch_transform: {alpha: 1}")); err == nil || !strings.Contains(err.Error(), `has no "op"`) {
		t.Errorf("%v", err)
	}
}

// Pictures of 16 bits are mixed, too: as bits, which are those of a picture mixed with itself.
func TestBatchTransformOfHalves(t *testing.T) {
	for dtype, want := range map[string]stoker.Bits{"float16": 0x3666, "bfloat16": 0x3ECD} { // 102/255
		root := t.TempDir()
		for _, name := range []string{"a/1.ppm", "b/2.ppm"} {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, name), []byte("P6 1 1 255\nfff"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		text := strings.ReplaceAll(`
dataset: {path: ROOT}
fields:
  - {name: image, decode: rgb, transform: [{op: ToDtype, dtype: DTYPE, scale: true}]}
  - {name: label, decode: int}
batch: {size: 2}
batch_transform: {op: MixUp, num_classes: 2}
`, "ROOT", root)
		spec, err := stoker.ParseSpec([]byte(strings.ReplaceAll(text, "DTYPE", dtype)))
		if err != nil {
			t.Fatal(err)
		}
		l, err := stoker.Open(context.Background(), spec)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for batch, err := range l.Batches(context.Background()) {
			if err != nil {
				t.Fatal(err)
			}
			images, err := stoker.Array[stoker.Bits](batch, "image")
			if err != nil {
				t.Fatal(err)
			}
			for _, bits := range images.Data {
				if int(bits) < int(want)-1 || int(bits) > int(want)+1 {
					t.Errorf("%s: %#x, not %#x", dtype, bits, want)
				}
			}
		}
	}
}
