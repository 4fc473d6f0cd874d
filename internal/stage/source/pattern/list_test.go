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
