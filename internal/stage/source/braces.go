package source

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// MaxNames bounds what braces may become: {0..999999999} is a slip of the hand,
// and must not eat the memory.
const MaxNames = 10_000_000

// Braces expands the braces of one pattern as bash does, in order: {a,b}, {1..9},
// {001..100} with its zeros, {a..e}, {0..10..5}, nested and side by side. Braces
// around one thing ({x}, {}) stay, and a backslash takes the meaning from what
// follows it. Unlike bash, braces that do not pair are an error, as they are for
// WebDataset: they are a slip in every dataset seen.
func Braces(pattern string) ([]string, error) {
	out, err := expandBraces(pattern, MaxNames)
	if err != nil {
		return nil, err
	}
	for i := range out {
		out[i] = unescape(out[i])
	}
	return out, nil
}

// expandBraces expands the first brace expression and, for each of what it
// stands for, what comes after it.
func expandBraces(s string, limit int) ([]string, error) {
	open, shut, commas, err := firstBraces(s)
	if err != nil {
		return nil, err
	}
	if open < 0 {
		return []string{s}, nil
	}
	inner := s[open+1 : shut]
	var items []string
	switch {
	case len(commas) > 0:
		from := open + 1
		for _, c := range append(commas, shut) {
			sub, err := expandBraces(s[from:c], limit)
			if err != nil {
				return nil, err
			}
			items = append(items, sub...)
			from = c + 1
		}
	default:
		var ok bool
		if items, ok, err = span(inner, limit); err != nil {
			return nil, err
		} else if !ok {
			sub, err := expandBraces(inner, limit)
			if err != nil {
				return nil, err
			}
			for _, x := range sub {
				items = append(items, "{"+x+"}")
			}
		}
	}
	tails, err := expandBraces(s[shut+1:], limit)
	if err != nil {
		return nil, err
	}
	if len(items) > limit/len(tails) {
		return nil, TooMany(s)
	}
	out := make([]string, 0, len(items)*len(tails))
	for _, item := range items {
		for _, tail := range tails {
			out = append(out, s[:open]+item+tail)
		}
	}
	return out, nil
}

// firstBraces finds the first pair of braces and the commas directly in it;
// open < 0: there is none.
func firstBraces(s string) (open, shut int, commas []int, err error) {
	open, depth := -1, 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '{':
			if depth == 0 {
				open = i
			}
			depth++
		case ',':
			if depth == 1 {
				commas = append(commas, i)
			}
		case '}':
			if depth--; depth < 0 {
				return 0, 0, nil, unpaired(s, i, "}", "{")
			}
			if depth == 0 {
				return open, i, commas, nil
			}
		}
	}
	if depth > 0 {
		return 0, 0, nil, unpaired(s, open, "{", "}")
	}
	return -1, 0, nil, nil
}

func unpaired(s string, at int, has, wants string) error {
	return errs.New(errs.Config, "the %s at character %d of %s has no %s", has, at+1, strconv.Quote(s), wants).
		Try("write train-{000..099}.tar for a hundred shards, or \\%s for the character itself", has)
}

// span expands 1..9, 001..100, a..e, 0..10..5; ok is false for anything else.
func span(s string, limit int) (items []string, ok bool, err error) {
	part := strings.Split(s, "..")
	if len(part) != 2 && len(part) != 3 {
		return nil, false, nil
	}
	step := int64(1)
	if len(part) == 3 {
		n, err := strconv.ParseInt(part[2], 10, 64)
		if err != nil {
			return nil, false, nil
		}
		step = max(n, -n, 1)
	}
	from, err1 := strconv.ParseInt(part[0], 10, 64)
	to, err2 := strconv.ParseInt(part[1], 10, 64)
	letters := false
	switch {
	case err1 == nil && err2 == nil:
	case len(part[0]) == 1 && len(part[1]) == 1 && letter(part[0][0]) && letter(part[1][0]):
		from, to, letters = int64(part[0][0]), int64(part[1][0]), true
	default:
		return nil, false, nil
	}
	width := 0
	if padded(part[0]) || padded(part[1]) {
		width = max(len(part[0]), len(part[1]))
	}
	span := uint64(to) - uint64(from)
	if to < from {
		span, step = -span, -step
	}
	count := span / uint64(max(step, -step))
	if count >= uint64(limit) {
		return nil, false, TooMany("{" + s + "}")
	}
	count++
	items = make([]string, 0, count)
	for i := range int64(count) {
		n := from + i*step
		if letters {
			items = append(items, string(rune(n)))
		} else {
			items = append(items, fmt.Sprintf("%0*d", width, n))
		}
	}
	return items, true, nil
}

func letter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

// padded says whether a number is written with zeros in front.
func padded(s string) bool {
	s = strings.TrimLeft(s, "+-")
	return len(s) > 1 && s[0] == '0'
}

func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// TooMany is the error of a pattern that stands for more than MaxNames.
func TooMany(pattern string) error {
	return errs.New(errs.Config, "the braces of %s stand for more than %d names", strconv.Quote(pattern), MaxNames).
		Try("check the numbers in the braces")
}
