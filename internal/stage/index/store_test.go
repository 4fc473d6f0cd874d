package index

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
)

var ctx = context.Background()

func key() Key { return Key{Format: "test", Paths: []string{"/data"}} }

// plan builds small() and counts.
func plan(built *int, fresh bool) Plan {
	return Plan{
		Key:   key(),
		Fresh: func(*Index) bool { return fresh },
		Build: func(_ context.Context, _ *Index, b *Builder) error {
			*built++
			*b = *small()
			return nil
		},
	}
}

func load(t *testing.T, s Store, p Plan) *Index {
	t.Helper()
	x, err := s.Load(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.Close() })
	return x
}

func TestLoad(t *testing.T) {
	s := Store{t.TempDir() + "/a/b"}
	built := 0
	x := load(t, s, plan(&built, true))
	if built != 1 || x.Path() != s.Path(key()) || x.Note() != "" {
		t.Fatalf("built %d times, kept at %q, note %q", built, x.Path(), x.Note())
	}
	load(t, s, plan(&built, true))
	if built != 1 {
		t.Error("a fresh index was built again")
	}
	var old *Index
	p := plan(&built, false)
	build := p.Build
	p.Build = func(ctx context.Context, o *Index, b *Builder) error { old = o; return build(ctx, o, b) }
	load(t, s, p)
	if built != 2 || old == nil {
		t.Errorf("a stale index was not built again, or the old one not handed in")
	}
	for name, damage := range map[string]func(data []byte) []byte{
		"cut":     func(d []byte) []byte { return d[:len(d)/2] },
		"empty":   func(d []byte) []byte { return nil },
		"flipped": func(d []byte) []byte { d[len(d)-9] ^= 4; return d },
		"other":   func(d []byte) []byte { return []byte(strings.Repeat("something else", 50)) },
	} {
		built = 0
		data, err := os.ReadFile(s.Path(key()))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(s.Path(key()), damage(data), 0o600); err != nil {
			t.Fatal(err)
		}
		if load(t, s, plan(&built, true)).Len() != 2 || built != 1 {
			t.Errorf("%s: built %d times", name, built)
		}
	}
	if err := load(t, s, plan(&built, true)).Invalidate(); err != nil {
		t.Fatal(err)
	}
	built = 0
	load(t, s, plan(&built, true))
	if built != 1 {
		t.Error("not built again after Invalidate")
	}
	if left, _ := filepath.Glob(s.Dir + "/*.tmp"); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// Opening never waits for a writer of a pipe that has the name of an index,
// of the one beside the data, or of the lock: a new index replaces the first.
func TestAPipeInThePlaceOfAnIndex(t *testing.T) {
	s := Store{t.TempDir()}
	beside := filepath.Join(t.TempDir(), "beside.idx")
	for _, path := range []string{s.Path(key()), s.Path(key()) + ".lock", beside} {
		if err := unix.Mkfifo(path, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	built := 0
	p := plan(&built, true)
	p.Beside = Beside{Source: source.NewFile(), Path: beside, Stamp: func(*Index) (string, []string, bool) { return "", nil, true }}
	for range 2 {
		if x := load(t, s, p); built != 1 || x.Path() != s.Path(key()) {
			t.Errorf("built %d times, kept at %q", built, x.Path())
		}
	}
	if _, err := Open(beside); errs.CodeOf(err) != errs.Unreadable || !strings.Contains(err.Error(), "named pipe") {
		t.Errorf("%v", err)
	}
}

func TestKeysDiffer(t *testing.T) {
	s := Store{"/x"}
	seen := make(map[string]Key)
	for _, k := range []Key{
		{Format: "a"},
		{Format: "b"},
		{Format: "a", Options: "o"},
		{Format: "a", Paths: []string{"p"}},
		{Format: "a", Paths: []string{"p", "q"}},
		{Format: "a", Paths: []string{"p\nq"}},
		{Format: "a", Paths: []string{"q", "p"}},
		{Format: "a", Options: `o" "p`},
	} {
		if other, twice := seen[s.Path(k)]; twice {
			t.Errorf("%+v and %+v share a file", k, other)
		}
		seen[s.Path(k)] = k
	}
}

// An index whose file is another dataset's (a hash can collide, a user can copy)
// is not taken.
func TestForeignIndex(t *testing.T) {
	s := Store{t.TempDir()}
	b := small()
	b.Meta.Format = "other"
	if err := replace(s.Path(key()), b); err != nil {
		t.Fatal(err)
	}
	built := 0
	load(t, s, plan(&built, true))
	if built != 1 {
		t.Error("a foreign index was taken")
	}
}

func TestDefaultStore(t *testing.T) {
	t.Setenv("HOME", "/home/u")
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("STOKER_CACHE", "")
	for _, c := range []struct{ env, value, want string }{
		{"HOME", "/home/u", "/home/u/.cache/stoker/index"},
		{"XDG_CACHE_HOME", "relative", "/home/u/.cache/stoker/index"},
		{"XDG_CACHE_HOME", "/xdg", "/xdg/stoker/index"},
		{"STOKER_CACHE", "/fast", "/fast/index"},
	} {
		t.Setenv(c.env, c.value)
		if got := DefaultStore().Dir; got != c.want {
			t.Errorf("%s=%s: %s, want %s", c.env, c.value, got, c.want)
		}
	}
}

func TestNothingCanBeKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tmp := range []string{t.TempDir(), file + "/none"} { // without a temporary folder too
		t.Setenv("TMPDIR", tmp)
		for _, dir := range []string{file + "/below", ""} {
			built := 0
			x := load(t, Store{dir}, plan(&built, true))
			if x.Len() != 2 || x.Path() != "" || !strings.Contains(x.Note(), "STOKER_CACHE") {
				t.Errorf("%d samples at %q, note %q", x.Len(), x.Path(), x.Note())
			}
			if err := x.Invalidate(); err != nil {
				t.Error(err)
			}
		}
		if left, _ := os.ReadDir(tmp); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
}

func TestBuildFails(t *testing.T) {
	s := Store{t.TempDir()}
	p := plan(new(int), true)
	bad := errors.New("no such data")
	p.Build = func(context.Context, *Index, *Builder) error { return bad }
	if _, err := s.Load(ctx, p); !errors.Is(err, bad) {
		t.Errorf("%v", err)
	}
	built := 0
	load(t, s, plan(&built, true)) // and the lock is free
}

func TestGoroutinesBuildOnce(t *testing.T) {
	s := Store{t.TempDir()}
	var mu sync.Mutex
	built := 0
	p := plan(new(int), true)
	p.Build = func(_ context.Context, _ *Index, b *Builder) error {
		time.Sleep(20 * time.Millisecond)
		mu.Lock()
		built++
		mu.Unlock()
		*b = *small()
		return nil
	}
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			x, err := s.Load(ctx, p)
			if err != nil {
				t.Error(err)
				return
			}
			_ = x.Close()
		})
	}
	wg.Wait()
	if built != 1 {
		t.Errorf("built %d times", built)
	}
}

// TestBuilderProcess is not a test: it is the other process of the tests below. It
// says "building" when it builds, and then waits for its input to end.
func TestBuilderProcess(t *testing.T) {
	dir := os.Getenv("STOKER_TEST_BUILD_IN")
	if dir == "" {
		t.Skip("only as the other process of TestProcesses")
	}
	p := plan(new(int), true)
	p.Build = func(_ context.Context, _ *Index, b *Builder) error {
		fmt.Println("building")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		*b = *small()
		return nil
	}
	x, err := Store{dir}.Load(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("has", x.Len())
}

type process struct {
	cmd *exec.Cmd
	in  interface{ Close() error }
	out *bufio.Scanner
}

func start(t *testing.T, dir string) process {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestBuilderProcess$")
	cmd.Env = append(os.Environ(), "STOKER_TEST_BUILD_IN="+dir)
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return process{cmd, in, bufio.NewScanner(out)}
}

func (p process) says(t *testing.T, want string) {
	t.Helper()
	if !p.out.Scan() || p.out.Text() != want {
		t.Fatalf("the other process said %q, not %q", p.out.Text(), want)
	}
}

func TestProcesses(t *testing.T) {
	t.Run("one builds, the other waits and uses it", func(t *testing.T) {
		dir := t.TempDir()
		a := start(t, dir)
		a.says(t, "building")
		built, waited := 0, make(chan struct{})
		var once sync.Once
		p := plan(&built, true)
		p.Progress = func(_, _ int64, what string) {
			if strings.Contains(what, "waiting for another process") {
				once.Do(func() { close(waited) })
			}
		}
		go func() {
			<-waited
			_ = a.in.Close()
		}()
		x := load(t, Store{dir}, p)
		if built != 0 || x.Len() != 2 {
			t.Errorf("built %d times, %d samples", built, x.Len())
		}
		a.says(t, "has 2")
	})
	t.Run("the builder is killed", func(t *testing.T) {
		dir := t.TempDir()
		a := start(t, dir)
		a.says(t, "building")
		if err := a.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		built := 0
		load(t, Store{dir}, plan(&built, true))
		if built != 1 {
			t.Errorf("built %d times", built)
		}
	})
	t.Run("the waiting one is stopped", func(t *testing.T) {
		dir := t.TempDir()
		a := start(t, dir)
		a.says(t, "building")
		short, stop := context.WithCancel(ctx)
		p := plan(new(int), true)
		p.Progress = func(int64, int64, string) { stop() }
		if _, err := (Store{dir}).Load(short, p); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		stop()
	})
}

func TestSweep(t *testing.T) {
	s := Store{t.TempDir()}
	old, young := s.Path(key())+".1.tmp", s.Path(key())+".2.tmp"
	for _, f := range []string{old, young} {
		if err := os.WriteFile(f, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	then := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(old, then, then); err != nil {
		t.Fatal(err)
	}
	built := 0
	load(t, s, plan(&built, true))
	if left, _ := filepath.Glob(s.Dir + "/*.tmp"); len(left) != 1 || left[0] != young {
		t.Errorf("left are %q", left)
	}
}

// A dataset's own note comes before that of how its index was come by.
func TestNotes(t *testing.T) {
	built := 0
	p := plan(&built, true)
	fill := p.Build
	p.Build = func(ctx context.Context, old *Index, b *Builder) error {
		err := fill(ctx, old, b)
		b.Meta.Note = "three tokens are left"
		return err
	}
	if note := load(t, Store{t.TempDir()}, p).Note(); note != "three tokens are left" {
		t.Errorf("note %q", note)
	}
	if note := load(t, Store{}, p).Note(); !strings.HasPrefix(note, "three tokens are left; ") || !strings.Contains(note, "no home folder") {
		t.Errorf("note %q", note)
	}
}
