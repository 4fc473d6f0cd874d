package worker

import (
	"github.com/stoker-data/stoker/internal/stage/batch"
)

// Input is samples that the engine has made as far as it can, for the user's code to go on
// with. They stay in their slot until no worker needs them.
type Input struct {
	Slot    *batch.Slot
	Rows    int
	About   []byte // JSON for the worker: where the columns are
	Release func() // gives the slot back
}

// Source is the row of an input that a row of a batch is made from.
type Source struct {
	Row uint32
	In  *Input // nil: the worker makes the sample alone
	At  uint32
}

// Fields tells the worker what the rows of inputs have, as JSON.
func (c *Conn) Fields(about []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(append(begin(toFields), about...), -1)
}

// Sources says what the rows of the next tasks of a batch are made from.
func (c *Conn) Sources(id uint64, all []Source) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range all {
		if s.In != nil && c.inputs[s.In] == 0 {
			c.share(s.In.Slot)
			c.input++
			c.inputs[s.In] = c.input
			w := begin(toInput)
			w.u32(c.input)
			w.u32(uint32(s.In.Slot.ID))
			w.u32(uint32(s.In.Rows))
			c.put(append(w, s.In.About...), -1)
		}
	}
	w := begin(toSources)
	w.u64(id)
	w.u32(uint32(len(all)))
	for _, s := range all {
		w.u32(s.Row)
		w.u32(c.inputs[s.In]) // 0: none
		w.u32(s.At)
	}
	c.put(w, -1)
}

// Used says that no row needs an input any more.
func (c *Conn) Used(in *Input) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.inputs[in]; n != 0 {
		delete(c.inputs, in)
		w := begin(toUsed)
		w.u32(n)
		c.put(w, -1)
	}
}
