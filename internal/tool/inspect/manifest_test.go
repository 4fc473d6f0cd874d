package inspect

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/stoker-data/stoker/internal/spec"
)

// A table whose rows name pictures is loaded as a manifest, with the folder that the paths
// are relative to; so is the only file of a folder. If the pictures are not found, a note
// says so.
func TestTablesThatNamePictures(t *testing.T) {
	t.Setenv("STOKER_CACHE", t.TempDir())
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	picture := write("pictures/0.ppm", "P6 1 1 255\nabc")
	type row struct {
		File string `parquet:"file"`
	}
	if err := os.Mkdir(filepath.Join(dir, "rows"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := parquet.WriteFile(filepath.Join(dir, "rows/all.parquet"), []row{{picture}}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, want, note string }{
		{write("list.csv", "file,label\npictures/0.ppm,1\n"), `stoker.Table(%q, path="file", label="label", transform=`, ""},
		{write("inside.csv", "file\n"+picture+"\n"), `stoker.Table(%q, path="file", transform=`, ""},
		{write("lists/list.csv", "file\n"+picture+"\n"), `stoker.Table(%q, path="file", root="/", transform=`, ""},
		{write("lists/none.csv", "file\nnone/0.ppm\n"), `stoker.Table(%q)`, "there is no none/0.ppm in "},
		{write("lists/urls.csv", "file\nhttps://host/0.jpg\n"), `stoker.Table(%q)`, ""},
		{filepath.Join(dir, "rows"), `stoker.Table("` + dir + `/rows/all.parquet", path="file", root="/", transform=`, ""},
	} {
		r, err := Run(t.Context(), Config{Dataset: spec.Dataset{Path: spec.Paths{c.path}}})
		if err != nil {
			t.Fatal(err)
		}
		want := c.want
		if strings.Contains(want, "%q") {
			want = fmt.Sprintf(want, c.path)
		}
		if !strings.Contains(r.Python, want) {
			t.Errorf("%s: no %s in\n%s", c.path, want, r.Python)
		}
		if notes := strings.Join(r.Notes, "\n"); !strings.Contains(notes, c.note) || c.note == "" && strings.Contains(notes, "there is no") {
			t.Errorf("%s: notes %q", c.path, r.Notes)
		}
	}
}
