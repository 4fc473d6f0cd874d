package show_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stoker-data/stoker/internal/tool/show"
)

// A text of several lines becomes one. A line that is as wide as a report stays whole;
// a longer one is cut at its end, and says so.
func TestOneLine(t *testing.T) {
	wide := strings.Repeat("ä", show.Width)
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{" with torch.no_grad():\n\tmodel( x )\n", "with torch.no_grad(): model( x )"},
		{wide, wide},
		{wide + "ä", strings.Repeat("ä", show.Width-4) + " ..."},
		{"  " + strings.Repeat("word ", 40), strings.Repeat("word ", 15) + "w ..."},
	} {
		got := show.OneLine(c.text)
		if got != c.want {
			t.Errorf("%q is %q, not %q", c.text, got, c.want)
		}
		if n := utf8.RuneCountInString(got); n > show.Width {
			t.Errorf("%q has %d characters", got, n)
		}
	}
}
