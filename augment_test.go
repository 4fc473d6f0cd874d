package stoker_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	stoker "github.com/stoker-data/stoker"
)

// augmented is one case of testdata/augment.json, which python/tests/augmented.py writes: a
// chain with augmentations, and a digest of the pixels of two epochs.
type augmented struct {
	Name   string      `json:"name"`
	Ops    []stoker.Op `json:"transform"`
	Mix    *stoker.Op  `json:"batch_transform"`
	SHA256 string      `json:"sha256"`
}

func augmentations(t *testing.T) (all []augmented) {
	t.Helper()
	raw, err := os.ReadFile("testdata/augment.json")
	if err == nil {
		err = json.Unmarshal(raw, &all)
	}
	if err != nil || len(all) < 20 {
		t.Fatalf("%d cases, %v", len(all), err)
	}
	return all
}

// made is a folder of six pictures that every language makes alike.
func made(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for i := range 6 {
		w, h := 33+5*i, 29+3*(i*2%5)
		body := fmt.Appendf(nil, "P6 %d %d 255\n", w, h)
		for k := range 3 * w * h {
			body = append(body, byte((k*k*(i+3)+k*17+i*61)>>4))
		}
		path := filepath.Join(root, "ab"[i%2:i%2+1], fmt.Sprintf("%d.ppm", i))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, body, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func (a augmented) spec(root string) stoker.Spec {
	return stoker.Spec{
		Dataset:        stoker.Dataset{Path: stoker.Paths{root}},
		Fields:         []stoker.Field{{Name: "image", Decode: "rgb", Transform: a.Ops}, {Name: "label", Decode: "int"}},
		Order:          stoker.Order{Shuffle: stoker.ShuffleFull, Seed: 7},
		Batch:          stoker.BatchSpec{Size: 3},
		BatchTransform: a.Mix,
	}
}

// twoEpochs is the digest of what a Spec delivers, and what its cache keeps.
func twoEpochs(t *testing.T, spec stoker.Spec) (digest string, kept int64) {
	t.Helper()
	l, err := stoker.Open(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	h := sha256.New()
	for range 2 {
		for b, err := range l.Batches(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range l.Columns() {
				if bytes, err := b.Uint8(c.Name); err == nil {
					_, _ = h.Write(bytes.Data)
				} else if floats, err := b.Float32(c.Name); err == nil {
					_ = binary.Write(h, binary.LittleEndian, floats.Data)
				} else if c.Name != "label" {
					t.Fatal(err)
				}
			}
		}
	}
	if c := l.Stats().Cache; c != nil {
		kept = c.Samples
	}
	return hex.EncodeToString(h.Sum(nil)), kept
}

// Every augmentation gives the pixels that Python's classes give: as a Spec of this
// package, and written by hand.
func TestAugmentations(t *testing.T) {
	root := made(t)
	for _, a := range augmentations(t) {
		t.Run(a.Name, func(t *testing.T) {
			spec := a.spec(root)
			if got, _ := twoEpochs(t, spec); got != a.SHA256 {
				t.Errorf("a Spec of this package: %s", got)
			}
			for i, op := range spec.Fields[0].Transform { // as a program writes it
				args := stoker.Args{}
				for name, value := range op.Args {
					args[name] = value
				}
				a.Ops[i] = stoker.Transform(op.Name, args)
			}
			text, err := json.Marshal(a.spec(root))
			if err != nil {
				t.Fatal(err)
			}
			if spec, err = stoker.ParseSpec(text); err != nil {
				t.Fatal(err)
			}
			if got, _ := twoEpochs(t, spec); got != a.SHA256 {
				t.Errorf("written by hand: %s", got)
			}
		})
	}
}

// A cache changes no pixel, wherever the first random step is.
func TestAugmentationsInCache(t *testing.T) {
	root := made(t)
	steady := []stoker.Op{
		stoker.Transform("Resize", stoker.Args{"size": []int{50, 44}, "interpolation": "bicubic"}),
		stoker.Transform("CenterCrop", stoker.Args{"size": 40}),
		stoker.Transform("Pad", stoker.Args{"padding": 2, "fill": 9}),
		stoker.Transform("Resize", stoker.Args{"size": []int{36, 40}}),
	}
	check := func(t *testing.T, a augmented) {
		t.Helper()
		want, _ := twoEpochs(t, a.spec(root))
		for _, after := range []string{"random", "decode"} {
			spec := a.spec(root)
			spec.Cache.Memory, spec.Cache.After = 64<<20, after
			if got, kept := twoEpochs(t, spec); got != want || kept != 6 {
				t.Errorf("%v after %s: other bytes, or %d samples kept", a.Ops, after, kept)
			}
		}
	}
	for _, a := range augmentations(t) {
		t.Run(a.Name, func(t *testing.T) {
			check(t, a)
			if a.Mix != nil || len(a.Ops) > 2 || slices.ContainsFunc(a.Ops, func(o stoker.Op) bool { return o.Name == "Views" }) {
				return
			}
			for at := range steady { // the step takes the place of the one that has this number
				moved := a
				moved.Ops = slices.Concat(steady[:at:at], a.Ops[len(a.Ops)-1:], steady[at:])
				check(t, moved)
			}
		})
	}
}

// What this version does not have is one error before the first batch, which says what,
// where and what to do, and which version this is.
func TestTransformsOfALaterVersion(t *testing.T) {
	root := made(t)
	for _, c := range []struct {
		transform, mix string
		words          []string
	}{
		{`[{"op": "Resize", "size": [8, 8]}, {"op": "Bloom", "light": 3}]`, ``, []string{`field "image"`, `transform 2 of 2 (Bloom)`, `operation "Bloom" is not implemented`, `the operations are AugMix, `}},
		{`[{"op": "RandomChoice", "transforms": [{"op": "Bloom"}]}]`, ``, []string{`transform 1 of 1 in transform 1 of 1 (RandomChoice) (Bloom)`, `is not implemented`}},
		{`[{"op": "ColorJitter", "gamma": 0.1}]`, ``, []string{`transform 1 of 1 (ColorJitter): unknown argument "gamma"`, `it has brightness, contrast, saturation, hue`}},
		{`[{"op": "Views", "transforms": [["ToTensor"], [{"op": "Bloom"}]]}]`, ``, []string{`(Bloom)`, `is not implemented`}},
		{`["ToTensor"]`, `{"op": "Bloom"}`, []string{`batch_transform (Bloom)`, `is not a transform of batches`, `MixUp, CutMix`}},
		{`["ToTensor"]`, `{"op": "MixUp", "num_classes": 2, "per_row": true}`, []string{`batch_transform (MixUp)`, `unknown argument "per_row"`, `it has alpha, num_classes, labels`}},
	} {
		text := fmt.Sprintf(`{"dataset": {"path": %q}, "fields": [{"name": "image", "decode": "rgb", "transform": %s}, {"name": "label", "decode": "int"}]}`, root, c.transform)
		if c.mix != "" {
			text = strings.TrimSuffix(text, "}") + `, "batch_transform": ` + c.mix + "}"
		}
		spec, err := stoker.ParseSpec([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		_, err = stoker.Open(t.Context(), spec)
		if err == nil {
			t.Errorf("%s %s: opened", c.transform, c.mix)
			continue
		}
		for _, word := range append(c.words, "a later version of stoker may have more") {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s %s: %v does not say %q", c.transform, c.mix, err, word)
			}
		}
	}
}
