package stoker_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	stoker "github.com/stoker-data/stoker"
)

// The guide's program compiles, and its Spec is one.
func TestGuide(t *testing.T) {
	text, err := os.ReadFile("docs/guides/go.md")
	if err != nil {
		t.Fatal(err)
	}
	block := func(language string) []byte {
		m := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindSubmatch(text)
		if m == nil {
			t.Fatalf("there is no %s in the guide", language)
		}
		return m[1]
	}
	spec, err := stoker.ParseSpec(block("yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if spec.Batch.Size != 64 || spec.World != 8 || len(spec.Fields[0].Transform) != 3 {
		t.Errorf("%+v", spec)
	}
	program := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(program, block("go"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "vet", program).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
