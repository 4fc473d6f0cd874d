package synthetic_test

import (
	"testing"

	"github.com/stoker-data/stoker/internal/stage/format/synthetic"
)

// An axis may have the size 1: it is the smallest that there is.
func TestAxesOfOne(t *testing.T) {
	for _, shape := range [][]int{{1}, {1, 1, 3}, {4, 1}} {
		if d, err := synthetic.New(1, shape); err != nil || d.Len() != 1 {
			t.Errorf("%v: %v", shape, err)
		}
	}
}
