package stagetest

import (
	"os"
	"strings"
	"testing"
)

// report is a test that keeps what is said against it.
type report struct {
	testing.TB
	said []string
}

func (r *report) Helper()      {}
func (r *report) Name() string { return "TestX" }
func (r *report) Errorf(format string, a ...any) {
	r.said = append(r.said, format)
	for _, v := range a {
		if s, ok := v.(string); ok {
			r.said = append(r.said, s)
		}
	}
}

func TestGolden(t *testing.T) {
	t.Chdir(t.TempDir())
	before := *update
	defer func() { *update = before }()

	*update = true
	Golden(t, "deep/a.txt", []byte("one\ntwo\n"))
	if b, err := os.ReadFile("testdata/deep/a.txt"); err != nil || string(b) != "one\ntwo\n" {
		t.Fatalf("update wrote %q, %v", b, err)
	}

	*update = false
	r := &report{TB: t}
	Golden(r, "deep/a.txt", []byte("one\ntwo\n"))
	if len(r.said) != 0 {
		t.Fatalf("equal files: %q", r.said)
	}
	Golden(r, "deep/a.txt", []byte("one\n2\n"))
	if said := strings.Join(r.said, " "); !strings.Contains(said, "line 2") || !strings.Contains(said, "-update") {
		t.Fatalf("a difference is told as %q", said)
	}
}

func TestGoldenDiff(t *testing.T) {
	for _, c := range []struct{ got, want, diff string }{
		{"", "", ""},
		{"a\nb", "a\nc", "in line 2:\n  got  \"b\"\n  want \"c\""},
		{"a", "a\n", "in line 2:\n  got  nothing\n  want \"\""},
		{"a\x00b", "a\x00cd", "from byte 2 on: got 3 bytes, want 4"},
	} {
		if diff := goldenDiff([]byte(c.got), []byte(c.want)); diff != c.diff {
			t.Errorf("%q against %q: %q, want %q", c.got, c.want, diff, c.diff)
		}
	}
}
