package jsontext_test

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/jsontext"
)

// What Python's json.loads says of each, and where it is not JSON.
func TestValid(t *testing.T) {
	for _, c := range []struct {
		text   string
		offset int // -1: it is valid
		what   string
	}{
		{`NaN`, -1, ""},
		{" -Infinity\n", -1, ""},
		{`[NaN,Infinity , -Infinity]`, -1, ""},
		{`{"a":NaN,"NaN":[{"b": -Infinity}], "\"Infinity\\": "\\"}`, -1, ""},
		{`{"a": nan}`, 7, "literal null"},
		{`NAN`, 0, "invalid character 'N'"},
		{`[Nan]`, 1, "invalid character 'N'"},
		{`[NaNs]`, 1, "invalid character 'N'"},
		{`[NaN1]`, 1, "invalid character 'N'"},
		{`[NaNNaN]`, 1, "invalid character 'N'"},
		{`[-NaN]`, 2, "invalid character 'N' in numeric literal"},
		{`[+Infinity]`, 1, "invalid character '+'"},
		{`[--Infinity]`, 2, "invalid character '-' in numeric literal"},
		{`[- Infinity]`, 2, "in numeric literal"},
		{`[1Infinity]`, 2, "invalid character 'I'"},
		{`[1-Infinity]`, 2, "invalid character '-'"},
		{`[NaN NaN]`, 5, "invalid character 'N' after array element"},
		{`["a" NaN]`, 5, "invalid character 'N' after array element"},
		{`{NaN: 1}`, 1, "invalid character 'N' looking for beginning of object key"},
		{`{"a": Infinity, NaN: 1}`, 16, "invalid character 'N' looking for beginning of object key"},
		{`{"a": NaN,}`, 10, "invalid character '}' looking for beginning of object key"},
		{`{"a" NaN}`, 5, "invalid character 'N' after object key"},
		{`[NaN`, 4, "unexpected end"},
		{`{"a": "NaN`, 10, "unexpected end"},
		{``, 0, "unexpected end"},
		{`NaN NaN`, 4, "invalid character 'N' after top-level value"},
	} {
		err := jsontext.Valid([]byte(c.text))
		var e *jsontext.Error
		switch {
		case c.offset < 0 && err == nil:
		case c.offset < 0 || !errors.As(err, &e) || e.Offset != c.offset || !strings.Contains(e.What, c.what):
			t.Errorf("%q: %v, wanted offset %d, %s", c.text, err, c.offset, c.what)
		}
	}
}

// pythonValue is a value as json.dumps writes it, and what it is where every float
// that JSON does not have is a text.
type pythonValue struct {
	text string
	want any
}

func drawValue(t *rapid.T, depth int) pythonValue {
	space := func() string { return rapid.SampledFrom([]string{"", "", " ", "\n\t"}).Draw(t, "space") }
	kind := rapid.IntRange(0, 6).Draw(t, "kind")
	if depth > 3 {
		kind %= 4
	}
	switch kind {
	case 0, 1:
		word := rapid.SampledFrom([]string{"NaN", "Infinity", "-Infinity"}).Draw(t, "word")
		return pythonValue{word, "<" + word + ">"}
	case 2:
		x := rapid.Float64Range(-1e9, 1e9).Draw(t, "number")
		return pythonValue{strconv.FormatFloat(x, 'g', -1, 64), x}
	case 3:
		s := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"NaN", `\`, `"`, ": NaN,", `",NaN,"`, "[-Infinity"})).Draw(t, "text")
		q, _ := json.Marshal(s)
		return pythonValue{string(q), s}
	case 4, 5:
		text, all := "[", []any{}
		for i := range rapid.IntRange(0, 4).Draw(t, "length") {
			v := drawValue(t, depth+1)
			if i > 0 {
				text += ","
			}
			text += space() + v.text + space()
			all = append(all, v.want)
		}
		return pythonValue{text + "]", all}
	}
	text, all := "{", map[string]any{}
	for i := range rapid.IntRange(0, 4).Draw(t, "length") {
		key := rapid.SampledFrom([]string{"NaN", "a", `"`, `\`, "Infinity,"}).Draw(t, "key") + strconv.Itoa(i)
		q, _ := json.Marshal(key)
		v := drawValue(t, depth+1)
		if i > 0 {
			text += ","
		}
		text += space() + string(q) + space() + ":" + space() + v.text + space()
		all[key] = v.want
	}
	return pythonValue{text + "}", all}
}

// Whatever json.dumps writes is valid and has the members that were written; a value
// that is cut or has a byte less is invalid, unless that is a value too.
func TestValidAsPythonWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawValue(t, 0)
		if err := jsontext.Valid([]byte(v.text)); err != nil {
			t.Fatalf("%s: %v", v.text, err)
		}
		if diff := cmp.Diff(v.want, parsed(t, []byte(v.text))); diff != "" {
			t.Fatalf("%s: %s", v.text, diff)
		}
	})
}

// parsed reads a value by Members alone, with other means for lists.
func parsed(t *rapid.T, b []byte) any {
	b = []byte(strings.TrimSpace(string(b)))
	switch {
	case b[0] == '{':
		all := map[string]any{}
		for key, v := range jsontext.Members(b) {
			all[string(jsontext.Unquote(nil, key))] = parsed(t, v)
		}
		return all
	case b[0] == '[': // a list is the members of an object without its keys
		all := []any{}
		for rest := b[1 : len(b)-1]; len(strings.TrimSpace(string(rest))) > 0; {
			used := 0
			for _, v := range jsontext.Members([]byte(`{"": ` + string(rest) + "}")) {
				all = append(all, parsed(t, v))
				used = strings.Index(string(rest), string(v)) + len(v)
				break
			}
			rest = []byte(strings.TrimSpace(string(rest[used:])))
			rest = []byte(strings.TrimPrefix(string(rest), ","))
		}
		return all
	case b[0] == '"':
		return string(jsontext.Unquote(nil, b))
	}
	x, err := strconv.ParseFloat(string(b), 64)
	if err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return "<" + string(b) + ">"
	}
	return x
}

// Nothing panics, an offset is in the text, and what encoding/json takes is taken.
// What is taken beside that is JSON if every NaN, Infinity and -Infinity is null.
func FuzzValid(f *testing.F) {
	for _, s := range []string{`[NaN]`, `{"a": -Infinity, NaN: 1}`, `["\"NaN", Infinity`, "NaN0", "[-NaN]", "-"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		err := jsontext.Valid(b)
		var e *jsontext.Error
		switch {
		case err == nil:
			plain := strings.NewReplacer("-Infinity", "null", "Infinity", "null", "NaN", "null").Replace(string(b))
			if !json.Valid([]byte(plain)) {
				t.Fatalf("%q is taken", b)
			}
		case !errors.As(err, &e) || e.Offset < 0 || e.Offset > len(b):
			t.Fatalf("%q: %v", b, err)
		case json.Valid(b):
			t.Fatalf("%q: %v", b, err)
		}
	})
}
