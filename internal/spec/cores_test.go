package spec

import "testing"

// Ranks of one machine share its cores.
func TestCoresAreShared(t *testing.T) {
	all := Cores()
	t.Setenv("LOCAL_WORLD_SIZE", "100000")
	if n := Cores(); n != 1 || all < 1 {
		t.Errorf("%d lanes alone, %d among 100,000 ranks", all, n)
	}
}
