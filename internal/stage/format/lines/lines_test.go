package lines_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/lines"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

var ctx = context.Background()

// open writes files and opens them; the index is kept nowhere.
func open(t interface {
	Helper()
	Fatal(...any)
}, dir string, files ...string,
) (*lines.Dataset, error) {
	t.Helper()
	var paths []string
	for i := 0; i < len(files); i += 2 {
		path := filepath.Join(dir, files[i])
		if err := os.WriteFile(path, []byte(files[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return lines.Open(ctx, source.NewFile(), paths, lines.Options{Store: &index.Store{}})
}

func TestSuite(t *testing.T) {
	d, err := open(t, t.TempDir(), "a.jsonl", "{\"text\": \"one\"}\n\n  \n{\"text\": \"two\", \"n\": 2}\r\n", "b.txt", "all of it\n", "c.jsonl", "\n", "d.jsonl", `{"text": "last"}`)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	stagetest.Dataset(t, d, source.NewFile())
	r := format.NewReader(d, source.NewFile())
	var s format.Sample
	for id, want := range []string{"one", "two", "all of it\n", "last"} {
		if err := r.Read(ctx, int64(id), []string{"text"}, &s); err != nil || string(s.Fields[0].Data) != want {
			t.Errorf("sample %d is %q, %v", id, s.Fields[0].Data, err)
		}
	}
	if err := r.Read(ctx, 1, []string{"n", "json", "x;text"}, &s); err != nil || string(s.Fields[0].Data) != "2" ||
		string(s.Fields[1].Data) != `{"text": "two", "n": 2}` || s.Fields[2].Name != "text" {
		t.Errorf("%v, %v", s.Fields, err)
	}
}

// The mark that some programs put before UTF-8 is not part of the first line; elsewhere
// it is text like any other.
func TestByteOrderMark(t *testing.T) {
	d, err := open(t, t.TempDir(), "a.jsonl", "\ufeff{\"text\": \"one\"}\n{\"text\": \"\ufefftwo\"}\n", "b.jsonl", "\ufeff", "c.jsonl", "\ufeff\n\n{\"text\": \"three\"}")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	stagetest.Dataset(t, d, source.NewFile())
	if n := d.Index().Len(); n != 3 {
		t.Fatalf("%d samples", n)
	}
	r := format.NewReader(d, source.NewFile())
	var s format.Sample
	for id, want := range []string{"one", "\ufefftwo", "three"} {
		if err := r.Read(ctx, int64(id), []string{"text"}, &s); err != nil || string(s.Fields[0].Data) != want {
			t.Errorf("sample %d is %q, %v", id, s.Fields[0].Data, err)
		}
	}
}

// Against splitting the whole text, over many marks of the index.
func TestLines(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		var all bytes.Buffer
		var want []string
		for range rapid.IntRange(1, 900).Draw(t, "lines") {
			line := rapid.SampledFrom([]string{"", " ", "\r", "{}", `{"text":"x"}`, `{"a": [1, 2]} `, `{"text":"ü"}` + "\r"}).Draw(t, "line")
			all.WriteString(line + "\n")
			if strings.TrimSpace(line) != "" {
				want = append(want, strings.TrimSuffix(line, "\r"))
			}
		}
		if rapid.Bool().Draw(t, "cut") {
			all.Truncate(all.Len() - 1)
		}
		d, err := open(t, dir, "x.jsonl", all.String(), "y.ndjson", "{}\n")
		if len(want) == 0 {
			want = nil
		}
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		want = append(want, "{}")
		var got []string
		r := format.NewReader(d, source.NewFile())
		var s format.Sample
		for id := range d.Index().Len() {
			if err := r.Read(ctx, id, nil, &s); err != nil {
				t.Fatal(err)
			}
			got = append(got, string(s.Fields[0].Data))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%q, not %q", got, want)
		}
	})
}

// No byte of a text is replaced by another: not in values, and not in keys.
func TestTextThatIsNotUnicode(t *testing.T) {
	d, err := open(t, t.TempDir(), "a.jsonl", "{\"text\": \"caf\xe9 \\n\", \"k\xff\": \"\xff\", \"k\xfe\": \"\xfe\"}\n"+
		`{"text": "a\ud800b", "list": ["\ud800"]}`+"\n"+`{"text": "\ud83d\ude00\udc00\ud800\u0041\"", "\u0074ext2": "\\\/"}`+"\n"+`{"text": 1, "text": "last"}`+"\n")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	stagetest.Dataset(t, d, source.NewFile())
	r := format.NewReader(d, source.NewFile())
	var s format.Sample
	for _, c := range []struct {
		id          int64
		field, want string
	}{
		{0, "text", "caf\xe9 \n"},
		{1, "text", "a\xed\xa0\x80b"},
		{1, "list", `["\ud800"]`},
		{2, "text", "\U0001F600\xed\xb0\x80\xed\xa0\x80A\""},
		{2, "text2", `\/`},
		{3, "text", "last"},
	} {
		if err := r.Read(ctx, c.id, []string{c.field}, &s); err != nil || string(s.Fields[0].Data) != c.want {
			t.Errorf("%s of sample %d is %q, %v", c.field, c.id, s.Fields[0].Data, err)
		}
	}
	if err := r.Read(ctx, 0, []string{"k\ufffd"}, &s); errs.CodeOf(err) != errs.MissingField {
		t.Errorf("a key that is not there: %v", err)
	}
}

// Fields are those that encoding/json finds, provided that all text is Unicode.
func TestAsEncodingJSON(t *testing.T) {
	dir := t.TempDir()
	value := rapid.Custom(func(t *rapid.T) any {
		return rapid.OneOf(rapid.Just[any](nil), rapid.Map(rapid.Bool(), func(b bool) any { return b }), rapid.Map(rapid.Float64(), func(f float64) any { return f }),
			rapid.Map(rapid.String(), func(s string) any { return s }),
			rapid.Map(rapid.SliceOf(rapid.String()), func(s []string) any { return s }),
			rapid.Map(rapid.MapOf(rapid.String(), rapid.SliceOf(rapid.Int())), func(m map[string][]int) any { return m })).Draw(t, "value")
	})
	rapid.Check(t, func(t *rapid.T) {
		object := rapid.MapOf(rapid.StringMatching(`[^;]{1,9}`), value).Draw(t, "object")
		delete(object, lines.JSON)
		line, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		if rapid.Bool().Draw(t, "spaces") {
			var b bytes.Buffer
			_ = json.Indent(&b, line, " ", "\t")
			line = bytes.ReplaceAll(b.Bytes(), []byte("\n"), []byte(" "))
		}
		d, err := open(t, dir, "x.jsonl", string(line)+"\n")
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		var want map[string]json.RawMessage
		if err := json.Unmarshal(line, &want); err != nil {
			t.Fatal(err)
		}
		r := format.NewReader(d, source.NewFile())
		var s format.Sample
		for key, raw := range want {
			var text string
			if json.Unmarshal(raw, &text) != nil || raw[0] != '"' {
				text = string(raw)
			}
			if err := r.Read(ctx, 0, []string{key}, &s); err != nil || string(s.Fields[0].Data) != text || s.Fields[0].JSON != (raw[0] != '"') {
				t.Fatalf("%q of %s is %q, %v", key, line, s.Fields[0].Data, err)
			}
		}
	})
}

func TestErrorsTeach(t *testing.T) {
	d, err := open(t, t.TempDir(), "a.jsonl", "{\"text\": 1}\nno object\n{\"tekst\": \"x\"}\n", "b.md", "x")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	r := format.NewReader(d, source.NewFile())
	var s format.Sample
	for _, c := range []struct {
		id     int64
		field  string
		code   errs.Code
		what   string
		offset int64
	}{
		{1, "text", errs.Damaged, "not a JSON object", 12},
		{2, "text", errs.MissingField, `no key "text"; it has tekst`, 22},
		{3, "image", errs.MissingField, `a text file has no field "image"`, -1},
	} {
		err := r.Read(ctx, c.id, []string{c.field}, &s)
		if e := errs.From(err); err == nil || e.Code != c.code || !strings.Contains(e.What, c.what) || e.Where.Sample.Or(-1) != c.id || e.Where.Offset.Or(-1) != c.offset || e.Where.File == "" && e.Where.Shard == "" {
			t.Errorf("%v at %+v", err, e.Where)
		}
	}
	if _, err := open(t, t.TempDir(), "a.jsonl", "\n\n"); errs.CodeOf(err) != errs.Empty {
		t.Errorf("%v", err)
	}
	if _, err := lines.Open(ctx, source.NewFile(), []string{"/nowhere/x.jsonl"}, lines.Options{Store: &index.Store{}}); errs.CodeOf(err) != errs.NotFound {
		t.Errorf("%v", err)
	}
}

// Whatever a file holds, every sample of it is read or is an error, and together
// they are all that is not blank.
func FuzzLines(f *testing.F) {
	f.Add([]byte("{\"text\": \"a\"}\n\n{}"))
	f.Add([]byte("\r\n\x00\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := open(t, t.TempDir(), "a.jsonl", string(b))
		if err != nil {
			if errs.CodeOf(err) != errs.Empty || len(bytes.TrimSpace(b)) > 0 {
				t.Fatal(err)
			}
			return
		}
		defer d.Close()
		r := format.NewReader(d, source.NewFile())
		var s format.Sample
		var text []byte
		for id := range d.Index().Len() {
			if err := r.Read(ctx, id, nil, &s); err != nil {
				t.Fatal(err)
			}
			text = append(append(text, s.Fields[0].Data...), '\n')
			err := r.Read(ctx, id, []string{"text"}, &s)
			if err != nil && errs.CodeOf(err) != errs.Damaged && errs.CodeOf(err) != errs.MissingField {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(bytes.Join(bytes.Fields(text), nil), bytes.Join(bytes.Fields(b), nil)) {
			t.Fatalf("%q of %q", text, b)
		}
	})
}
