package worker

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/batch"
)

// Descriptors that wait in the queue when a worker ends are closed: each holds the memory of
// a slot.
func TestQueueOfAWorkerThatEnds(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.MemfdCreate("queue-test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	gone := make(chan error, 1)
	conn, err := New(pair[0], 0, func(any) error { return nil }, func(err error) { gone <- err })
	if err != nil {
		t.Fatal(err)
	}
	layout := batch.NewLayout([]batch.Field{{Name: "0", DType: mem.Uint8, Shape: mem.Shape{8}}}, 4)
	for id := range 1000 { // more than the socket holds: the writer waits
		slot := &batch.Slot{ID: id, FD: fd, Mem: make([]byte, 64)}
		conn.Rows(uint64(id), slot, layout, make([]byte, 1000), 0, 0, make([]Task, 1000))
	}
	_ = unix.Close(pair[1])
	<-gone
	held := func() (n int) {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range all {
			if to, err := os.Readlink("/proc/self/fd/" + one.Name()); err == nil && to == "/memfd:queue-test (deleted)" {
				n++
			}
		}
		return n
	}
	for begin := time.Now(); held() > 1; time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > 20*time.Second {
			t.Fatalf("%d descriptors are left", held())
		}
	}
}
