package stats

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// A goroutine moves between threads, and the kernel counts what threads use, so
// what is measured is locked to its thread meanwhile. Asking the kernel and
// locking take about a microsecond together: samples are measured one in some,
// and scaled by their number.

// Thread is the CPU that a thread had used when its measuring began.
type Thread struct{ at int64 }

// OnThread locks the goroutine to its thread until Used.
func OnThread() Thread {
	runtime.LockOSThread()
	return Thread{clock(unix.CLOCK_THREAD_CPUTIME_ID)}
}

// Lap is what the thread has used since OnThread, or since the last Lap.
func (t *Thread) Lap() time.Duration {
	now := clock(unix.CLOCK_THREAD_CPUTIME_ID)
	d := now - t.at
	t.at = now
	return time.Duration(d)
}

// Used is Lap; the goroutine may move again.
func (t *Thread) Used() time.Duration {
	d := t.Lap()
	runtime.UnlockOSThread()
	return d
}

// ProcessCPU is what the whole process has used, user and system.
func ProcessCPU() time.Duration { return time.Duration(clock(unix.CLOCK_PROCESS_CPUTIME_ID)) }

func clock(id int32) int64 {
	var ts unix.Timespec
	if unix.ClockGettime(id, &ts) != nil {
		return 0
	}
	return ts.Nano()
}
