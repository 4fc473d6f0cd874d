package stats

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// A goroutine moves between threads, and the kernel counts CPU per thread, so a
// goroutine is locked to its thread while it is measured. Asking the kernel and
// locking take about a microsecond together: only some samples are measured, and
// scaled by their number.

// Thread is the CPU time that a thread had used when its measurement began, and the
// time just after. What is measured may be as short as the system call, which
// counts in the result; so the result is limited to the time that went by from
// after the first call to before the second.
type Thread struct{ at, from int64 }

// OnThread locks the goroutine to its thread until Used.
func OnThread() Thread {
	runtime.LockOSThread()
	at := clock(unix.CLOCK_THREAD_CPUTIME_ID)
	return Thread{at, Monotonic()}
}

// Lap returns what the thread has used since OnThread, or since the last Lap.
func (t *Thread) Lap() time.Duration {
	went := Monotonic() - t.from
	at := clock(unix.CLOCK_THREAD_CPUTIME_ID)
	used := min(at-t.at, went)
	*t = Thread{at, Monotonic()}
	return time.Duration(used)
}

// Used is Lap, and unlocks the goroutine from its thread.
func (t *Thread) Used() time.Duration {
	d := t.Lap()
	runtime.UnlockOSThread()
	return d
}

// ProcessCPU is the CPU time of all threads of this process, including the
// kernel's. It is the sum of what OnThread measures, by the same clock, to the
// nanosecond; getrusage rounds to ticks on some kernels.
func ProcessCPU() time.Duration { return time.Duration(clock(unix.CLOCK_PROCESS_CPUTIME_ID)) }

func clock(id int32) int64 {
	var ts unix.Timespec
	if unix.ClockGettime(id, &ts) != nil {
		return 0
	}
	return ts.Nano()
}

// CPUOf is the CPU time that another process has used since it began, with all its
// threads; 0: there is none with this PID, or pid is not positive.
func CPUOf(pid int) time.Duration {
	if pid <= 0 {
		return 0
	}
	return time.Duration(clock(int32(^pid<<3 | 2))) // the kernel's number of a process's clock: CPUCLOCK_SCHED
}
