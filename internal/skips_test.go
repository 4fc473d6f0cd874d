package internal_test

import (
	"os"
	"os/exec"
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
	all := exec.Command("git", "ls-files", "-co", "--exclude-standard")
	all.Dir = ".."
	out, err := all.Output()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for path := range strings.Lines(string(out)) {
		path = "../" + strings.TrimSpace(path)
		name := path[strings.LastIndexByte(path, '/')+1:]
		if !strings.HasSuffix(name, "_test.go") && !strings.HasSuffix(name, ".py") || name == "skips_test.go" {
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
