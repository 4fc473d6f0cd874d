package pack_test

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stagetest"
	"github.com/stoker-data/stoker/internal/tool/pack"
	"github.com/stoker-data/stoker/internal/tool/peek"
)

// samples are the fields of all samples of a dataset, as it is loaded.
func samples(t testing.TB, path string) (all []map[string]string) {
	t.Helper()
	d, err := peek.Open(context.Background(), spec.Dataset{Path: []string{path}}, dataset.Options{})
	stagetest.Must(t, err)
	defer d.Close()
	r := format.NewReader(d.Stored(), d.Source())
	for id := range d.Stored().Index().Len() {
		var s format.Sample
		stagetest.Must(t, r.Read(context.Background(), id, nil, &s))
		of := map[string]string{}
		for _, f := range s.Fields {
			of[strings.Clone(f.Name)] = string(f.Data)
			if f.IsInt {
				of[strings.Clone(f.Name)] = string(binary.LittleEndian.AppendUint64(nil, uint64(f.Int)))
			}
		}
		all = append(all, of)
	}
	return all
}

// The fields of a sample share memory with each other, with the next samples and
// with mapped files: what is packed of them is what was stored.
func TestViews(t *testing.T) {
	lines := t.TempDir() + "/a.jsonl"
	put(t, lines, []byte("{\"text\": \"one\", \"n\": 70000}\n{\"text\": \"two, and more\", \"n\": 5}\n"))
	for _, src := range []string{"../../../testdata/parquet/huggingface.parquet", lines} {
		want := samples(t, src)
		dst := t.TempDir()
		run(t, config(src, dst, pack.Options{Output: pack.OutputTFRecord}))
		got := samples(t, dst)
		if len(got) != len(want) {
			t.Fatalf("%s: %d samples, not %d", src, len(got), len(want))
		}
		for i := range want {
			for name, body := range want[i] {
				if !strings.HasPrefix(name, "__") && got[i][name] != body {
					t.Errorf("%s, sample %d, field %s: %q, not %q", src, i, name, got[i][name], body)
				}
			}
		}
	}
}

// An error is told after its dataset was closed.
func TestErrorOutlivesDataset(t *testing.T) {
	src := t.TempDir() + "/a.tar"
	put(t, src, tarOf(t, member{"0.jpg", "0"}, member{"0.txt", "a"}, member{"1.jpg", "1"}, member{"1.txt", "b"}))
	for range 3 {
		_, err := pack.Run(context.Background(), config(src, t.TempDir(), pack.Options{Output: pack.OutputNpy}))
		if e := errs.From(err); err == nil || e.Where.Field != "jpg" || !strings.Contains(e.Error(), "encoded bytes") || !strings.Contains(e.Hint, "--decode") {
			t.Fatal(err)
		}
	}
}

// As many files a shard as there are fields.
func TestManyArrays(t *testing.T) {
	src, dst := t.TempDir()+"/a.npz", t.TempDir()
	npy, err := os.ReadFile("../../../testdata/npy/int64.npy")
	stagetest.Must(t, err)
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i := range 37 {
		f, err := w.Create(fmt.Sprintf("f%02d.npy", i))
		stagetest.Must(t, err)
		_, err = f.Write(npy)
		stagetest.Must(t, err)
	}
	stagetest.Must(t, w.Close())
	put(t, src, b.Bytes())
	run(t, config(src, dst, pack.Options{Output: pack.OutputNpy}))
	if made, _ := filepath.Glob(dst + "/*.npy"); len(made) != 37 {
		t.Errorf("%d files", len(made))
	}
}
