package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A run that is stopped between epochs and started again ends with the weights
// of one that was not.
func TestStoppedAndStartedAgain(t *testing.T) {
	t.Setenv("STOKER_CACHE", t.TempDir())
	data := t.TempDir()
	for _, name := range []string{"chelsea", "coffee"} {
		raw, err := os.ReadFile("../../../testdata/photos/" + name + ".jpg")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(data, name), 0o755); err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			if err := os.WriteFile(filepath.Join(data, name, fmt.Sprintf("%d.jpg", i)), raw, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	dir := t.TempDir()
	whole, parts := filepath.Join(dir, "whole.json"), filepath.Join(dir, "parts.json")
	if err := run(context.Background(), data, whole, 2); err != nil {
		t.Fatal(err)
	}
	for epochs := range int64(3) {
		if err := run(context.Background(), data, parts, epochs); err != nil {
			t.Fatal(err)
		}
	}
	a, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(parts)
	if err != nil {
		t.Fatal(err)
	}
	if !cmp.Equal(a, b) {
		t.Fatal("the two runs differ")
	}
}
