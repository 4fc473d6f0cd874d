package tiers

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/fill"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/transform"
	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/doctor/judge"
	"github.com/stoker-data/stoker/internal/tool/doctor/report"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// shipped is a dataset of the six photographs that come with stoker, and the usual
// chain of training.
func shipped(t *testing.T) (s spec.Spec) {
	t.Helper()
	root := t.TempDir()
	photos, err := filepath.Glob("../../../../testdata/photos/*.jpg")
	if err != nil || len(photos) != 6 {
		t.Fatalf("%q %v", photos, err)
	}
	for i, from := range photos {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(root, "train", string(rune('a'+i%2)), filepath.Base(from))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("STOKER_CACHE", filepath.Join(root, "cache"))
	s.Dataset.Path = spec.Paths{filepath.Join(root, "train")}
	s.Batch.Size = 2
	s.Cache.Memory = 16 << 20
	s.Fields = []spec.Field{
		{Name: "image", Decode: "rgb", Transform: []transform.Op{
			{Name: "RandomResizedCrop", Args: arguments("size", "96")},
			{Name: "ToTensor"},
		}},
		{Name: "label", Decode: "int"},
	}
	return s
}

// A real run: every tier is there, was measured, and says where.
func TestTiersOfShippedPhotos(t *testing.T) {
	var early judge.Report
	r, err := LoadIt(t.Context(), Load{
		Spec: shipped(t), Name: "photos", Step: 5 * time.Millisecond, Time: time.Second, Tiers: 2 * time.Minute, hurry: 4,
		Verdict: func(r judge.Report) { early = r },
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(early.Verdict, r.Verdict); diff != "" || early.Evidence.Tiers != nil {
		t.Errorf("another verdict after the tiers:\n%s", diff)
	}
	// A slow machine may not come to so many steps.
	if l := r.Evidence.Loops[0]; len(l.Recent) == 0 || len(l.Recent) > 11 || len(l.Recent) < 11 && l.Batches.Value >= 11 || l.Recent[0][0] != 0 {
		t.Errorf("the last steps: %v", l.Recent)
	}
	want := [][2]string{
		{evidence.OfGain, evidence.OutOfNothing},
		{evidence.OfGain, evidence.TheDataset},
		{evidence.OfSample, "read"},
		{evidence.OfSample, "decode"},
		{evidence.OfSample, "RandomResizedCrop"},
		{evidence.OfSample, "ToTensor"},
		{evidence.OfSample, "all of it"},
	}
	counts := laneCounts(r.Evidence.Machine.Cores.Value)
	slices.Sort(counts)
	for _, n := range counts {
		want = append(want, [2]string{evidence.OfLanes, show.Things(n, "lane")})
	}
	want = append(want, [][2]string{
		{evidence.OfStorage, "sequential, 1 MiB"},
		{evidence.OfStorage, "random, 4 KiB"},
		{evidence.OfStorage, r.Evidence.Tiers[len(r.Evidence.Tiers)-5].Name}, // by the size of the photographs
		{evidence.OfStorage, "small files"},
		{evidence.OfMemory, "batches"},
		{evidence.OfMemory, "cache of samples"},
		{evidence.OfMemory, "this process, at most"},
	}...)
	var got [][2]string
	for _, tier := range r.Evidence.Tiers {
		got = append(got, [2]string{tier.Of, tier.Name})
		measured(t, tier)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, tier := range r.Evidence.Tiers {
		if tier.Of == evidence.OfSample && (tier.P99.Value < tier.Mean.Value/2 || tier.Count.Value != 6) {
			t.Errorf("%+v", tier)
		}
	}
	var b strings.Builder
	if err := report.Shown(r).WriteTiers(&b); err != nil || strings.Count(b.String(), "\n") < len(want) {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// measured asks of a tier the figures of its group, each above nothing.
func measured(t *testing.T, tier evidence.Tier) {
	t.Helper()
	figures := map[string][]evidence.Figure{
		evidence.OfGain:    {tier.Rate, tier.Batch},
		evidence.OfSample:  {tier.Mean, tier.P99, tier.Count},
		evidence.OfLanes:   {tier.Rate, tier.Batch, tier.Count},
		evidence.OfStorage: {tier.Bytes},
		evidence.OfMemory:  {tier.Size},
	}[tier.Of]
	if tier.Cut != "" || len(figures) == 0 {
		t.Errorf("not measured: %+v", tier)
	}
	for i, f := range figures {
		if !f.Known() || f.Value <= 0 {
			t.Errorf("figure %d of %+v", i, tier)
		}
	}
}

// Without time every tier says that it has none; with --quick there are none.
func TestTiersThatAreCut(t *testing.T) {
	spec := shipped(t)
	r, err := LoadIt(t.Context(), Load{Spec: spec, Name: "photos", Time: 300 * time.Millisecond, Tiers: 1})
	if err != nil {
		t.Fatal(err)
	}
	cut := 0
	for _, tier := range r.Evidence.Tiers {
		if tier.Cut != "" {
			cut++
			if tier.Source() != "" {
				t.Errorf("%+v", tier)
			}
		}
	}
	if whole := len(r.Evidence.Tiers) - cut; cut < 4 || whole != 4 { // the dataset's own loop, and memory, cost nothing more
		t.Errorf("%d cut, %d measured", cut, whole)
	}
	told := 0
	r, err = LoadIt(t.Context(), Load{Spec: spec, Name: "photos", Time: 300 * time.Millisecond, Quick: true, Verdict: func(judge.Report) { told++ }})
	if err != nil || r.Evidence.Tiers != nil || told != 1 {
		t.Errorf("%v, told %d times, %+v", err, told, r.Evidence.Tiers)
	}
}

// Storage that does not answer is not waited for, and what fails says why.
func TestTierThatHangs(t *testing.T) {
	asked := evidence.Tier{Of: evidence.OfStorage, Name: "small files"}
	forever := make(chan struct{})
	defer close(forever)
	hangs := func(*evidence.Tier, time.Duration) error { <-forever; return nil }
	if got := answered(t.Context(), asked, 4*time.Millisecond, 6*time.Millisecond, hangs); got.Cut != "no answer within 10 ms" {
		t.Errorf("%+v", got)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if got := answered(gone, asked, time.Hour, 0, hangs); got.Cut != "interrupted" {
		t.Errorf("%+v", got)
	}
	fails := func(t *evidence.Tier, _ time.Duration) error {
		t.Bytes = evidence.Measured(1, "x")
		return errors.New("the cable is out")
	}
	if got := answered(t.Context(), asked, time.Hour, 0, fails); got.Cut != "the cable is out" || got.Bytes.Known() {
		t.Errorf("%+v", got)
	}
}

// A file that is gone since it was timed does not make a dataset without files.
func TestStorageOfFilesThatAreGone(t *testing.T) {
	m := &measuring{Load: Load{Tiers: time.Minute}, ends: time.Now().Add(time.Minute), files: []string{"/no/such/file", t.TempDir()}}
	m.storage(t.Context())
	if len(m.out) != 1 || m.out[0].Cut == "" {
		t.Errorf("%+v", m.out)
	}
}

// Where reads came from is said anew where it was not what it seemed, of what was
// measured only.
func TestWhereReadsCameFrom(t *testing.T) {
	read := evidence.Tier{Of: evidence.OfStorage, Mean: evidence.Measured(1, "a"), Bytes: evidence.Measured(2, "a")}
	readFrom(&read, "b")
	if diff := cmp.Diff(evidence.Tier{Of: evidence.OfStorage, Mean: evidence.Measured(1, "b"), Bytes: evidence.Measured(2, "b")}, read); diff != "" {
		t.Error(diff)
	}
	cut := evidence.Tier{Of: evidence.OfStorage, Cut: "why"}
	if readFrom(&cut, "b"); cut.Source() != "" {
		t.Errorf("%+v", cut)
	}
	if memory, err := os.MkdirTemp("/dev/shm", "stoker-doctor-test-"); err == nil {
		defer os.RemoveAll(memory)
		path := filepath.Join(memory, "x")
		if err := os.WriteFile(path, make([]byte, 5000), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := stateOf([]string{path}); got != "from memory, where these files are" {
			t.Error(got)
		}
	}
	if got := stateOf([]string{"/no/such/file"}); got != "that the page cache may have answered" {
		t.Error(got)
	}
}

// Batches out of nothing have as many rows as the dataset's, and rows as large,
// also where batches do not fill their slots.
func TestBatchesOutOfNothing(t *testing.T) {
	for _, c := range []struct {
		main       run
		size, all  int
		rows, each int
	}{
		{run{batches: 10, samples: 640, bytes: 64000}, 64, 0, 64, 100},
		{run{batches: 10, samples: 120, bytes: 64000}, 64, 0, 12, 100},
		{run{batches: 10, samples: 320, bytes: 32000}, 0, 128, 32, 100},
		{run{batches: 10, samples: 317, bytes: 32000}, 0, 0, 32, 100}, // by length
		{run{}, 64, 0, 1, 1},
	} {
		m := &measuring{main: &c.main}
		m.spec.Batch.Size, m.spec.Batch.GlobalSize, m.spec.World = c.size, c.all, 4
		if got := m.nothing(); got.Batch.Size != c.rows || got.Dataset.Shape[0] != c.each {
			t.Errorf("%+v: %d rows of %d", c, got.Batch.Size, got.Dataset.Shape[0])
		}
	}
}

func TestLaneCounts(t *testing.T) {
	for cores, want := range map[float64][]int{
		0: {1}, 0.5: {1}, 1: {1}, 1.05: {1}, 1.5: {1, 2}, 2: {1, 2}, 3: {1, 3, 2}, 8: {1, 8, 2, 4}, 12: {1, 12, 2, 4, 8},
	} {
		if got := laneCounts(cores); !slices.Equal(got, want) {
			t.Errorf("%g cores: %v", cores, got)
		}
	}
}

// The p99 is the smallest time that 99 of 100 do not exceed.
func TestSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		took := rapid.SliceOfN(rapid.Float64Range(0, 10), 1, 400).Draw(t, "took")
		sum := 0.0
		for _, s := range took {
			sum += s
		}
		got := spread(evidence.Tier{}, slices.Clone(took), "x")
		within := func(most float64) (n int) {
			for _, s := range took {
				if s <= most {
					n++
				}
			}
			return n
		}
		below := math.Nextafter(got.P99.Value, -1)
		if n := len(took); 100*within(got.P99.Value) < 99*n || 100*within(below) >= 99*n {
			t.Fatalf("%g: %d of %d", got.P99.Value, within(got.P99.Value), n)
		}
		if math.Abs(got.Mean.Value-sum/float64(len(took))) > 1e-9 || got.Count.Value != float64(len(took)) {
			t.Fatalf("%+v", got)
		}
	})
}

// JPEGs that are another decoder's are counted by kind, with what to do about them;
// where there are none, or few, nothing is said.
func TestJPEGsOfOtherDecoders(t *testing.T) {
	if fill.Progressive != evidence.Progressive {
		t.Errorf("the loader calls %q what reports look for as %q", fill.Progressive, evidence.Progressive)
	}
	s := shipped(t)
	of := func() (tiers []evidence.Tier, text string) {
		t.Helper()
		p, err := (&measuring{spec: s}).profileOf(t.Context(), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		r := judge.Report{Evidence: evidence.Evidence{Tiers: ofJPEG(p)}}
		var b strings.Builder
		if err := report.Shown(r).WriteTiers(&b); err != nil {
			t.Fatal(err)
		}
		return r.Evidence.Tiers, b.String()
	}
	if tiers, text := of(); len(tiers) > 0 || text != "" {
		t.Errorf("of photographs it says %v, %q", tiers, text)
	}
	for to, name := range map[string]string{"a/p": "progressive411", "b/c": "cmyk", "b/q": "progressive411"} {
		b, err := os.ReadFile("../../../base/kernel/testdata/" + name + ".jpg")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.Dataset.Path[0], to+".jpg"), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tiers, text := of()
	got := map[string]float64{}
	for _, tier := range tiers {
		got[tier.Name] = tier.Count.Value
	}
	if diff := cmp.Diff(map[string]float64{evidence.OwnDecoder: 6, fill.Progressive: 2, fill.FourInks: 1}, got); diff != "" {
		t.Error(diff)
	}
	for _, part := range []string{"JPEGs by decoder", "33 %", "progressive; CMYK", "stoker pack --jpeg index --progressive convert"} {
		if !strings.Contains(strings.Join(strings.Fields(text), " "), part) {
			t.Errorf("it does not say %q:\n%s", part, text)
		}
	}
}
