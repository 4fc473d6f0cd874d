package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

// A Spec's batch_transform mixes what bench's own chain makes, if the Spec has no fields;
// order needs no fields, and explains it.
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
	for _, name := range []string{"MixUp", "CutMix"} { // what fields would be is bench's to say
		path = bare(strings.Replace(mix, "MixUp", name, 1))
		for _, flags := range []string{"", "--digest", "--quality"} {
			if got = command(t, append([]string{"order", path}, strings.Fields(flags)...)...); got.status != 0 || got.err != "" {
				t.Errorf("%s %s: %+v", name, flags, got)
			}
		}
		if got = command(t, "order", path); !strings.HasPrefix(got.out, "0 1 2 3\n4 5 6 7\n") {
			t.Errorf("%s: %+v", name, got)
		}
		if got = command(t, "order", path, "--explain", "--step", "0"); got.status != 0 || !strings.Contains(got.out, "mixed with the one before it: "+name) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for wrong, want := range map[string]string{"{op: MixUp, alpha: 0}": "alpha must be a positive number", "{op: MixOp}": "did you mean MixUp?"} {
		if got = command(t, "order", bare("batch_transform: "+wrong+"\n")); got.status != 2 || !strings.Contains(got.err, want) {
			t.Errorf("%s: %+v", wrong, got)
		}
	}
	path = bare(mix + "fields: [{name: image, decode: rgb}, {name: label, decode: int}]\n")
	if got = command(t, "order", path); got.status != 2 || !strings.Contains(got.err, "MixUp needs floats") {
		t.Errorf("%+v", got)
	}
	path = bare(mix + "fields: [{name: image, decode: rgb, transform: [{op: Resize, size: [4, 4]}, ToTensor]}, {name: label, decode: int}]\n")
	got = command(t, "order", path, "--explain", "--step", "0")
	if got.status != 0 || !strings.Contains(got.out, "each row mixed with the one before it: MixUp lam=0.") {
		t.Errorf("%+v", got)
	}
}
