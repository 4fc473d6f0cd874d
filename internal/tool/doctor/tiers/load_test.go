package tiers

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
)

func synthetic(samples int64) spec.Spec {
	var s spec.Spec
	s.Dataset.Format, s.Dataset.Samples, s.Dataset.Shape = "synthetic", samples, []int{64, 64, 3}
	s.Batch.Size = 8
	return s
}

// A dataset that costs nothing beside a step that takes its time: the loop is
// measured from both sides, and nothing is wrong with it.
func TestADatasetThatIsLoaded(t *testing.T) {
	r, err := LoadIt(t.Context(), Load{Spec: synthetic(4000), Name: "synthetic", Step: 20 * time.Millisecond, Time: 1500 * time.Millisecond, Version: "test", hurry: 5})
	if err != nil {
		t.Fatal(err)
	}
	l := r.Evidence.Loops[0]
	if l.Batches.Value < 5 || l.Step.Value < 0.02 || l.PerEpoch.Value != 500 || l.Settings.Class != evidence.OwnClass || l.Settings.BatchSize != 8 || !l.BatchBytes.Known() {
		t.Errorf("%+v", l)
	}
	if tiers := r.Evidence.Tiers; len(tiers) < 5 || tiers[0].Name != evidence.OutOfNothing || tiers[0].Rate.Value <= 0 || r.Evidence.Tier(evidence.OfLanes, "1 lane").Rate.Value <= 0 {
		t.Errorf("%+v", tiers)
	}
	if r.Verdict.Loader != "synthetic" || r.Evidence.Subject.Kind != evidence.OfSpec {
		t.Errorf("%+v", r.Verdict)
	}
}

// The last batch of an epoch is one, however small, unless it is dropped.
func TestAnEpochsLastBatchCounts(t *testing.T) {
	for _, c := range []struct {
		samples int64
		drop    bool
		want    float64
	}{{100, false, 13}, {104, false, 13}, {3, false, 1}, {100, true, 12}} {
		spec := synthetic(c.samples)
		if c.drop {
			spec.Order.Tail = "drop"
		}
		r, err := LoadIt(t.Context(), Load{Spec: spec, Name: "synthetic", Step: time.Millisecond, Time: 100 * time.Millisecond, Quick: true})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Evidence.Loops[0].PerEpoch.Value; got != c.want {
			t.Errorf("%d samples, 8 a batch, the last dropped %v: %g batches, not %g", c.samples, c.drop, got, c.want)
		}
	}
}

// An epoch that is shorter than the queue is filled by says little, and ends.
func TestADatasetOfOneBatch(t *testing.T) {
	r, err := LoadIt(t.Context(), Load{Spec: synthetic(3), Name: "three", Step: time.Millisecond, Time: 500 * time.Millisecond, hurry: 5})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Evidence.Loops) != 1 {
		t.Errorf("%+v", r.Evidence.Loops)
	}
}

func TestADatasetThatIsNotThere(t *testing.T) {
	var s spec.Spec
	s.Dataset.Path = []string{"/no/such/dataset"}
	if _, err := LoadIt(t.Context(), Load{Spec: s}); errs.CodeOf(err) != errs.NotFound {
		t.Error(err)
	}
}

// arguments is the one argument of an operation, as JSON.
func arguments(name, value string) map[string]json.RawMessage {
	return map[string]json.RawMessage{name: json.RawMessage(value)}
}

// What is opened for a sample is what the dataset's format says: one file in a folder of
// files, and nothing where samples are made.
func TestFilesOpenedForASample(t *testing.T) {
	for _, c := range []struct {
		name string
		spec spec.Spec
		want float64 // 0: not known
	}{{"folder", shipped(t), 1}, {"synthetic", synthetic(3), 0}} {
		r, err := LoadIt(t.Context(), Load{Spec: c.spec, Name: c.name, Time: 100 * time.Millisecond, Quick: true})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Evidence.Loops[0].Cost.Opens; got.Value != c.want || got.Known() && got.Source != "format "+c.name {
			t.Errorf("%s: %g files for a sample [%s], not %g", c.name, got.Value, got.Source, c.want)
		}
	}
}
