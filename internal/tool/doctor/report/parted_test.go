package report

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Words that fit stay whole, and nothing is put between them: none is empty, and their
// letters are those of the text.
func TestPartedWords(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"", nil}, {" a  b\n", []string{"a", "b"}}, {"äöü", []string{"äöü"}}, {"äöüß", []string{"äöü", "ß"}}, {"abcdef x", []string{"abc", "def", "x"}},
	} {
		if got := parted(c.text, 3); !slices.Equal(got, c.want) {
			t.Errorf("%q is parted into %q, not %q", c.text, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		text, most := rapid.StringMatching(`[aä ]{0,40}`).Draw(t, "text"), rapid.IntRange(1, 12).Draw(t, "most")
		got := parted(text, most)
		if strings.Join(got, "") != strings.ReplaceAll(text, " ", "") {
			t.Errorf("%q is parted into %q", text, got)
		}
		for _, word := range got {
			if n := len([]rune(word)); n == 0 || n > most {
				t.Errorf("%q of %q has %d letters", word, text, n)
			}
		}
	})
}
