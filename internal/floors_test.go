package internal_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/stoker-data/stoker"

// floors is the house, lowest first: imports go down, never up, and never
// sideways but along edges. This list is policy: do not edit it to make a build
// pass.
var floors = [][]string{
	{ // 0: base
		"internal/base/cgroup", "internal/base/errs", "internal/base/jsontext", "internal/base/kernel", "internal/base/mem", "internal/base/procfs", "internal/base/rng", "internal/base/stats", "internal/base/wire",
	},
	{ // 1: stages, in the direction of data
		"internal/stage/source", "internal/stage/index", "internal/stage/facts", "internal/stage/entries", "internal/stage/format", "internal/stage/order", "internal/stage/fetch",
		"internal/stage/decode", "internal/stage/transform", "internal/stage/batch", "internal/stage/deliver", "internal/stage/packing", "internal/stage/worker",
	},
	{"internal/spec", "internal/dataset", "internal/stream", "internal/fill", "internal/compose", "internal/crew", "internal/loader", "internal/engine"}, // 2: assembly, each importing only those before it
	{ // 3: tools, each a room
		"internal/tool/bench", "internal/tool/compare", "internal/tool/demo", "internal/tool/inspect", "internal/tool/learn", "internal/tool/model", "internal/tool/need", "internal/tool/orders",
		"internal/tool/pack", "internal/tool/pack/prepare", "internal/tool/pack/shard", "internal/tool/pack/token",
		"internal/tool/peek", "internal/tool/resume", "internal/tool/show", "internal/tool/survey", "internal/tool/tune", "internal/tool/verify",
		"internal/tool/doctor", "internal/tool/doctor/doctortest", "internal/tool/doctor/evidence", "internal/tool/doctor/gather", "internal/tool/doctor/hook",
		"internal/tool/doctor/judge", "internal/tool/doctor/loop", "internal/tool/doctor/report", "internal/tool/doctor/system", "internal/tool/doctor/tiers", "internal/tool/doctor/watch",
	},
	{".", "cmd/stoker", "examples"}, // 4: doors
	{"harness", "harness/faults", "harness/hub", "harness/score", "harness/slowfs", "harness/slownet"}, // 5: test harnesses, a module of their own
}

// outside is the first floor that no package of the product is on: its module is another.
const outside = 5

// edges are the imports allowed between rooms of one floor.
var edges = map[string][]string{
	"internal/base/cgroup": {"internal/base/procfs"},
	"internal/base/mem":    {"internal/base/cgroup", "internal/base/procfs"},
	"internal/base/wire":   {"internal/base/errs", "internal/base/jsontext"},

	"internal/stage/index":     {"internal/stage/source"},
	"internal/stage/entries":   {"internal/stage/facts", "internal/stage/index"},
	"internal/stage/format":    {"internal/stage/index", "internal/stage/source"},
	"internal/stage/fetch":     {"internal/stage/format", "internal/stage/source"},
	"internal/stage/transform": {"internal/stage/decode"},
	"internal/stage/deliver":   {"internal/stage/batch"},
	"internal/stage/packing":   {"internal/stage/format"},
	"internal/stage/worker":    {"internal/stage/batch"},

	"internal/dataset": {"internal/spec"},
	"internal/stream":  {"internal/spec", "internal/dataset"},
	"internal/fill":    {"internal/spec", "internal/dataset"},
	"internal/compose": {"internal/spec", "internal/dataset", "internal/stream", "internal/fill"},
	"internal/crew":    {"internal/fill"},
	"internal/loader":  {"internal/spec", "internal/dataset", "internal/stream", "internal/fill", "internal/compose", "internal/crew"},
	"internal/engine":  {"internal/spec", "internal/dataset", "internal/stream", "internal/crew", "internal/loader"},
	"cmd/stoker":       {"."},
	"examples":         {"."},

	// Numbers as people read them.
	"internal/tool/inspect": {"internal/tool/show"},
	"internal/tool/orders":  {"internal/tool/show"},
	"internal/tool/peek":    {"internal/tool/show"},

	// A Spec is completed, and a loader measured, as bench does it.
	"internal/tool/bench":  {"internal/tool/show"},
	"internal/tool/need":   {"internal/tool/bench", "internal/tool/show"},
	"internal/tool/resume": {"internal/tool/bench", "internal/tool/show"},
	"internal/tool/tune":   {"internal/tool/bench", "internal/tool/doctor/system", "internal/tool/model", "internal/tool/show"},

	"internal/tool/compare": {"internal/tool/orders"},                        // an order is a stream, too
	"internal/tool/survey":  {"internal/tool/inspect", "internal/tool/show"}, // inspect finds out fields

	// verify checks what pack wrote; both name what a sample is stored in.
	"internal/tool/pack":         {"internal/tool/pack/prepare", "internal/tool/pack/shard"},
	"internal/tool/pack/prepare": {"internal/tool/pack/shard", "internal/tool/pack/token"},
	"internal/tool/verify":       {"internal/tool/inspect", "internal/tool/pack", "internal/tool/pack/shard", "internal/tool/show"},

	// The doctor: what is judged and reported knows no collector, and no collector knows
	// how that is done; watch and tiers join them.
	"internal/tool/doctor/doctortest": {"internal/tool/doctor/evidence"},
	"internal/tool/doctor/system":     {"internal/tool/doctor/evidence"},
	"internal/tool/doctor/gather":     {"internal/tool/doctor/evidence", "internal/tool/doctor/system", "internal/tool/show"},
	"internal/tool/doctor/loop":       {"internal/tool/doctor/evidence", "internal/tool/model", "internal/tool/show"},
	"internal/tool/doctor/judge":      {"internal/tool/doctor/evidence", "internal/tool/doctor/loop", "internal/tool/model", "internal/tool/show"},
	"internal/tool/doctor/report":     {"internal/tool/doctor/evidence", "internal/tool/doctor/judge", "internal/tool/show"},
	"internal/tool/doctor/tiers": {
		"internal/tool/bench", "internal/tool/doctor/evidence", "internal/tool/doctor/gather", "internal/tool/doctor/judge", "internal/tool/doctor/system", "internal/tool/show",
	},
	"internal/tool/doctor/watch": {
		"internal/tool/doctor/evidence", "internal/tool/doctor/gather", "internal/tool/doctor/hook", "internal/tool/doctor/judge", "internal/tool/doctor/system", "internal/tool/show",
	},

	"harness/faults": {"harness/slownet"},
	"harness/score":  {"harness/slowfs", "harness/slownet"},
}

// only lists rooms that may import nothing of ours but this.
var only = map[string][]string{
	"internal/base/jsontext": nil,
	"internal/base/kernel":   nil,
	"internal/base/rng":      nil,
	"internal/base/procfs":   nil,
	"internal/base/cgroup":   {"internal/base/procfs"},
	"internal/base/mem":      {"internal/base/cgroup", "internal/base/procfs"},
	"internal/base/errs":     nil,
	"internal/stage/order":   {"internal/base/rng"},
	"internal/stage/facts":   {"internal/base/errs"},

	// What is measured is judged and reported anywhere, without what measured it.
	"internal/tool/model":           nil,
	"internal/tool/doctor/evidence": nil,
	"internal/tool/doctor/hook":     nil,
	"internal/tool/doctor/loop":     {"internal/tool/doctor/evidence", "internal/tool/model", "internal/tool/show"},
	"internal/tool/doctor/judge":    {"internal/tool/doctor/evidence", "internal/tool/doctor/loop", "internal/tool/model", "internal/tool/show"},
	"internal/tool/doctor/report":   {"internal/tool/doctor/evidence", "internal/tool/doctor/judge", "internal/tool/show"},
	"harness/slowfs":                {"internal/base/errs"},
	"harness/slownet":               {"internal/base/errs"},
}

// readers lists the tools that look at samples or orders: they open a dataset or a
// stream, and nothing of theirs, however deep, imports the loader with its lanes and
// readers.
var readers = []string{"peek", "verify", "survey", "inspect", "pack", "orders", "compare"}

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

// packages are those of the product's module and of the test harnesses'.
func packages(t *testing.T) []pkg {
	t.Helper()
	all, err := listed()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// listed asks go list once for all tests.
var listed = sync.OnceValues(func() (out []pkg, err error) {
	for _, dir := range []string{"..", "../harness"} {
		cmd := exec.Command("go", "list", "-json=ImportPath,Imports,Deps,CgoFiles", "./...")
		cmd.Dir = dir
		b, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("go list in %s: %w", dir, err)
		}
		dec := json.NewDecoder(strings.NewReader(string(b)))
		for dec.More() {
			var p pkg
			if err := dec.Decode(&p); err != nil {
				return nil, err
			}
			out = append(out, p)
		}
	}
	return out, nil
})

func TestFloors(t *testing.T) {
	all := packages(t)
	if len(all) < 10 {
		t.Fatalf("only %d packages found", len(all))
	}
	for _, p := range all {
		from, floor := room(p.ImportPath)
		if strings.Contains(p.ImportPath, "/internal/stagetest") || p.ImportPath == module+"/internal" {
			continue // test support is not part of the house
		}
		if floor < 0 {
			t.Errorf("%s is on no floor: every package has its room in the list", p.ImportPath)
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

// An edge or a permission that nothing uses is one that nobody has to explain any more.
func TestEdgesAreUsed(t *testing.T) {
	used := map[[2]string]bool{}
	for _, p := range packages(t) {
		from, _ := room(p.ImportPath)
		for _, imp := range p.Imports {
			if strings.HasPrefix(imp+"/", module+"/") {
				to, _ := room(imp)
				used[[2]string{from, to}] = true
			}
		}
	}
	for _, list := range []map[string][]string{edges, only} {
		for from, rooms := range list {
			for _, to := range rooms {
				if !used[[2]string{from, to}] {
					t.Errorf("%s may import %s, and does not: take it off the list", from, to)
				}
			}
		}
	}
}

// File systems and servers that only tests need are not dependencies of the product.
func TestHarnessIsApart(t *testing.T) {
	harness := module + "/harness"
	for _, p := range packages(t) {
		if _, floor := room(p.ImportPath); floor >= outside {
			continue
		}
		for _, dep := range p.Deps {
			if dep == harness || strings.HasPrefix(dep, harness+"/") || strings.Contains(dep, "/go-fuse/") {
				t.Errorf("%s needs %s, which is for tests", p.ImportPath, dep)
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
		if name, _, _ = strings.Cut(name, "/"); !ok || !slices.Contains(readers, name) {
			continue
		}
		found++
		if slices.Contains(p.Deps, module+"/internal/loader") {
			t.Errorf("%s imports the loader, or something that does", p.ImportPath)
		}
	}
	if found < len(readers) {
		t.Errorf("%d packages found of %v", found, readers)
	}
}
