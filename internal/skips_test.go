package internal_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var skip = regexp.MustCompile(`\b(?:[tb]|rt|pytest)\.(?:Skip|Skipf|SkipNow|skip)\(.*|\bpytest\.importorskip\(.*|\bpytest\.mark\.skip.*`)

// Every test that may be skipped is in testdata/skips.txt: what a skip would hide is
// decided there, once, and not where a test happens to fail.
func TestSkipsAreDeclared(t *testing.T) {
	list, err := os.ReadFile("testdata/skips.txt")
	if err != nil {
		t.Fatal(err)
	}
	var declared []string
	for line := range strings.Lines(string(list)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			declared = append(declared, line)
		}
	}
	var found []string
	for _, path := range written(t, "..") {
		name := path[strings.LastIndexByte(path, '/')+1:]
		test := strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, ".py") || strings.HasSuffix(name, ".go") && strings.Contains(path, "/stagetest/")
		if !test || name == "skips_test.go" {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			continue // deleted, and not committed yet
		}
		for line := range strings.Lines(string(text)) {
			if call := skip.FindString(strings.TrimSpace(line)); call != "" {
				found = append(found, name+": "+call)
			}
		}
	}
	if len(found) == 0 {
		t.Fatal("no skip was found at all")
	}
	slices.Sort(found)
	slices.Sort(declared)
	for _, call := range slices.Compact(found) {
		if !slices.Contains(declared, call) {
			t.Errorf("not in testdata/skips.txt: %s", call)
		}
	}
	for _, call := range declared {
		if !slices.Contains(found, call) {
			t.Errorf("in testdata/skips.txt, and nowhere else: %s", call)
		}
	}
}

// written are the files below a folder that are written by hand: those that git keeps or
// would keep. In a tree without git, as an archive unpacks it, all but hidden folders and
// what make builds.
func written(t *testing.T, top string) []string {
	t.Helper()
	var paths []string
	all := exec.Command("git", "ls-files", "-co", "--exclude-standard")
	all.Dir = top
	if out, err := all.Output(); err == nil {
		for path := range strings.Lines(string(out)) {
			paths = append(paths, filepath.Join(top, strings.TrimSuffix(path, "\n")))
		}
	}
	if len(paths) > 0 { // none: the tree is an ignored folder of another repository
		return paths
	}
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() && path != top && (strings.HasPrefix(name, ".") || name == "build" || name == "dist") {
			return fs.SkipDir
		}
		if !entry.IsDir() {
			paths = append(paths, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// An archive of the tree has no git.
func TestWrittenWithoutGit(t *testing.T) {
	top := t.TempDir()
	t.Setenv("GIT_CEILING_DIRECTORIES", filepath.Dir(top)) // which may be in a repository
	for _, name := range []string{"a/x_test.go", ".venv/y.py", "build/z.py", "python/build.py"} {
		if err := os.MkdirAll(filepath.Join(top, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(top, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{filepath.Join(top, "a/x_test.go"), filepath.Join(top, "python/build.py")}
	if got := written(t, top); !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
}
