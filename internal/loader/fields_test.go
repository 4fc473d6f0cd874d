package loader

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/dataset"
)

// A pickle in a shard is left out with a notice, refused if it is asked for, and
// delivered unchanged if its bytes are asked for.
func TestPickles(t *testing.T) {
	s := ground(t)
	path := filepath.Join(t.TempDir(), "a.tar")
	writeTar(t, path, []member{{"1.txt", []byte("one")}, {"1.pkl", []byte("\x80\x04.")}, {"2.txt", []byte("two")}, {"2.pkl", []byte("\x80\x04.")}})
	spec := Spec{Dataset: Dataset{Path: Paths{path}}, Batch: BatchSpec{Size: 2}}
	l := open(t, s, spec)
	if f := l.Fields(); f[0].Name != "txt" || slices.ContainsFunc(f, func(f dataset.Column) bool { return f.Name == "pkl" }) {
		t.Errorf("fields %+v", f)
	}
	if notes := strings.Join(l.Notes(), "\n"); !strings.Contains(notes, `"pkl" is a pickle`) {
		t.Errorf("notes are %q", notes)
	}
	spec.Fields = []Field{{Name: "txt"}, {Name: "state", From: "npy;pkl"}}
	_, err := Open(context.Background(), s, spec, Options{})
	if errs.CodeOf(err) != errs.Config || !strings.Contains(err.Error(), "pickle") || !strings.Contains(err.Error(), `"state"`) {
		t.Errorf("%v", err)
	}
	spec.Fields[1].Decode = "bytes"
	if got := walkAll(t, open(t, s, spec), 0, 0, 0); len(got) != 1 || !strings.Contains(got[0].text(), "\x80\x04.") && len(got[0].Columns["state"]) == 0 {
		t.Errorf("%v", got)
	}
}

// What MosaicML's index.json says of a column decides how it is decoded.
func TestEncodingsSayHowToDecode(t *testing.T) {
	l := open(t, ground(t), Spec{Dataset: Dataset{Path: Paths{formatDir + "/mds/testdata/everything"}}, Batch: BatchSpec{Size: 1}})
	got := map[string]string{}
	for _, f := range l.spec.Fields {
		got[f.Name] = f.Decode
	}
	for name, want := range map[string]string{
		"image": "rgb", "mask": "rgb", "pixels": "rgb", "text": "text", "sd": "text", "si": "text", "meta": "json", "raw": "bytes", "float32": "array",
	} {
		if got[name] != want {
			t.Errorf("%s is decoded as %q, want %q", name, got[name], want)
		}
	}
}
