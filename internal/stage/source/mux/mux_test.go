package mux_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/mux"
	"github.com/stoker-data/stoker/internal/stage/source/pattern"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// The scheme of a name says which source is asked; a source is made when it is first
// needed, once, and a scheme that is not on the list is an error that says which are.
func TestMux(t *testing.T) {
	stagetest.Source(t, func(t *testing.T, objects map[string][]byte) (source.Source, string, func(string, []byte)) {
		dir := t.TempDir() + "/"
		for name, data := range objects {
			stagetest.Put(t, dir+name, data)
		}
		m := mux.New([]source.Scheme{source.Local()}, source.Access{})
		t.Cleanup(func() { stagetest.Must(t, m.Close()) })
		return m, dir, func(name string, data []byte) { stagetest.Put(t, dir+name, data) }
	})
	made := 0
	broken := errs.New(errs.Unreadable, "no key").Try("get one")
	m := mux.New([]source.Scheme{
		source.Local(),
		{Name: "one", Open: func(source.Access) (source.Source, error) {
			made++
			return stagetest.Memory{"one://a": []byte("in one")}, nil
		}},
		{Name: "locked", Open: func(source.Access) (source.Source, error) { return nil, broken }},
	}, source.Access{})
	local := stagetest.Put(t, filepath.Join(t.TempDir(), "a://b"), []byte("local")) // not a scheme: there is a slash before
	for name, want := range map[string]string{"one://a": "in one", "ONE://a": "", local: "local"} {
		b, err := source.ReadAll(t.Context(), m, name, 100)
		if string(b) != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", name, b, err)
		}
		if _, err := source.ReadAll(t.Context(), m, name, 3); err == nil {
			t.Errorf("%s: more was read than was wanted", name)
		}
	}
	if made != 1 {
		t.Errorf("the source was made %d times", made)
	}
	st, err := m.Stat(t.Context(), "one://a")
	stagetest.Must(t, err)
	if hot, err := m.ReadHot(t.Context(), st, make([]byte, 6), 0, false); hot || err != nil {
		t.Errorf("a source that does not know what is in memory says %v, %v", hot, err)
	}
	if hot, err := m.ReadHot(t.Context(), st, make([]byte, 6), 0, true); hot || err != nil {
		t.Errorf("waiting for it: %v, %v", hot, err)
	}
	if _, ok := m.Run(st); ok {
		t.Error("it has runs")
	}
	if _, err := m.Stat(t.Context(), "locked://x"); !errors.Is(err, broken) {
		t.Errorf("a source that cannot be made: %v", err)
	}
	for _, name := range []string{"s3://b/x", "http://h/y"} {
		_, err := m.Stat(t.Context(), name)
		e := errs.From(err)
		if e.Code != errs.Config || e.Hint == "" || !strings.Contains(e.What, "only local files, one://, locked://") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err = pattern.Expand(t.Context(), m, []string{name + "{1,2}", name + "*"}); errs.CodeOf(err) != errs.Config {
			t.Errorf("%s: %v", name, err)
		}
		for _, err := range m.List(t.Context(), name) {
			if errs.CodeOf(err) != errs.Config {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
