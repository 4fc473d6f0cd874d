package batch_test

import (
	"testing"

	"github.com/stoker-data/stoker/internal/stage/batch"
)

func TestPoison(t *testing.T) {
	s := &batch.Slot{Mem: make([]byte, 100)}
	if !s.Sound() {
		t.Error("it was never poisoned")
	}
	s.Poison()
	if !s.Sound() {
		t.Error("nobody wrote to it")
	}
	s.Mem[7] = 0 // it is in use
	if !s.Sound() {
		t.Error("its user wrote to it")
	}
	s.Poison()
	s.Mem[99] = 0
	if s.Sound() {
		t.Error("somebody wrote to it while it was free")
	}
}
