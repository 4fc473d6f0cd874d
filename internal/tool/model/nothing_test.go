package model_test

import (
	"math"
	"testing"

	"github.com/stoker-data/stoker/internal/tool/model"
)

// A loop of which nothing is known costs nothing: nobody waits in it, it needs no
// worker, and its figures are numbers.
func TestALoopThatCostsNothing(t *testing.T) {
	for _, j := range []model.Job{{}, {Workers: 3, Cores: 4, Prefetch: 2}, {Batches: 10}} {
		if wait := j.WaitShare(); wait != 0 {
			t.Errorf("%+v waits for %g of its time", j, wait)
		}
		if n := j.Needed(); n != 0 {
			t.Errorf("%+v needs %g workers", j, n)
		}
		if !math.IsInf(j.Rate(), 1) {
			t.Errorf("%+v makes %g batches a second", j, j.Rate())
		}
		if s := model.Speedup(1, j); !math.IsInf(s, 1) {
			t.Errorf("%+v is %g times faster than a second a batch", j, s)
		}
	}
}
