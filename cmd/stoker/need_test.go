package main

import (
	"encoding/json"
	"math"
	"path/filepath"
	"strings"
	"testing"
)

// What bench measured is weighed against what is needed: too much for any machine, and
// so little that every machine gives it.
func TestBenchNeed(t *testing.T) {
	shards := t.TempDir()
	shard(t, filepath.Join(shards, "a-0.tar"), 8)
	args := []string{"bench", filepath.Join(shards, "a-0.tar"), "--epochs", "3", "--batch-size", "4", "--image-size", "16", "--workers", "1"}
	var r struct {
		PerSecond float64 `json:"samples_per_second"`
		CPU       float64 `json:"cpu_s_per_1000_samples"`
		Need      struct {
			Needed, Gives, Share float64
			Wasted               float64 `json:"gpu_time_wasted"`
			EpochSamples         int64   `json:"epoch_samples"`
			CoresNeeded          float64 `json:"cores_needed"`
			CoresMissing         int     `json:"cores_missing"`
			Servers              int
			GPUBytes             float64 `json:"gpu_bytes_per_sample"`
			ReadBytes            float64 `json:"read_bytes_per_sample"`
			Changes              []struct{ Name, Try string }
			Assumed              []string
		}
	}
	got := command(t, append(args, "--need", "1e9", "--gpus", "8", "--json")...)
	if got.status != 0 || got.err != "" {
		t.Fatalf("%+v", got)
	}
	if err := json.Unmarshal([]byte(got.out), &r); err != nil {
		t.Fatal(err)
	}
	n := r.Need
	near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-6*b }
	switch {
	case n.Needed != 8e9 || n.Gives != r.PerSecond || !near(n.Share, r.PerSecond/8e9) || !near(n.Wasted, 1-n.Share):
		t.Errorf("the rates: %+v", n)
	case !near(n.CoresNeeded, 8e6*r.CPU) || n.CoresMissing < 1000 || n.Servers != 0 || n.EpochSamples != 8:
		t.Errorf("cores and servers: %+v", n)
	case n.GPUBytes != 16*16*3+8 || n.ReadBytes < 1000 || len(n.Changes) == 0 || len(n.Assumed) == 0:
		t.Errorf("bytes and changes: %+v", n)
	}
	golden(t, "bench-need-shape.txt", withoutLines(shape(t, got.out), "need.changes[].", "storage_bytes"))

	got = command(t, append(args, "--need", "0.01")...)
	if got.status != 0 || !strings.Contains(got.out, "where the time went") {
		t.Fatalf("%+v", got)
	}
	_, text, ok := strings.Cut(got.out, "what the GPUs need: 1 GPU that trains 0.01 samples/s\n  This machine keeps up, with ")
	if !ok || strings.Contains(text, "close the gap") || !strings.Contains(text, "host to GPU") {
		t.Errorf("%s", got.out)
	}
}

// withoutLines is text without the lines that contain one of some words: those that depend on
// what limits the machine that runs the test.
func withoutLines(text string, words ...string) string {
	var b strings.Builder
next:
	for line := range strings.Lines(text) {
		for _, w := range words {
			if strings.Contains(line, w) {
				continue next
			}
		}
		b.WriteString(line)
	}
	return b.String()
}
