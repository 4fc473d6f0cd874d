package stats

import (
	"os"
	"testing"
)

// This process, looked at as another one, has used what it says itself.
func TestCPUOf(t *testing.T) {
	before := ProcessCPU()
	found := CPUOf(os.Getpid())
	if after := ProcessCPU(); found < before || found > after {
		t.Errorf("%s, between %s and %s", found, before, after)
	}
	if CPUOf(0) != 0 || CPUOf(-1) != 0 {
		t.Error("processes that there are not")
	}
}
