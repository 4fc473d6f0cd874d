package main

import (
	"os"
	"strings"
	"testing"
)

// Nothing is written to a store, and no folder is made of its name: verbs that write say so
// before they read anything.
func TestNothingIsWrittenToStores(t *testing.T) {
	src := folder(t, 2)
	t.Chdir(t.TempDir())
	for _, args := range [][]string{
		{"pack", src, "s3://bucket/packed"},
		{"pack", "--finish", "gs://bucket/packed"},
		{"verify", src, "--quarantine", "s3://bucket/damaged"},
		{"tune", src, "--playbook", "s3://bucket/playbook.yaml"},
		{"tune", src, "--playbook", "", "--plot", "az://container/plot"},
	} {
		got := command(t, args...)
		if got.status == 0 || got.out != "" || !strings.Contains(got.err, "does not write to them yet") || !strings.Contains(got.err, "upload") {
			t.Errorf("%q: %+v", args, got)
		}
	}
	left, err := os.ReadDir(".")
	if err != nil || len(left) > 0 {
		t.Errorf("there is %v, %v", left, err)
	}
	if got := command(t, "pack", src, "file://"+t.TempDir()+"/packed"); got.status != 0 {
		t.Errorf("a local folder as a URL: %+v", got)
	}
}
