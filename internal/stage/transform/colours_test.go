package transform

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// TestSolarizeThresholds: torch compares bytes with the threshold in float32, in which
// 0.55*100, 55.00000000000001, is 55.
func TestSolarizeThresholds(t *testing.T) {
	lane := NewLane()
	defer lane.Close()
	for threshold, want := range map[string][]byte{
		"55":                {54, 200, 199},
		"55.00000000000001": {54, 200, 199},
		"55.0001":           {54, 55, 199},
		"0":                 {201, 200, 199},
		"-1e300":            {201, 200, 199},
	} {
		ops := opsOf(t, fmt.Sprintf(`[{"op":"RandomSolarize","p":1,"threshold":%s}]`, threshold))
		p, err := CompilePixels(mem.Shape{1, 1, 3}, ops, "nhwc")
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 3)
		if _, err := p.Begin(lane, []byte{54, 55, 56}, rng.Sample(1, 0, 0)); err != nil {
			t.Fatal(err)
		}
		if err := p.Finish(lane, got); err != nil {
			t.Errorf("%s: %v", threshold, err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", threshold, diff)
		}
	}
}
