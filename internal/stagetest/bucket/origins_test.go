package bucket_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stagetest"
	"github.com/stoker-data/stoker/internal/stagetest/bucket"
	"github.com/stoker-data/stoker/internal/stagetest/fixture"
)

// A table that somebody else wrote sends nobody's keys anywhere, and has no file of this
// machine read: what it names is below its own folder or root, or below what the user
// listed. It is refused before anything is asked of what it names.
func TestManifestsNameWhatIsAllowed(t *testing.T) {
	dir := fixture.Pictures(t, 2)
	found, err := filepath.Glob(dir + "/*/*.ppm")
	stagetest.Must(t, err)
	s := bucket.New()
	for _, at := range []string{"b/own/class0/x.ppm", "b/more/x.ppm", "c/x.ppm", "169.254.169.254/latest/x.ppm"} {
		s.Put("mem://"+at, []byte("x"))
	}
	outside := stagetest.Put(t, t.TempDir()+"/o.ppm", []byte("x"))
	for _, c := range []struct {
		name, entry string
		away        bool // the manifest is at mem://b/own/m.csv
		root        string
		origins     spec.Paths
		says        string // "": it is read
	}{
		{name: "beside it", entry: "class0/x.ppm", away: true},
		{name: "by its whole name", entry: "mem://b/own/class0/x.ppm", away: true},
		{name: "another folder", entry: "mem://b/more/x.ppm", away: true, says: "add the place to origins, such as \"mem://b/more/\""},
		{name: "up", entry: "../more/x.ppm", away: true, says: "dataset.origins"},
		{name: "up, out of the bucket", entry: "../../c/x.ppm", away: true, says: "dataset.origins"},
		{name: "up and around", entry: "class0/../../more/x.ppm", away: true, says: "dataset.origins"},
		{name: "a name that begins alike", entry: "mem://b/own-not/x.ppm", away: true, says: "dataset.origins"},
		{name: "a root", entry: "more/x.ppm", away: true, root: "mem://b"},
		{name: "a root, and out of it", entry: "mem://c/x.ppm", away: true, root: "mem://b", says: "dataset.origins"},
		{name: "another bucket", entry: "mem://c/x.ppm", away: true, says: "dataset.origins"},
		{name: "another bucket, listed", entry: "mem://c/x.ppm", away: true, origins: spec.Paths{"mem://c/"}},
		{name: "another bucket, listed as a name", entry: "mem://c/x.ppm", away: true, origins: spec.Paths{"mem://c"}},
		{name: "listed, and out of it", entry: "mem://c/y/../x.ppm", away: true, origins: spec.Paths{"mem://c/y/"}, says: "dataset.origins"},
		{name: "a name that begins like one listed", entry: "mem://b/more/x.ppm", away: true, origins: spec.Paths{"mem://b/mo"}, says: "dataset.origins"},
		{name: "metadata of an instance", entry: "mem://169.254.169.254/latest/x.ppm", away: true, says: "dataset.origins"},
		{name: "a host", entry: "http://169.254.169.254/latest/meta-data/x.ppm", away: true, says: "dataset.origins"},
		{name: "this machine", entry: outside, away: true, says: "a file on this machine"},
		{name: "this machine, as a URL", entry: "file://" + outside, away: true, says: "a file on this machine"},
		{name: "this machine, listed", entry: outside, away: true, origins: spec.Paths{filepath.Dir(outside)}},
		{name: "a signed URL", entry: "http://h/x.ppm?X-Amz-Signature=hush", away: true, origins: spec.Paths{"http://h/"}, says: "the name alone"},
		{name: "a user", entry: "http://u:hush@h/x.ppm", away: true, origins: spec.Paths{"http://h/"}, says: "the name alone"},

		{name: "local files", entry: found[0]},
		{name: "local files, elsewhere", entry: outside, says: "give root"},
		{name: "local files, any", entry: outside, root: "/"},
		{name: "local files, listed", entry: outside, origins: spec.Paths{filepath.Dir(outside)}},
		{name: "a store", entry: "mem://c/x.ppm", says: "dataset.origins"},
		{name: "a store is not a local file", entry: "mem://c/x.ppm", root: "/", says: "dataset.origins"},
		{name: "a store, listed", entry: "mem://c/x.ppm", origins: spec.Paths{"mem://c/"}},
		{name: "a store, as root", entry: "mem://c/x.ppm", root: "mem://c"},
		{name: "a store, relative to root", entry: "x.ppm", root: "mem://c"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := []byte("path,label\n" + c.entry + ",0\n")
			d := spec.Dataset{Root: c.root, Origins: c.origins, Manifest: dir + "/m.csv"}
			stagetest.Put(t, dir+"/m.csv", text)
			if c.away {
				d.Manifest = "mem://b/own/m.csv"
				s.Put(d.Manifest, text)
			}
			s.Calls()
			all, err := dataset.Open(t.Context(), spec.Spec{Dataset: d}, dataset.Options{Sources: schemes(s), Stored: true})
			if c.says == "" {
				stagetest.Must(t, err)
				defer all.Close()
				if raw, err := all.Read(t.Context(), 0); err != nil || len(raw) != 1 {
					t.Errorf("%v", err)
				}
				// The index that was made is not one for those who allow less.
				d.Origins = nil
				if none, err := dataset.Open(t.Context(), spec.Spec{Dataset: d}, dataset.Options{Sources: schemes(s), Stored: true}); (err == nil) != (c.origins == nil) {
					t.Errorf("without origins: %v", err)
				} else if err == nil {
					none.Close()
				}
				return
			}
			e := errs.From(err)
			if e.Code != errs.Config || !strings.Contains(e.What, "line 2") || !strings.Contains(e.What+e.Hint, c.says) || strings.Contains(e.What+e.Hint, "hush") {
				t.Errorf("%s %v | %s", e.Code, err, e.Hint)
			}
			for name := range s.Calls().Of {
				if name != d.Manifest {
					t.Errorf("%s was read", name)
				}
			}
		})
	}
}

// So do lists of names, of paths and of columns.
func TestListsNameWhatIsAllowed(t *testing.T) {
	s := bucket.New()
	s.Put("mem://c/x.npy", nil)
	s.Put("mem://b/list.txt", []byte("mem://c/x.npy\n"))
	for _, d := range []spec.Dataset{
		{Path: spec.Paths{"@mem://b/list.txt"}},
		{Format: "npy", Columns: []spec.Column{{Name: "a", Path: spec.Paths{"@mem://b/list.txt"}}}},
	} {
		_, err := dataset.Open(t.Context(), spec.Spec{Dataset: d}, dataset.Options{Sources: schemes(s), Stored: true})
		if e := errs.From(err); e.Code != errs.Config || !strings.Contains(e.Hint, "dataset.origins") {
			t.Errorf("%v | %s", err, e.Hint)
		}
		d.Origins = spec.Paths{"mem://c/"}
		_, err = dataset.Open(t.Context(), spec.Spec{Dataset: d}, dataset.Options{Sources: schemes(s), Stored: true})
		if e := errs.From(err); e.Code != errs.Damaged || e.Where.Shard != "mem://c/x.npy" {
			t.Errorf("with the origin, an empty array: %s %v", e.Code, err)
		}
	}
}
