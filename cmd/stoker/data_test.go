package main

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// No verb waits for a pipe.
func TestPipes(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo.bin")
	if err := unix.Mkfifo(fifo, 0o644); err != nil {
		t.Fatal(err)
	}
	for verb, more := range map[string][]string{
		"inspect": nil, "verify": nil, "ls": nil, "cat": {"3"}, "index": nil, "pack": {filepath.Join(t.TempDir(), "packed")}, "bench": nil, "order": nil,
	} {
		args := append([]string{verb, fifo}, more...)
		if got := command(t, args...); got.status != 5 || !strings.Contains(got.err, "it is a named pipe") || !strings.Contains(got.err, "try: ") {
			t.Errorf("%s: %d: %s", verb, got.status, got.err)
		}
	}
}

// Every verb that opens a dataset takes what the dataset's path does not say.
func TestDatasetFlags(t *testing.T) {
	const tokens = "../../testdata/tokens/train.bin"
	flags := []string{"--window", "16", "--stride", "5", "--dtype", "uint16"}
	for verb, more := range map[string][]string{
		"inspect": {tokens, "--check", "9"}, "verify": {tokens}, "ls": {tokens, "-n", "2"}, "cat": {tokens, "3"},
		"index": {tokens}, "pack": {tokens, filepath.Join(t.TempDir(), "packed"), "--output", "npy"},
		"bench": {tokens, "--epochs", "1", "--batch-size", "8"},
	} {
		args := append([]string{verb}, more...)
		if got := command(t, append(args, flags...)...); got.status != 0 {
			t.Errorf("%s: %d: %s", verb, got.status, got.err)
		}
		if verb == "pack" { // documents are what is packed of tokens
			continue
		}
		if got := command(t, args...); got.status != 2 || !strings.Contains(got.err, "what a sample is") {
			t.Errorf("%s without flags: %d: %s", verb, got.status, got.err)
		}
	}
	for says, args := range map[string][]string{
		"dataset.database is of lmdb": {"ls", "../../testdata/tfrecord/raw.tfrec", "--database", "x"},
		"a manifest is one table":     {"ls", "a.csv", "b.csv", "--manifest"},
		"--unpacked":                  {"ls", tokens, "--unpacked", "much"},
		`"foldr"`:                     {"inspect", tokens, "--format", "foldr"},
		"does not travel":             {"index", "../../testdata/photos/coffee.jpg", "--format", "files", "--beside"},
	} {
		if got := command(t, args...); got.status != 2 || !strings.Contains(got.err, says) {
			t.Errorf("%v: %d: %s", args, got.status, got.err)
		}
	}
}
