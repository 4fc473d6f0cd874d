package stagetest_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

func TestFaults(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []string{"a.tar", "b.jpg"} {
		if err := os.WriteFile(filepath.Join(dir, n), []byte("abc"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := source.NewFile()
	defer f.Close()
	ctx := context.Background()
	a, b := source.Info{Name: dir + "/a.tar", Size: 3}, source.Info{Name: dir + "/b.jpg", Size: 3}
	read := func(ctx context.Context, s source.Source, o source.Info) (string, errs.Code) {
		p := make([]byte, 2)
		if err := s.ReadAt(ctx, o, p, 1); err != nil {
			return "", errs.CodeOf(err)
		}
		return string(p), ""
	}

	s := stagetest.WithFaults(f, "read *.tar #2 unreadable", "read *.tar #3+ not_found", "stat "+dir+"/* changed", "list * unreadable")
	for i, want := range []errs.Code{"", errs.Unreadable, "", errs.NotFound, errs.NotFound} {
		// A call that the first rule takes is not counted by the second.
		if _, got := read(ctx, s, a); got != want {
			t.Errorf("read %d: %q, want %q", i+1, got, want)
		}
		if _, got := read(ctx, s, b); got != "" {
			t.Errorf("another file: %q", got)
		}
	}
	if s.Reads() != 10 {
		t.Errorf("%d reads", s.Reads())
	}
	if _, err := s.Stat(ctx, a.Name); errs.CodeOf(err) != errs.Changed {
		t.Errorf("%v", err)
	}
	for _, err := range s.List(ctx, dir) {
		if errs.CodeOf(err) != errs.Unreadable {
			t.Errorf("%v", err)
		}
	}

	if got, _ := read(ctx, stagetest.WithFaults(f, "any a.tar flip=2"), a); got != "bb" {
		t.Errorf("%q", got)
	}
	short, stop := context.WithTimeout(ctx, 5*time.Millisecond)
	defer stop()
	for _, rule := range []string{"read * hang", "read * delay=1h"} {
		if err := stagetest.WithFaults(f, rule).ReadAt(short, a, nil, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", rule, err)
		}
	}
	if got, code := read(ctx, stagetest.WithFaults(f, "read * delay=1ms"), a); got != "bc" {
		t.Errorf("%q, %s", got, code)
	}
	for _, bad := range []string{"", "read *", "read * #x hang", "read [ hang"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q was taken for a rule", bad)
				}
			}()
			stagetest.WithFaults(f, bad)
		}()
	}
}
