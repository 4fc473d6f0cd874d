package files_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format/files"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/mux"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// A manifest names what is elsewhere only if the user listed the place: also where an
// index of it was made when the place was listed.
func TestOrigins(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"in/a.jpg", "out/b.jpg", "out-2/c.jpg"} {
		stagetest.Must(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		stagetest.Put(t, filepath.Join(dir, name), []byte(name))
	}
	store := stagetest.Memory{"toy://b/c/d.jpg": []byte("d"), "toy://b-2/d.jpg": []byte("e")}
	src := mux.New([]source.Scheme{source.Local(), {Name: "toy", Open: func(source.Access) (source.Source, error) { return store, nil }}}, source.Access{})
	at := &index.Store{Dir: t.TempDir()}
	manifest := filepath.Join(dir, "in", "m.csv")
	open := func(rows string, origins ...string) error {
		stagetest.Put(t, manifest, []byte("path\n"+rows+"\n"))
		ds, err := files.OpenManifest(context.Background(), src, manifest, files.Options{Origins: origins, Store: at})
		if err != nil {
			return err
		}
		defer ds.Index().Close()
		if n := int64(strings.Count(rows, "\n") + 1); ds.Len() != n {
			t.Errorf("%q has %d samples", rows, ds.Len())
		}
		return nil
	}
	all := "a.jpg\n" + dir + "/out/b.jpg\ntoy://b/c/d.jpg"
	stagetest.Must(t, open(all, dir+"/out", "toy://b/c/"))
	stagetest.Must(t, open(all, "file://"+dir+"/out/", "toy://b"))
	if _, err := files.OpenManifest(context.Background(), src, manifest, files.Options{Store: at}); errs.CodeOf(err) != errs.Config {
		t.Errorf("an index that was made with origins, opened without: %v", err)
	}
	for rows, want := range map[string]string{
		all:                              "outside",
		"../out/b.jpg":                   "outside",
		dir + "/out-2/c.jpg":             "outside",
		"toy://b-2/d.jpg":                "to origins, such as \"toy://b-2/\" (dataset.origins",
		"toy://b/c/../../b-2/d.jpg":      "outside",
		"toy://b/c/%2e%2e/%2E%2e/x":      "outside",
		"toy://b/c/d.jpg?token=HUSH":     "a signature, a token or a password",
		"https://u:HUSH@h/x.jpg":         "a signature, a token or a password",
		"toy://b/x?X-Amz-Signature=HUSH": "a signature, a token or a password",
	} {
		origins := []string{dir + "/in", "toy://b/c"}
		if rows == all {
			origins = nil
		}
		err := open(rows, origins...)
		e := errs.From(err)
		if err == nil || e.Code != errs.Config || !strings.Contains(e.What+e.Hint, want) || e.Hint == "" || strings.Contains(e.Error()+e.Hint, "HUSH") {
			t.Errorf("%q: %v (%s)", rows, err, e.Hint)
		}
	}
}
