package format

import (
	"sync"

	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Tally adds up what all files have of progress, in bytes; safe for concurrent use.
type Tally struct {
	mu          sync.Mutex
	tell        index.Progress
	done, total int64
}

// NewTally tells of files; tell may be nil.
func NewTally(tell index.Progress, objs []source.Info) *Tally {
	t := &Tally{tell: tell}
	for _, o := range objs {
		t.total += o.Size
	}
	return t
}

// Add says that n bytes more are done.
func (t *Tally) Add(n int64) {
	if t.tell == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done += n
	t.tell(t.done, t.total, "bytes")
}
