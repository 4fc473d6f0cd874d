package internal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/dataset"
)

// knowsFormats are the folders whose packages may name formats: the formats, and the
// list of them, which adds what a format's keys mean. Tests and what helps them may too.
var knowsFormats = []string{"internal/stage/format", "internal/dataset/formats.go", "internal/dataset/script", "internal/stagetest", "harness"}

// otherWords are strings elsewhere that are a format's name and mean something else, by
// file or folder.
var otherWords = map[string]struct {
	words []string
	why   string
}{
	"internal/stage/packing/packing.go":       {[]string{"tar", "tfrecord", "npy", "tokens"}, "what stoker pack writes: its outputs"},
	"internal/tool/pack/shard/tar.go":         {[]string{"npy"}, "the suffix of a tar member that is an array"},
	"internal/tool/pack/prepare":              {[]string{"npy", "tokens"}, "the suffix of a member that is an array; the field that text becomes"},
	"internal/stage/transform/transform.go":   {[]string{"npy"}, "a codec: decode=\"npy\""},
	"internal/dataset/fields.go":              {[]string{"npy"}, "a codec, and the suffix that asks for it"},
	"internal/dataset/column.go":              {[]string{"npy"}, "a codec"},
	"internal/compose/bundle.go":              {[]string{"npy"}, "a codec"},
	"internal/spec/check.go":                  {[]string{"tokens"}, "batch.tokens, a key"},
	"internal/stage/source/pattern/refuse.go": {[]string{"tar"}, "a file system of fsspec's: tar://"},
	"internal/base/wire/wire.go":              {[]string{"table"}, "a message"},
	"internal/base/wire/page.go":              {[]string{"python"}, "the stage in which Python workers are"},
	"internal/base/stats":                     {[]string{"python"}, "the stage of the user's code"},
	"internal/tool/doctor/evidence":           {[]string{"python"}, "the stage of a loop in which Python code runs"},
	"internal/tool/doctor/loop/data.go":       {[]string{"npz", "npy", "lmdb", "tokens", "table", "tar"}, "what a user's script reads, by the Python library that reads it"},
	"internal/tool/doctor/watch":              {[]string{"lines"}, "lines that the hook writes"},
	"internal/tool/inspect/text.go":           {[]string{"files"}, "the plural of file"},
	"internal/tool/verify/quarantine.go":      {[]string{"files"}, "the plural of file"},
	"cmd/stoker":                              {[]string{"files"}, "the plural of file"},
}

// importsFormats are packages that import one of the packages below format, and why.
var importsFormats = map[string]struct {
	packages []string
	why      string
}{
	"internal/dataset":           {nil, "the list of formats"},
	"internal/tool/pack/prepare": {[]string{"suffix"}, "WebDataset's convention of suffixes"},
	"internal/tool/inspect":      {[]string{"suffix"}, "WebDataset's convention of suffixes"},
	"internal/tool/peek":         {[]string{"npy"}, "a value of any format may be a .npy file"},
}

// A new format is a package and a line of the list: nothing else asks for one by name.
func TestOnlyTheListNamesFormats(t *testing.T) {
	var names []string
	for _, f := range dataset.Formats() {
		names = append(names, f.Name)
	}
	below := func(file string, folders []string) (string, bool) {
		i := slices.IndexFunc(folders, func(f string) bool { return file == f || strings.HasPrefix(file, f+"/") })
		if i < 0 {
			return "", false
		}
		return folders[i], true
	}
	var excused []string
	for file := range otherWords {
		excused = append(excused, file)
	}
	used := map[string]bool{}
	for _, file := range sources(t) {
		if _, may := below(file, knowsFormats); may {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", file), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ImportSpec:
				return false
			case *ast.Field:
				n.Tag = nil
			case *ast.BasicLit:
				word, err := strconv.Unquote(n.Value)
				if n.Kind != token.STRING || err != nil || !slices.Contains(names, word) {
					return true
				}
				where, known := below(file, excused)
				if known && slices.Contains(otherWords[where].words, word) {
					used[where+" "+word] = true
					return true
				}
				t.Errorf("%s names the format %q: ask its descriptor (format.Format), so that a new format needs no line there", file, word)
			}
			return true
		})
	}
	for where, w := range otherWords {
		for _, word := range w.words {
			if !used[where+" "+word] {
				t.Errorf("%s does not say %q any more (%s): take it off the list", where, word, w.why)
			}
		}
	}
}

// Only the list of formats imports them.
func TestOnlyTheListImportsFormats(t *testing.T) {
	const formats = module + "/internal/stage/format/"
	used := map[string]bool{}
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		for _, imp := range p.Imports {
			sub, is := strings.CutPrefix(imp, formats)
			if !is || strings.HasPrefix(name, "internal/stage/format") || strings.HasPrefix(name, "internal/stagetest") || strings.HasPrefix(name, "internal/dataset") {
				continue
			}
			if !slices.Contains(importsFormats[name].packages, sub) {
				t.Errorf("%s imports %s: it may ask what format.Format and the interfaces of package format tell", name, imp)
			}
			used[name+" "+sub] = true
		}
	}
	for name, p := range importsFormats {
		for _, sub := range p.packages {
			if !used[name+" "+sub] {
				t.Errorf("%s does not import %s any more (%s): take it off the list", name, sub, p.why)
			}
		}
	}
}

// sources are the Go files of the product and of its test harnesses, tests left out, by
// their paths below the root.
func sources(t *testing.T) (files []string) {
	t.Helper()
	for _, p := range packages(t) {
		dir := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		all, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range all {
			if !strings.HasSuffix(f, "_test.go") {
				files = append(files, filepath.ToSlash(filepath.Join(dir, filepath.Base(f))))
			}
		}
	}
	if len(files) < 200 {
		t.Fatalf("only %d files found", len(files))
	}
	return files
}
