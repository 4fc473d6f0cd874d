package fill

import "github.com/stoker-data/stoker/internal/stage/transform"

// A client decodes these pictures on its device: the lane sends the JPEG, or the part of it
// that is needed, and does not write the row.

// Refuse has the lanes decode the pictures of these samples from now on, because the decoder
// of the client's device could not.
func (f *Filler) Refuse(samples []int64) {
	for _, id := range samples {
		f.refused.Store(id, true)
	}
}

// sends reports whether the pictures of a task's sample are sent.
func (f *Filler) sends(t *Task) bool {
	if !f.spec.DecodeDevice.Takes(t.Key) {
		return false
	}
	_, refused := f.refused.Load(t.Req.Sample)
	return !refused
}

// send writes what is sent of the picture that was begun last to the columns at and at+1,
// unless its row has to be made here; sends is what the method sends said of the task.
func (f *Filler) send(lane *transform.Lane, prog *transform.Program, at int, t *Task, sends bool) (sent bool, err error) {
	numbers, c := t.Batch.Row(at, t.Row), &t.Batch.Loose[at+1]
	c.Rows[t.Row] = c.Rows[t.Row][:0]
	clear(numbers)
	if !sends {
		return false, nil
	}
	row, sent, err := prog.Sent(lane, t.Req.Sample, numbers, c.Rows[t.Row], f.spec.DecodeDevice.Repeats)
	c.Rows[t.Row] = row
	if !sent || err != nil {
		return false, err
	}
	return true, t.looseFailed(len(row), f.Fits(t.Batch.collected.Add(int64(len(row)))))
}
