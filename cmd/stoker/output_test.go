package main

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A command whose results cannot be written ends as a full disk does, whatever
// writes them.
func TestResultsThatCanNotBeWritten(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("there is no /dev/full")
	}
	defer full.Close()
	path := filepath.Join(t.TempDir(), "a.tar")
	shard(t, path, 3)
	for _, args := range [][]string{
		{"ls", path}, {"ls", path, "--json"}, {"cat", path, "0"}, {"inspect", path}, {"inspect", path, "--json"}, {"verify", path}, {"index", path},
	} {
		var errOut bytes.Buffer
		if status := run(t.Context(), args, full, &errOut); status != 6 || !strings.Contains(errOut.String(), "cannot write the results") {
			t.Errorf("%v: %d, %s", args, status, errOut.String())
		}
	}
}

// A key is taken as it is, and as ls prints it.
func TestKeysAsTheyAreListed(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range []string{"plain.txt", "two\nlines.txt", "\"quoted\".txt"} {
		if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(name)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "a.tar")
	write(t, path, b.Bytes())
	listed := command(t, "ls", path).out
	for key, printed := range map[string]string{"plain": "plain", "two\nlines": `"two\nlines"`, `"quoted"`: `"\"quoted\""`} {
		if !strings.Contains(listed, printed) {
			t.Errorf("%s is not in %s", printed, listed)
		}
		for _, given := range []string{key, printed} {
			if r := command(t, "cat", path, given, "--field", "txt"); r.status != 0 || r.out != key+".txt" {
				t.Errorf("%q: %d, %q %s", given, r.status, r.out, r.err)
			}
		}
	}
}

// Of several paths the one that is a folder is named.
func TestAFolderAmongFiles(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "a.tar"), filepath.Join(dir, "img")
	shard(t, path, 3)
	if err := os.MkdirAll(filepath.Join(other, "cat"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"ls", path, other}, {"ls", other, path}} {
		if r := command(t, args...); r.status != 2 || !strings.Contains(r.err, "one of them, "+other+", is a folder") {
			t.Errorf("%d, %s", r.status, r.err)
		}
	}
}
