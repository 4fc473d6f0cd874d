package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

type resumed struct {
	Steps, Epochs, Samples, Kills, Places int64
	Worlds                                []int
	Differences                           []any
}

// Real pictures, labels, text and packed rows, killed and resumed.
func TestVerifyResume(t *testing.T) {
	t.Setenv(asCommand, "1")                // the children are this binary
	t.Setenv("GORACE", "atexit_sleep_ms=0") // which lingers for a second otherwise, if it looks for races
	root, spoilt := folder(t, 5), folder(t, 5)
	write(t, filepath.Join(spoilt, "coffee", "00.jpg"), []byte("no picture"))
	dir := t.TempDir()
	for i := range 4 {
		shard(t, filepath.Join(dir, fmt.Sprintf("t-%d.tar", i)), 5+i)
	}
	shards := filepath.Join(dir, "t-{0..3}.tar")
	crop := "transform: [{op: RandomResizedCrop, size: 16}, {op: RandomHorizontalFlip}]"
	for name, spec := range map[string]string{
		"folder":   `{dataset: {path: "` + root + `"}, fields: [{name: image, decode: rgb, ` + crop + `}, {name: label, decode: int}], order: {shuffle: full, seed: 2}, batch: {size: 4}}`,
		"block":    `{dataset: {path: "` + shards + `"}, fields: [{name: jpg, decode: rgb, ` + crop + `}, {name: json, decode: json}, {name: cls, decode: int}], order: {shuffle: block, streams: 2, window: 4}, batch: {global_size: 6}}`,
		"weights":  `{dataset: {path: "` + root + `"}, fields: [{name: image, decode: rgb, ` + crop + `}], order: {balanced: true, num_samples: 20}, batch: {size: 3}}`,
		"tokens":   `{dataset: {path: "` + shards + `"}, fields: [{name: json, decode: bytes}], order: {shuffle: full}, batch: {lengths: json, tokens: 40, size: 4}}`,
		"pack":     `{dataset: {path: "` + shards + `"}, fields: [{name: json, decode: bytes}], order: {shuffle: full}, batch: {lengths: json, pack: 12, size: 2}}`,
		"mixture":  `{dataset: [{path: "` + shards + `", weight: 2}, {path: "` + shards + `"}], fields: [{name: cls, decode: int}], order: {shuffle: full}, batch: {size: 3}}`,
		"replaced": `{dataset: {path: "` + spoilt + `"}, fields: [{name: image, decode: rgb, ` + crop + `}], order: {shuffle: full}, batch: {size: 4}, on_bad: {policy: replace}}`,
	} {
		path := filepath.Join(t.TempDir(), "train.yaml")
		write(t, path, []byte(spec))
		got := command(t, "verify-resume", path, "--steps", "16", "--kills", "3", "--json")
		var r resumed
		if err := json.Unmarshal([]byte(got.out), &r); err != nil || got.status != 0 || got.err != "" || r.Steps != 16 || r.Kills != 3 || len(r.Worlds) != 3 || r.Places < 8 || len(r.Differences) > 0 {
			t.Errorf("%s: %v, %+v, %+v", name, err, got, r)
		}
		if name == "folder" {
			got = command(t, "verify-resume", path, "--steps", "8", "--kills", "2", "--seed", "3")
			if got.status != 0 {
				t.Errorf("%+v", got)
			}
			if !strings.Contains(got.out, "2 times with SIGKILL") || !strings.Contains(got.out, "this stream resumes exactly") {
				t.Errorf("it says %q", got.out)
			}
			golden(t, "verify-resume-shape.txt", shape(t, command(t, "verify-resume", path, "--steps", "4", "--json").out))
		}
	}
}

func TestVerifyResumeMistakes(t *testing.T) {
	t.Setenv(asCommand, "1")
	root := folder(t, 1)
	damaged := specFile(t, root, "batch: {size: 1}\n")
	for _, c := range []struct {
		args, want string
		status     int
	}{
		{"verify-resume", "expected \"<spec>\"", 2},
		{"verify-resume ROOTT", "did you mean \"ROOT\"?", 2},
		{"verify-resume ROOT --kills 0", "a run needs at least 1 kill and 2 steps", 2},
		{"verify-resume ROOT --steps 1", "a run needs at least 1 kill and 2 steps", 2},
		{"verify-resume SPEC", "coffee/00.jpg", 3},
	} {
		if c.status == 3 {
			write(t, filepath.Join(root, "coffee", "00.jpg"), []byte("no picture"))
		}
		fill := strings.NewReplacer("ROOT", root, "SPEC", damaged)
		got := command(t, strings.Fields(fill.Replace(c.args))...)
		if got.status != c.status || got.out != "" || !strings.Contains(got.err, fill.Replace(c.want)) {
			t.Errorf("%s: %+v", c.args, got)
		}
	}
}
