// Package deliver carries slots to a client in another process: sealed memfds whose
// descriptors are passed over the socket, a control page through which the client
// gives them back without a system call of the engine, and the socket itself.
// Nothing here has a name in the file system, so the kernel cleans up.
package deliver

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/stage/batch"
)

// spareBytes is how much of the machine's memory an allocation must leave free: a
// memfd has no limit of its own, and the OOM killer would take the trainer.
const spareBytes = 128 << 20

// Arena makes slots of shared memory and owns the control page on which they come
// back. Safe for concurrent use.
type Arena struct {
	PageFD  int // of the control page
	EventFD int // the client writes to it after releasing slots

	page []byte

	mu   sync.Mutex
	used [wire.MaxSlots]bool
	next int
	gone []int // freed slots that the client has mapped
}

// NewArena makes the control page and its eventfd.
func NewArena() (*Arena, error) {
	fd, page, err := memfd("stoker-control", wire.PageBytes)
	if err != nil {
		return nil, err
	}
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("deliver: eventfd: %w", err)
	}
	binary.LittleEndian.PutUint32(page[0:], wire.PageMagic)
	binary.LittleEndian.PutUint32(page[4:], wire.Protocol)
	binary.LittleEndian.PutUint32(page[8:], wire.MaxWork)
	return &Arena{PageFD: fd, EventFD: event, page: page}, nil
}

// Work is the control page's work table.
func (a *Arena) Work() []stats.Work {
	return unsafe.Slice((*stats.Work)(unsafe.Pointer(&a.page[wire.PageWork])), wire.MaxWork)
}

// memfd makes a sealed shared memory of n bytes, with its pages allocated and
// mapped.
func memfd(name string, n int64) (int, []byte, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, nil, fmt.Errorf("deliver: memfd_create: %w", err)
	}
	fail := func(what string, err error) (int, []byte, error) {
		_ = unix.Close(fd)
		return -1, nil, fmt.Errorf("deliver: %s of %d bytes: %w", what, n, err)
	}
	if err := retry(func() error { return unix.Fallocate(fd, 0, 0, n) }); err != nil {
		return fail("fallocate", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return fail("seal", err)
	}
	m, err := unix.Mmap(fd, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return fail("mmap", err)
	}
	return fd, m, nil
}

func retry(f func() error) error {
	for {
		if err := f(); err != unix.EINTR { //nolint:errorlint // a bare errno
			return err
		}
	}
}

// Alloc makes a slot, unless the machine or its cgroup has too little memory left.
func (a *Arena) Alloc(n int64) (*batch.Slot, error) {
	if left := mem.Available(); left < n+spareBytes {
		return nil, errs.New(errs.Memory, "a batch needs %s of shared memory, and this machine or its cgroup has %s left", mem.Size(n), mem.Size(left)).
			Try("lower batch_size or prefetch, or give the container more memory (stoker needs no --shm-size)")
	}
	id, err := a.number()
	if err != nil {
		return nil, err
	}
	fd, m, err := memfd("stoker-batch", n)
	if err != nil {
		a.forget(id)
		return nil, errs.New(errs.Memory, "cannot make shared memory for a batch").Because(err).Try("lower batch_size or prefetch; see `ulimit -n` for descriptors")
	}
	return &batch.Slot{ID: id, Mem: m, FD: fd, Fresh: true}, nil
}

// number returns the free slot number that was used longest ago, so that an old
// message does not name a new slot.
func (a *Arena) number() (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for range wire.MaxSlots {
		id := a.next
		a.next = (a.next + 1) % wire.MaxSlots
		if !a.used[id] {
			a.used[id] = true
			a.flag(id).Store(0)
			return id, nil
		}
	}
	return 0, errs.New(errs.Held, "the training loop holds %d batches, the most that is possible", wire.MaxSlots).Try("release batches")
}

func (a *Arena) forget(id int) {
	a.mu.Lock()
	a.used[id] = false
	a.mu.Unlock()
}

// Free unmaps a slot. Its pages live until the client, which learns of it through
// Gone, has unmapped them too.
func (a *Arena) Free(s *batch.Slot) {
	_ = unix.Munmap(s.Mem)
	_ = unix.Close(s.FD)
	s.Mem, s.FD = nil, -1
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used[s.ID] = false
	if !s.Fresh {
		a.gone = append(a.gone, s.ID)
	}
}

// Gone returns the slots that the client knew of and that were freed since the last
// call. They must reach the client before any later message about a slot.
func (a *Arena) Gone() []int {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := a.gone
	a.gone = nil
	return out
}

// flag is the aligned word of the control page that has the slot's byte.
func (a *Arena) flag(id int) *flag { return (*flag)(unsafe.Pointer(&a.page[wire.PageSlots+id])) }

// flag is one byte that the client sets and the engine clears. Bytes of one page
// are written independently on every machine that we support; exchanging a whole
// word would race with the client's write to a neighbouring byte.
type flag struct{ b byte }

//go:noinline
func (f *flag) Load() byte { return f.b }

//go:noinline
func (f *flag) Store(b byte) { f.b = b }

// Released waits for the client's eventfd and calls back for every leased slot
// whose byte is set; leased lists them. It returns when the arena is closed.
func (a *Arena) Released(leased func(yield func(id int) bool), back func(id int, drop bool)) {
	file := os.NewFile(uintptr(a.EventFD), "eventfd")
	var buf [8]byte
	for {
		if _, err := file.Read(buf[:]); err != nil {
			return
		}
		a.Scan(leased, back)
	}
}

// Scan does one round of Released, without waiting.
func (a *Arena) Scan(leased func(yield func(id int) bool), back func(id int, drop bool)) {
	var fence atomic.Int32 // orders the reads of the page after the read of the eventfd
	fence.Add(1)
	for id := range leased {
		switch f := a.flag(id); f.Load() {
		case wire.SlotFree:
			f.Store(wire.SlotLeased)
			back(id, false)
		case wire.SlotDrop:
			f.Store(wire.SlotLeased)
			back(id, true)
		}
	}
}
