package errs

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestNearest(t *testing.T) {
	for _, c := range []struct{ word, want, from string }{
		{"jpeg", "jpg", "png jpg cls"},
		{"imgae", "image", "label image"},
		{"JPG", "jpg", "png jpg"},
		{"cat", "", "elephant hippopotamus"},
		{"x", "", "abc de"},
		{"", "", "abc"},
		{"shufle", "shuffle", "seed shuffle"},
		{"batch_sise", "batch_size", "batch_size batch_sampler"},
		{"ab", "ab", "ac ab"},
		{"train", "train2", "train2 train3"},
		{"größe", "grösse", "grosz grösse"},
	} {
		if got := Nearest(c.word, strings.Fields(c.from)); got != c.want {
			t.Errorf("Nearest(%q, %s) = %q, want %q", c.word, c.from, got, c.want)
		}
	}
}

func TestNearestProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.StringMatching(`[a-z]{1,9}`), 1, 8).Draw(t, "words")
		word := rapid.SampledFrom(words).Draw(t, "word")
		if got := Nearest(word, words); got != word {
			t.Fatalf("a word that is there is nearest to %q", got)
		}
	})
}
