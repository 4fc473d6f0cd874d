package decode

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/stoker-data/stoker/internal/base/jsontext"
	"github.com/stoker-data/stoker/internal/base/kernel"
)

// shownBytes limits how much of an invalid text an error quotes.
const shownBytes = 40

// Int reads a decimal integer. White space around it is allowed.
func Int(b []byte) (int64, error) {
	text := bytes.TrimSpace(b)
	n, err := strconv.ParseInt(string(text), 10, 64)
	switch {
	case err == nil:
		return n, nil
	case len(text) == 0:
		return 0, kernel.FormatError("expected an integer, but the text is empty")
	case errors.Is(err, strconv.ErrRange):
		return 0, kernel.FormatError(fmt.Sprintf("the integer %s does not fit into 64 bits", shown(text)))
	}
	return 0, kernel.FormatError(fmt.Sprintf("expected an integer, but the text is %s", shown(text)))
}

// Float reads a number, also "nan" and "inf" as Python writes them. White space
// around it is allowed. A number out of the range of float64 is an error.
func Float(b []byte) (float64, error) {
	text := bytes.TrimSpace(b)
	if len(text) == 0 {
		return 0, kernel.FormatError("expected a number, but the text is empty")
	}
	// ParseFloat also accepts hexadecimal floats and underscores, as in Go source;
	// in a label they are more likely damage than numbers.
	if bytes.ContainsAny(text, "_xXpP") {
		return 0, kernel.FormatError(fmt.Sprintf("expected a number, but the text is %s", shown(text)))
	}
	x, err := strconv.ParseFloat(string(text), 64)
	switch {
	case err == nil:
		return x, nil
	case errors.Is(err, strconv.ErrRange) && math.IsInf(x, 0):
		return 0, kernel.FormatError(fmt.Sprintf("the number %s does not fit into a float64", shown(text)))
	}
	return 0, kernel.FormatError(fmt.Sprintf("expected a number, but the text is %s", shown(text)))
}

// Text returns b unchanged, including white space; it must be valid UTF-8.
func Text(b []byte) (string, error) {
	if utf8.Valid(b) {
		return string(b), nil
	}
	at := 0
	for at < len(b) {
		r, n := utf8.DecodeRune(b[at:])
		if r == utf8.RuneError && n == 1 {
			break
		}
		at += n
	}
	if half := surrogate(b[at:]); half != 0 {
		return "", kernel.FormatError(fmt.Sprintf("the text has an unpaired surrogate, \\u%04x, at byte %d of %d: JSON can write it as an escape, but it is not a character", half, at, len(b)))
	}
	return "", kernel.FormatError(fmt.Sprintf("the text is not UTF-8: byte %d of %d is 0x%02x", at, len(b), b[at]))
}

// surrogate is the half of a surrogate pair that b begins with, in the three bytes
// that UTF-8 would use for it (see jsontext); 0 if there is none.
func surrogate(b []byte) rune {
	if len(b) < 3 || b[0] != 0xed || b[1]&0xe0 != 0xa0 || b[2]&0xc0 != 0x80 {
		return 0
	}
	return 0xd000 | rune(b[1]&0x3f)<<6 | rune(b[2]&0x3f)
}

// JSON validates that b is one JSON value in UTF-8, as Python's json module reads it:
// NaN, Infinity and -Infinity are numbers.
func JSON(b []byte) error {
	if len(bytes.TrimSpace(b)) == 0 {
		return kernel.FormatError("expected a JSON value, but the text is empty")
	}
	if _, err := Text(b); err != nil {
		return err
	}
	var invalid *jsontext.Error
	if errors.As(jsontext.Valid(b), &invalid) {
		from := max(0, min(invalid.Offset-shownBytes/2, len(b)))
		return kernel.FormatError(fmt.Sprintf("not JSON: %s at byte %d, near %s", invalid.What, invalid.Offset, shown(b[from:])))
	}
	return parseable(b)
}

// What Python's json module can always read: it recurses once per level, and
// rejects integers of more than 4,300 digits.
const (
	maxDepth  = 500
	maxDigits = 4000
)

// parseable rejects valid JSON that a later reader could not parse.
func parseable(b []byte) error {
	depth, digits := 0, 0
	inText, escaped := false, false
	for i, c := range b {
		switch {
		case inText:
			switch {
			case escaped:
				escaped = false
			case c == '\\':
				escaped = true
			case c == '"':
				inText = false
			}
			continue
		case c == '"':
			inText = true
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			depth--
		}
		if '0' <= c && c <= '9' {
			digits++
		} else {
			digits = 0
		}
		if depth > maxDepth || digits > maxDigits {
			return kernel.FormatError(fmt.Sprintf("JSON nested deeper than %d, or a number of more than %d digits, at byte %d", maxDepth, maxDigits, i))
		}
	}
	return nil
}

// shown quotes a text for an error, shortened, whatever its bytes.
func shown(b []byte) string {
	if len(b) <= shownBytes {
		return strconv.Quote(string(b))
	}
	return strconv.Quote(strings.ToValidUTF8(string(b[:shownBytes]), "?")) + fmt.Sprintf("... (%d bytes)", len(b))
}
