package main

import (
	"strings"
	"testing"
)

// What tune refuses ends it with status 2, before anything is measured.
func TestTuneRefuses(t *testing.T) {
	for _, args := range [][]string{
		{"--budget", "0"}, {"--budget", "NaN"}, {"--step-ms", "-1"}, {"--image-size", "0"}, {"--workers", "0"}, {"--spec", "/nowhere/spec.yaml"},
	} {
		got := command(t, append([]string{"tune", t.TempDir()}, args...)...)
		if got.status != 2 || got.out != "" || !strings.Contains(got.err, strings.TrimPrefix(args[0], "--")) && args[0] != "--spec" {
			t.Errorf("%v: %+v", args, got)
		}
	}
}

// A dataset that is not there ends tune with its error.
func TestTuneWithoutADataset(t *testing.T) {
	if got := command(t, "tune", t.TempDir()+"/nowhere"); got.status != 2 || got.out != "" || !strings.Contains(got.err, "nowhere") {
		t.Errorf("%+v", got)
	}
}
