package facts

import (
	"errors"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What is read ahead is in memory before anybody looks for it: one fact, and all of them.
func TestAhead(t *testing.T) {
	dir := t.TempDir()
	s := openWith(t, disk{dir: dir}, Options{Limit: 1 << 30}, usual)
	const facts, each = 1 << 10, 96 << 10 // the file is longer than what a kernel reads at a time
	if err := s.Add(ctx, func(yield func(Key, []byte) bool) {
		for i := 0; i < facts && yield(key(i), make([]byte, each)); i++ {
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.Merge(ctx); err != nil {
		t.Fatal(err)
	}
	s.close()
	all := names(t, dir, sealedExt)
	if len(all) != 1 {
		t.Fatalf("%q after a merge", all)
	}
	f, err := os.Open(all[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	// cold drops the file's pages; nobody has it mapped.
	cold := func() {
		t.Helper()
		if err := errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)); err != nil {
			t.Fatal(err)
		}
		if n := resident(t, f, fi.Size()); n > fi.Size()/2 {
			t.Skipf("this file system keeps what it is told to drop: %d of %d bytes", n, fi.Size())
		}
	}

	cold()
	s = openWith(t, disk{dir: dir}, Options{Limit: 1 << 30}, usual)
	before := resident(t, f, fi.Size())
	for i := 0; i < facts; i += facts / 8 {
		s.Ahead(key(i))
	}
	if now := resident(t, f, fi.Size()); now < before+4*each || before > fi.Size()/2 {
		t.Errorf("of %d bytes %d are in memory at opening, and %d after 8 facts were read ahead", fi.Size(), before, now)
	}
	s.close()

	cold()
	s = openWith(t, disk{dir: dir}, Options{Limit: 1 << 30}, usual)
	s.AheadAll()
	eventually(t, "all are in memory", func() bool { return resident(t, f, fi.Size()) == fi.Size() })
	s.close()
	s.AheadAll() // of a closed store
}

// resident is how many bytes of a file are in the page cache.
func resident(t *testing.T, f *os.File, size int64) (n int64) {
	t.Helper()
	data, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(data) }()
	page := int64(os.Getpagesize())
	in := make([]byte, (size+page-1)/page)
	if _, _, err := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&data[0])), uintptr(size), uintptr(unsafe.Pointer(&in[0]))); err != 0 {
		t.Skip("this kernel does not tell: ", err)
	}
	for i, b := range in {
		if b&1 != 0 {
			n += min(page, size-int64(i)*page)
		}
	}
	return n
}
