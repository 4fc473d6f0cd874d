package need

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/tool/bench"
)

// run is ten seconds of two lanes over pictures, at 1,000 a second: what is common to
// the cases below.
func run(change func(*bench.Report)) *bench.Report {
	r := &bench.Report{
		Path: []string{"data/train"}, Dataset: 5000, Lanes: 2, Batch: 50, Batches: 200,
		Samples: 10_000, Seconds: 10, PerSecond: 1000, CPUSeconds: 20, CPUPer1000: 2, PerFile: true,
		Fields: []dataset.Column{
			{Name: "image", Kind: "image", DType: "float32", Shape: []int{3, 224, 224}},
			{Name: "label", Kind: "number", DType: "int64", Shape: []int{}},
		},
		Stats: stats.Snapshot{
			Read:   stats.StageSnapshot{BusySeconds: 4, CPUSeconds: 2, OutputSeconds: 30, Items: 10_000, Bytes: 900_000_000},
			Decode: stats.StageSnapshot{BusySeconds: 18, CPUSeconds: 17.1, Items: 10_000},
			Batch:  stats.StageSnapshot{BusySeconds: 0.1, Items: 200, Bytes: 200 * 50 * 700_000},
			Transforms: []stats.StageSnapshot{
				{Name: "RandomResizedCrop", BusySeconds: 3, Items: 10_000},
				{Name: "ToTensor", BusySeconds: 1, Items: 10_000},
				{Name: "Normalize", BusySeconds: 1, Items: 10_000},
			},
		},
	}
	if change != nil {
		change(r)
	}
	return r
}

func TestOf(t *testing.T) {
	want := Measured{
		Rate: 1000, CPU: 0.002, Bound: Lanes, Lanes: 2, Cores: 2, Busy: 2,
		Read: 200e-6, Decode: 1235e-6, Transform: 475e-6, Float: 190e-6, Batch: 10e-6, OnCore: 0.95,
		Samples: 5000, ReadBytes: 90_000, GPUBytes: 602_120, AsBytes: 150_536, Pictures: true, PerFile: true, Whole: true,
		Path: "data/train", Size: 224,
	}
	near := cmpopts.EquateApprox(1e-9, 0)
	if diff := cmp.Diff(want, Of(run(nil), 2), near); diff != "" {
		t.Error(diff)
	}
	loose := Of(run(func(r *bench.Report) { r.Fields[0].Shape = []int{-1, -1, 3} }), 2)
	if loose.GPUBytes != 700_000 || loose.AsBytes != 700_000 {
		t.Errorf("pictures of any size are as large as batches say: %g, %g", loose.GPUBytes, loose.AsBytes)
	}
}

func TestBound(t *testing.T) {
	waiting := func(r *bench.Report) { // two lanes and sixteen readers, which wait for bytes
		r.Stats.Read = stats.StageSnapshot{BusySeconds: 150, CPUSeconds: 2, OutputSeconds: 10, Items: 10_000}
		r.Stats.Decode.BusySeconds, r.Stats.Decode.InputSeconds, r.CPUSeconds = 8, 12, 10
	}
	idle := func(r *bench.Report) { r.Stats.Decode.BusySeconds, r.CPUSeconds = 0.5, 5 }
	for name, c := range map[string]struct {
		change func(*bench.Report)
		want   string
	}{
		"lanes are busy":                {nil, Lanes},
		"readers wait":                  {waiting, Reads},
		"lanes wait for few readers":    {func(r *bench.Report) { waiting(r); r.Stats.Read.OutputSeconds = 900 }, Reads},
		"lanes are busy, readers too":   {func(r *bench.Report) { waiting(r); r.Stats.Decode.BusySeconds = 17 }, Lanes},
		"readers compute":               {func(r *bench.Report) { idle(r); r.CPUSeconds = 18 }, Cores},
		"nothing is busy":               {idle, Between},
		"lanes began late in the run":   {func(r *bench.Report) { r.Stats.Decode.BusySeconds, r.CPUSeconds = 12, 12 }, Lanes},
		"more cores than the run asked": {func(r *bench.Report) { idle(r); r.CPUSeconds, r.Lanes = 18, 1 }, Cores},
	} {
		if got := Of(run(c.change), 2).Bound; got != c.want {
			t.Errorf("%s: %s, not %s", name, got, c.want)
		}
	}
}

// A run of a loader has all the figures that a plan needs.
func TestOfARun(t *testing.T) {
	s := spec.Spec{Dataset: spec.Dataset{Format: "synthetic", Samples: 64, Shape: []int{8, 8, 3}}, Batch: spec.Batch{Size: 16}, Workers: 1}
	r, err := bench.Run(t.Context(), bench.Config{Spec: s, Epochs: 50, Files: true})
	if err != nil {
		t.Fatal(err)
	}
	m := Of(r, 2)
	if m.Rate != r.PerSecond || m.CPU <= 0 || m.Samples != 64 || m.ReadBytes != 0 || m.Lanes != 1 || !m.Whole || len(r.Files) > 0 {
		t.Errorf("%+v", m)
	}
	if m.GPUBytes != 8*8*3 && m.GPUBytes != 8*8*3+8 { // with a label, or without
		t.Errorf("a sample of 8 x 8 pixels has %g bytes", m.GPUBytes)
	}
	p := Weigh(Target{PerGPU: m.Rate / 2, GPUs: 2}, m)
	if !p.Enough() || math.Abs(p.Share-1) > 1e-9 || p.Servers != 1 {
		t.Errorf("what was measured is just enough for itself: %+v", p)
	}
}
