package loader

import (
	"time"

	"github.com/stoker-data/stoker/internal/stage/fetch"
)

// crew is whoever fills the rows of a loader's batches. It is given whole batches, in
// the order of the plan, and does with the tasks in them what suits it: one sample at a
// time, or many. Which crew a loader has changes nothing of what is delivered.
//
// A task says the sample (req.Sample), the key of its randomness, and its row (batch,
// row). Every task of a batch comes back exactly once: through Loader.finish, filled or
// with the reason why not, or without having been done, if batch.gone is set. What
// failed may be given another sample and begin again; finish sees to that.
type crew interface {
	// begin takes the tasks of a batch whose sample is not negative. It may wait for
	// room to read ahead, and says how long it did. No lock is held. The batch may be
	// another's when it returns.
	begin(ob *openBatch) (waited time.Duration)
}

// lanes are the crew that decodes: readers fetch the bytes of a sample, and a lane takes
// it when they are there. What is in memory already lanes read themselves.
type lanes struct{ l *Loader }

// readers are the crew for small samples that need no decoding: whoever reads them fills
// them in; see direct.go.
type readers struct{ l *Loader }

// choose decides the crew.
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
	if len(reqs) > 0 { // or the batch may be another's by now
		return l.send(reqs, false, ob)
	}
	return 0
}
