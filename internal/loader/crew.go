package loader

import (
	"time"

	"github.com/stoker-data/stoker/internal/stage/fetch"
)

// crew fills the rows of a loader's batches. It receives whole batches, in the
// order of the plan, and works on their tasks as suits it: one sample at a time, or
// many. What is delivered does not depend on which crew a loader has.
//
// A task has the sample (req.Sample), the key of its randomness, and its row
// (batch, row). Every task of a batch comes back exactly once, through
// Loader.finish: filled, or with the reason why not, or untouched if batch.gone is
// set. finish may give a failed task another sample and send it again.
type crew interface {
	// begin takes the tasks of a batch whose sample is not negative. It may wait
	// for read-ahead memory, and returns how long it did. No lock is held. When it
	// returns, ob may already be reused for another batch.
	begin(ob *openBatch) (waited time.Duration)
}

// lanes are the crew that decodes: readers fetch the bytes of a sample, and a lane
// takes the sample when they have arrived. Bytes that are in memory already are
// read by the lanes themselves.
type lanes struct{ l *Loader }

// readers are the crew for small samples that need no decoding: the goroutine that
// reads them also fills them in. See direct.go.
type readers struct{ l *Loader }

// choose selects the crew.
func (l *Loader) choose(small bool) {
	l.small = small
	l.crew = lanes{l}
	if small {
		l.crew = readers{l}
	}
}

func (c lanes) begin(ob *openBatch) (waited time.Duration) {
	l := c.l
	hot, reqs := false, make([]*fetch.Request, 0, ob.rows)
	for i := range ob.tasks {
		if t := &ob.tasks[i]; t.sample >= 0 {
			l.locate(t)
			if t.unread = l.fetch.Hot(&t.req); t.unread {
				hot = true
			} else {
				reqs = append(reqs, &t.req)
			}
		}
	}
	if hot {
		l.shared.unread(ob)
	}
	if len(reqs) > 0 { // with none sent, the batch may already be reused
		return l.send(reqs, false, ob)
	}
	return 0
}
