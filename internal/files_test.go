package internal_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// files lists the packages that may import os or path/filepath, and why. Stored bytes
// are reached through source.Source alone, which has a context and may be an object
// store: what is listed here touches what is local by its nature. This list is policy:
// do not edit it to make a build pass.
var files = map[string]string{
	"internal/stage/source": "is where local files are read",

	"internal/base/cgroup": "/proc and the cgroup file system",
	"internal/base/kernel": "environment",
	"internal/base/procfs": "/proc and other small files of the kernel",
	"internal/base/stats":  "/proc: the statistics page of another process",

	"internal/spec":          "environment",
	"internal/stage/index":   "the cache of indexes is a local folder; an index is written beside local data",
	"internal/stage/facts":   "the cache of what was learned from samples is a local folder",
	"internal/stage/deliver": "descriptors of shared memory and sockets",
	"internal/stage/worker":  "descriptors of shared memory and sockets",
	"internal/engine":        "environment, the client's process",

	"internal/tool/compare":    "states and lists of ids that a user saved",
	"internal/tool/demo":       "writes the photographs that it shows",
	"internal/tool/pack":       "what is packed is written to local folders, and gone on with there",
	"internal/tool/pack/shard": "writes shards",
	"internal/tool/pack/token": "vocabularies",
	"internal/tool/resume":     "states, of runs that it kills",
	"internal/tool/tune":       "/proc, playbooks",
	"internal/tool/verify":     "writes digests and what quarantine leaves",

	"internal/tool/doctor": "looks at a process and at its files from outside: /proc, mounts, probes of storage",

	"cmd/stoker":        "arguments, streams, files of the user's",
	"examples/go/train": "exits",
}

// owned lists the packages that may read local files by source.Open and
// source.ReadFile, which know no schemes: files that stoker or its user keeps, not data.
var owned = map[string]string{
	"internal/spec":             "lists of numbers beside a Spec",
	"internal/stage/index":      "the cache of indexes",
	"internal/stage/source/web": "the user's .netrc",
	"internal/tool/demo":        "its photographs",
	"internal/tool/pack":        "the packing that it goes on with",
	"internal/tool/tune":        "playbooks",
}

type sourced struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	CgoFiles   []string
	Imports    []string
}

// allowed is the entry of a list for a package, or for one above it.
func allowed(list map[string]string, pkg string) string {
	for at := pkg; at != "."; at = filepath.Dir(at) {
		if _, ok := list[at]; ok {
			return at
		}
	}
	return ""
}

func TestFilesAreReachedThroughSources(t *testing.T) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,CgoFiles,Imports", "./...")
	cmd.Dir = ".."
	b, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	used, there := map[string]bool{}, map[string]bool{}
	dec := json.NewDecoder(strings.NewReader(string(b)))
	for dec.More() {
		var p sourced
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		rel := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		for at := rel; at != "."; at = filepath.Dir(at) {
			there[at] = true
		}
		if strings.HasPrefix(rel, "internal/stagetest") { // test support is outside
			continue
		}
		for _, imp := range []string{"os", "path/filepath", "io/ioutil", "syscall"} {
			if !slices.Contains(p.Imports, imp) {
				continue
			}
			at := allowed(files, rel)
			if used[at] = true; at == "" {
				t.Errorf("%s imports %s: read stored bytes through source.Source", rel, imp)
			}
		}
		if rel == "internal/stage/source" {
			continue
		}
		for _, name := range slices.Concat(p.GoFiles, p.CgoFiles) {
			for _, call := range localCalls(t, filepath.Join(p.Dir, name)) {
				at := allowed(owned, rel)
				if used["owned "+at] = true; at == "" {
					t.Errorf("%s calls source.%s in %s: it knows no schemes; read stored bytes through a source.Source", rel, call, name)
				}
			}
		}
	}
	for _, at := range slices.Sorted(maps.Keys(files)) {
		if there[at] && !used[at] {
			t.Errorf("%s is on the list, and does not need to be", at)
		}
	}
	for _, at := range slices.Sorted(maps.Keys(owned)) {
		if there[at] && !used["owned "+at] {
			t.Errorf("%s is on the list of those that read files of their own, and does not need to be", at)
		}
	}
}

// localCalls are the functions of package source that a file uses and that read local
// files only.
func localCalls(t *testing.T, name string) (calls []string) {
	f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == "source" && (s.Sel.Name == "Open" || s.Sel.Name == "ReadFile") {
				calls = append(calls, s.Sel.Name)
			}
		}
		return true
	})
	return calls
}
