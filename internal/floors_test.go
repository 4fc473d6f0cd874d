package internal_test

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/stoker-data/stoker"

// floors is the house, lowest first: imports go down, never up, and never
// sideways but along edges. This list is policy: do not edit it to make a build
// pass.
var floors = [][]string{
	{ // 0: base
		"internal/base/cgroup", "internal/base/errs", "internal/base/jsontext", "internal/base/kernel", "internal/base/mem", "internal/base/rng", "internal/base/stats", "internal/base/wire",
	},
	{ // 1: stages, in the direction of data
		"internal/stage/source", "internal/stage/index", "internal/stage/format", "internal/stage/order", "internal/stage/fetch",
		"internal/stage/decode", "internal/stage/transform", "internal/stage/batch", "internal/stage/deliver", "internal/stage/packing",
	},
	{"internal/spec", "internal/dataset", "internal/loader", "internal/engine"}, // 2: assembly, each importing only those before it
	{"internal/tool"},               // 3: tools
	{".", "cmd/stoker", "examples"}, // 4: doors
}

// edges are the imports allowed between rooms of one floor.
var edges = map[string][]string{
	"internal/base/mem":  {"internal/base/cgroup"},
	"internal/base/wire": {"internal/base/errs", "internal/base/jsontext"},

	"internal/stage/index":     {"internal/stage/source"},
	"internal/stage/format":    {"internal/stage/index", "internal/stage/source"},
	"internal/stage/fetch":     {"internal/stage/format", "internal/stage/source"},
	"internal/stage/transform": {"internal/stage/decode"},
	"internal/stage/deliver":   {"internal/stage/batch"},
	"internal/stage/packing":   {"internal/stage/format"},

	"internal/dataset": {"internal/spec"},
	"internal/loader":  {"internal/spec", "internal/dataset"},
	"internal/engine":  {"internal/spec", "internal/dataset", "internal/loader"},
	"cmd/stoker":       {"."},
	"examples":         {"."},
}

// only lists rooms that may import nothing of ours but this.
var only = map[string][]string{
	"internal/base/jsontext": nil,
	"internal/base/kernel":   nil,
	"internal/base/rng":      nil,
	"internal/base/mem":      {"internal/base/cgroup"},
	"internal/base/cgroup":   nil,
	"internal/base/errs":     nil,
	"internal/stage/order":   {"internal/base/rng"},
}

// dataset lists the tools that look at samples: they open a dataset, and nothing of
// theirs, however deep, imports the loader with its lanes and readers.
var dataset = []string{"peek", "verify", "survey", "inspect", "pack"}

// cgo lists the rooms that may import "C".
var cgo = []string{"internal/base/kernel"}

type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string
	CgoFiles   []string
}

// room is the room that a package belongs to, and its floor; -1: none.
func room(path string) (string, int) {
	rel := strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
	if rel == "" {
		return ".", 4
	}
	best, floor := "", -1
	for i, rooms := range floors {
		for _, r := range rooms {
			if (rel == r || strings.HasPrefix(rel, r+"/")) && len(r) > len(best) {
				best, floor = r, i
			}
		}
	}
	return best, floor
}

func packages(t *testing.T) (out []pkg) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,Deps,CgoFiles", "./...")
	cmd.Dir = ".."
	b, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	dec := json.NewDecoder(strings.NewReader(string(b)))
	for dec.More() {
		var p pkg
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
	return out
}

func TestFloors(t *testing.T) {
	all := packages(t)
	if len(all) < 10 {
		t.Fatalf("only %d packages found", len(all))
	}
	for _, p := range all {
		from, floor := room(p.ImportPath)
		if strings.Contains(p.ImportPath, "/internal/stagetest") || p.ImportPath == module+"/internal" {
			continue // test support stands outside
		}
		if floor < 0 {
			t.Errorf("%s stands on no floor: every package has its room in the list", p.ImportPath)
			continue
		}
		if len(p.CgoFiles) > 0 && !slices.Contains(cgo, from) {
			t.Errorf("%s imports \"C\": only %v may", p.ImportPath, cgo)
		}
		for _, imp := range p.Imports {
			if imp != module && !strings.HasPrefix(imp, module+"/") {
				continue
			}
			to, below := room(imp)
			if to == from {
				continue
			}
			if below > floor {
				t.Errorf("%s imports %s: from floor %d up to floor %d", p.ImportPath, imp, floor, below)
			}
			if below == floor && !slices.Contains(edges[from], to) {
				t.Errorf("%s imports %s: no such edge on floor %d", p.ImportPath, imp, floor)
			}
			if allowed, strict := only[from]; strict && !slices.Contains(allowed, to) {
				t.Errorf("%s imports %s: %s may import nothing of ours but %v", p.ImportPath, imp, from, allowed)
			}
		}
	}
}

// Tools that look at samples need no loader, and the loader needs no format.
func TestLoaderIsApart(t *testing.T) {
	tool := module + "/internal/tool/"
	found := 0
	for _, p := range packages(t) {
		if p.ImportPath == module+"/internal/loader" {
			for _, imp := range p.Imports {
				if strings.HasPrefix(imp, module+"/internal/stage/format/") {
					t.Errorf("%s imports %s: the loader knows no format", p.ImportPath, imp)
				}
			}
		}
		name, ok := strings.CutPrefix(p.ImportPath, tool)
		if name, _, _ = strings.Cut(name, "/"); !ok || !slices.Contains(dataset, name) {
			continue
		}
		found++
		if slices.Contains(p.Deps, module+"/internal/loader") {
			t.Errorf("%s imports the loader, or something that does", p.ImportPath)
		}
	}
	if found < len(dataset) {
		t.Errorf("%d packages found of %v", found, dataset)
	}
}
