package survey

import (
	"slices"
	"testing"
)

// A picture whose channels are planes has the figures of the same picture whose channels
// take turns.
func TestPlanesHaveTheSameFigures(t *testing.T) {
	turns := []byte{1, 20, 255, 2, 30, 0, 3, 40, 7, 4, 50, 9}
	var planes []byte
	for c := range 3 {
		for i := c; i < len(turns); i += 3 {
			planes = append(planes, turns[i])
		}
	}
	var a, b figures
	a.addPixels(turns, 3, 1)
	b.addPixels(planes, 3, len(turns)/3)
	if !slices.Equal(a.pixels, b.pixels) || !slices.Equal(a.squares, b.squares) || a.values != b.values || b.pixels[1] != 140 {
		t.Errorf("%v %v, and of planes %v %v", a.pixels, a.squares, b.pixels, b.squares)
	}
}
