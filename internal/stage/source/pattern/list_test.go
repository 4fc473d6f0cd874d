package pattern_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/mux"
	"github.com/stoker-data/stoker/internal/stage/source/pattern"
	"github.com/stoker-data/stoker/internal/stagetest/bucket"
)

// In place of a pattern, a list gives names in its order: relative to its folder, with
// braces and patterns of their own.
func TestLists(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return dir + "/" + name
	}
	for _, name := range []string{"b.tar", "a.tar", "c.tar", "@odd", "# x"} {
		write(name, name)
	}
	store := bucket.New()
	for _, name := range []string{"mem://b/in/x.tar", "mem://b/y.tar", "mem://other/z.tar"} {
		store.Put(name, []byte(name))
	}
	store.Put("mem://b/in/list.txt", []byte("x.tar\n../y.tar\nmem://b/y.tar\n"))
	store.Put("mem://b/in/away", []byte("x.tar\nmem://other/z.tar\n"))
	store.Put("mem://b/in/up", []byte("../../other/z.tar"))
	store.Put("mem://b/in/passwd", []byte("# mine\n/etc/passwd\n"))
	store.Put("mem://b/in/file", []byte("file:///etc/passwd\n"))
	store.Put("mem://b/in/braces", []byte("mem://{b,other}/z.tar\n"))
	m := mux.New([]source.Scheme{source.Local(), store.Scheme()}, source.Access{})
	defer m.Close()

	list := write("list.txt", "\uFEFF# in this order\nb.tar\r\n\n  "+dir+"/a.tar\n{c,b}.tar\n[a]*.tar\n")
	t.Chdir(dir)
	for given, want := range map[string]string{
		"@" + list:                 dir + "/b.tar " + dir + "/a.tar " + dir + "/c.tar " + dir + "/b.tar " + dir + "/a.tar",
		"@file://" + list:          dir + "/b.tar " + dir + "/a.tar " + dir + "/c.tar " + dir + "/b.tar " + dir + "/a.tar",
		"@odd":                     "@odd", // a file of that name
		"@mem://b/in/list.txt":     "mem://b/in/x.tar mem://b/y.tar mem://b/y.tar",
		"@" + write("1", "./@odd"): dir + "/@odd",
	} {
		got, err := pattern.Expand(t.Context(), m, []string{given})
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %q, %v; want %q", given, got, err, want)
		}
	}

	// What is elsewhere needs the user's word: it costs his keys, or his files.
	for _, name := range []string{"away", "up", "passwd", "file", "braces"} {
		got, err := pattern.Expand(t.Context(), m, []string{"@mem://b/in/" + name})
		if errs.CodeOf(err) != errs.Config || got != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	var asked []string
	got, err := pattern.ExpandFrom(t.Context(), m, []string{"@mem://b/in/away"}, func(name string) bool {
		asked = append(asked, name)
		return true
	})
	if err != nil || !slices.Equal(got, []string{"mem://b/in/x.tar", "mem://other/z.tar"}) || !slices.Equal(asked, got[1:]) {
		t.Errorf("%q, asked for %q, %v", got, asked, err)
	}

	for given, want := range map[string]string{
		"@" + write("2", "b.tar\n@list.txt\n"): "line 2",
		"@" + write("3", "b.tar\x00c.tar\n"):   "control character",
		"@" + write("4", "# nothing\n"):        "no names",
		"@" + write("5", "mem://b/y.tar\n"):    "dataset.origins",
		"@" + write("6", "d.tar\n"):            "did you mean",
		"@" + write("7", "pipe:cat x.tar"):     "does not run commands",
		"@lits.txt":                            "did you mean",
		"@" + dir:                              "folder",
		"@nope://x":                            "nope",
	} {
		_, err := pattern.Expand(t.Context(), m, []string{given})
		e := errs.From(err)
		if err == nil || e.Hint == "" || !strings.Contains(e.What+e.Hint, want) {
			t.Errorf("%s: %v (%s)", given, err, e.Hint)
		}
	}
}

// A list opens nothing but the container, or the repository, that it is in: the user's
// credentials are good for others too.
func TestListsStayWhereTheyAre(t *testing.T) {
	store := bucket.New()
	const mine, hub = "abfss://mine@acct.dfs.core.windows.net/", "hf://datasets/"
	for _, name := range []string{
		mine + "d/x.tar", "abfss://secret@acct.dfs.core.windows.net/x.tar", "abfss://acct.dfs.core.windows.net/x.tar",
		hub + "me/open/d/x.tar", hub + "me/open@v1/x.tar", hub + "me/private/x.tar", hub + "old/d/x.tar", hub + "old/x.tar", "gs://b/../c/x.tar", "gs://b/x.tar",
	} {
		store.Put(name, []byte(name))
	}
	m := mux.New([]source.Scheme{
		source.Local(),
		{Name: "abfss", Open: func(source.Access) (source.Source, error) { return store, nil }},
		{Name: "hf", Parts: 3, Open: func(source.Access) (source.Source, error) { return store, nil }},
		{Name: "gs", Open: func(source.Access) (source.Source, error) { return store, nil }},
	}, source.Access{})
	defer m.Close()
	for _, c := range []struct {
		list, line string
		allowed    bool
	}{
		{mine + "list", mine + "d/x.tar", true},
		{mine + "list", "d/x.tar", true},
		{mine + "list", "abfss://secret@acct.dfs.core.windows.net/x.tar", false},
		{mine + "list", "../secret@acct.dfs.core.windows.net/x.tar", false},
		{mine + "list", "abfss://acct.dfs.core.windows.net/x.tar", false},
		{hub + "me/open/l/list", hub + "me/open/d/x.tar", true},
		{hub + "me/open/l/list", "../d/x.tar", true},
		{hub + "me/open/l/list", hub + "me/open@v1/x.tar", false},
		{hub + "me/open/l/list", hub + "me/private/x.tar", false},
		{hub + "me/open/l/list", "../../private/x.tar", false},
		{hub + "me/open/l/list", hub + "me/open/../private/x.tar", false},
		{hub + "old/list", "d/x.tar", true}, // which has no owner
		{hub + "old/list", hub + "old/x.tar", true},
		{hub + "old/list", hub + "me/private/x.tar", false},
		{"gs://b/list", "gs://b/x.tar", true},
		{"gs://b/list", "gs://b/../c/x.tar", false},
	} {
		store.Put(c.list, []byte(c.line))
		got, err := pattern.Expand(t.Context(), m, []string{"@" + c.list})
		if c.allowed != (err == nil && len(got) == 1) || err != nil && (errs.CodeOf(err) != errs.Config || !strings.Contains(errs.From(err).Hint, "dataset.origins")) {
			t.Errorf("%s in %s: %q, %v", c.line, c.list, got, err)
		}
		beyond := !c.allowed && source.SchemeOf(c.line) != ""
		if beyond && source.Under([]string{source.Dir(c.list)}, c.line) {
			t.Errorf("%s is under the folder of %s", c.line, c.list)
		}
	}
}
