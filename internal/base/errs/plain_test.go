package errs

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestName(t *testing.T) {
	for name, want := range map[string]string{
		"":                    "",
		"n01440764/tench 1":   "n01440764/tench 1",
		"größe/日本":            "größe/日本",
		"a\nb":                `"a\nb"`,
		"a\tb":                `"a\tb"`,
		"\x1b[2J\x07":         `"\x1b[2J\a"`,
		"\u009b31m":           `"\u009b31m"`,
		"\u202egpj.exe":       `"\u202egpj.exe"`,
		"not utf-8: \xff\xfe": `"not utf-8: \xff\xfe"`,
		`"quoted"`:            `"\"quoted\""`,
		"\ufffd":              "\ufffd",
	} {
		if got := Name(name); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
	e := New(Damaged, "the key %s is bad", "\x1b[2J").At(Where{Shard: "a\nb.tar", Member: "\x1bc", Offset: Known(1)}).Because(errors.New("\x9b"))
	if got, want := e.Error(), `the key \x1b[2J is bad (shard "a\nb.tar", member "\x1bc", offset 1): \x9b`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// What is written moves nothing, and says what was there.
func TestPlain(t *testing.T) {
	still := func(s string, but string) bool {
		for _, r := range s {
			if !strings.ContainsRune(but, r) && (unicode.IsControl(r) || !unicode.IsPrint(r)) {
				return false
			}
		}
		return utf8.ValidString(s)
	}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "s")
		name := Name(s)
		if !still(name, "") {
			t.Fatalf("%q moves a terminal", name)
		}
		if back, err := strconv.Unquote(name); name != s && (err != nil || back != s) {
			t.Fatalf("%q became %q, which is %q: %v", s, name, back, err)
		}
		text := Plain(s)
		if !still(text, "\n\t") || Plain(text) != text {
			t.Fatalf("%q: %q", s, text)
		}
		if still(s, "\n\t") && text != s {
			t.Fatalf("%q was changed to %q", s, text)
		}
	})
}
