package spec

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/jsontext"
)

func TestBytes(t *testing.T) {
	for text, want := range map[string]Bytes{"auto": 0, "8GiB": 8 << 30, "500MB": 500e6, "1.5 kib": 1536, "77": 77, "3b": 3} {
		if got, err := ParseBytes(text); err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "x", "-1", "5 parsecs"} {
		if n, err := ParseBytes(text); err == nil {
			t.Errorf("%q is %d", text, n)
		}
	}
}

// World sizes that divide a batch are told, those nearest to the one that does not.
func TestDivisors(t *testing.T) {
	if got := fmt.Sprint(divisors(1<<20, 1)); !strings.HasPrefix(got, "1, 2, 4, 8") {
		t.Error(got)
	}
}

// Paths that are not UTF-8 go through JSON byte by byte.
func TestPathsThatAreNotUTF8(t *testing.T) {
	d := Dataset{Path: Paths{"a\xff"}, Manifest: "m\xff", Root: "r\xff", Columns: []Column{{Name: "c", Path: Paths{"p\xff"}}}}
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var back Dataset
	if err := jsontext.UnmarshalNames(text, &back); err != nil || back.Path[0] != "a\xff" || back.Manifest != "m\xff" || back.Root != "r\xff" || back.Columns[0].Path[0] != "p\xff" {
		t.Errorf("%s is %+v, %v", text, back, err)
	}
}

// Entries are auto, off, or a limit; one that says nothing is a mistake.
func TestEntries(t *testing.T) {
	for text, want := range map[string]Entries{`"auto"`: {}, `"off"`: {Off: true}, `{"limit": "2GiB"}`: {Limit: 2 << 30}} {
		var e Entries
		if err := json.Unmarshal([]byte(text), &e); err != nil || e != want {
			t.Errorf("%s is %+v, %v", text, e, err)
		}
	}
	for _, text := range []string{`{}`, `{"limit": 0}`, `{"limit": "auto"}`, `{"size": 1}`, `"on"`, `3`} {
		if err := json.Unmarshal([]byte(text), new(Entries)); err == nil {
			t.Errorf("%s was taken", text)
		}
	}
}
