package bucket_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/loader"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stagetest"
	"github.com/stoker-data/stoker/internal/stagetest/bucket"
	"github.com/stoker-data/stoker/internal/stagetest/fixture"
	"github.com/stoker-data/stoker/internal/stagetest/formats"
	"github.com/stoker-data/stoker/internal/tool/bench"
	"github.com/stoker-data/stoker/internal/tool/doctor/tiers"
	"github.com/stoker-data/stoker/internal/tool/inspect"
	"github.com/stoker-data/stoker/internal/tool/orders"
	"github.com/stoker-data/stoker/internal/tool/pack"
	"github.com/stoker-data/stoker/internal/tool/peek"
	"github.com/stoker-data/stoker/internal/tool/survey"
	"github.com/stoker-data/stoker/internal/tool/tune"
	"github.com/stoker-data/stoker/internal/tool/verify"
)

// Batches of every format, with their ids, are those of local files.
func TestBatchesOfEveryFormat(t *testing.T) {
	s := bucket.New()
	formats.Read(t, formats.Store{Schemes: schemes(s), Prefix: "mem://b", Put: func(path string, data []byte) { s.Put("mem://b"+path, data) }})
}

// A state of local files goes on over the copies, and the other way round.
func TestStatesOfEveryFormat(t *testing.T) {
	t.Chdir("../../dataset")
	shared := loader.NewShared(batch.Heap{}, stats.NewBoard(nil, 320))
	defer shared.Close()
	for name, d := range fixture.Stores(t) {
		t.Run(name, func(t *testing.T) {
			s := bucket.New()
			far := stored(s).Copied(t, d, formats.Open(t, d, nil).Dataset().Index())
			load := func(d spec.Dataset) *loader.Loader {
				l, err := loader.Open(t.Context(), shared, spec.Spec{Dataset: d, Order: spec.Order{Shuffle: "full", Seed: 3}}, loader.Options{Sources: schemes(s), Stored: true})
				stagetest.Must(t, err)
				t.Cleanup(l.Close)
				return l
			}
			here, there := load(d), load(far)
			one, err := json.Marshal(here.State(2, 3))
			stagetest.Must(t, err)
			other, err := json.Marshal(there.State(2, 3))
			stagetest.Must(t, err)
			if string(one) != string(other) {
				t.Errorf("the state is %s, and %s of local files", other, one)
			}
			stagetest.Must(t, there.Check(here.State(2, 3)))
			stagetest.Must(t, here.Check(there.State(2, 3)))
		})
	}
}

// everywhere is what differs between reports only because of where data is stored, or
// when they were made.
var everywhere = regexp.MustCompile(`mem://b|file://`)

// report is a report as text, without what is different by its nature.
func report(t *testing.T, r any, without ...string) string {
	t.Helper()
	raw, err := json.Marshal(r)
	stagetest.Must(t, err)
	var v any
	stagetest.Must(t, json.Unmarshal(raw, &v))
	if m, ok := v.(map[string]any); ok {
		for _, key := range without {
			delete(m, key)
		}
	}
	raw, err = json.MarshalIndent(v, "", " ")
	stagetest.Must(t, err)
	return everywhere.ReplaceAllString(string(raw), "")
}

// Every verb that reads a dataset says of copies in a store what it says of local files.
func TestVerbs(t *testing.T) {
	s := bucket.New()
	shards := fixture.Shards(t, 24, 6)
	far := make(spec.Paths, 1)
	far[0] = stored(s).Away(t, shards) + "/s-{000..003}.tar"
	for _, name := range []string{"s-000.tar", "s-001.tar", "s-002.tar", "s-003.tar"} {
		stored(s).Upload(t, filepath.Join(shards, name))
	}
	near := spec.Dataset{Path: spec.Paths{shards + "/s-{000..003}.tar"}}
	there := spec.Dataset{Path: far}
	all := schemes(s)
	both := func(name string, run func(d spec.Dataset) string) {
		t.Run(name, func(t *testing.T) {
			want, got := run(near), run(there)
			if want != got || len(want) < 20 {
				t.Errorf("over the store:\n%s\nof local files:\n%s", got, want)
			}
		})
	}
	ctx := t.Context()
	both("inspect", func(d spec.Dataset) string {
		r, err := inspect.Run(ctx, inspect.Config{Dataset: d, Sources: all, All: true, Decode: true})
		stagetest.Must(t, err)
		return report(t, r)
	})
	both("ls and cat", func(d spec.Dataset) string {
		p, err := peek.Open(ctx, d, dataset.Options{Sources: all})
		stagetest.Must(t, err)
		defer p.Close()
		text := ""
		for id := range p.Len() {
			line, err := p.Describe(ctx, id)
			stagetest.Must(t, err)
			text += report(t, line)
		}
		return text
	})
	both("stats", func(d spec.Dataset) string {
		r, err := survey.Run(ctx, survey.Config{Dataset: d, Sources: all})
		stagetest.Must(t, err)
		return report(t, r)
	})
	both("order", func(d spec.Dataset) string {
		o, err := orders.Open(ctx, spec.Spec{Dataset: d, Order: spec.Order{Shuffle: "block", Window: 10}, Batch: spec.Batch{Size: 4}}, dataset.Options{Sources: all})
		stagetest.Must(t, err)
		defer o.Close()
		text := ""
		stagetest.Must(t, o.Walk(ctx, 0, 0, 6, func(s *orders.Step) error {
			text += report(t, s)
			return nil
		}))
		sum, err := o.Digest(ctx, 0, nil)
		stagetest.Must(t, err)
		return text + report(t, sum)
	})
	both("verify", func(d spec.Dataset) string {
		r, err := verify.Run(ctx, verify.Config{Dataset: d, Sources: all})
		stagetest.Must(t, err)
		return report(t, r)
	})
	both("verify --quarantine", func(d spec.Dataset) string {
		r, err := verify.Run(ctx, verify.Config{Dataset: d, Sources: all})
		stagetest.Must(t, err)
		c := formats.Open(t, d, all)
		r.Broken = []int64{5}
		dir := t.TempDir()
		stagetest.Must(t, verify.Quarantine(ctx, c.Dataset(), c.Source(), r, dir))
		copies, err := filepath.Glob(dir + "/*")
		stagetest.Must(t, err)
		text := ""
		for _, name := range copies {
			data, err := os.ReadFile(name)
			stagetest.Must(t, err)
			text += fmt.Sprintf("%s %x\n", filepath.Base(name), data)
		}
		return text
	})
	both("bench", func(d spec.Dataset) string {
		r, err := bench.Run(ctx, bench.Config{Spec: spec.Spec{Dataset: d, Batch: spec.Batch{Size: 4}}, Sources: all, Chain: bench.Chain{Size: 8}, Epochs: 1})
		stagetest.Must(t, err)
		return fmt.Sprintf("%d samples of %d, %s, %d batches, %d bad", r.Samples, r.Dataset, r.Format, r.Batches, r.Bad)
	})
	both("tune", func(d spec.Dataset) string {
		own := tune.OwnLoader{Spec: spec.Spec{Dataset: d, Batch: spec.Batch{Size: 4}}, Sources: all, Chain: bench.Chain{Size: 8}}
		subject, err := own.Subject(ctx)
		stagetest.Must(t, err)
		f, err := own.Measure(ctx, tune.Settings{Workers: 1, Prefetch: 2, Batch: 4}, 50*time.Millisecond)
		stagetest.Must(t, err)
		if !(f.Samples > 0) {
			t.Errorf("%+v", f)
		}
		return report(t, subject)
	})
	both("doctor", func(d spec.Dataset) string {
		r, err := tiers.LoadIt(ctx, tiers.Load{Spec: spec.Spec{Dataset: d, Batch: spec.Batch{Size: 4}}, Sources: all, Time: 100 * time.Millisecond, Tiers: 200 * time.Millisecond})
		stagetest.Must(t, err)
		if len(r.Evidence.Loops) != 1 || !(r.Evidence.Loops[0].Batches.Value > 0) {
			t.Errorf("%+v", r.Evidence.Loops)
		}
		if len(r.Evidence.Tiers) == 0 {
			t.Error("no tier was measured")
		}
		return fmt.Sprintf("%d samples of %s", int64(*r.Evidence.Loops[0].Settings.Length), d.Path[0][strings.LastIndexByte(d.Path[0], '/'):])
	})
	var packings []string
	both("pack", func(d spec.Dataset) string {
		dst := t.TempDir() + "/packed"
		_, err := pack.Run(ctx, pack.Config{Dataset: d, Sources: all, Dst: dst, Options: pack.Options{ShardSize: 4 << 10, Shuffle: true}})
		stagetest.Must(t, err)
		packings = append(packings, dst)
		made, err := filepath.Glob(dst + "/*")
		stagetest.Must(t, err)
		text := ""
		for _, name := range made {
			data, err := os.ReadFile(name)
			stagetest.Must(t, err)
			text += fmt.Sprintf("%s %x\n", filepath.Base(name), data)
		}
		return everywhere.ReplaceAllString(text, "")
	})

	// What was packed is opened as a packing where it was uploaded to: it has to be whole.
	found, err := filepath.Glob(packings[0] + "/*")
	stagetest.Must(t, err)
	for _, name := range found {
		stored(s).Upload(t, name)
	}
	packed := spec.Dataset{Path: spec.Paths{stored(s).Away(t, packings[0])}}
	r, err := verify.Run(ctx, verify.Config{Dataset: packed, Sources: all})
	stagetest.Must(t, err)
	if r.Manifest == "" || r.Damaged > 0 || len(r.Shards) > 0 || r.Compared == 0 {
		t.Errorf("a packing in a store: %+v", r)
	}
	c := formats.Open(t, packed, all)
	if local := formats.Open(t, spec.Dataset{Path: spec.Paths{packings[0]}}, nil); c.Digest() != local.Digest() || !slices.Equal(c.Sources(), local.Sources()) {
		t.Errorf("a packing in a store has the digest %s and the sources %q", c.Digest(), c.Sources())
	}
	at := slices.IndexFunc(found, func(p string) bool { return strings.HasSuffix(p, ".tar") })
	data, err := os.ReadFile(found[at])
	stagetest.Must(t, err)
	s.Put(stored(s).Away(t, found[at]), data[:len(data)-512])
	if _, err := dataset.Open(ctx, spec.Spec{Dataset: packed}, dataset.Options{Sources: all, Stored: true}); err == nil || !strings.Contains(err.Error(), "not of the size that was written") {
		t.Errorf("a packing with a shard that was cut: %v", err)
	}
}
