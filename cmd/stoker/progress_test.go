package main

import (
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// A verb shows how far indexing is, then how far its own work is, and takes both off
// the terminal.
func TestStepsOfAVerb(t *testing.T) {
	terminal, shown := pseudoTerminal(t)
	con := newConsole(t.Context(), terminal, terminal, false)
	s := con.steps("verifying")
	s.indexing.count(1, 2, "files")
	shown.waits(t, "indexing")
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { s.work().count(3, 8, "samples") })
	}
	all.Wait()
	shown.waits(t, "verifying")
	shown.waits(t, "3 samples at ")
	s.end()
	s.end()
	s.work().count(8, 8, "samples") // a late report shows nothing
	_ = terminal.Close()
	text := shown.rest()
	if strings.Index(text, "indexing") > strings.Index(text, "verifying") || strings.Contains(text, "8 samples") {
		t.Errorf("shown: %q", text)
	}
}

// In any order of calls, and without a terminal, a verb's progress is safe to call.
func TestStepsInAnyOrder(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var out strings.Builder
		con := newConsole(t.Context(), &out, &out, false)
		s := con.steps("packing")
		r.Repeat(map[string]func(*rapid.T){
			"indexing": func(*rapid.T) { s.indexing.count(1, 2, "files") },
			"work":     func(*rapid.T) { s.work().packed(1, 2, 3) },
			"end":      func(*rapid.T) { s.end() },
		})
		if out.Len() > 0 {
			r.Fatalf("written without a terminal: %q", out.String())
		}
	})
}
