package toy_test

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest/toy"
	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/doctor/tiers"
	"github.com/stoker-data/stoker/internal/tool/inspect"
	"github.com/stoker-data/stoker/internal/tool/pack"
	"github.com/stoker-data/stoker/internal/tool/peek"
	"github.com/stoker-data/stoker/internal/tool/verify"
)

// withToy is the list of formats with one more, which the Python package has a class for.
func withToy(change func(*format.Format)) []dataset.Format {
	one := toy.Format()
	one.Python = "ToyDataset"
	if change != nil {
		change(&one)
	}
	return append(dataset.Formats(), dataset.Format{Format: one})
}

// What stoker pack writes of toy files is what is in them, as any source's samples are.
func TestPackTakesAnyFormat(t *testing.T) {
	dir, dst := folder(t), filepath.Join(t.TempDir(), "packed")
	r, err := pack.Run(context.Background(), pack.Config{Dataset: spec.Dataset{Path: spec.Paths{dir}}, Formats: withToy(nil), Dst: dst, Options: pack.Options{Output: pack.OutputNpy}})
	if err != nil {
		t.Fatal(err)
	}
	if m := r.Manifest; m == nil || m.Source.Format != "toy" || m.Samples != 7 {
		t.Fatalf("%+v", r)
	}
	d, err := peek.Open(context.Background(), spec.Dataset{Path: spec.Paths{dst}}, dataset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var s format.Sample
	read := format.NewReader(d.Stored(), d.Source())
	for id := range d.Len() {
		if err := read.Read(context.Background(), id, []string{toy.Number}, &s); err != nil {
			t.Fatal(err)
		}
		if got := binary.LittleEndian.Uint64(s.Fields[0].Data); got != uint64(100+id) {
			t.Errorf("sample %d is packed as %d", id, got)
		}
	}
	if d.Len() != 7 {
		t.Errorf("%d samples are packed", d.Len())
	}
}

// A format says which of its fields is text, and stoker pack takes that one.
func TestPackAsksWhichFieldIsText(t *testing.T) {
	c := pack.Config{
		Dataset: spec.Dataset{Path: spec.Paths{folder(t)}}, Dst: filepath.Join(t.TempDir(), "packed"),
		Formats: withToy(func(f *format.Format) { f.Names.Text = toy.Number }),
	}
	c.Options.Tokenize = "gpt2"
	if _, err := pack.Run(context.Background(), c); err == nil || !strings.Contains(err.Error(), `field "number" is not text: it is int64`) {
		t.Errorf("its text is a number: %v", err)
	}
}

// Whole files verify; of damaged ones each is named, and the others are sound. Where
// shards depend on each other, the format names those that are damaged.
func TestVerifyTakesAnyFormat(t *testing.T) {
	dir := folder(t)
	check := func(formats []dataset.Format) *verify.Report {
		t.Helper()
		r, err := verify.Run(context.Background(), verify.Config{Dataset: spec.Dataset{Path: spec.Paths{dir}}, Formats: formats})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := check(withToy(nil))
	if r.Format != "toy" || r.Checked != 7 || r.Err() != nil || len(r.Fields) != 1 || r.Fields[0].Name != toy.Number {
		t.Errorf("%+v", r.Report)
	}
	bad := filepath.Join(dir, "a.toy")
	if err := os.Truncate(bad, 13); err != nil {
		t.Fatal(err)
	}
	r = check(withToy(nil))
	if len(r.Shards) != 1 || r.Shards[0].Where.Shard != bad || !slices.Equal(r.Sound, []string{filepath.Join(dir, "b.toy")}) || r.Err() == nil {
		t.Errorf("%+v, sound are %q", r.Shards, r.Sound)
	}
	r = check(withToy(func(f *format.Format) {
		f.Endings = []string{".toy"}
		f.Damage = func(_ context.Context, _ source.Source, root string) ([]*errs.Error, int, error) {
			return []*errs.Error{errs.New(errs.Damaged, "asked at %s", root)}, 2, nil
		}
	}))
	if len(r.Shards) != 1 || r.Shards[0].What != "asked at "+dir || r.Files != 2 || r.Unread == nil {
		t.Errorf("%+v of %d, unread %v", r.Shards, r.Files, r.Unread)
	}
}

// The lines that inspect writes name the format's class, with its paths and what it needs
// besides; so does the hint where it was loaded as another format.
func TestPythonOfAnyFormat(t *testing.T) {
	dir := folder(t)
	look := func(formats []dataset.Format) *inspect.Report {
		t.Helper()
		r, err := inspect.Run(context.Background(), inspect.Config{Dataset: spec.Dataset{Path: spec.Paths{dir}}, Formats: formats})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := look(withToy(nil)); r.Format != "toy" || r.Samples != 7 || !strings.Contains(r.Python, `train = stoker.ToyDataset("`+dir+`")`) {
		t.Errorf("%s, %d samples:\n%s", r.Format, r.Samples, r.Python)
	}
	if r := look(withToy(func(f *format.Format) { f.Python = "" })); !strings.Contains(r.Python, "no class for the format toy") {
		t.Errorf("%s", r.Python)
	}
	formats := withToy(func(f *format.Format) { f.Words, f.Arguments = "a box of toys", "3" })
	_, err := dataset.Open(context.Background(), spec.Spec{Dataset: spec.Dataset{Format: "hdf5", Path: spec.Paths{dir}}}, dataset.Options{Formats: formats})
	if e := errs.From(err); err == nil || !strings.Contains(e.Hint, `it is a box of toys: load it with stoker.ToyDataset("`+dir+`", 3) (--format toy)`) {
		t.Errorf("%v, try %q", err, errs.From(err).Hint)
	}
}

// The doctor measures a dataset of the format, tier by tier.
func TestTiersOfAnyFormat(t *testing.T) {
	s := spec.Spec{Dataset: spec.Dataset{Path: spec.Paths{folder(t)}}, Batch: spec.Batch{Size: 2}}
	formats := withToy(func(f *format.Format) { f.Files = true })
	r, err := tiers.LoadIt(context.Background(), tiers.Load{Spec: s, Name: "toys", Formats: formats, Time: 200 * time.Millisecond, Tiers: 8 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if opens := r.Evidence.Loops[0].Cost.Opens; opens.Value != 1 || opens.Source != "format toy" {
		t.Errorf("opens: %+v", opens)
	}
	groups := map[string]bool{}
	for _, tier := range r.Evidence.Tiers {
		groups[tier.Of] = true
		if strings.Contains(tier.Cut, "toy") {
			t.Errorf("%+v", tier)
		}
	}
	for _, of := range []string{evidence.OfGain, evidence.OfSample, evidence.OfLanes, evidence.OfStorage, evidence.OfMemory} {
		if !groups[of] {
			t.Errorf("no tier is of %s", of)
		}
	}
}
