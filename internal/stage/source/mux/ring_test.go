package mux_test

import (
	"context"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/mux"
	"github.com/stoker-data/stoker/internal/stage/source/pattern"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// store is a toy store that keeps the names it was asked for.
type store struct {
	stagetest.Memory
	access source.Access
	asked  *[]string
}

func (s store) Stat(ctx context.Context, name string) (source.Info, error) {
	*s.asked = append(*s.asked, name)
	return s.Memory.Stat(ctx, name)
}

func (s store) List(_ context.Context, prefix string) iter.Seq2[source.Info, error] {
	*s.asked = append(*s.asked, prefix)
	return func(yield func(source.Info, error) bool) {
		for _, name := range slices.Sorted(func(yield func(string) bool) {
			for name := range s.Memory {
				if strings.HasPrefix(name, prefix) && !yield(name) {
					return
				}
			}
		}) {
			if !yield(source.Info{Name: name, Size: int64(len(s.Memory[name])), Version: "1"}, nil) {
				return
			}
		}
	}
}

// Two buckets of one scheme may be reached in different ways, and each name goes to its
// own. One bucket may not.
func TestBucketsThatAreReachedInDifferentWays(t *testing.T) {
	objects := stagetest.Memory{"toy://a/x": []byte("ax"), "toy://b/x": []byte("bx"), "toy://b2/x": []byte("b2"), "other://a/x": []byte("o")}
	made := map[source.Storage]int{}
	var asked, written []string
	open := func(a source.Access) (source.Source, error) {
		made[a.Storage]++
		if a.Written != nil {
			written = append(written, a.Storage.Region+": "+strings.Join(a.Written.Names, " "))
		}
		return store{objects, a, &asked}, nil
	}
	schemes := []source.Scheme{source.Local(), {Name: "toy", Open: open}, {Name: "other", Open: open}}
	first, second := source.Access{Storage: source.Storage{Region: "1"}}, source.Access{Storage: source.Storage{Region: "2"}}
	m, err := mux.Of(schemes, []source.Place{
		{Names: []string{"toy://a/{x,y}", "/local"}, Access: first},
		{Names: []string{"toy://{b,b2}/x", "toy://b/*"}, Access: second},
		{Names: []string{"other://a/x"}, Access: first},
	})
	stagetest.Must(t, err)
	for name, want := range map[string]string{"toy://a/x": "ax", "toy://b/x": "bx", "toy://b2/x": "b2", "other://a/x": "o"} {
		b, err := source.ReadAll(t.Context(), m, name, 10)
		if err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	if len(made) != 2 || made[first.Storage] != 2 || made[second.Storage] != 1 { // toy and other, and toy
		t.Errorf("sources were made for %v", made)
	}
	slices.Sort(written) // a token is sent to hosts that its own dataset names
	if !slices.Equal(written, []string{"1: other://a/x", "1: toy://a/{x,y}", "2: toy://{b,b2}/x toy://b/*"}) {
		t.Errorf("the user named %q", written)
	}
	if _, err := m.Stat(t.Context(), "toy://c/x"); errs.CodeOf(err) != errs.Config || !strings.Contains(err.Error(), "toy://c/x") {
		t.Errorf("a bucket of which nobody says how it is reached: %v", err)
	}
	_, err = mux.Of(schemes, []source.Place{{Names: []string{"toy://a/x"}, Access: first}, {Names: []string{"toy://a/y/*"}, Access: second}})
	if e := errs.From(err); err == nil || e.Code != errs.Config || !strings.Contains(e.What, `"toy://a" has two different settings of dataset.storage`) {
		t.Errorf("one bucket, two ways: %v", err)
	}
	clear(made)
	m, err = mux.Of(schemes, []source.Place{{Names: []string{"toy://a/x"}, Access: first}, {Names: []string{"toy://b/x"}, Access: first}})
	stagetest.Must(t, err)
	if _, err := m.Stat(t.Context(), "toy://b2/x"); err != nil || made[first.Storage] != 1 { // where all are the same, names that are found are too
		t.Errorf("%v, %v", err, made)
	}
	// A scheme that only a table names is reached as all datasets say, if they say the same.
	for _, other := range []source.Access{first, second} {
		clear(made)
		m, err := mux.Of(schemes, []source.Place{{Names: []string{"toy://a/x"}, Access: first}, {Names: []string{"/local", "toy://b/x"}, Access: other}})
		stagetest.Must(t, err)
		_, err = m.Stat(t.Context(), "other://a/x")
		if same := other == first; same != (err == nil) || !same && (errs.CodeOf(err) != errs.Config || errs.From(err).Hint == "" || len(made) != 0) {
			t.Errorf("a scheme that no dataset names, the same storage %v: %v, made %v", same, err, made)
		}
		if _, err := m.Stat(t.Context(), "/nothing"); errs.CodeOf(err) != errs.NotFound {
			t.Errorf("local files: %v", err)
		}
	}
	repo := []source.Scheme{{Name: "toy", Parts: 2, Open: open}}
	m, err = mux.Of(repo, []source.Place{{Names: []string{"toy://a/x"}, Access: first}, {Names: []string{"toy://a/y"}, Access: second}})
	stagetest.Must(t, err)
	if _, err := m.Stat(t.Context(), "toy://a/x"); err != nil {
		t.Error(err)
	}
}

// The source gets names as the user gave them, and nothing above it does: not in what is
// found, nor in what fails.
func TestSecretsEndAtTheMux(t *testing.T) {
	const sig = "?sv=1&sig=HUSH"
	objects := stagetest.Memory{
		"toy://h/c/0.tar" + sig: []byte("0"), "toy://h/c/1.tar" + sig: []byte("1"), "toy://h/folder/a/b" + sig: []byte("b"),
		"toy://u:HUSH@g/x": []byte("x"), "toy://u:HUSH@g/y": []byte("y"), "toy://h/open": []byte("open"),
	}
	var asked []string
	m, err := mux.Of([]source.Scheme{{Name: "toy", Open: func(a source.Access) (source.Source, error) { return store{objects, a, &asked}, nil }}},
		[]source.Place{{Names: []string{"toy://h/c/{0..1}.tar" + sig, "toy://h/folder" + sig, "toy://u:HUSH@g/x", "toy://h/open"}}})
	stagetest.Must(t, err)
	for name, want := range map[string]string{"toy://h/c/0.tar": "0", "toy://h/c/1.tar": "1", "toy://h/folder/a/b": "b", "toy://g/x": "x", "toy://g/y": "y", "toy://h/open": "open"} {
		st, err := m.Stat(t.Context(), name)
		if err != nil || st.Name != name {
			t.Errorf("%s: %+v, %v", name, st, err)
			continue
		}
		b := make([]byte, st.Size)
		if err := m.ReadAt(t.Context(), st, b, 0); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", name, b, err)
		}
		if n, err := m.Head(t.Context(), name, b); err != nil || n != len(want) {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
	found, err := pattern.Expand(t.Context(), m, []string{"toy://h/c/{0..1}.tar"})
	if err != nil || strings.Join(found, " ") != "toy://h/c/0.tar toy://h/c/1.tar" {
		t.Errorf("%v, %v", found, err)
	}
	for it, err := range m.List(t.Context(), "toy://g/") {
		if err != nil || strings.Contains(it.Name, "HUSH") || !strings.HasPrefix(it.Name, "toy://g/") {
			t.Errorf("%+v, %v", it, err)
		}
	}
	if !slices.Contains(asked, "toy://u:HUSH@g/") {
		t.Errorf("the source was asked for %v", asked)
	}
	for _, name := range []string{"toy://h/c/2.tar", "toy://g/z"} {
		if _, err := m.Stat(t.Context(), name); errs.CodeOf(err) != errs.NotFound || strings.Contains(err.Error(), "HUSH") || strings.Contains(errs.From(err).Where.File, "HUSH") {
			t.Errorf("%v", err)
		}
	}
	_, err = mux.Of(nil, []source.Place{{Names: []string{"toy://h/x?token=1", "toy://h/x?token=2"}}})
	if e := errs.From(err); err == nil || e.Code != errs.Config || !strings.Contains(e.What, "differ only in their signatures") {
		t.Errorf("two URLs that are shown as one: %v", err)
	}
}

// Names that are found later, as those of a list, are kept as those that were given.
func TestSecretsOfNamesThatAreExpanded(t *testing.T) {
	objects := stagetest.Memory{"toy://h/0?sig=HUSH": []byte("0"), "toy://h/1?sig=HUSH": []byte("1")}
	var asked []string
	m := mux.New([]source.Scheme{{Name: "toy", Open: func(a source.Access) (source.Source, error) { return store{objects, a, &asked}, nil }}}, source.Access{})
	found, err := pattern.Expand(t.Context(), m, []string{"toy://h/{0..1}?sig=HUSH"})
	if err != nil || strings.Join(found, " ") != "toy://h/0 toy://h/1" {
		t.Fatalf("%v, %v", found, err)
	}
	for i, name := range found {
		if b, err := source.ReadAll(t.Context(), m, name, 10); err != nil || string(b) != string(rune('0'+i)) {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	if _, err := pattern.Expand(t.Context(), m, []string{"toy://h/0?sig=HUSH2"}); errs.CodeOf(err) != errs.Config || strings.Contains(err.Error(), "HUSH") {
		t.Errorf("another signature of the same name: %v", err)
	}
}

// A list may be signed, and what it names too.
func TestSecretsOfLists(t *testing.T) {
	list := "@toy://h/list.txt?sig=HUSH"
	objects := stagetest.Memory{"toy://h/list.txt?sig=HUSH": []byte("0.tar\ntoy://h/1.tar?token=HUSH\n"), "toy://h/0.tar": []byte("0"), "toy://h/1.tar?token=HUSH": []byte("1")}
	var asked []string
	m, err := mux.Of([]source.Scheme{source.Local(), {Name: "toy", Open: func(a source.Access) (source.Source, error) { return store{objects, a, &asked}, nil }}}, []source.Place{{Names: []string{list}}})
	stagetest.Must(t, err)
	found, err := pattern.Expand(t.Context(), m, []string{source.Shown(list)})
	if err != nil || strings.Join(found, " ") != "toy://h/0.tar toy://h/1.tar" {
		t.Fatalf("%v, %v", found, err)
	}
	if b, err := source.ReadAll(t.Context(), m, found[1], 10); err != nil || string(b) != "1" {
		t.Errorf("%q, %v", b, err)
	}
}
