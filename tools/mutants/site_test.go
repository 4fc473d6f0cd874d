package main

import (
	"go/format"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const source = `package a

import "sync"

type T struct{ mu sync.Mutex; n int }

func (t *T) Take(n int) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n < 0 {
		return 0, nil
	}
	err := f(n + 1)
	return t.n, err
}

func f(n int) error { return nil }
`

func sites(t *testing.T) []*site {
	t.Helper()
	p := &pkg{Dir: t.TempDir(), ImportPath: "x/a"}
	p.Module.Path = "x"
	if err := os.WriteFile(filepath.Join(p.Dir, "a.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	found, err := find(p, "a.go")
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Every kind of change is found, each is another text, and each is Go.
func TestSites(t *testing.T) {
	texts := map[string]string{}
	for _, s := range sites(t) {
		text, err := s.apply()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := format.Source(text); err != nil || string(text) == source {
			t.Errorf("%s: %v\n%s", s.name(), err, text)
		}
		texts[s.kind+" "+s.before] = string(text)
	}
	for what, want := range map[string]string{
		"compare n < 0":         "if n <= 0 {",
		"negate n < 0":          "if !(n < 0) {",
		"skip if n < 0":         "if false && (n < 0) {",
		"off-by-one n < 0":      "if n < 1 {",
		"off-by-one n + 1":      "f(n + 2)",
		"error return t.n, err": "return t.n, nil",
		"lock t.mu.Lock()":      "defer func() {}()",
	} {
		if !strings.Contains(texts[what], want) {
			t.Errorf("%s: no %q in\n%s", what, want, texts[what])
		}
	}
	if len(texts) != 7 {
		t.Errorf("%d changes", len(texts))
	}
}

// A seed always chooses the same, and another seed other changes.
func TestChoiceHangsOnTheSeed(t *testing.T) {
	first := func(seed uint64) (names string) {
		found := sites(t)
		p := found[0].pkg
		p.found = func() []*site { return found }
		for _, q := range choose(map[string]*pkg{p.ImportPath: p}, seed, 3) {
			names += q.sites[0].name() + "\n"
		}
		return names
	}
	if first(1) != first(1) || strings.Count(first(1), "\n") != 3 {
		t.Errorf("chosen: %s, then %s", first(1), first(1))
	}
	for seed := uint64(2); first(seed) == first(1); seed++ {
		if seed > 20 {
			t.Fatal("every seed chooses the same")
		}
	}
}
