package orders

import (
	"testing"
)

// A piece that begins at the second token of its sample says so; one at the first is
// written as the sample.
func TestPiecesByTheirFirstToken(t *testing.T) {
	s := Step{IDs: []int64{7, 8, 9}, From: []int64{0, 1, 2}}
	if got := string(s.AppendText(nil)); got != "7 8@1 9@2\n" {
		t.Errorf("%q", got)
	}
}
