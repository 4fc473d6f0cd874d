package loop_test

import (
	"math"
	"testing"

	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/doctor/loop"
)

// timed is a stage that computes for so long of each sample.
func timed(kind, name string, seconds float64) evidence.Stage {
	return evidence.Stage{Kind: kind, Name: name, Wall: evidence.Measured(seconds, "hook"), CPU: evidence.Measured(seconds, "hook")}
}

// Without the transform that costs most, the other transforms and the decoding stay:
// only what that one took is gone from the loop.
func TestWithoutOneStageOfAKind(t *testing.T) {
	var l evidence.Loop
	l.Settings.BatchSize, l.Settings.Workers = 10, 2
	l.Wait, l.Step = evidence.Measured(0.05, "hook"), evidence.Measured(0.01, "hook")
	l.Cost.Sample = evidence.Measured(0.008, "hook")
	l.Cost.Stages = []evidence.Stage{timed(evidence.Decode, "PIL.decode", 0.005), timed(evidence.Transform, "RandomResizedCrop", 0.002), timed(evidence.Transform, "ColorJitter", 0.001)}
	v := loop.New(evidence.Evidence{Loops: []evidence.Loop{l}}, l)
	p := v.Part(evidence.Transform)
	if p.Name != "RandomResizedCrop" || math.Abs(p.CPU-0.003) > 1e-9 {
		t.Fatalf("%+v", p)
	}
	was := v.Job
	if gone := (was.CPU - v.WithoutStage(p).CPU) / v.Batch; math.Abs(gone-0.002) > 1e-9 {
		t.Errorf("%g s of a sample are gone, and RandomResizedCrop takes 0.002", gone)
	}
	if gone := (was.CPU - v.Without(evidence.Transform).CPU) / v.Batch; math.Abs(gone-0.003) > 1e-9 {
		t.Errorf("%g s of a sample are gone, and all transforms take 0.003", gone)
	}
	if v.Job != was {
		t.Error("what was asked for changed the loop")
	}
}
