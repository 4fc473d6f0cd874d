package stagetest

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// update is registered here, once for every test binary that uses Golden. A
// package that does so must not have an -update flag of its own.
var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// Golden compares got with the file testdata/name, byte for byte; with -update it
// writes the file. A golden is a promise to users: look at the difference before
// you commit it.
func Golden(t testing.TB, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", filepath.FromSlash(name))
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v\nIf the golden is new, write it: go test -run '^%s$' -update", err, t.Name())
	}
	if diff := goldenDiff(got, want); diff != "" {
		t.Errorf("%s differs %s\nIf that is meant: go test -run '^%s$' -update", path, diff, t.Name())
	}
}

// goldenDiff tells where two files begin to differ: in which line, or, if they are
// not text, in which byte. It returns "" if they are equal.
func goldenDiff(got, want []byte) string {
	if bytes.Equal(got, want) {
		return ""
	}
	if bytes.IndexByte(got, 0) >= 0 || bytes.IndexByte(want, 0) >= 0 {
		at := 0
		for at < len(got) && at < len(want) && got[at] == want[at] {
			at++
		}
		return "from byte " + strconv.Itoa(at) + " on: got " + strconv.Itoa(len(got)) + " bytes, want " + strconv.Itoa(len(want))
	}
	gotLines, wantLines := bytes.Split(got, []byte("\n")), bytes.Split(want, []byte("\n"))
	line := func(lines [][]byte, i int) string {
		if i >= len(lines) {
			return "nothing"
		}
		return strconv.Quote(string(lines[i]))
	}
	i := 0
	for i < len(gotLines) && i < len(wantLines) && bytes.Equal(gotLines[i], wantLines[i]) {
		i++
	}
	return "in line " + strconv.Itoa(i+1) + ":\n  got  " + line(gotLines, i) + "\n  want " + line(wantLines, i)
}
