package files_test

import (
	"context"
	"iter"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/files"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Every way a manifest can be wrong is an error that says where, and what to try.
func TestDamagedManifests(t *testing.T) {
	good := "path,label\ndog/0.jpg,1\n"
	long := strings.Repeat("x", 17<<20)
	for _, c := range []struct {
		name, file, text string
		opt              files.Options
		code             errs.Code
		what             string // in the sentence
		off              int64
	}{
		{name: "a quote in a cell", file: "m.csv", text: good + "cat/1.jpg \"x\",0\n", code: errs.Damaged, what: "line 3", off: int64(len(good))},
		{name: "a quote that is not closed", file: "m.csv", text: good + "\"cat/1.jpg,0\n", code: errs.Damaged, what: "line", off: int64(len(good))},
		{name: "a cell too many", file: "m.csv", text: good + "cat/1.jpg,0,1\n", code: errs.Damaged, what: "line 3", off: int64(len(good))},
		{name: "a cell too few", file: "m.csv", text: good + "cat/1.jpg\n", code: errs.Damaged, what: "line 3", off: int64(len(good))},
		{name: "no UTF-8", file: "m.csv", text: good + "c\xe4t/1.jpg,0\n", code: errs.Damaged, what: "line 3 is not UTF-8", off: int64(len(good))},
		{name: "a quoted cell without end", file: "m.csv", text: good + "\"" + strings.Repeat(long+"\n", 2), code: errs.Damaged, what: "does not end", off: int64(len(good))},
		{name: "a name twice", file: "m.csv", text: "path,path\n", code: errs.Damaged, what: `"path"`},
		{name: "a name that is empty", file: "m.csv", text: "path,\n", code: errs.Damaged, what: "column 2"},
		{name: "nothing", file: "m.csv", text: "", code: errs.Empty, what: "no row", off: -1},
		{name: "names only", file: "m.csv", text: "path,label\n", code: errs.Empty, what: "no row", off: -1},
		{name: "no column of paths", file: "m.csv", text: "dog/0.jpg,1\ncat/1.jpg,0\n", code: errs.Config, what: `"dog/0.jpg"`, off: -1},
		{name: "no such column", file: "m.csv", text: good, opt: files.Options{Path: "paht"}, code: errs.Config, what: `"paht"`, off: -1},
		{name: "no such label", file: "m.csv", text: good, opt: files.Options{Label: "lable"}, code: errs.Config, what: `"lable"`, off: -1},
		{name: "a word among labels", file: "m.csv", text: good + "cat/1.jpg,O\n", code: errs.Damaged, what: `line 3 has the label "O"`, off: -1},
		{name: "a row without label", file: "m.csv", text: good + "cat/1.jpg,\n", code: errs.MissingField, what: "line 3 has no label", off: -1},
		{name: "a row without path", file: "m.csv", text: good + ",1\n", code: errs.MissingField, what: "line 3 has no path", off: -1},
		{name: "a file that is missing", file: "m.csv", text: good + "cat/2.jpg,1\n", code: errs.NotFound, what: "line 3 of m.csv names", off: -1},
		{name: "a folder", file: "m.csv", text: good + "cat,1\n", code: errs.Config, what: "line 3 of m.csv names", off: -1},
		{name: "a path out of the root", file: "m.csv", text: good + "../secret.jpg,1\n", code: errs.Config, what: "line 3", off: -1},
		{name: "a path out of the root, hidden", file: "m.csv", text: good + "dog/../../secret.jpg,1\n", code: errs.Config, what: "outside", off: -1},
		{name: "an absolute path", file: "m.csv", text: good + "/etc/passwd,1\n", code: errs.Config, what: "outside", off: -1},
		{name: "out of the root that was given", file: "m.csv", text: "path\n../cat/1.jpg\n", opt: files.Options{Root: "dog"}, code: errs.Config, what: "outside", off: -1},
		{name: "the root itself", file: "m.csv", text: "path\n.\n", code: errs.Config, what: "outside", off: -1},
		{name: "a URL", file: "m.csv", text: good + "s3://b/k.jpg,1\n", code: errs.Config, what: "line 3", off: -1},
		{name: "another kind of file", file: "m.txt", text: good, code: errs.Config, what: "m.txt", off: -1},
		{name: "no JSON", file: "m.jsonl", text: "{\"path\": \"dog/0.jpg\"}\n{\"path\": \"cat\n", code: errs.Damaged, what: "line 2", off: 22},
		{name: "a list of JSON", file: "m.jsonl", text: "[1]\n", code: errs.Damaged, what: "line 1"},
		{name: "two objects a line", file: "m.jsonl", text: `{"path": "dog/0.jpg"} {"path": "cat/1.jpg"}`, code: errs.Damaged, what: "after top-level value"},
		{name: "a key twice", file: "m.jsonl", text: `{"path": "dog/0.jpg", "path": "cat/1.jpg"}`, code: errs.Damaged, what: "twice"},
		{name: "a number without end", file: "m.jsonl", text: `{"path": "dog/0.jpg", "x": 1e999}`, code: errs.Damaged, what: "too large"},
		{name: "deep JSON", file: "m.jsonl", text: `{"path": ` + strings.Repeat("[", 1<<20), code: errs.Damaged, what: "line 1"},
		{name: "a line without end", file: "m.jsonl", text: `{"path": "` + long, code: errs.Damaged, what: "does not end"},
		{name: "no UTF-8 in JSON", file: "m.jsonl", text: "{\"path\": \"\xff\"}", code: errs.Damaged, what: "UTF-8"},
		{name: "half a pair in a key", file: "m.jsonl", text: `{"path": "dog/0.jpg", "\ud800": 1}`, code: errs.Damaged, what: "half a surrogate pair"},
		{name: "a key a row", file: "m.jsonl", text: keys(6000), code: errs.Unsupported, what: "columns", off: -1},
		{name: "no Parquet", file: "m.parquet", text: "PAR1 and no more of it", code: errs.Damaged, what: "PAR1", off: 18},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newShelf(t, pictures())
			s.put(t, "../secret.jpg", "secret")
			path := s.put(t, c.file, c.text)
			if c.opt.Root != "" {
				c.opt.Root = filepath.Join(s.dir, c.opt.Root)
			}
			c.opt.Store = s.store
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := files.OpenManifest(ctx, s.src, path, c.opt)
			runtime.ReadMemStats(&after)
			e := errs.From(err)
			place := e.Where.File
			if e.Where.Shard != "" {
				place = e.Where.Shard
			}
			if err == nil || e.Code != c.code || !strings.Contains(e.What, c.what) || place != path || e.Where.Offset.Or(-1) != c.off || e.Hint == "" {
				t.Errorf("%s: %s at %v (%d) | %s", e.Code, e, e.Where, e.Where.Offset.Or(-1), e.Hint)
			}
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20 {
				t.Errorf("%d MiB were allocated", grown>>20)
			}
		})
	}
}

// keys is a table of many columns, each in one row.
func keys(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(`{"path": "dog/0.jpg", "k` + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676)) + `": 1}` + "\n")
	}
	return b.String()
}

func TestNoSuchFiles(t *testing.T) {
	s := newShelf(t, pictures())
	opt := files.Options{Store: s.store}
	for name, c := range map[string]struct {
		paths []string
		opt   files.Options
		code  errs.Code
	}{
		"none":      {nil, opt, errs.Config},
		"missing":   {[]string{s.dir + "/dog/0.jpg", s.dir + "/dog/1.jpg"}, opt, errs.NotFound},
		"folder":    {[]string{s.dir + "/dog"}, opt, errs.Config},
		"no labels": {[]string{s.dir + "/dog/0.jpg"}, files.Options{Store: s.store, Label: "kind"}, errs.Config},
		"no folder": {[]string{"/"}, files.Options{Store: s.store, Label: files.Folder}, errs.Config},
	} {
		_, err := files.Open(ctx, s.src, c.paths, c.opt)
		if e := errs.From(err); err == nil || e.Code != c.code || e.Hint == "" {
			t.Errorf("%s: %s %v | %s", name, e.Code, err, e.Hint)
		}
	}
	if _, err := files.OpenTable(ctx, s.src, nil, opt); errs.CodeOf(err) != errs.Config {
		t.Errorf("no table: %v", err)
	}
	if _, err := files.OpenManifest(ctx, s.src, s.dir+"/m.csv", opt); errs.CodeOf(err) != errs.NotFound {
		t.Errorf("no manifest: %v", err)
	}
}

// FuzzManifest: any manifest gives a dataset without holes, or an error.
func FuzzManifest(f *testing.F) {
	f.Add("m.csv", "path,label\ndog/0.jpg,1\n")
	f.Add("m.csv", "path;x\n\"dog/0.jpg\";1.5\n")
	f.Add("m.tsv", "path\tlabel\ndog/0.jpg\tcat\n")
	f.Add("m.jsonl", `{"path": "dog/0.jpg", "label": "x", "v": [1, 2]}`+"\n"+`{"path": "cat/1.jpg", "label": "y", "b": true}`)
	f.Fuzz(func(t *testing.T, name, text string) {
		switch name {
		case "m.csv", "m.tsv", "m.jsonl":
		default:
			return
		}
		src := memory{"/d/" + name: text, "/d/dog/0.jpg": "a dog", "/d/cat/1.jpg": "a cat"}
		for _, table := range []bool{false, true} {
			opt := files.Options{Store: &index.Store{}}
			var ds format.Stored
			var err error
			if table {
				ds, err = files.OpenTable(ctx, src, []string{"/d/" + name}, opt)
			} else {
				ds, err = files.OpenManifest(ctx, src, "/d/"+name, opt)
			}
			if err != nil {
				if e := errs.From(err); e.Code == errs.Bug || e.Hint == "" {
					t.Fatalf("%s: %v | %s", e.Code, err, e.Hint)
				}
				continue
			}
			for id := range ds.Index().Len() {
				show(t, ds, src, id)
			}
			_ = ds.Index().Close()
		}
	})
}

// memory is a source of a few files.
type memory map[string]string

func (m memory) Stat(_ context.Context, name string) (source.Info, error) {
	text, ok := m[name]
	if !ok {
		return source.Info{}, errs.New(errs.NotFound, "there is no such file").Try("look again")
	}
	return source.Info{Name: name, Size: int64(len(text)), Version: "1"}, nil
}

func (m memory) ReadAt(_ context.Context, obj source.Info, p []byte, off int64) error {
	copy(p, m[obj.Name][off:][:len(p)])
	return nil
}

func (m memory) List(context.Context, string) iter.Seq2[source.Info, error] {
	return func(func(source.Info, error) bool) {}
}
