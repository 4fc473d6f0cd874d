package internal_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Processors round a product before it is added to something, or they do not: Go's compiler
// for arm64 (and for ppc64, riscv64 and s390x) fuses both into one instruction unless
// float64(x*y) + z forbids it. Samples, orders and what is drawn are the same on every
// machine, so nothing that decides them is fused. Here are the packages that do; what is
// shown to people only, as statistics are, may be fused.
var exact = []string{
	"../internal/base/kernel/...", "../internal/base/mem", "../internal/base/rng", "../internal/base/wire",
	"../internal/spec/...", "../internal/stage/...", "../internal/stream/...", "../internal/fill/...",
	"../internal/tool/demo", "../internal/tool/pack/...",
}

func TestNothingExactIsFused(t *testing.T) {
	// go test asks for the files that a test looks at before it says "cached".
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") {
			_, err = os.Stat(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", append([]string{"build", "-gcflags=-S"}, exact...)...)
	build.Env = append(os.Environ(), "GOARCH=arm64", "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out[max(0, len(out)-2000):])
	}
	fused := regexp.MustCompile(`\(([^()]*)\)\s+FN?M(?:ADD|SUB)[SD]\s`)
	adds := 0
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "\tFADD") {
			adds++
		}
		if at := fused.FindStringSubmatch(line); at != nil {
			t.Errorf("%s: a product is fused with a sum; write float64(x*y) + z", at[1])
		}
	}
	if adds == 0 {
		t.Error("no addition of floats was found at all")
	}
}
