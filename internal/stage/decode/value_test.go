package decode

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/jsontext"
	"github.com/stoker-data/stoker/internal/base/kernel"
)

// space is the white space that occurs around labels.
func space(t *rapid.T, label string) string {
	return rapid.StringOfN(rapid.SampledFrom([]rune(" \t\r\n")), 0, 4, -1).Draw(t, label)
}

func TestIntRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.Int64().Draw(t, "n")
		got, err := Int([]byte(space(t, "before") + strconv.FormatInt(want, 10) + space(t, "after")))
		if err != nil || got != want {
			t.Fatalf("got %d, %v; want %d", got, err, want)
		}
	})
}

func TestFloatRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := math.Float64frombits(rapid.Uint64().Draw(t, "bits"))
		verb := rapid.SampledFrom([]byte("eEfgG")).Draw(t, "verb")
		got, err := Float([]byte(space(t, "before") + strconv.FormatFloat(want, verb, -1, 64) + space(t, "after")))
		if err != nil || got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
			t.Fatalf("got %v, %v; want %v", got, err, want)
		}
	})
}

func TestTextAndJSONRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.String().Draw(t, "text")
		got, err := Text([]byte(want))
		if err != nil || got != want {
			t.Fatalf("got %q, %v; want %q", got, err, want)
		}
		value, err := json.Marshal(map[string]any{want: []any{want, rapid.Float64Range(-1e9, 1e9).Draw(t, "x"), nil, true}})
		if err != nil {
			t.Fatal(err)
		}
		if err := JSON(append([]byte(space(t, "before")), value...)); err != nil {
			t.Fatalf("%s: %v", value, err)
		}
		// Every proper part of an object is damaged.
		if err := JSON(value[:rapid.IntRange(0, len(value)-1).Draw(t, "cut")]); err == nil {
			t.Fatalf("a part of %s is taken", value)
		}
	})
}

func TestWrongValues(t *testing.T) {
	asInt := func(b []byte) error { _, err := Int(b); return err }
	asFloat := func(b []byte) error { _, err := Float(b); return err }
	asText := func(b []byte) error { _, err := Text(b); return err }
	long := strings.Repeat("seven ", 100)
	for _, c := range []struct {
		name   string
		decode func([]byte) error
		text   string
		want   string
	}{
		{"int", asInt, "", "the text is empty"},
		{"int", asInt, " \n", "the text is empty"},
		{"int", asInt, "cat\n", `the text is "cat"`},
		{"int", asInt, "3.0", `the text is "3.0"`},
		{"int", asInt, "1 2", `the text is "1 2"`},
		{"int", asInt, "0x10", `the text is "0x10"`},
		{"int", asInt, "9223372036854775808", "does not fit into 64 bits"},
		{"int", asInt, "\x93NUMPY\x01\x00", `the text is "\x93NUMPY\x01\x00"`},
		{"int", asInt, long, "... (599 bytes)"},
		{"float", asFloat, "", "the text is empty"},
		{"float", asFloat, "1,5", `the text is "1,5"`},
		{"float", asFloat, "0x1p-2", `the text is "0x1p-2"`},
		{"float", asFloat, "1_000", `the text is "1_000"`},
		{"float", asFloat, "1e999", "does not fit into a float64"},
		{"text", asText, "caf\xe9", "byte 3 of 4 is 0xe9"},
		{"text", asText, "ab\xed\xa0\x80", `an unpaired surrogate, \ud800, at byte 2 of 5`},
		{"text", asText, "\xed\xbf\xbf", `an unpaired surrogate, \udfff, at byte 0 of 3`},
		{"text", asText, "\xed\xa0", "byte 0 of 2 is 0xed"},
		{"json", JSON, "", "the text is empty"},
		{"json", JSON, "{'a': 1}", "not JSON"},
		{"json", JSON, `{"a": 1} {"a": 2}`, "at byte 9"},
		{"json", JSON, `{"a": nan}`, "not JSON: invalid character 'a' in literal null (expecting 'u') at byte 7"},
		{"json", JSON, `{"a": NaN, NaN: 1}`, "invalid character 'N' looking for beginning of object key string at byte 11"},
		{"json", JSON, `{"a": -NaN}`, "invalid character 'N' in numeric literal at byte 7"},
		{"json", JSON, "\"\xff\"", "not UTF-8"},
	} {
		err := c.decode([]byte(c.text))
		var format kernel.FormatError
		if !errors.As(err, &format) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s of %q: %v, want a FormatError with %q", c.name, c.text, err, c.want)
		}
	}
}

func FuzzValues(f *testing.F) {
	for _, text := range []string{"", "12", " -7\n", "1e5", "nan", "{}", `{"a":[1,2]}`, "\xff", "0x1p5"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		n, intErr := Int(b)
		x, floatErr := Float(b)
		text, textErr := Text(b)
		for _, err := range []error{intErr, floatErr, textErr, JSON(b)} {
			if err != nil && (!named(err) || !utf8.ValidString(err.Error()) || len(err.Error()) > 500) {
				t.Fatalf("%q: %v", b, err)
			}
		}
		if intErr == nil && (floatErr != nil || x != float64(n)) {
			t.Fatalf("%q is the integer %d and the number %v (%v)", b, n, x, floatErr)
		}
		if textErr == nil && text != string(b) {
			t.Fatalf("%q became %q", b, text)
		}
		if (JSON(b) == nil) && jsontext.Valid(b) != nil {
			t.Fatalf("%q is not JSON", b)
		}
	})
}
