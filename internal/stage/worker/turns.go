package worker

// Frames of workers that iterate a dataset, each its own copy: the engine asks for the next
// batch of a pass, and gets one, or hears that there is none. What a worker says of a batch
// is for the trainer; given back to a worker, it is where an iteration may begin.
//
//	engine                                          worker
//	walk     pass, epoch, number, told          ->  begins to iterate, or begins again, there
//	turn     batch, pass, number                ->  makes its batch of this number, from 0
//	                                            <-  need, and after fits:
//	                                            <-  made     bytes, rows, told
//	                                            <-  ended    in place of need: there is no such batch
//	over     pass                               ->  forgets it

// Point is where the iteration of a worker may begin: after so many of its batches.
type Point struct {
	After int64
	Told  []byte // of the last of these
}

// Made says that a batch of an iteration is in its slot.
type Made struct {
	Wrote
	Rows uint32
	Told []byte // for the trainer
}

// Ended says that an iteration has no such batch.
type Ended struct{ Batch uint64 }

// Walk says where an iteration of the worker begins.
func (c *Conn) Walk(pass, epoch int64, from Point) {
	w := begin(toWalk)
	w.u64(uint64(pass))
	w.u64(uint64(epoch))
	w.u64(uint64(from.After))
	w.u32(uint32(len(from.Told)))
	c.say(append(w, from.Told...))
}

// Turn asks for the batch of a pass that has this number among those of the worker.
func (c *Conn) Turn(id uint64, pass, number int64) {
	w := begin(toTurn)
	w.u64(id)
	w.u64(uint64(pass))
	w.u64(uint64(number))
	c.say(w)
}

// Over says that nothing of a pass is asked for again.
func (c *Conn) Over(pass int64) {
	w := begin(toOver)
	w.u64(uint64(pass))
	c.say(w)
}

// say queues a frame.
func (c *Conn) say(w writer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(w, -1)
}
