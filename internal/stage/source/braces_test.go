package source_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// What bash 5.2 makes of the same words (and braceexpand, where it agrees).
func TestBraces(t *testing.T) {
	for pattern, want := range map[string]string{
		"plain":               "plain",
		"":                    "",
		"t-{000..003}.tar":    "t-000.tar t-001.tar t-002.tar t-003.tar",
		"{8..11}":             "8 9 10 11",
		"{08..11}":            "08 09 10 11",
		"{3..1}":              "3 2 1",
		"{-2..1}":             "-2 -1 0 1",
		"{0..10..5}":          "0 5 10",
		"{10..0..-5}":         "10 5 0",
		"{a..e..2}":           "a c e",
		"{c..a}":              "c b a",
		"{a,b}{1,2}":          "a1 a2 b1 b2",
		"x{a,b{1..3},c}y":     "xay xb1y xb2y xb3y xcy",
		"{a,}":                "a ",
		"{a,{b,{c,d}}}":       "a b c d",
		"{x}":                 "{x}",
		"{}":                  "{}",
		"{x}{1,2}":            "{x}1 {x}2",
		"{{1,2}}":             "{1} {2}",
		"{1..x}":              "{1..x}",
		`\{a,b\}`:             "{a,b}",
		`{a\,b,c}`:            "a,b c",
		"s3://b/{0..1}/x.tar": "s3://b/0/x.tar s3://b/1/x.tar",
		"{1..2}..{3..4}":      "1..3 1..4 2..3 2..4",
		"{001..2}":            "001 002",
		"{9223372036854775806..9223372036854775807}": "9223372036854775806 9223372036854775807",
	} {
		got, err := source.Braces(pattern)
		if err != nil {
			t.Errorf("%q: %v", pattern, err)
		} else if strings.Join(got, " ") != want {
			t.Errorf("%q became %q, want %q", pattern, strings.Join(got, " "), want)
		}
	}
	for pattern, want := range map[string]string{
		"{a":                                    "no }",
		"a}":                                    "no {",
		"{{a}":                                  "no }",
		"{1..1000000000}":                       "more than",
		"{0..9}" + strings.Repeat("{0..9}", 12): "more than",
		"{-9223372036854775808..9223372036854775807}": "more than",
	} {
		_, err := source.Braces(pattern)
		e := errs.From(err)
		if err == nil || e.Code != errs.Config || !strings.Contains(e.What, want) || e.Hint == "" {
			t.Errorf("%q: %v", pattern, err)
		}
	}
}

func TestBracesCountProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 200).Draw(t, "n")
		from := rapid.IntRange(-50, 5000).Draw(t, "from")
		width := rapid.IntRange(1, 6).Draw(t, "width")
		pattern := fmt.Sprintf("a{%0*d..%0*d}b{x,y}", width, from, width, from+n)
		got, err := source.Braces(pattern)
		if err != nil || len(got) != 2*(n+1) {
			t.Fatalf("%s: %d names, %v", pattern, len(got), err)
		}
		slices.Sort(got)
		if len(slices.Compact(got)) != 2*(n+1) {
			t.Fatalf("%s: the same name twice", pattern)
		}
	})
}

func TestBracesNeverPanic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, _ = source.Braces(rapid.StringOfN(rapid.RuneFrom([]rune(`{},.\019a-*`)), 0, 30, -1).Draw(t, "pattern"))
	})
}
