package stream

import (
	"testing"

	"github.com/stoker-data/stoker/internal/spec"
)

// What one step takes over all ranks: samples, or batches where the order makes them.
func TestStride(t *testing.T) {
	for name, c := range map[string]struct {
		batch spec.Batch
		mix   spec.Mix
		want  int64
	}{
		"samples":               {spec.Batch{Size: 4}, spec.Mix{}, 12},
		"a global size":         {spec.Batch{Size: 4, GlobalSize: 10}, spec.Mix{}, 10},
		"tokens":                {spec.Batch{Tokens: 100}, spec.Mix{}, 3},
		"a token":               {spec.Batch{Tokens: 1}, spec.Mix{}, 3},
		"batches of one member": {spec.Batch{Size: 4}, spec.Mix{Batches: spec.BatchesSingle}, 3},
	} {
		l := &Stream{}
		l.spec.World, l.spec.Batch, l.spec.Mix = 3, c.batch, c.mix
		if got := l.Stride(); got != c.want {
			t.Errorf("%s: %d, not %d", name, got, c.want)
		}
	}
}
