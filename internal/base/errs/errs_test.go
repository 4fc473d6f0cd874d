package errs

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"
)

// testdata/errors.json is the table that Python tests too: code -> [exit, exception].
func TestClassesAreThoseThatPythonKnows(t *testing.T) {
	b, err := os.ReadFile("../../../testdata/errors.json")
	if err != nil {
		t.Fatal(err)
	}
	var table map[Code][2]any
	if err := json.Unmarshal(b, &table); err != nil {
		t.Fatal(err)
	}
	if len(table) != len(Classes) {
		t.Errorf("%d codes in the file, %d in Classes", len(table), len(Classes))
	}
	for code, class := range Classes {
		row := table[code]
		if row[0] != float64(class.Exit) || row[1] != class.Python {
			t.Errorf("%s: %v in the file, %v in Classes", code, row, class)
		}
		if class.Exit < 1 || class.Exit > 8 || !strings.HasSuffix(class.Python, "Error") {
			t.Errorf("%s: %+v", code, class)
		}
	}
}

func TestErrorText(t *testing.T) {
	e := New(Damaged, "the JPEG ends early").At(Where{Shard: "a.tar", Member: "x.jpg", Offset: Known(512), Sample: Known(3)}).Because(fs.ErrInvalid)
	want := "the JPEG ends early (shard a.tar, member x.jpg, offset 512, sample 3): invalid argument"
	if e.Error() != want {
		t.Errorf("got  %s\nwant %s", e, want)
	}
	if !errors.Is(e, fs.ErrInvalid) || CodeOf(e) != Damaged {
		t.Error("cause or code is lost")
	}
	if CodeOf(errors.New("x")) != Bug {
		t.Error("a foreign error is a bug of ours")
	}
}

func TestInSeconds(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0.5 s": 512 * time.Millisecond, "1 s": 1003 * time.Millisecond, "1.5 s": 1500 * time.Millisecond,
		"10 s": 9980 * time.Millisecond, "60 s": 60200 * time.Millisecond, "0 s": 0,
	} {
		if got := InSeconds(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
