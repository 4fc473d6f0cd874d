package source

import (
	"runtime/debug"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A window of some kilobytes out of the page cache costs a system call more than the
// bytes are worth, and a second one to see that the file is still the one that was
// indexed. Runs share the second, and do without the first where they can: a file whose
// reads have not waited for long is mapped, and copied from.
//
// Two things a map may not do. It may not wait, since a goroutine that waits for a page
// keeps its processor; so the first read of every run asks the kernel, and one that is
// not in memory ends the use of the map until reads do not wait again. And it may not end
// the process when the file is cut: the copy is Go's own code (C must never see a map),
// in which a fault is a panic, and that is a read which did not succeed.

const (
	// mapRow is how many reads in a row must have been in memory before a file is mapped.
	mapRow = 512
	// mapBytes is the longest read that is copied from a map; for longer ones the
	// system calls do not matter.
	mapBytes = 64 << 10
)

// Run is reads of one file that are checked against its Info together, at the end:
// nothing that they read counts unless End says so. For one goroutine. It does not pay
// for a single read.
type Run struct {
	f     *File
	d     *descriptor
	want  stamp
	asked bool
}

// Run begins one. It says false for a file that is not watched, or not open yet:
// ReadAt will open it.
func (f *File) Run(obj Info) (Run, bool) {
	if obj.Version == "" {
		return Run{}, false
	}
	d := f.open.get(obj.Name)
	return Run{f: f, d: d, want: stampOf(obj)}, d != nil
}

// Read fills p if the bytes are in memory, and says whether they are.
func (r *Run) Read(p []byte, off int64) bool {
	if off < 0 || off > r.want.size || int64(len(p)) > r.want.size-off {
		return false
	}
	hot := r.d.hot.Load()
	if r.asked && hot >= mapRow && len(p) <= mapBytes {
		if m := r.d.mem.Load(); m != nil && off+int64(len(p)) <= int64(len(*m)) {
			return copyMapped(p, (*m)[off:])
		}
	}
	r.asked = true
	if ok, _ := r.f.pread(r.d.fd, Info{Size: r.want.size}, p, off, hotOnly); !ok {
		r.d.hot.Store(0)
		return false
	}
	if hot < mapRow && r.d.hot.Add(1) == mapRow {
		r.f.open.mapped(r.d, r.want.size)
	}
	return true
}

// End says whether the file was still the one of the Info after the last read.
func (r *Run) End() bool {
	var st unix.Stat_t
	ok := fstat(r.d.fd, &st) == nil && st.Nlink > 0 && compare(&st, "", r.want) == nil
	r.f.open.put(r.d, !ok)
	return ok
}

// mapped maps a file that is in use, once. One that cannot be mapped is read as before.
func (t *descriptors) mapped(d *descriptor, size int64) {
	if size <= 0 || unsafe.Sizeof(uintptr(0)) < 8 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if d.mem.Load() != nil {
		return
	}
	m, err := unix.Mmap(d.fd, 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return
	}
	_ = unix.Madvise(m, unix.MADV_RANDOM)
	d.mem.Store(&m)
}

// copyMapped copies out of a map; false if that cannot be read.
func copyMapped(p, m []byte) (ok bool) {
	before := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(before)
		if !ok {
			_ = recover()
		}
	}()
	copy(p, m)
	return true
}
