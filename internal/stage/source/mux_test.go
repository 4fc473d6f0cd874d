package source_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// The scheme of a name says which source is asked; a source is made when it is first
// needed, once, and a scheme that is not on the list is an error that says which are.
func TestMux(t *testing.T) {
	stagetest.Source(t, func(t *testing.T, objects map[string][]byte) (source.Source, string, func(string, []byte)) {
		dir := t.TempDir() + "/"
		for name, data := range objects {
			put(t, dir+name, data)
		}
		m := source.NewMux([]source.Scheme{source.Local()}, source.Access{})
		t.Cleanup(func() { stagetest.Must(t, m.Close()) })
		return m, dir, func(name string, data []byte) { put(t, dir+name, data) }
	})
	made := 0
	broken := errs.New(errs.Unreadable, "no key").Try("get one")
	m := source.NewMux([]source.Scheme{
		source.Local(),
		{Name: "one", Open: func(source.Access) (source.Source, error) {
			made++
			return stagetest.Memory{"one://a": []byte("in one")}, nil
		}},
		{Name: "locked", Open: func(source.Access) (source.Source, error) { return nil, broken }},
	}, source.Access{})
	local := put(t, filepath.Join(t.TempDir(), "a://b"), []byte("local")) // not a scheme: there is a slash before
	for name, want := range map[string]string{"one://a": "in one", "ONE://a": "", local: "local"} {
		b, err := source.ReadAll(ctx, m, name, 100)
		if string(b) != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", name, b, err)
		}
		if _, err := source.ReadAll(ctx, m, name, 3); err == nil {
			t.Errorf("%s: more was read than was wanted", name)
		}
	}
	if made != 1 {
		t.Errorf("the source was made %d times", made)
	}
	st, err := m.Stat(ctx, "one://a")
	stagetest.Must(t, err)
	if hot, err := m.ReadHot(ctx, st, make([]byte, 6), 0, false); hot || err != nil {
		t.Errorf("a source that does not know what is in memory says %v, %v", hot, err)
	}
	if hot, err := m.ReadHot(ctx, st, make([]byte, 6), 0, true); hot || err != nil {
		t.Errorf("waiting for it: %v, %v", hot, err)
	}
	if _, ok := m.Run(st); ok {
		t.Error("it has runs")
	}
	if _, err := m.Stat(ctx, "locked://x"); !errors.Is(err, broken) {
		t.Errorf("a source that cannot be made: %v", err)
	}
	for _, name := range []string{"s3://b/x", "http://h/y"} {
		_, err := m.Stat(ctx, name)
		e := errs.From(err)
		if e.Code != errs.Config || e.Hint == "" || !strings.Contains(e.What, "only local files, one://, locked://") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err = source.Expand(ctx, m, []string{name + "{1,2}", name + "*"}); errs.CodeOf(err) != errs.Config {
			t.Errorf("%s: %v", name, err)
		}
		for _, err := range m.List(ctx, name) {
			if errs.CodeOf(err) != errs.Config {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string][4]string{ // scheme, Clean, Dir, Join with x/../y
		"/a/b":        {"", "/a/b", "/a", "/a/b/y"},
		"a//b/":       {"", "a/b", "a/b", "a/b/y"},
		"a":           {"", "a", ".", "a/y"},
		"s3://b/k":    {"s3", "s3://b/k", "s3://b", "s3://b/k/y"},
		"s3://b//k/":  {"s3", "s3://b/k", "s3://b/k", "s3://b/k/y"},
		"s3://b":      {"s3", "s3://b", "s3://", "s3://b/y"},
		"s3://":       {"s3", "s3://", "s3://", "s3://y"},
		"S3+x.1-://b": {"s3+x.1-", "S3+x.1-://b", "S3+x.1-://", "S3+x.1-://b/y"},
		"1s://b":      {"", "1s:/b", "1s:", "1s:/b/y"},
		"./a://b":     {"", "a:/b", "a:", "a:/b/y"},
		"://b":        {"", ":/b", ":", ":/b/y"},
	} {
		got := [4]string{source.SchemeOf(name), source.Clean(name), source.Dir(name), source.Join(name, "x/..", "y")}
		if name == "a//b/" {
			want[2] = "a/b" // as path.Dir
		}
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	wd, err := os.Getwd()
	stagetest.Must(t, err)
	for name, want := range map[string]string{"a/../b": wd + "/b", "/a/": "/a", "s3://b/../c": "s3://c", "file:///x/y": "/x/y", "FILE:///x": "/x"} {
		if got, err := source.Abs(name); got != want || err != nil {
			t.Errorf("%s: %s, %v, want %s", name, got, err, want)
		}
	}
}

// A link that leads nowhere is not the same as nothing: a pattern that finds it must
// not give a smaller dataset, and its error says what it is.
func TestALinkThatLeadsNowhere(t *testing.T) {
	dir := tree(t, "a/x.tar", "b/")
	stagetest.Must(t, os.Symlink("gone", filepath.Join(dir, "b/x.tar")))
	f := openFile(t)
	got, err := source.Expand(ctx, f, []string{"*/x.tar"})
	if err != nil || strings.Join(got, " ") != "a/x.tar b/x.tar" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := f.Stat(ctx, "b/x.tar"); errs.CodeOf(err) != errs.NotFound || !errors.Is(err, source.ErrNowhere) {
		t.Errorf("%v", err)
	}
	if _, err := source.Expand(ctx, f, []string{"b/x.tar"}); errs.CodeOf(err) != errs.NotFound {
		t.Errorf("%v", err)
	}
}

// What a folder holds is not known if it cannot be listed: that is an error, and not a
// smaller dataset.
func TestAFolderThatCannotBeListed(t *testing.T) {
	tree(t, "a/x.tar", "b/x.tar")
	src := stagetest.WithFaults(openFile(t), "list b unreadable")
	for _, pattern := range []string{"**/*.tar", "*/*.tar"} {
		if got, err := source.Expand(ctx, src, []string{pattern}); errs.CodeOf(err) != errs.Unreadable {
			t.Errorf("%s: %v, %v", pattern, got, err)
		}
	}
}
