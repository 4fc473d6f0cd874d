package jsontext_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/jsontext"
)

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		text   string
		offset int // -1: nothing is wrong
	}{
		{`{"a": "b\n\u0041\ud83d\ude00\\ud800"}`, -1},
		{"[\"gr\u00fc\u00df\", \"\ufffd\"]", -1},
		{"[\"a\xffb\"]", 3},
		{"[\"\xed\xa0\x80\"]", 2},
		{`["ab\ud800"]`, 4},
		{`["\ud800\ud800\udc00"]`, 2},
		{`["\uDC00"]`, 2},
		{`["\ud83d\u0041"]`, 2},
		{`{"\ud83d": 1}`, 2},
	} {
		err := jsontext.Check([]byte(c.text))
		var e *jsontext.Error
		if c.offset < 0 && err != nil || c.offset >= 0 && (!errors.As(err, &e) || e.Offset != c.offset) {
			t.Errorf("%q: %v, wanted offset %d", c.text, err, c.offset)
		}
		var v any
		if err := jsontext.Unmarshal([]byte(c.text), &v); (err == nil) != (c.offset < 0) {
			t.Errorf("%q: Unmarshal: %v", c.text, err)
		}
	}
}

// Of texts that are Unicode it is what encoding/json says, however they are escaped.
func TestUnquote(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.String().Draw(t, "text")
		quoted, _ := json.Marshal(want)
		if rapid.Bool().Draw(t, "escaped") {
			var b strings.Builder
			for _, r := range string(quoted[1 : len(quoted)-1]) {
				if r >= utf8.RuneSelf {
					e, _ := json.Marshal(string(r))
					b.WriteString(strings.Trim(string(e), `"`))
				} else {
					b.WriteRune(r)
				}
			}
			quoted = []byte(`"` + b.String() + `"`)
		}
		got := jsontext.Unquote(nil, quoted)
		if string(got) != want || len(got) > len(quoted) || jsontext.Check(quoted) != nil {
			t.Fatalf("%s is %q, not %q", quoted, got, want)
		}
		if p, plain := jsontext.Plain(quoted); plain && string(p) != want {
			t.Fatalf("%s is plain %q, not %q", quoted, p, want)
		}
	})
}

// Every name comes back, whatever bytes it has.
func TestName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := jsontext.Name(rapid.SliceOf(rapid.Byte()).Draw(t, "name"))
		text, err := json.Marshal(want)
		if err != nil || !json.Valid(text) {
			t.Fatalf("%s, %v", text, err)
		}
		var got jsontext.Name
		if err := json.Unmarshal(text, &got); err != nil || got != want {
			t.Fatalf("%q by way of %s is %q, %v", want, text, got, err)
		}
	})
	for _, bad := range []string{`"\ud800"`, `"a\udbff"`, `"\udc00"`, "\"\xff\"", `3`} {
		var n jsontext.Name
		if err := json.Unmarshal([]byte(bad), &n); err == nil {
			t.Errorf("%s is the name %q", bad, n)
		}
	}
}

// Whatever bytes come, nothing panics, and of valid JSON the members are those that
// encoding/json finds.
func FuzzMembers(f *testing.F) {
	for _, s := range []string{
		`{"a": 1, "b" : [1, {"c": "}"}], "": "\"" , "d":null}`, "\xff", `{"a":1`, `{`, ` {} `, `{"a":{}}`, `"x"`,
		`{"\u0061\b\f\n\r\t\/\\": "\uD83d\ude00", "\u00e9": "é"}`, `{"\ud800": 1}`, `{"\udC00\u0041": 1}`, `{"\u12": 1, "\uzzzz": 2}`, "{\"\xff\": 1}", `{"a" : [[1, 2], {"b": {}}] ,"c":-1.5e3}`, `{"a"]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = jsontext.Check(b)
		got := map[string][]byte{}
		for key, value := range jsontext.Members(b) {
			if !json.Valid(b) {
				continue
			}
			got[string(jsontext.Unquote(nil, key))] = value
		}
		var want map[string]json.RawMessage
		if jsontext.Unmarshal(b, &want) != nil {
			return
		}
		for key, raw := range want {
			if !bytes.Equal(bytes.TrimSpace(got[key]), bytes.TrimSpace(raw)) {
				t.Fatalf("%q is %q, not %q", key, got[key], raw)
			}
		}
		if len(got) != len(want) {
			t.Fatalf("%d members, not %d", len(got), len(want))
		}
	})
}

type nested struct {
	Text  string
	List  []string
	Map   map[string]any
	Deep  *nested
	Raw   json.RawMessage
	Count int
}

// Every text of a document may be a name, and others stay what they are.
func TestUnmarshalNames(t *testing.T) {
	text := `{"Text": "d\udcff/\u00fc\\udcff", "List": ["a", "\udc80\udcfe\n"], "Map": {"k\udcff": "\udc81", "n": [1, "\udc82"]},
		"Deep": {"Text": "\ud83d\ude00\udcff", "Count": 3}, "Raw": {"x": "\udcff"}}`
	var got nested
	if err := jsontext.UnmarshalNames([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	want := nested{
		Text: "d\xff/ü\\udcff", List: []string{"a", "\x80\xfe\n"}, Map: map[string]any{"k\xff": "\x81", "n": []any{1.0, "\x82"}},
		Deep: &nested{Text: "😀\xff", Count: 3}, Raw: json.RawMessage(`{"x": "\udcff"}`),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{`{"Text": "\ud800"}`, "{\"Text\": \"\xff\"}", `{"Text": "\ufdd0\udcff"}`, "{\"Text\": \"\ufdd0\", \"List\": [\"\\udcff\"]}"} {
		if err := jsontext.UnmarshalNames([]byte(bad), &got); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}
