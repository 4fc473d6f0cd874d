package shard_test

import (
	"path/filepath"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/tool/pack/shard"
)

// A shard whose file cannot be made is not begun, and says which file that is.
func TestAShardThatCannotBeBegun(t *testing.T) {
	gone := filepath.Join(t.TempDir(), "gone")
	w, err := shard.NewWriter(shard.Target{Dir: gone, Temp: gone}, []string{"a.tar"}, []shard.File{{Plain: true}}, 1, nil)
	if e := errs.From(err); w != nil || err == nil || e.Where.File != filepath.Join(gone, "a.tar.tmp") {
		t.Errorf("%v, %v", w, err)
	}
}
