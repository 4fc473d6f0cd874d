package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

// A Spec's batch_transform mixes what bench's own chain makes, if the Spec has no fields;
// order explains it.
func TestBatchTransform(t *testing.T) {
	t.Setenv(asCommand, "1") // the children of verify-resume are this binary
	root := folder(t, 4)
	const mix = "batch: {size: 4}\nbatch_transform: {op: MixUp, alpha: 0.3, num_classes: 3}\n"
	bare := func(mix string) string {
		path := filepath.Join(t.TempDir(), "bare.yaml")
		write(t, path, []byte("dataset: {path: "+root+"}\n"+mix))
		return path
	}
	path := bare(mix)
	got := command(t, "bench", "--spec", path, "--epochs", "1", "--image-size", "16", "--output-float", "--json")
	var r struct{ Samples, Batches int64 }
	if err := json.Unmarshal([]byte(got.out), &r); err != nil || got.status != 0 || r.Batches != (r.Samples+3)/4 {
		t.Errorf("%v, %+v", err, got)
	}
	if got = command(t, "bench", "--spec", path, "--epochs", "1", "--image-size", "16"); got.status != 2 || !strings.Contains(got.err, "MixUp needs floats") {
		t.Errorf("%+v", got)
	}
	if got = command(t, "verify-resume", bare(strings.Replace(mix, "MixUp", "CutMix", 1)), "--steps", "2"); got.status != 0 {
		t.Errorf("%+v", got)
	}
	path = bare(mix + "fields: [{name: image, decode: rgb, transform: [{op: Resize, size: [4, 4]}, ToTensor]}, {name: label, decode: int}]\n")
	got = command(t, "order", path, "--explain", "--step", "0")
	if got.status != 0 || !strings.Contains(got.out, "each row mixed with the one before it: MixUp lam=0.") {
		t.Errorf("%+v", got)
	}
}
