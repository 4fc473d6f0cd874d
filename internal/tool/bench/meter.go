package bench

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/stoker-data/stoker/internal/base/procfs"
	"github.com/stoker-data/stoker/internal/base/stats"
)

// meter measures this process: processor time from now on, and peak memory. Only one may
// run in a process at a time.
type meter struct {
	cpu  time.Duration
	stop context.CancelFunc
	done chan struct{}
	pss  atomic.Int64 // bytes, the most that was seen
}

// pssEvery is how often memory is read: one reading walks the page tables, which takes
// about 1 ms for 200 MB.
const pssEvery = 200 * time.Millisecond

func startMeter() *meter {
	procfs.ResetPeak()
	ctx, stop := context.WithCancel(context.Background())
	m := &meter{cpu: stats.ProcessCPU(), stop: stop, done: make(chan struct{})}
	go func() {
		defer close(m.done)
		tick := time.NewTicker(pssEvery)
		defer tick.Stop()
		for {
			m.look()
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return m
}

func (m *meter) look() {
	if n := int64(procfs.Pairs("/proc/self", "smaps_rollup")["Pss"]) << 10; n > m.pss.Load() {
		m.pss.Store(n)
	}
}

// used is the processor time since the start.
func (m *meter) used() time.Duration { return stats.ProcessCPU() - m.cpu }

// end stops the readings; peakRSS and peakPSS are in bytes, 0 if the system does not
// say.
func (m *meter) end() (peakRSS, peakPSS int64) {
	m.stop()
	<-m.done
	m.look()
	return procfs.Peak(), m.pss.Load()
}
