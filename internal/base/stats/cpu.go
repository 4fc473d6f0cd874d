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

// Thread is the CPU that a thread had used when its measuring began, and the moment
// after that was asked. What is measured may be as short as asking, which counts in
// the answer; a thread uses no more than goes by from after one question to before
// the next.
type Thread struct{ at, from int64 }

// OnThread locks the goroutine to its thread until Used.
func OnThread() Thread {
	runtime.LockOSThread()
	at := clock(unix.CLOCK_THREAD_CPUTIME_ID)
	return Thread{at, Monotonic()}
}

// Lap is what the thread has used since OnThread, or since the last Lap.
func (t *Thread) Lap() time.Duration {
	went := Monotonic() - t.from
	at := clock(unix.CLOCK_THREAD_CPUTIME_ID)
	used := min(at-t.at, went)
	*t = Thread{at, Monotonic()}
	return time.Duration(used)
}

// Used is Lap; the goroutine may move again.
func (t *Thread) Used() time.Duration {
	d := t.Lap()
	runtime.UnlockOSThread()
	return d
}

// ProcessCPU is the time that all threads of this process have used, in the kernel too.
// It is the sum of what OnThread measures, by the same clock, to the nanosecond;
// getrusage rounds to ticks on some kernels.
func ProcessCPU() time.Duration { return time.Duration(clock(unix.CLOCK_PROCESS_CPUTIME_ID)) }

func clock(id int32) int64 {
	var ts unix.Timespec
	if unix.ClockGettime(id, &ts) != nil {
		return 0
	}
	return ts.Nano()
}
