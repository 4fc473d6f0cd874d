package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// hostile are keys that would clear a terminal, end a line or turn one round.
var hostile = []string{"\x1b[2J\x1b]0;owned\x07", "two\nlines", "tab\there", "\u202eright", "\u009b31m", "plain"}

// hostileShard is a tar with a sample for each of them.
func hostileShard(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, key := range hostile {
		for _, m := range [][2]string{{".txt", key}, {".na\x1b[1mme", "x"}} {
			if err := w.WriteHeader(&tar.Header{Name: key + m[0], Mode: 0o644, Size: int64(len(m[1])), Format: tar.FormatPAX}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write([]byte(m[1])); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "ho\x1b[5mstile.tar")
	write(t, path, b.Bytes())
	return path
}

// No data gets at the terminal, whichever verb shows them, and a sample is a line.
func TestDataMovesNoTerminal(t *testing.T) {
	path := hostileShard(t)
	still := func(what, text string) {
		t.Helper()
		for _, r := range text {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Fatalf("%s: %q is in %q", what, r, text)
			}
		}
	}
	for what, args := range map[string][]string{
		"ls": {"ls", path}, "fields": {"ls", path, "--fields"}, "json": {"ls", path, "--json"}, "inspect": {"inspect", path},
		"inspect json": {"inspect", path, "--json"}, "cat": {"cat", path, hostile[0]}, "verify": {"verify", path}, "index": {"index", path, "--beside"},
		"order": {"order", path}, "no sample": {"cat", path, "\x1b[3m"}, "no field": {"cat", path, "0", "--field", "\x1b[3m"},
		"no file": {"ls", path + "\x1b[3m"}, "no verb": {"\x1b[3m"}, "no file, in json": {"ls", path + "\x1b[3m", "--json"},
	} {
		got := command(t, args...)
		if strings.HasPrefix(what, "no ") != (got.status != 0) {
			t.Errorf("%s: status %d: %s", what, got.status, got.err)
		}
		still(what, got.out)
		still(what, got.err)
	}
	lines := strings.Split(strings.TrimSpace(command(t, "ls", path).out), "\n")
	if len(lines) != 1+len(hostile) {
		t.Fatalf("%d lines for %d samples:\n%s", len(lines), len(hostile), strings.Join(lines, "\n"))
	}
	for i, key := range hostile {
		if !strings.Contains(lines[1+i], "  "+errs.Name(key)+"  ") {
			t.Errorf("%q is not in %s", key, lines[1+i])
		}
		var out, errOut bytes.Buffer // the bytes of a field are what they are
		if status := run(t.Context(), []string{"cat", path, key, "--field", "txt"}, &out, &errOut); status != 0 || out.String() != key {
			t.Errorf("%q: %d %q %s", key, status, &out, &errOut)
		}
	}
	list := json.NewDecoder(strings.NewReader(command(t, "ls", path, "--json").out))
	for _, key := range hostile {
		var line struct{ Key, File string }
		if err := list.Decode(&line); err != nil || line.Key != key || line.File != path {
			t.Errorf("%q: %+v %v", key, line, err)
		}
	}
}

// A text is the same in whichever pieces it is written.
func TestPlainWriter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.SliceOf(rapid.Byte()), rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) })).Draw(t, "text")
		var out bytes.Buffer
		w := &plain{to: &out}
		for rest := text; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "n")
			if k, err := w.Write(rest[:n]); k != n || err != nil {
				t.Fatal(k, err)
			}
			rest = rest[n:]
		}
		if err := w.flush(); err != nil {
			t.Fatal(err)
		}
		if want := errs.Plain(string(text)); out.String() != want {
			t.Fatalf("%q, want %q", out.String(), want)
		}
	})
}

// On a terminal a field is shown, not written: bytes would move it.
func TestCatOnATerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	path := filepath.Join(t.TempDir(), "a.tar")
	shard(t, path, 1)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--field", "jpg"}, "of bytes: ffd8"},
		{[]string{"--field", "json"}, `{"n": 0}` + "\r\n"},
		{[]string{"--text"}, "\r\ncls: 0\r\n"},
	} {
		terminal, shown := pseudoTerminal(t)
		status := run(t.Context(), append([]string{"cat", path, "0"}, c.args...), terminal, terminal)
		_ = terminal.Close()
		if text := shown.rest(); status != 0 || !strings.Contains(text, c.want) || strings.Contains(text, "\x1b") || strings.Contains(text, "\xff") {
			t.Errorf("%v: %d: %q", c.args, status, text)
		}
	}
	for _, args := range [][]string{{"--text"}, {"--text", "--field", "jpg"}} {
		if got := command(t, append([]string{"cat", path, "0"}, args...)...); got.status != 0 || !strings.Contains(got.out, "of bytes: ffd8") {
			t.Errorf("%v: %d: %s %s", args, got.status, got.out, got.err)
		}
	}
}

// pseudoTerminal is a terminal and its screen.
func pseudoTerminal(t *testing.T) (terminal *os.File, shown *screen) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { _ = master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 120}); err != nil {
		t.Fatal(err)
	}
	b := &screen{ended: make(chan struct{})}
	go func() {
		defer close(b.ended)
		_, _ = io.Copy(b, master) // ends with EIO when the terminal is closed
	}()
	return terminal, b
}

// screen is what was written to a terminal.
type screen struct {
	mu    sync.Mutex
	text  strings.Builder
	ended chan struct{}
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// rest is all that was written, once the terminal is closed.
func (s *screen) rest() string {
	<-s.ended
	return s.String()
}

// waits returns once the text is on the screen.
func (s *screen) waits(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !strings.Contains(s.String(), text); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%q is not shown: %q", text, s)
		}
	}
}

// A path is taken as it is given, byte for byte.
func TestPathThatIsNotUTF8(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d\xff")
	if err := os.MkdirAll(dir+"/class", 0o755); err != nil {
		t.Skip("this file system takes UTF-8 only")
	}
	if err := os.WriteFile(dir+"/class/1.ppm", []byte("P6 1 1 255\nabc"), 0o644); err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	if status := run(t.Context(), []string{"inspect", dir}, &out, &errOut); status != 0 || !strings.Contains(out.String(), `d\xff`) ||
		!strings.Contains(out.String(), `/d\udcff", transform=`) { // the lines for Python

		t.Errorf("status %d: %s%s", status, out.String(), errOut.String())
	}
}
