package dataset

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
	"github.com/stoker-data/stoker/internal/stagetest/fixture"
)

// wholeFiles is a small file of each format that a folder can hold several of.
func wholeFiles(t *testing.T) map[string][]byte {
	out := map[string][]byte{
		".npy": fixture.ArrayFile(1, "'"+fixture.Descrs[mem.Int64]+"'", "(4,)", fixture.Random(32, 1)),
	}
	for ending, path := range map[string]string{
		".tfrecord":           "../../testdata/tfrecord/pictures.tfrecord",
		".tfrecord.gz":        "../../testdata/tfrecord/pictures.tfrecord.gz",
		"-00000-of-00004":     "../../testdata/tfrecord/pictures.tfrecord",
		"":                    "../../testdata/tfrecord/pictures.tfrecord",
		".00":                 "../../testdata/tfrecord/pictures.tfrecord",
		".parquet":            "../../testdata/parquet/kinds.parquet",
		".h5":                 fixture.Unzipped(t, "../../testdata/hdf5/plain.h5.gz", "plain.h5"),
		".tar":                tarIn(t, fixture.Shards(t, 4, 4)),
		".mixed-case.PARQUET": "../../testdata/parquet/kinds.parquet",
	} {
		body, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out[ending] = body
	}
	return out
}

// tarIn is the first shard of a folder or pattern.
func tarIn(t *testing.T, path string) string {
	t.Helper()
	for _, pattern := range []string{path, path + "/*"} {
		if all, _ := filepath.Glob(strings.NewReplacer("{", "?", "}", "?").Replace(pattern)); len(all) > 0 && !source.IsDir(t.Context(), source.NewFile(), all[0]) {
			return all[0]
		}
	}
	t.Fatalf("no shard in %s", path)
	return ""
}

// A pipe where a dataset should be is an error in every format, and in a folder of
// shards; nobody waits for what somebody may write into it.
func TestAPipeIsNoDataset(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"fifo", "fifo.tar", "fifo.bin", "fifo.jpg", "fifo.csv", "index.json", "in/fifo.tar"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mkfifo(filepath.Join(dir, name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(d spec.Dataset) {
		t.Helper()
		_, err := Open(context.Background(), spec.Spec{Dataset: d}, Options{})
		if errs.CodeOf(err) != errs.Unreadable || !strings.Contains(err.Error(), "it is a named pipe") {
			t.Errorf("%+v: %v", d, err)
		}
	}
	for _, path := range []string{"fifo", "fifo.tar", "fifo.bin", "fifo.jpg", "fifo.csv", "in", "*.tar"} {
		refused(spec.Dataset{Path: spec.Paths{filepath.Join(dir, path)}})
	}
	refused(spec.Dataset{Manifest: filepath.Join(dir, "fifo.csv")})
	refused(spec.Dataset{Columns: []spec.Column{{Name: "x", Path: spec.Paths{filepath.Join(dir, "fifo")}}}})
	refused(spec.Dataset{Path: spec.Paths{dir}, Format: "mds"}) // of its index.json
	for _, name := range names(Formats()) {
		d := spec.Dataset{Path: spec.Paths{filepath.Join(dir, "fifo")}, Format: name}
		switch name {
		case "synthetic", "python", "mds": // which have no such path
			continue
		case "tokens":
			d.Window.Length = 4
		}
		refused(d)
	}
}

// A folder's file that was overwritten at its beginning, or is empty, is damage
// with its name, wherever it is; never a smaller dataset, nor another kind of
// folder. An empty TFRecord file is one of no records, and is named in a note.
func TestBrokenFileOfAFolder(t *testing.T) {
	for ending, body := range wholeFiles(t) {
		overwritten := append(bytes.Repeat([]byte{'?'}, 300), body[min(300, len(body)):]...)[:len(body)]
		for how, bad := range map[string][]byte{"overwritten": overwritten, "empty": {}} {
			for at := range 4 {
				t.Run(fmt.Sprintf("%s/%s/%d", ending, how, at), func(t *testing.T) {
					dir := t.TempDir()
					var broken string
					for i := range 4 {
						path, data := filepath.Join(dir, fmt.Sprintf("part-%d%s", i, ending)), body
						if i == at {
							data, broken = bad, filepath.Base(path)
						}
						if err := os.WriteFile(path, data, 0o644); err != nil {
							t.Fatal(err)
						}
					}
					for _, name := range []string{"README", "notes.txt", "stats.json", "_SUCCESS"} {
						if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
							t.Fatal(err)
						}
					}
					what := spec.Spec{Dataset: spec.Dataset{Path: spec.Paths{dir}}, Batch: spec.Batch{Size: 3}}
					l, err := Open(context.Background(), what, Options{})
					if err == nil {
						defer l.Close()
						if how == "empty" && l.Format() == "tfrecord" && !strings.HasSuffix(ending, ".gz") &&
							strings.Contains(strings.Join(l.Notes(), "\n"), "1 of 4 files have 0 bytes, and count as no records: "+broken) {
							return
						}
						t.Fatalf("opened, with %d samples", l.Len())
					}
					if errs.CodeOf(err) != errs.Damaged || !strings.Contains(fmt.Sprintf("%v %+v", err, errs.From(err)), broken) {
						t.Errorf("%v", err)
					}
				})
			}
		}
	}
}

// Endings are told apart as they are of kinds of files, not of shards.
// A folder of text is one of lines if that is said, and never unasked.
func TestAFolderOfText(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"b.jsonl": "{\"a\": 1}\n{\"a\": 2}\n", "a.ndjson": "{}", "c.csv": "x\n1\n", ".d.jsonl": "{}"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, sub := range []string{"sub/deep", ".hidden"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, sub, "e.txt"), []byte("text"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	l, err := Open(context.Background(), spec.Spec{Dataset: spec.Dataset{Path: spec.Paths{dir}, Format: "lines"}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	x := l.Dataset().Index()
	if got := string(x.AppendPath(0, nil)); x.Len() != 4 || x.Files() != 3 || got != filepath.Join(dir, "a.ndjson") {
		t.Errorf("%d samples in %d files, the first is %s", x.Len(), x.Files(), got)
	}
	for _, path := range []string{dir, filepath.Join(dir, "b.jsonl")} {
		if kind, _, err := (finder{t.Context(), source.NewFile(), Formats()}).sniff("", []string{path}); err == nil && kind.Name == "lines" {
			t.Errorf("%s is taken for lines unasked", path)
		}
	}
}

func TestEnding(t *testing.T) {
	for path, want := range map[string]string{
		"/a/b.tfrecord": ".tfrecord", "a.TFRecord.gz": ".tfrecord.gz", "a.h5": ".h5", "part-00001": "part-", "README": "readme",
		"x.tfrecord-00001-of-00010": ".tfrecord", "train-00001-of-00010": "train--of-", "x.0003": "x.", "x.tar.md5": ".md5", "b.gz": "b.gz",
	} {
		if got, _ := ending(path); got != want {
			t.Errorf("%s: %q", path, got)
		}
	}
}

// Arrow is told from damage, with the way to what is read.
func TestArrowIsNamed(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"one/data-00000-of-00001.arrow", "one/state.json", "split/dataset_dict.json", "split/train/data.arrow", "table.feather"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("\xff\xff\xff\xff\x60\x01\x00\x00"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"one":                           `one").to_parquet("data.parquet")`,
		"split":                         `split")["train"].to_parquet("data.parquet")`,
		"table.feather":                 "pyarrow.parquet.write_table",
		"one/data-00000-of-00001.arrow": "write it as Parquet",
		"split/train":                   `train").to_parquet`,
	} {
		_, err := Open(context.Background(), spec.Spec{Dataset: spec.Dataset{Path: spec.Paths{filepath.Join(dir, name)}}}, Options{})
		e := errs.From(err)
		if err == nil || e.Code != errs.Unsupported || !strings.Contains(e.What, "Arrow") || !strings.Contains(e.Hint, want) {
			t.Errorf("%s: %v (%s); want a hint with %s", name, err, e.Hint, want)
		}
	}
}

// Shards in the folder "data", or in the only folder, beside files that are not data, are
// the dataset: most repositories of datasets look like this. Pictures by class, and shards
// of which there are several folders, are not.
func TestDataInsideAFolder(t *testing.T) {
	shard, err := os.ReadFile("../../testdata/parquet/kinds.parquet")
	if err != nil {
		t.Fatal(err)
	}
	photo, err := os.ReadFile("../../testdata/photos/coffee.jpg")
	if err != nil {
		t.Fatal(err)
	}
	beside := []string{"README.md", ".gitattributes", "LICENSE", "dataset_infos.json"}
	for name, c := range map[string]struct {
		files  []string
		format string // "": an error
		says   string
	}{
		"data":               {[]string{"data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet"}, "parquet", ""},
		"data and more":      {[]string{"data/a.parquet", "notes/b.txt"}, "parquet", ""},
		"another name":       {[]string{"en/a.parquet", ".cache/x"}, "parquet", ""},
		"two":                {[]string{"en/a.parquet", "fr/a.parquet"}, "", "there is no image below"},
		"shards on top":      {[]string{"a.parquet"}, "parquet", ""},
		"and in it":          {[]string{"a.parquet", "data/a.parquet"}, "", "there is no image below"},
		"splits":             {[]string{"data/train-00000-of-00001.parquet", "data/test-00000-of-00001.parquet"}, "", "holds the splits test, train"},
		"a class":            {[]string{"cat/1.jpg", "cat/2.jpg"}, "folder", ""},
		"a class with more":  {[]string{"data/1.jpg", "data/a.parquet"}, "folder", ""},
		"several, and empty": {[]string{"a/1.jpg", "b/1.jpg"}, "folder", ""},
	} {
		for _, format := range []string{"", "parquet"} {
			if format != "" && c.format == "folder" {
				continue // it is none
			}
			t.Run(name+format, func(t *testing.T) {
				dir := t.TempDir()
				for _, file := range append(c.files, beside...) {
					path := filepath.Join(dir, file)
					body := []byte("words")
					switch filepath.Ext(file) {
					case ".parquet":
						body = shard
					case ".jpg":
						body = photo
					}
					stagetest.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
					stagetest.Must(t, os.WriteFile(path, body, 0o644))
				}
				col, err := Open(context.Background(), spec.Spec{Dataset: spec.Dataset{Path: spec.Paths{dir}, Format: format}}, Options{Stored: true})
				if err == nil {
					defer col.Close()
				}
				switch {
				case c.format == "" && (err == nil || format == "" && !strings.Contains(err.Error(), c.says)):
					t.Errorf("%v", err)
				case c.format != "" && err != nil:
					t.Errorf("%v (%s)", err, errs.From(err).Hint)
				case c.format != "" && col.Format() != c.format:
					t.Errorf("it is %s", col.Format())
				case name == "splits" && !strings.Contains(errs.From(err).Hint, filepath.Join(dir, "data/train*.parquet")):
					t.Errorf("%v (%s)", err, errs.From(err).Hint)
				}
			})
		}
	}
}
