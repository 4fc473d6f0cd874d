package stoker_test

import (
	"context"
	"math"
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

// Pictures of 16 bits are mixed, too, by the shares that the labels say.
func TestBatchTransformOfHalves(t *testing.T) {
	value := map[string]func(stoker.Bits) float64{
		"float16": func(b stoker.Bits) float64 { // those here are between 2^-14 and 1
			return math.Ldexp(1+float64(b&0x3FF)/1024, int(b>>10)-15)
		},
		"bfloat16": func(b stoker.Bits) float64 { return float64(math.Float32frombits(uint32(b) << 16)) },
	}
	for dtype, of := range value {
		root := t.TempDir()
		for name, pixel := range map[string]string{"a/1.ppm": "fff", "b/2.ppm": "333"} { // 102 and 51
			if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, name), []byte("P6 1 1 255\n"+pixel), 0o644); err != nil {
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
		rows := 0
		for batch, err := range l.Batches(context.Background()) {
			if err != nil {
				t.Fatal(err)
			}
			images, err := stoker.Array[stoker.Bits](batch, "image")
			if err != nil {
				t.Fatal(err)
			}
			labels, err := batch.Float32("label")
			if err != nil {
				t.Fatal(err)
			}
			for r := range batch.Rows {
				of0, of1 := float64(labels.Row(r)[0]), float64(labels.Row(r)[1])
				if of0 < 0.01 || of1 < 0.01 {
					t.Errorf("%s: row %d is not mixed: %v, %v", dtype, r, of0, of1)
				}
				for _, bits := range images.Row(r) {
					if want := of0*102/255 + of1*51/255; math.Abs(of(bits)/want-1) > 1.0/128 { // three roundings of 8 bits
						t.Errorf("%s: row %d is %v, not %v", dtype, r, of(bits), want)
					}
				}
				rows++
			}
		}
		if rows != 2 {
			t.Errorf("%s: %d rows", dtype, rows)
		}
	}
}
