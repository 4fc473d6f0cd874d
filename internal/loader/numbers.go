package loader

import (
	"time"

	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/fill"
)

// numbers are the crew of a dataset whose samples the trainer looks up itself: batches have
// ids and nothing else, and are complete as soon as they are planned.
type numbers struct{ l *Loader }

// Begin implements fill.Crew.
func (c numbers) Begin(b *fill.Batch) (waited time.Duration) {
	l, s, ob := c.l, c.l.shared, b.Owner.(*openBatch) //nolint:forcetypeassert // newBatch sets it
	now := stats.Monotonic()
	for i := range ob.Tasks {
		if t := &ob.Tasks[i]; t.Sample >= 0 {
			ob.Stamp(t)
		}
	}
	s.mu.Lock()
	l.moved = now
	ob.left = 0
	if ob.Gone.Load() {
		ob.settle()
		s.mu.Unlock()
		return 0
	}
	l.finishBatch(ob, now)
	return 0
}

// Again implements fill.Crew. No task fails, so none comes again.
func (c numbers) Again(t *fill.Task) { c.l.finish(t, nil, stats.Monotonic(), false) }
