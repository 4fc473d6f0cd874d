package pack_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stagetest"
	"github.com/stoker-data/stoker/internal/tool/pack"
	"github.com/stoker-data/stoker/internal/tool/pack/prepare"
)

// A file written anew in its place gives its folder no new time, and is packed as
// it is now.
func TestOverwrittenFile(t *testing.T) {
	src, dst := folder(t, 12, 900), t.TempDir()
	c := config(src, dst, pack.Options{})
	run(t, c)
	names, err := os.ReadDir(src + "/bee")
	stagetest.Must(t, err)
	put(t, src+"/bee/"+names[1].Name(), []byte("another picture of another size"))
	_, err = pack.Run(context.Background(), c)
	if e := errs.From(err); err == nil || e.Code != errs.Config || !strings.Contains(e.What, "source.digest") {
		t.Fatalf("the packing of what was there before: %v", err)
	}
	c.Overwrite = true
	run(t, c)
	got, _ := members(t, dst, "")
	if !slices.ContainsFunc(got, func(m member) bool { return m.body == "another picture of another size" }) {
		t.Error("the new file is not packed")
	}
}

// A table that names files stands for them, unless somebody says otherwise.
func TestManifestIsPackedAsFiles(t *testing.T) {
	src := t.TempDir()
	put(t, src+"/pics/1.jpg", []byte("one"))
	put(t, src+"/pics/2.jpg", []byte("two"))
	put(t, src+"/m.csv", []byte("path,label\npics/1.jpg,cat\npics/2.jpg,dog\n"))
	put(t, src+"/rows.csv", []byte("where,n\npics/1.jpg,3\n"))
	put(t, src+"/lost.csv", []byte("path,n\npics/9.jpg,3\n"))
	bodies := func(name, kind string) (string, *pack.Report) {
		c := config(src+"/"+name, t.TempDir(), pack.Options{})
		c.Dataset.Format = kind
		r := run(t, c)
		all, _ := members(t, c.Dst, "")
		var out []string
		for _, m := range all {
			out = append(out, m.name[strings.IndexByte(m.name, '.'):]+"="+m.body)
		}
		slices.Sort(out)
		return strings.Join(out, " "), r
	}
	if got, r := bodies("m.csv", ""); got != ".cls=0 .cls=1 .jpg=one .jpg=two .path.txt=pics/1.jpg .path.txt=pics/2.jpg" || r.Note != "" || r.Manifest.Source.Format != "files" {
		t.Errorf("%s; %+v", got, r)
	}
	if got, r := bodies("m.csv", "table"); !strings.Contains(got, "pics/1.jpg") || r.Note != "" {
		t.Errorf("%s; %+v", got, r)
	}
	if got, r := bodies("rows.csv", ""); !strings.Contains(got, "pics/1.jpg") || !strings.Contains(r.Note, "--path-column") {
		t.Errorf("%s; %+v", got, r)
	}
	_, err := pack.Run(context.Background(), config(src+"/lost.csv", t.TempDir(), pack.Options{}))
	if err == nil || !strings.Contains(err.Error(), "pics/9.jpg") || !strings.Contains(errs.From(err).Hint, "--format table") {
		t.Error(err)
	}
}

func TestIntoItself(t *testing.T) {
	src := folder(t, 6, 100)
	before := tree(t, src)
	link := filepath.Join(t.TempDir(), "link")
	stagetest.Must(t, os.Symlink(src, link))
	for _, dst := range []string{src, src + "/out/deep", src + "/x/..", link, link + "/new"} {
		_, err := pack.Run(context.Background(), config(src, dst, pack.Options{}))
		if e := errs.From(err); err == nil || e.Code != errs.Config || !strings.Contains(e.What, "into itself") || !strings.Contains(e.Hint, "-packed") {
			t.Errorf("%s: %v", dst, err)
		}
	}
	same(t, before, tree(t, src), "refused")
	run(t, config(src, src+"-packed", pack.Options{}))
	stagetest.Must(t, os.RemoveAll(src+"-packed"))
}

// Of two packings of one folder the second is told of the first; tasks are let in
// by tasks.
func TestTwoAtOnce(t *testing.T) {
	src, dst := folder(t, 30, 900), t.TempDir()
	o := pack.Options{ShardSize: 3000}
	second := func(tasks int) error {
		c := config(src, dst, o)
		c.Task, c.Tasks = max(0, tasks-1), tasks
		_, err := pack.Run(context.Background(), c)
		return err
	}
	for _, tasks := range []int{2, 0} {
		c := config(src, dst, o)
		c.Tasks = tasks
		c.Progress = func(done, _, _ int64) {
			if done > 0 {
				return
			}
			if e := errs.From(second(0)); e == nil || e.Code != errs.Config || !strings.Contains(e.What, "another stoker pack") {
				t.Errorf("%d tasks: a whole packing beside: %v", tasks, e)
			}
			if err := second(2); (err == nil) != (tasks == 2) {
				t.Errorf("%d tasks: a task beside: %v", tasks, err)
			}
		}
		run(t, c)
	}
}

// Numbers are not taken for text: their bytes would be.
func TestWhatIsNoText(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/t.csv", []byte("text,n\nab,1\ncd,2\n"))
	opt := prepare.Options{Tokenize: "gpt2", TextField: "n"}
	_, err := pack.Run(context.Background(), config(dir+"/t.csv", dir+"/dst", pack.Options{Options: opt}))
	if e := errs.From(err); err == nil || e.Code != errs.Config || !strings.Contains(e.What, `field "n" is not text: it is int64`) {
		t.Errorf("%v", err)
	}
	for value, what := range map[string]string{
		"null": "null", "5": "a number", "-0.5": "a number", "true": "true", `["a"]`: "a list", `{"a":"b"}`: "an object",
	} {
		first := `{"text": "null 5"}` + "\n"
		put(t, dir+"/t.jsonl", []byte(first+`{"text": `+value+"}\n"))
		_, err := pack.Run(context.Background(), config(dir+"/t.jsonl", t.TempDir(), pack.Options{Options: prepare.Options{Tokenize: "gpt2"}}))
		e := errs.From(err)
		if err == nil || e.Code != errs.Damaged || !strings.Contains(e.What, "is "+what) || e.Where.Offset.Or(-1) != int64(len(first)) || e.Where.Sample.Or(-1) != 1 || e.Where.Field != "text" {
			t.Errorf("%s: %v", value, err)
		}
	}
}

// What samples lack that the source has is said, by the report and the manifest.
func TestLeftOutIsSaid(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/t.csv", []byte("x,y\n1,\n2,3\n"))
	r := run(t, config(dir+"/t.csv", dir+"/dst", pack.Options{}))
	want := []format.Left{{Name: "y", Reason: "not every row has it"}}
	if !slices.Equal(r.LeftOut, want) || !slices.Equal(r.Manifest.LeftOut, want) || !strings.Contains(tree(t, dir+"/dst")["manifest.json"], `"left_out": [`) {
		t.Errorf("%v, %v", r.LeftOut, r.Manifest.LeftOut)
	}
	if again := run(t, config(dir+"/t.csv", dir+"/dst", pack.Options{})); !slices.Equal(again.LeftOut, want) {
		t.Errorf("the second time: %v", again.LeftOut)
	}
	chosen := run(t, config(dir+"/t.csv", dir+"/chosen", pack.Options{Options: prepare.Options{Fields: []string{"x"}}}))
	if chosen.LeftOut != nil {
		t.Errorf("of chosen fields: %v", chosen.LeftOut)
	}
	e, err := pack.DryRun(context.Background(), config(dir+"/t.csv", dir+"/none", pack.Options{}))
	stagetest.Must(t, err)
	if !slices.Equal(e.LeftOut, want) {
		t.Errorf("of a dry run: %v", e.LeftOut)
	}
}

// A packing that fails before a shard is finished claims nothing: there is no
// folder that was not there, and another packing may go where it would have been.
func TestRefusedPackingLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/t.jsonl", []byte("{\"text\": \"a\"}\n"+strings.Repeat("{\"text\": \"b\"}\n", 40)))
	bad := strings.Repeat("{\"text\": \"a\"}\n", 40) + "{\"text\": null}\n" + strings.Repeat("{\"text\": \"a\"}\n", 40)
	put(t, dir+"/bad.jsonl", []byte(bad))
	opt := pack.Options{Options: prepare.Options{Tokenize: "gpt2"}}
	for _, dst := range []string{dir + "/deep/er/dst", dir + "/here"} {
		if dst == dir+"/here" {
			stagetest.Must(t, os.Mkdir(dst, 0o755))
			put(t, dst+"/notes.txt", []byte("mine"))
		}
		if _, err := pack.Run(context.Background(), config(dir+"/bad.jsonl", dst, opt)); errs.CodeOf(err) != errs.Damaged {
			t.Fatal(err)
		}
		if _, err := os.Stat(dst + "/.pack"); err == nil {
			t.Errorf("%s is claimed", dst)
		}
		if _, err := os.Stat(dir + "/deep"); err == nil && dst != dir+"/here" {
			t.Error("folders are left")
		}
		other := opt
		other.Name = "other"
		run(t, config(dir+"/t.jsonl", dst, other))
	}
	if b, err := os.ReadFile(dir + "/here/notes.txt"); err != nil || string(b) != "mine" {
		t.Errorf("what was there is %q: %v", b, err)
	}
}
