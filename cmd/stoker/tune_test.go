package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/tool/tune"
)

func TestStats(t *testing.T) {
	root := folder(t, 2)
	got := command(t, "stats", root)
	if got.status != 0 || !strings.Contains(got.out, "Normalize(mean=[0.") || !strings.Contains(got.out, "3 classes, of 2 to 2 samples") {
		t.Errorf("%+v", got)
	}
	var report struct {
		Read    int64 `json:"read"`
		Damaged int64 `json:"damaged"`
	}
	got = command(t, "stats", root, "--sample", "50%", "--headers", "--json")
	if err := json.Unmarshal([]byte(got.out), &report); err != nil || report.Read != 3 {
		t.Errorf("%v: %+v", err, got)
	}
	bad := filepath.Join(root, "rocket", "00.jpg")
	b, err := os.ReadFile(bad)
	if err != nil {
		t.Fatal(err)
	}
	write(t, bad, b[:len(b)/2])
	if got = command(t, "stats", root); got.status != 3 || !strings.Contains(got.out, "1 sample is damaged, and left out") {
		t.Errorf("%+v", got)
	}
	where := bad + ", field \"image\", offset 0, sample "
	got = command(t, "stats", root, "--on-bad", "skip")
	if got.status != 0 || !strings.Contains(got.out, "  "+where) || !strings.Contains(got.out, ": cannot read the picture: the JPEG is truncated") {
		t.Errorf("%+v", got)
	}
	for _, args := range [][]string{{"stats"}, {"stats", root, "--on-bad", "skp"}, {"stats", root, "--sample", "200%"}} {
		if got := command(t, args...); got.status != 2 || !strings.Contains(got.err, "try:") {
			t.Errorf("%v: %+v", args, got)
		}
	}
}

func TestTune(t *testing.T) {
	dir := t.TempDir()
	book, plot := filepath.Join(dir, "book.yaml"), filepath.Join(dir, "plot")
	spec := filepath.Join(dir, "spec.yaml")
	write(t, spec, []byte("dataset: {format: synthetic, samples: 500, shape: [8, 8, 3]}\nbatch: {size: 4}\n"))
	args := []string{"tune", "--spec", spec, "--budget", "2", "--workers", "2", "--prefetch", "2,4", "--playbook", book, "--plot", plot}
	got := command(t, args...)
	if got.status != 0 || !strings.Contains(got.out, "\nuse num_workers=") || strings.Contains(got.out, "since") {
		t.Fatalf("%+v", got)
	}
	for _, name := range []string{book, plot + ".svg", plot + ".png"} {
		if _, err := os.Stat(name); err != nil {
			t.Error(err)
		}
	}
	got = command(t, append(args, "--json")...)
	var report tune.Report
	if err := json.Unmarshal([]byte(got.out), &report); err != nil || report.Before == "" || report.Choice.Samples <= 0 || len(report.Files) != 3 {
		t.Errorf("%v: %+v", err, got)
	}
	got = command(t, "tune", "--find", report.Dataset, "--playbook", book)
	var found struct{ Entry *tune.Entry }
	if err := json.Unmarshal([]byte(got.out), &found); err != nil || found.Entry == nil || found.Entry.Settings != report.Choice.Settings {
		t.Errorf("%v: %+v", err, got)
	}
	if got = command(t, "tune", "--find", "another", "--playbook", book); got.status != 0 || strings.Contains(got.out, "entry") {
		t.Errorf("%+v", got)
	}
	got = command(t, "tune", "--find", report.Dataset, "--find-device", "cuda", "--playbook", book)
	if got.status != 0 || strings.Contains(got.out, `"entry"`) || !strings.Contains(got.out, `"what": "decode_device"`) {
		t.Errorf("%+v", got)
	}
	there := filepath.Join(dir, "there.yaml")
	write(t, there, []byte("dataset: {format: synthetic, samples: 500, shape: [8, 8, 3]}\nbatch: {size: 4}\ndecode_device: {by: nvJPEG, share: 8}\n"))
	write(t, book, []byte("version: 7\n"))
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"tune"}, "no dataset was given\n  try: stoker tune data/train"},
		{[]string{"tune", dir, "--budget", "0"}, "--budget is 0"},
		{[]string{"tune", dir, "--step-ms=-1"}, "--step-ms is -1"},
		{[]string{"tune", dir, "--image-size", "0"}, "--image-size is 0"},
		{[]string{"tune", "--spec", spec, "--workers", "0"}, "at least one lane"},
		{[]string{"tune", "--spec", spec, "--playbook", book}, "version is 7"},
		{[]string{"tune", "--spec", there}, "decode_device, and this command has no device that decodes\n  try: use stoker.tune("},
		{[]string{"tune", dir, "--decode-device", "cuda"}, "unknown flag --decode-device"},
		{[]string{"tune", "--find", "x", "--playbook", filepath.Join(dir, "none.yaml")}, "none.yaml does not exist"},
	} {
		if got := command(t, c.args...); got.status != 2 || !strings.Contains(got.err, c.want) {
			t.Errorf("%v: %+v", c.args, got)
		}
	}
}
