//go:build cgo

package kernel

import "testing"

// No pass only copies the picture.
func TestPasses(t *testing.T) {
	erase := Step{Op: OpErase, W: 2, H: 2}
	for _, c := range []struct {
		steps []Step
		jpeg  bool
		want  int
	}{
		{[]Step{{Op: OpInvert}, erase}, false, 1},
		{[]Step{{Op: OpSharpness, N: 2}}, false, 1},
		{[]Step{{Op: OpSharpness, N: 2}}, true, 2},
		{[]Step{{Op: OpSharpness, N: 2}, {Op: OpSharpness, N: 2}}, false, 2},
		{[]Step{erase, {Op: OpSharpness, N: 2}, {Op: OpInvert}}, false, 2},
		{[]Step{erase, {Op: OpKeep, N: 0.5}, {Op: OpInvert}, {Op: OpSum, N: 0.5}}, false, 3},
	} {
		var p planner
		if p.raw(9, 9, 3); c.jpeg {
			p.decode(&header{Header: Header{W: 9, H: 9, Components: 3}}, false)
		}
		if err := p.fold(c.steps); err != nil || p.n+1 != c.want {
			t.Errorf("%v: %d passes, not %d (%v)", c.steps, p.n+1, c.want, err)
		}
	}
}
