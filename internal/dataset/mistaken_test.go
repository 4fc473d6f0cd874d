package dataset

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stagetest"
	"github.com/stoker-data/stoker/internal/stagetest/fixture"
)

// What is loaded as a format that it is not of is an error with the line that loads
// it. What is damaged, and what nothing is known of, keep their own hints.
func TestAnotherFormatThanWasAskedFor(t *testing.T) {
	t.Setenv("STOKER_CACHE", t.TempDir())
	dir := t.TempDir()
	put := func(name, from string) {
		raw, err := os.ReadFile(from)
		stagetest.Must(t, err)
		path := filepath.Join(dir, name)
		stagetest.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		stagetest.Must(t, os.WriteFile(path, raw, 0o644))
	}
	const photo = "../../testdata/photos/coffee.jpg"
	put("classes/cat/1.jpg", photo)
	put("classes/dog/1.jpg", photo)
	put("flat/1.jpg", photo)
	put("tars/a-0.tar", tarIn(t, fixture.Shards(t, 4, 4)))
	put("parquets/a.parquet", "../../testdata/parquet/kinds.parquet")
	put("split/data/a.parquet", "../../testdata/parquet/kinds.parquet")
	put("lmdb/data.mdb", fixture.Unzipped(t, "../../testdata/guides/data.mdb.gz", "data.mdb"))
	put("x.h5", fixture.Unzipped(t, "../../testdata/hdf5/plain.h5.gz", "plain.h5"))
	put("arrow/data-00000-of-00001.arrow", photo)
	put("records/a.tfrecord", "../../testdata/tfrecord/pictures.tfrecord")
	stagetest.Must(t, os.WriteFile(filepath.Join(dir, "cut.h5"), []byte("\x89HDF\r\n\x1a\n"), 0o644))
	stagetest.Must(t, os.Mkdir(filepath.Join(dir, "empty"), 0o755))

	for _, c := range []struct{ format, path, line string }{
		{"tar", "classes", `stoker.ImageFolder("DIR/classes")`},
		{"hdf5", "classes", `stoker.ImageFolder("DIR/classes")`},
		{"mds", "classes", `stoker.ImageFolder("DIR/classes")`},
		{"lines", "classes", `stoker.ImageFolder("DIR/classes")`},
		{"tar", "flat", `stoker.files("DIR/flat/*")`},
		{"folder", "tars", `stoker.WebDataset("DIR/tars")`},
		{"tfrecord", "tars", `stoker.WebDataset("DIR/tars")`},
		{"folder", "parquets", `stoker.ParquetDataset("DIR/parquets")`},
		{"tar", "split", `stoker.ParquetDataset("DIR/split")`},
		{"folder", "split", `stoker.ParquetDataset("DIR/split")`},
		{"hdf5", "lmdb", `stoker.LMDBDataset("DIR/lmdb")`},
		{"folder", "lmdb", `stoker.LMDBDataset("DIR/lmdb")`},
		{"lmdb", "x.h5", `stoker.HDF5Dataset("DIR/x.h5")`},
		{"folder", "x.h5", `stoker.HDF5Dataset("DIR/x.h5")`},
		{"parquet", "x.h5", `stoker.HDF5Dataset("DIR/x.h5")`},
		{"beton", "x.h5", `stoker.HDF5Dataset("DIR/x.h5")`},
		{"mds", "records", `stoker.TFRecordDataset("DIR/records")`},
		{"folder", "arrow", `datasets.load_from_disk("DIR/arrow").to_parquet(`},
		{"tar", "arrow", `datasets.load_from_disk("DIR/arrow").to_parquet(`},
		{"hdf5", "cut.h5", ""},
		{"tar", "empty", ""},
		{"folder", "empty", ""},
		{"tar", "missing", ""},
	} {
		path := filepath.Join(dir, c.path)
		d, err := Open(context.Background(), spec.Spec{Dataset: spec.Dataset{Format: c.format, Path: spec.Paths{path}}}, Options{})
		if err == nil {
			d.Close()
			t.Errorf("%s as %s is opened", c.path, c.format)
			continue
		}
		e := errs.From(err)
		line := strings.ReplaceAll(c.line, "DIR", dir)
		if c.line != "" && !strings.Contains(e.Hint, line) || c.line == "" && strings.Contains(e.Hint, "load it with") {
			t.Errorf("%s as %s: %v\n  try: %s\n  want %s", c.path, c.format, e, e.Hint, line)
		}
	}
}
