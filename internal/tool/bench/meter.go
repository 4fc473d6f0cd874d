package bench

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stoker-data/stoker/internal/base/stats"
)

// meter counts what this process takes: processor time from now on, and the
// most memory. One at a time runs in a process.
type meter struct {
	cpu  time.Duration
	stop context.CancelFunc
	done chan struct{}
	pss  atomic.Int64 // bytes, the most that was seen
}

// pssEvery is how often memory is looked at: a look walks the page tables, about
// 1 ms for 200 MB.
const pssEvery = 200 * time.Millisecond

func startMeter() *meter {
	// 5 resets the high-water mark of resident memory; where that is not allowed,
	// the mark includes what came before.
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
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
	if n := kilobytes("/proc/self/smaps_rollup", "Pss:"); n > m.pss.Load() {
		m.pss.Store(n)
	}
}

// used is the processor time since the start.
func (m *meter) used() time.Duration { return stats.ProcessCPU() - m.cpu }

// end stops the looking; peakRSS and peakPSS are bytes, 0 where the system does
// not say.
func (m *meter) end() (peakRSS, peakPSS int64) {
	m.stop()
	<-m.done
	m.look()
	return kilobytes("/proc/self/status", "VmHWM:"), m.pss.Load()
}

// kilobytes is the number on the line of a /proc file that begins with name, in
// bytes; 0 if there is none.
func kilobytes(file, name string) int64 {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for sc := bufio.NewScanner(bytes.NewReader(b)); sc.Scan(); {
		if rest, ok := strings.CutPrefix(sc.Text(), name); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
			return n << 10
		}
	}
	return 0
}
