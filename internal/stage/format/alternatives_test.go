package format_test

import (
	"slices"
	"testing"

	"github.com/stoker-data/stoker/internal/stage/format"
)

func TestFirst(t *testing.T) {
	names := []string{"jpg", "png", "a;b", ""}
	for wanted, want := range map[string]int{
		"jpg": 0, "png;jpg": 1, "gif;jpg;png": 0, "a;b": 2, "a": -1, "gif": -1, "gif;webp": -1, "": 3, "gif;": 3,
	} {
		if got := format.First(wanted, func(name string) int { return slices.Index(names, name) }); got != want {
			t.Errorf("%q: %d, want %d", wanted, got, want)
		}
	}
}
