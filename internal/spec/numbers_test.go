package spec

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// npy is a file as NumPy writes it (NEP 1): version 1, 2 or 3, the header padded
// to a multiple of 64 bytes.
func arrayFile(version byte, descr, shape string, data []byte) []byte {
	head := fmt.Sprintf("{'descr': %s, 'fortran_order': False, 'shape': %s, }", descr, shape)
	begin := 10
	if version > 1 {
		begin = 12
	}
	head += strings.Repeat(" ", 63-(begin+len(head))%64) + "\n"
	b := append([]byte("\x93NUMPY"), version, 0)
	if version > 1 {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(head)))
	} else {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(head)))
	}
	return slices.Concat(b, []byte(head), data)
}

func raw(t testing.TB, values any) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, values); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func numbersFile(t testing.TB, body []byte) Numbers {
	t.Helper()
	path := filepath.Join(t.TempDir(), "numbers.npy")
	if err := os.WriteFile(path, body, 0o644); err != nil {
		t.Fatal(err)
	}
	return Numbers{File: path}
}

func TestNumbersFromFiles(t *testing.T) {
	for version := byte(1); version <= 3; version++ {
		for descr, values := range map[string]any{
			"<f8": []float64{0, 1, 2.5, 250}, "<f4": []float32{0, 1, 2.5, 250}, "<i8": []int64{0, 1, -2, 250}, "<i4": []int32{0, 1, -2, 250}, "|u1": []uint8{0, 1, 2, 250},
		} {
			want := map[byte]float64{'f': 2.5, 'i': -2, 'u': 2}[descr[1]]
			got, err := numbersFile(t, arrayFile(version, "'"+descr+"'", "(4,)", raw(t, values))).Read()
			if err != nil || !slices.Equal(got, []float64{0, 1, want, 250}) {
				t.Errorf("version %d, %s: %v, %v", version, descr, got, err)
			}
		}
	}
	if got, err := numbersFile(t, arrayFile(1, "'<f8'", "(0,)", nil)).Read(); err != nil || len(got) != 0 {
		t.Errorf("no numbers: %v, %v", got, err)
	}
	got, err := (Numbers{File: "testdata/weights.npy"}).Read() // written by numpy 2: numpy.save(path, [0.5, 0, 2, 1.25, 3e-9])
	if err != nil || !slices.Equal(got, []float64{0.5, 0, 2, 1.25, 3e-9}) {
		t.Errorf("NumPy's own: %v, %v", got, err)
	}
}

func TestFilesThatAreNoNumbers(t *testing.T) {
	eight := raw(t, []float64{1, 2, 3, 4, 5, 6, 7, 8})
	good := arrayFile(1, "'<f8'", "(8,)", eight)
	for name, c := range map[string]struct {
		body []byte
		says string
	}{
		"empty":            {nil, "begin"},
		"text":             {[]byte("1 2 3 4 5 6 7 8\n"), "begin"},
		"two dimensions":   {arrayFile(1, "'<f8'", "(2, 4)", eight), "(2, 4)"},
		"no dimension":     {arrayFile(1, "'<f8'", "()", eight), "shape is ()"},
		"negative":         {arrayFile(1, "'<f8'", "(-8,)", eight), "EOF"},
		"big-endian":       {arrayFile(1, "'>f8'", "(8,)", eight), `">f8"`},
		"complex":          {arrayFile(1, "'<c16'", "(4,)", eight), `"<c16"`},
		"objects":          {arrayFile(1, "'|O'", "(4,)", eight), `"|O"`},
		"columns":          {arrayFile(1, "[('a', '<f8')]", "(8,)", eight), "type"},
		"cut short":        {good[:len(good)-1], "EOF"},
		"half a header":    {good[:40], "EOF"},
		"an absurd header": {append([]byte("\x93NUMPY\x02\x00\xff\xff\xff\xff"), good...), "EOF"},
		"an absurd length": {arrayFile(1, "'<f8'", "(9223372036854775807,)", eight), "EOF"},
	} {
		_, err := numbersFile(t, c.body).Read()
		e := errs.From(err)
		if err == nil || e.Code != errs.Config || !strings.Contains(e.Error(), "numbers.npy") || !strings.Contains(e.Error(), c.says) || e.Hint == "" {
			t.Errorf("%s: %v (hint %q), want %q", name, err, e.Hint, c.says)
		}
	}
	if _, err := (Numbers{File: "/nowhere/w.npy"}).Read(); errs.CodeOf(err) != errs.Config || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no such file: %v", err)
	}
}

func FuzzNumbers(f *testing.F) {
	f.Add(arrayFile(1, "'<f8'", "(2,)", make([]byte, 16)))
	f.Add(arrayFile(2, "'|u1'", "(3,)", make([]byte, 3)))
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = parseNPY(b) })
}

// Numbers and lengths in a document: lists, files, names of fields.
func TestNumbersInSpecs(t *testing.T) {
	for text, want := range map[string]Lengths{
		`[1, 2]`:    {Numbers: Numbers{List: []float64{1, 2}}},
		`"a/b.npy"`: {Numbers: Numbers{File: "a/b.npy"}},
		`"/b"`:      {Numbers: Numbers{File: "/b"}},
		`"txt"`:     {Field: "txt"},
		`null`:      {},
	} {
		var got Lengths
		if err := json.Unmarshal([]byte(text), &got); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s is %v, %v", text, got, err)
		}
		written, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if again := string(written); strings.ReplaceAll(again, ",", ", ") != text {
			t.Errorf("%s is written as %s", text, again)
		}
	}
	for _, text := range []string{`3`, `["x"]`, `{"a": 1}`, `[1, null, "3"]`} {
		var got Numbers
		if err := json.Unmarshal([]byte(text), &got); errs.CodeOf(err) != errs.Config {
			t.Errorf("%s is %v, %v", text, got, err)
		}
	}
}
