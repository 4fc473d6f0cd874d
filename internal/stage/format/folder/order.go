package folder

import (
	"cmp"
	"unicode/utf8"
)

// comparePython orders names as Python orders the str that os.listdir makes of
// them: by code point, where a byte that is not UTF-8 counts as the surrogate
// 0xDC00 + byte. For valid UTF-8 this is the order of the bytes.
func comparePython(a, b string) int {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	if i == len(a) || i == len(b) {
		return cmp.Compare(len(a), len(b))
	}
	// Back to where the character began that differs; the bytes before i are the
	// same in both, so that both go back to the same place.
	for back := 0; i > 0 && back < utf8.UTFMax && !utf8.RuneStart(a[i-1]); back++ {
		i--
	}
	if i > 0 && a[i-1] >= utf8.RuneSelf {
		i--
	}
	for i < len(a) && i < len(b) {
		ra, na := codePoint(a[i:])
		rb, nb := codePoint(b[i:])
		if ra != rb {
			return cmp.Compare(ra, rb)
		}
		i += max(na, nb)
	}
	return cmp.Compare(len(a), len(b))
}

func codePoint(s string) (rune, int) {
	r, n := utf8.DecodeRuneInString(s)
	if r == utf8.RuneError && n == 1 {
		return 0xDC00 + rune(s[0]), 1
	}
	return r, n
}
