package loader

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/fill"
)

// Every sample that is timed has read its file, and its parts are named.
func TestProfile(t *testing.T) {
	root := photos(t, 12)
	l := open(t, ground(t), photoSpec(t, root))
	p, err := l.Profile(context.Background(), 1000, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Names) != 2 || p.Names[0] != "RandomResizedCrop" || p.Names[1] != "RandomHorizontalFlip" || len(p.Each) != 12 || p.Bad != 0 {
		t.Fatalf("%q, %d samples, %d bad", p.Names, len(p.Each), p.Bad)
	}
	seen := map[string]bool{}
	for _, x := range p.Each {
		info, err := os.Stat(x.File)
		if err != nil || info.Size() != x.Bytes {
			t.Errorf("%s: %d bytes read: %v", x.File, x.Bytes, err)
		}
		if x.Read <= 0 || x.Decode <= 0 || x.Transforms[0] <= 0 || seen[x.File] {
			t.Errorf("%+v", x)
		}
		seen[x.File] = true
	}
}

// What fields there are besides pictures, and whether there is a sample at all.
func TestProfileOfOthers(t *testing.T) {
	var s Spec
	s.Dataset.Format, s.Dataset.Samples, s.Dataset.Shape = "synthetic", 100, []int{8}
	if p, err := open(t, ground(t), s).Profile(context.Background(), 10, time.Minute); err != nil || len(p.Each)+len(p.Names) != 0 {
		t.Errorf("%+v %v", p, err)
	}

	root := pictures(t, 20)
	spec := imageSpec(root)
	spec.Fields = []Field{{Name: "image", Decode: "bytes"}, {Name: "label", Decode: "int"}}
	p, err := open(t, ground(t), spec).Profile(context.Background(), 5, time.Minute)
	if err != nil || len(p.Each) != 5 || len(p.Names) != 0 {
		t.Errorf("%+v %v", p, err)
	}
}

// The first sample may be of a kind that is counted too.
func TestProfileOfProgressive(t *testing.T) {
	b, err := os.ReadFile("../base/kernel/testdata/progressive411.jpg")
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for i := range 4 {
		folder := filepath.Join(root, "a")
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprint(i, ".jpg")), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p, err := open(t, ground(t), imageSpec(root)).Profile(context.Background(), 4, time.Minute)
	if err != nil || p.JPEGs != 4 || p.Others[fill.Progressive] != 4 {
		t.Errorf("%+v %v", p, err)
	}
}

// Bad samples are counted, and are an error where there is nothing else; no time is
// left after none is.
func TestProfileOfBadSamples(t *testing.T) {
	root := pictures(t, 6)
	l := open(t, ground(t), imageSpec(root))
	files, err := filepath.Glob(filepath.Join(root, "*", "*.ppm"))
	if err != nil || len(files) != 6 {
		t.Fatal(files, err)
	}
	for i, f := range files {
		if i == 1 {
			if p, err := l.Profile(context.Background(), 6, time.Minute); err != nil || p.Bad != 1 || len(p.Each) != 5 {
				t.Errorf("%+v %v", p, err)
			}
		}
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		clear(b)
		if err := os.WriteFile(f, b, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(f, info.ModTime(), info.ModTime()); err != nil {
			t.Fatal(err)
		}
	}
	if p, err := l.Profile(context.Background(), 6, time.Minute); errs.CodeOf(err) == "" || p.Bad != 6 {
		t.Errorf("%+v %v", p, err)
	}
	if p, _ := l.Profile(context.Background(), 6, 0); p.Bad != 1 {
		t.Errorf("%d samples after the time was over", p.Bad)
	}
}
