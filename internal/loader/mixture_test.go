package loader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/jsontext"
	"github.com/stoker-data/stoker/internal/compose"
	"github.com/stoker-data/stoker/internal/stage/order"
	"github.com/stoker-data/stoker/internal/stream"
)

// mixtureIDs are the pictures' own numbers, by sample id: 0 to 25 of the folder,
// 100 to 140 and 200 to 216 of the shards.
func mixtureIDs() []int {
	return slices.Concat(upTo(gridFolder), upTo(100 + gridTars)[100:], upTo(200 + gridMore)[200:])
}

func memberOf(id int64) int {
	switch {
	case id < gridFolder:
		return 0
	case id < gridFolder+gridTars:
		return 1
	}
	return 2
}

// Ids run through the members: what a row holds is the sample that its id names,
// read from its pixels.
func TestMixtureIDs(t *testing.T) {
	s := ground(t)
	g := newGrid(t)
	want := mixtureIDs()
	for _, change := range []func(*Spec){
		func(s *Spec) { s.Mix.Stop = order.AllExhausted },
		func(s *Spec) { s.Mix.Stop, s.Mix.Batches = order.AllExhausted, single },
		func(s *Spec) { s.Mix.Stop, s.Order.NumSamples = order.Repeat, 500 },
	} {
		spec := g.mixture(t)
		change(&spec)
		l := open(t, s, spec)
		if l.Len() != int64(len(want)) {
			t.Fatalf("%d samples, want %d", l.Len(), len(want))
		}
		came := make([]int, len(want))
		var shares [3]int64
		for _, b := range walkAll(t, l, 0, 0, 0) {
			members := map[int]bool{}
			for r, id := range b.ids() {
				size := len(b.Columns["image"]) / b.Rows
				if got := int(b.Columns["image"][r*size]); got != want[id]&255 {
					t.Fatalf("sample %d is picture %d, want %d", id, got, want[id])
				}
				came[id]++
				shares[memberOf(id)]++
				members[memberOf(id)] = true
			}
			if spec.Mix.Batches == single && len(members) != 1 {
				t.Errorf("a batch of %d datasets", len(members))
			}
			told, err := l.Ask(stream.Question{What: "shares", To: b.Position})
			if err != nil || fmt.Sprint(told) != fmt.Sprint(shares) {
				t.Fatalf("up to item %d, shares are %v, told as %v, %v", b.Position, shares, told, err)
			}
		}
		if slices.Contains(came, 0) {
			t.Errorf("times that samples came: %v", came)
		}
	}
}

// Shares are the members' weights within every thousand places, constant or
// along a schedule.
func TestMixtureShares(t *testing.T) {
	s := ground(t)
	g := newGrid(t)
	spec := g.mixture(t) // 2 : 3 : 1
	spec.Mix.Stop, spec.Order.NumSamples = order.Repeat, 6000
	shares := func(spec Spec, from, to int64) []int64 {
		t.Helper()
		found, err := open(t, s, spec).Ask(stream.Question{What: "shares", From: from, To: to})
		if err != nil {
			t.Fatal(err)
		}
		return found.([]int64)
	}
	near := func(what string, got []int64, want ...float64) {
		for i := range want {
			if d := float64(got[i]) - want[i]; d < -2 || d > 2 {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
	}
	near("constant", shares(spec, 0, 6000), 2000, 3000, 1000)
	near("a thousand of them", shares(spec, 3000, 4000), 333.3, 500, 166.7)
	unweighted(&spec)
	spec.Mix.Schedule = []Stage{{Place: 0, Weights: []float64{1, 0, 0}}, {Place: 2000, Weights: []float64{0, 1, 1}}, {Place: 4000, Weights: []float64{1, 1, 2}}}
	near("in steps", shares(spec, 0, 2000), 2000, 0, 0)
	near("in steps", shares(spec, 2000, 4000), 0, 1000, 1000)
	near("in steps", shares(spec, 4000, 6000), 500, 500, 1000)
	spec.Mix.Linear = true
	near("along a line", shares(spec, 0, 2000), 1000, 500, 500)
	near("along a line, then on", shares(spec, 4000, 6000), 500, 500, 1000)
}

// Tables have a row a sample, over all members; classes are named where all
// members have the same.
func TestMixtureTables(t *testing.T) {
	s := ground(t)
	g := newGrid(t)
	other := ramps(t, 9)
	spec := g.mixture(t)
	spec.Dataset.Mixed = []Dataset{spec.Dataset.Mixed[0], {Path: Paths{other}, Fields: spec.Dataset.Mixed[0].Fields}}
	spec.Order.Streams, spec.Order.Window = 0, 0
	l := open(t, s, spec)
	table, err := l.Table([]string{"path", "label"})
	if err != nil {
		t.Fatal(err)
	}
	paths, labels := table["path"].([]jsontext.Name), table["label"].([]int32)
	if len(paths) != gridFolder+9 || len(labels) != len(paths) {
		t.Fatalf("%d paths, %d labels", len(paths), len(labels))
	}
	for id, path := range paths {
		root, local, n := g.folder, id, gridFolder
		if id >= gridFolder {
			root, local, n = other, id-gridFolder, 9
		}
		class := local * 3 / n
		if want := filepath.Join(root, fmt.Sprintf("class%d", class), fmt.Sprintf("%06d.ppm", local)); string(path) != want || int(labels[id]) != class {
			t.Errorf("sample %d: %s of class %d, want %s of %d", id, path, labels[id], want, class)
		}
	}
	if got := l.Classes(); !slices.Equal(got, []string{"class0", "class1", "class2"}) {
		t.Errorf("classes %v", got)
	}
	if l.Format() != "folder" {
		t.Errorf("format %s", l.Format())
	}

	three := open(t, s, g.mixture(t))
	table, err = three.Table([]string{"path"})
	if err != nil {
		t.Fatal(err)
	}
	paths = table["path"].([]jsontext.Name)
	if p := string(paths[gridFolder]); p != filepath.Join(g.tars, "m-000.tar") {
		t.Errorf("the first sample of the shards is in %s", p)
	}
	if p := string(paths[gridFolder+gridTars+gridMore-1]); p != filepath.Join(g.more, "m-001.tar") {
		t.Errorf("the last sample is in %s", p)
	}
	if _, err := three.Table([]string{"label"}); errs.CodeOf(err) != errs.Config {
		t.Errorf("labels of shards: %v", err)
	}
	if three.Classes() != nil || three.Format() != "folder, tar" || three.Dataset() != nil {
		t.Errorf("classes %v, format %s", three.Classes(), three.Format())
	}
	if err := os.Rename(filepath.Join(other, "class2"), filepath.Join(other, "class9")); err != nil {
		t.Fatal(err)
	}
	if got := open(t, s, spec).Classes(); got != nil {
		t.Errorf("classes that differ: %v", got)
	}
}

// Damage in a member is reported with its file, the sample's id over all members
// and the cause.
func TestMixtureDamage(t *testing.T) {
	s := ground(t)
	for _, policy := range []string{Fail, Skip, Replace} {
		for _, batches := range []string{mixed, single} {
			g := newGrid(t)
			spec := g.mixture(t)
			spec.Mix.Stop, spec.Mix.Batches, spec.OnBad.Policy = order.AllExhausted, batches, policy
			shard := filepath.Join(g.tars, "m-003.tar") // samples 115 to 122 of the shards
			raw, err := os.ReadFile(shard)
			if err != nil {
				t.Fatal(err)
			}
			at := strings.Index(string(raw), "000118.ppm")
			copy(raw[at+512:], "no picture")
			if err := os.WriteFile(shard, raw, 0o644); err != nil {
				t.Fatal(err)
			}
			const id = gridFolder + 18
			l := open(t, s, spec)
			var bad []compose.Bad
			p, err := l.Pass(0, 0, 0)
			for err == nil {
				var b *Batch
				if b, err = p.Next(context.Background(), 20*time.Second); err == nil {
					bad = append(bad, b.Bad...)
					for _, x := range b.Bad {
						if policy == Replace && batches == single && memberOf(x.Put) != 1 {
							t.Errorf("sample %d of another dataset stands in for %d", x.Put, x.Sample)
						}
					}
					b.Release()
				}
			}
			if policy != Fail {
				if !errors.Is(err, io.EOF) || len(bad) != 1 {
					t.Fatalf("%s: %v, bad %v", policy, err, bad)
				}
				err = bad[0].Err
			}
			w := errs.From(err).Where
			if w.Sample.Or(-1) != id || w.Shard != shard || w.Member != "000118.ppm" || w.Field != "image" || int(w.Offset.Or(-1)) < at+512 {
				t.Errorf("%s, %s: told as %+v", policy, batches, w)
			}
			e, err := l.Explain(0, 0)
			if err != nil || len(e.Rows) == 0 {
				t.Errorf("explained as %+v, %v", e, err)
			}
			p.Cancel()
		}
	}
}

// The digest of a mixture depends on its members in their order, wherever they are
// stored.
func TestMixtureDigest(t *testing.T) {
	s := ground(t)
	g := newGrid(t)
	base := g.mixture(t)
	want := open(t, s, base)
	moved := t.TempDir()
	if err := os.CopyFS(moved, os.DirFS(g.tars)); err != nil {
		t.Fatal(err)
	}
	same := g.mixture(t)
	same.Dataset.Mixed[1].Path = Paths{moved}
	same.Workers, same.Deliver.Prefetch = 1, 1
	l := open(t, s, same)
	if l.Digest() != want.Digest() || l.Check(saved(t, want, 0, 3)) != nil {
		t.Errorf("the same shards elsewhere: %s, want %s", l.Digest(), want.Digest())
	}
	if !slices.Equal(texts(walkAll(t, l, 0, 0, 0)), texts(walkAll(t, want, 0, 0, 0))) {
		t.Error("another stream")
	}
	for name, change := range map[string]func(*Spec){
		"another order of members": func(s *Spec) { s.Dataset.Mixed[0], s.Dataset.Mixed[1] = s.Dataset.Mixed[1], s.Dataset.Mixed[0] },
		"a member less":            func(s *Spec) { s.Dataset.Mixed = s.Dataset.Mixed[:2] },
		"another weight":           func(s *Spec) { s.Dataset.Mixed[0].Weight = 2.5 },
		"another stop":             func(s *Spec) { s.Mix.Stop = order.AllExhausted },
		"another member's shuffle": func(s *Spec) { s.Dataset.Mixed[2].Shuffle = order.None },
		"batch by batch":           func(s *Spec) { s.Mix.Batches = single },
		"another transform":        func(s *Spec) { s.Dataset.Mixed[2].Fields[0].Transform = ops(t, `[{"op":"Resize","size":[4,5]}]`) },
	} {
		spec := g.mixture(t)
		for i := range spec.Dataset.Mixed {
			spec.Dataset.Mixed[i].Fields = slices.Clone(spec.Dataset.Mixed[i].Fields)
		}
		change(&spec)
		if err := open(t, s, spec).Check(saved(t, want, 0, 3)); errs.CodeOf(err) != errs.State {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A list of one dataset is a mixture of one, and synthetic members may be between
// stored ones.
func TestOddMixtures(t *testing.T) {
	s := ground(t)
	g := newGrid(t)
	one := g.mixture(t)
	one.Dataset.Mixed = one.Dataset.Mixed[1:2]
	if n := len(walkAll(t, open(t, s, one), 0, 0, 0)); n != 14 {
		t.Errorf("a mixture of one: %d batches", n)
	}
	chain := ops(t, `[{"op":"Resize","size":[4,5]}]`)
	odd := Spec{
		Dataset: Dataset{Mixed: []Dataset{
			{Path: Paths{g.tars}, Fields: []Field{{Name: "image", From: "ppm", Decode: "rgb", Transform: chain}}},
			{Format: "synthetic", Samples: 30, Shape: []int{4, 5, 3}},
			{Path: Paths{g.folder}, Fields: []Field{{Name: "image", Decode: "rgb", Transform: chain}}},
		}},
		Mix: Mix{Stop: order.AllExhausted}, Batch: BatchSpec{Size: 4}, Workers: 2,
	}
	came := map[int64]bool{}
	for _, b := range walkAll(t, open(t, s, odd), 0, 0, 0) {
		for r, id := range b.ids() {
			came[id] = true
			pixel := int(b.Columns["image"][r*60])
			if want := map[bool]int64{true: 100 + id, false: id - gridTars - 30}[id < gridTars]; (id < gridTars || id >= gridTars+30) && pixel != int(want) {
				t.Errorf("sample %d is picture %d, want %d", id, pixel, want)
			}
		}
	}
	if len(came) != gridTars+30+gridFolder {
		t.Errorf("%d samples came", len(came))
	}
}
