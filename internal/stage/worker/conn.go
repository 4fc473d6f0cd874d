package worker

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/stage/batch"
)

// Conn is one worker. Sending never blocks: frames wait in a queue while the worker is
// busy. Safe for concurrent use.
type Conn struct {
	sock  *net.UnixConn
	file  int           // memfd: the page, and after it the Python stacks that were asked for
	page  []byte        // what the worker is at
	pid   int           // 0: not a process of its own
	ended chan struct{} // closed when the process has ended, or if it is none of its own

	mu      sync.Mutex
	process *process  // nil: it has ended, or is none of its own
	ready   bool      // it has said hello
	more    sync.Cond // the queue is not empty, or closed
	queue   []parcel
	closed  bool
	leaving bool
	slots   map[int]*batch.Slot // that the worker has mapped
	layouts map[*batch.Layout]uint32
	last    uint32 // layout
	inputs  map[*Input]uint32
	input   uint32 // the last number
}

// parcel is a frame with the descriptor that it carries, which is the queue's own.
type parcel struct {
	frame []byte
	fd    int // -1: none
}

// pageBytes is the size of the page: batch uint64, row uint32 plus one (0: at none), and
// uint32 what else the worker does.
const pageBytes = 16

// What a worker does that is at no row.
const (
	Idle = iota
	Starting
	Collating
)

// New takes over the descriptor of a socket to a worker, and calls got for each of its
// frames, a Hello, Shape, Done, Need, Wrote, Failed, Made or Ended, in a goroutine of its
// own. After the last one, or one that got refuses, it calls gone, with nil if the worker
// just ended. pid is the worker's process; 0: it is not one of its own.
func New(fd, pid int, got func(any) error, gone func(error)) (*Conn, error) {
	file := os.NewFile(uintptr(fd), "worker")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("worker: descriptor %d: %w", fd, err)
	}
	sock, ok := conn.(*net.UnixConn)
	if !ok {
		_ = conn.Close()
		return nil, errors.New("worker: the descriptor is not a Unix socket")
	}
	c := &Conn{sock: sock, pid: pid, ended: make(chan struct{}), slots: map[int]*batch.Slot{}, layouts: map[*batch.Layout]uint32{}, inputs: map[*Input]uint32{}}
	c.more.L = &c.mu
	process := find(pid)
	c.process = process
	if err := c.sharePage(); err != nil {
		if process != nil {
			process.close()
		}
		_ = sock.Close()
		return nil, err
	}
	if process == nil {
		close(c.ended)
	} else {
		go c.watch(process)
	}
	go c.write()
	go c.read(got, gone)
	return c, nil
}

// sharePage makes the page and sends it. Its file may grow, but not shrink: to read beyond
// its end would end this process.
func (c *Conn) sharePage() error {
	fd, err := unix.MemfdCreate("stoker-worker", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return fmt.Errorf("worker: memfd_create: %w", err)
	}
	if err = unix.Ftruncate(fd, pageBytes); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	}
	if err != nil {
		_ = unix.Close(fd)
		return fmt.Errorf("worker: %w", err)
	}
	theirs, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err == nil {
		c.page, err = unix.Mmap(fd, 0, pageBytes, unix.PROT_READ, unix.MAP_SHARED)
	}
	if err != nil {
		_ = unix.Close(fd)
		if theirs >= 0 {
			_ = unix.Close(theirs)
		}
		return fmt.Errorf("worker: mmap: %w", err)
	}
	c.file = fd
	c.queue = append(c.queue, parcel{begin(toPage).end(), theirs})
	return nil
}

// At is the row that the worker is at; false: at none.
func (c *Conn) At() (batch uint64, row uint32, busy bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.page == nil {
		return 0, 0, false
	}
	row = binary.LittleEndian.Uint32(c.page[8:])
	return binary.LittleEndian.Uint64(c.page), row - 1, row != 0
}

// Begun reports whether the worker has said hello, or has no process of its own.
func (c *Conn) Begun() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ready || c.pid == 0
}

// Doing is what a worker does that is at no row.
func (c *Conn) Doing() uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.page == nil:
		return Idle
	case !c.ready && c.pid > 0:
		return Starting
	}
	return binary.LittleEndian.Uint32(c.page[12:])
}

func (c *Conn) read(got func(any) error, gone func(error)) {
	in := bufio.NewReaderSize(c.sock, 1<<16)
	var err error
	for err == nil {
		var kind byte
		var b []byte
		if kind, b, err = readFrame(in); err != nil {
			err = nil // the worker ended
			break
		}
		var frame any
		if frame, err = decode(kind, b); err == nil {
			if kind == fromHello {
				c.mu.Lock()
				c.ready = true
				c.mu.Unlock()
			}
			err = got(frame)
		}
	}
	c.close(false)
	<-c.ended // its rows go to others now
	gone(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = unix.Munmap(c.page)
	c.page = nil
	_ = unix.Close(c.file)
}

// write sends what is in the queue until the connection is closed.
func (c *Conn) write() {
	for {
		c.mu.Lock()
		for len(c.queue) == 0 && !c.closed && !c.leaving {
			c.more.Wait()
		}
		leaving := c.leaving
		queue := c.queue
		c.queue = nil
		closed := c.closed
		c.mu.Unlock()
		for _, p := range queue {
			if !closed && p.send(c.sock) != nil {
				closed = true // the reader notices too
			}
			if p.fd >= 0 {
				_ = unix.Close(p.fd)
			}
		}
		if leaving && !closed {
			_ = c.sock.CloseWrite()
		}
		if closed || leaving {
			return
		}
	}
}

func (p parcel) send(sock *net.UnixConn) error {
	b := p.frame
	if p.fd >= 0 {
		n, _, err := sock.WriteMsgUnix(b, unix.UnixRights(p.fd), nil)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	_, err := sock.Write(b)
	return err
}

// Leave sends the worker home: it ends when it has done what it is at. Until it has, it
// may write to slots.
func (c *Conn) Leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaving = true
	c.more.Signal()
}

// Kill ends the worker at once. What New calls when it is gone, is called as always.
func (c *Conn) Kill() { c.close(true) }

// close ends the connection, and kills a worker that was not sent home: it is to write
// nothing any more. One that was is given the time to end by itself.
func (c *Conn) close(kill bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process != nil && (kill || !c.closed && !c.leaving) {
		_ = c.process.signal(unix.SIGKILL)
	}
	if !c.closed {
		c.closed = true
		_ = c.sock.Close()
		c.forgetQueue()
		c.more.Signal()
	}
}

// forgetQueue drops what the writer has not taken: it may have ended already. c.mu is held.
func (c *Conn) forgetQueue() {
	for _, p := range c.queue {
		if p.fd >= 0 {
			_ = unix.Close(p.fd)
		}
	}
	c.queue = nil
}

// lastWords is how long what a dead worker had sent may take to arrive.
const lastWords = 200 * time.Millisecond

// watch notices the worker's end where the socket does not tell: a process that the worker
// has forked may hold it.
func (c *Conn) watch(p *process) {
	p.wait()
	close(c.ended)
	_ = c.sock.SetReadDeadline(time.Now().Add(lastWords))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.process = nil
	p.close()
}

// put queues a frame. c.mu is held.
func (c *Conn) put(w writer, fd int) {
	if c.closed || c.leaving {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		return
	}
	c.queue = append(c.queue, parcel{w.end(), fd})
	c.more.Signal()
}

// Rows gives the worker rows of a batch to make in the slot. Without a layout it is to say
// what a sample has, in a Shape; structure is what a Shape said. The slot must not be freed
// before the worker has answered.
func (c *Conn) Rows(id uint64, slot *batch.Slot, layout *batch.Layout, structure []byte, epoch, step int64, tasks []Task) {
	c.mu.Lock()
	defer c.mu.Unlock()
	number := c.layout(layout, structure)
	if number != 0 {
		c.share(slot)
	}
	c.tasks(id, slot.ID, number, rows, epoch, step, tasks)
}

// Batch gives the worker samples of a batch that it makes as a whole. how is Whole, More or
// Alike; layout and structure are those of rows, for Alike.
func (c *Conn) Batch(id uint64, how byte, layout *batch.Layout, structure []byte, epoch, step int64, tasks []Task) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tasks(id, 0, c.layout(layout, structure), how, epoch, step, tasks)
}

// Pass says that a pass begins, of which the tasks that follow are.
func (c *Conn) Pass(epoch int64) {
	w := begin(toPass)
	w.u64(uint64(epoch))
	c.say(w)
}

// tasks queues rows to make. c.mu is held.
func (c *Conn) tasks(id uint64, slot int, layout uint32, how byte, epoch, step int64, tasks []Task) {
	if len(tasks) > 0 && tasks[0].Item != nil {
		w := begin(toItems)
		w.u32(uint32(len(tasks)))
		for _, t := range tasks {
			w.u32(uint32(len(t.Item)))
			w = append(w, t.Item...)
		}
		c.put(w, -1)
	}
	w := room(toTasks, 37+32*len(tasks))
	w.u64(id)
	w.u32(uint32(slot))
	w.u32(layout)
	w = append(w, how)
	w.u64(uint64(epoch))
	w.u64(uint64(step))
	w.u32(uint32(len(tasks)))
	for _, t := range tasks {
		w.u32(t.Row)
		w.u64(uint64(t.Place))
		w.u64(uint64(t.Sample))
		w.u64(t.Key)
		w.u32(t.Attempt)
	}
	c.put(w, -1)
}

// layout is the worker's number for a layout, which is sent if it is new; 0 for nil. c.mu
// is held.
func (c *Conn) layout(layout *batch.Layout, structure []byte) uint32 {
	if layout == nil {
		return 0
	}
	if n, ok := c.layouts[layout]; ok {
		return n
	}
	if len(c.layouts) >= 64 { // they change with the rows of batches, rarely
		clear(c.layouts)
	}
	c.last++
	c.layouts[layout] = c.last
	fields := layout.Fields[:len(layout.Fields)-2]
	w := begin(toLayout)
	w.u32(c.last)
	w.u32(uint32(len(fields)))
	for i, f := range fields {
		w.u64(uint64(layout.Off(i)))
		size := int64(Loose)
		if !f.Loose {
			size = int64(f.Shape.Elems() * f.DType.Size())
		}
		w.u64(uint64(size))
	}
	w.u32(uint32(len(structure)))
	w = append(w, structure...)
	c.put(w, -1)
	return c.last
}

// share sends a slot's memory unless the worker has it. c.mu is held.
func (c *Conn) share(slot *batch.Slot) {
	if c.slots[slot.ID] == slot {
		return
	}
	if c.slots[slot.ID] != nil {
		c.forget(slot.ID)
	}
	fd, err := unix.FcntlInt(uintptr(slot.FD), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil { // no descriptor is left: the worker goes, and its tasks are made again
		c.forgetQueue()
		c.leaving = true
		c.more.Signal()
		return
	}
	c.slots[slot.ID] = slot
	w := begin(toSlot)
	w.u32(uint32(slot.ID))
	w.u64(uint64(len(slot.Mem)))
	c.put(w, fd)
}

func (c *Conn) forget(id int) {
	delete(c.slots, id)
	w := begin(toFree)
	w.u32(uint32(id))
	c.put(w, -1)
}

// Freed says that a slot's memory is not used again.
func (c *Conn) Freed(slot *batch.Slot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.slots[slot.ID] == slot {
		c.forget(slot.ID)
	}
}

// Collate has the worker collate the samples that it made: row i of the batch is that of
// row from[i]. key is that of the first place.
func (c *Conn) Collate(id uint64, from []uint32, key uint64) {
	w := begin(toCollate)
	w.u64(id)
	w.u32(uint32(len(from)))
	for _, row := range from {
		w.u32(row)
	}
	w.u64(key)
	c.say(w)
}

// Fits answers a Need: the batch goes to the slot, from byte at on.
func (c *Conn) Fits(id uint64, slot *batch.Slot, at int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.share(slot)
	w := begin(toFits)
	w.u64(id)
	w.u32(uint32(slot.ID))
	w.u64(uint64(at))
	w.u64(uint64(int64(len(slot.Mem)) - at))
	c.put(w, -1)
}

// Drop says that a whole batch is not wanted any more.
func (c *Conn) Drop(id uint64) {
	w := begin(toDrop)
	w.u64(id)
	c.say(w)
}
