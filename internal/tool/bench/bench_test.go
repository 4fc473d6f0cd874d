package bench

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/spec"
)

func synthetic(batch int) spec.Spec {
	return spec.Spec{
		Dataset: spec.Dataset{Format: "synthetic", Samples: 40, Shape: []int{8, 8, 3}},
		Batch:   spec.Batch{Size: batch}, Workers: 2,
	}
}

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		config           Config
		samples, batches int64
	}{
		{Config{Epochs: 1}, 40, 6},
		{Config{Epochs: 3}, 120, 18},
		{Config{Samples: 1}, 7, 1},
		{Config{Samples: 60}, 61, 9},
		{Config{Samples: 60, Epochs: 1}, 40, 6},
		{Config{Epochs: 2, Time: time.Hour}, 80, 12},
	} {
		c.config.Spec = synthetic(7)
		told := 0.0
		c.config.Progress = func(_ int64, share float64) {
			if share < told || share > 1 {
				t.Errorf("the progress went from %v to %v", told, share)
			}
			told = share
		}
		r, err := Run(t.Context(), c.config)
		if err != nil {
			t.Fatal(err)
		}
		if r.Samples != c.samples || r.Batches != c.batches || told != 1 {
			t.Errorf("%+v: %d samples in %d batches, told %v", c.config, r.Samples, r.Batches, told)
		}
	}
	goleak.VerifyNone(t)
}

func TestTimeLimit(t *testing.T) {
	r, err := Run(t.Context(), Config{Spec: synthetic(8), Time: 50 * time.Millisecond, StepTime: 5 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if r.Seconds < 0.05 || r.Batches < 1 || r.Wait.Share > 1 || r.StepTime != 0.005 {
		t.Errorf("%+v", r)
	}
}

func TestFiguresFitTogether(t *testing.T) {
	r, err := Run(t.Context(), Config{Spec: synthetic(8), Epochs: 200})
	if err != nil {
		t.Fatal(err)
	}
	if got := float64(r.Samples) / r.Seconds; math.Abs(got-r.PerSecond) > 1e-6*got {
		t.Errorf("%v samples/s, not %v", r.PerSecond, got)
	}
	if r.CPUSeconds <= 0 || r.CPUPer1000 <= 0 || r.FirstBatch <= 0 || r.FirstBatch > r.Seconds || r.Wait.P50MS > r.Wait.P99MS {
		t.Errorf("%+v", r)
	}
	if r.Memory.PeakRSS < 1<<20 || r.Memory.Batches < 8*8*8*3 || r.Lanes != 2 || r.Dataset != 40 {
		t.Errorf("%+v", r)
	}
}

func TestNoBatchIsAnError(t *testing.T) {
	spec := synthetic(64)
	spec.Order.Tail = "drop"
	_, err := Run(t.Context(), Config{Spec: spec})
	if errs.CodeOf(err) != errs.Config {
		t.Errorf("%v", err)
	}
}

func TestStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Run(ctx, Config{Spec: synthetic(8), Time: time.Hour, Progress: func(n int64, _ float64) {
		if n > 100 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	goleak.VerifyNone(t)
}

func TestChainFields(t *testing.T) {
	names := func(fields []spec.Field) (out []string) {
		for _, f := range fields {
			out = append(out, f.Name+"="+f.From+":"+f.Decode)
		}
		return out
	}
	for _, c := range []struct {
		have []spec.Field
		want []string
	}{
		{
			[]spec.Field{{Name: "image", Decode: "rgb"}, {Name: "label", Decode: "int"}},
			[]string{"image=image:rgb", "label=:int"},
		},
		{
			[]spec.Field{{Name: "cls", Decode: "int"}, {Name: "jpg", Decode: "rgb"}, {Name: "json", Decode: "json"}, {Name: "png", Decode: "rgb"}},
			[]string{"image=jpg;png:rgb", "cls=:int"},
		},
		{
			[]spec.Field{{Name: "txt", Decode: "text"}, {Name: "npy", Decode: "bytes"}},
			[]string{"txt=:text", "npy=:bytes"},
		},
	} {
		if diff := cmp.Diff(c.want, names(Chain{}.Fields(c.have))); diff != "" {
			t.Error(diff)
		}
	}
	if n := len(Chain{Float: true}.ops()); n != 4 {
		t.Errorf("%d operations", n)
	}
}
