package fetch

import "time"

// crowd decides how many readers local storage gets: a disk, or a network file system that
// the kernel mounts. While chunks wait in the queue and reads wait for the device, it tries
// more readers, and keeps them if throughput rises; now and then it tries fewer, and keeps
// the smaller number if throughput does not fall. Reads from the page cache are not counted,
// so they never change the number. Fetcher.mu guards it.
//
// A model of the device (its queue depth, its seek time) would need no trials, but no model
// fits disks, flash, RAID, NFS and FUSE alike.
type crowd struct {
	size int // readers allowed now
	most int

	begin   int64 // of the window: stats.Monotonic; 0: none has begun
	reads   int64
	work    int64 // bytes read in it, and what each read counts besides
	lacking int64 // reads of the window after which no chunk was waiting
	last    int64 // when the last read ended
	idle    bool  // no chunk was waiting then

	tried  int     // size before the trial that is on; 0: none is
	before float64 // work per second, then
	rest   int     // windows until the next trial
	down   bool    // that will be one of fewer readers
	slips  int     // windows in a row in which the trial has not paid
}

const (
	crowdLeast  = 4
	crowdMost   = 256
	crowdWindow = int64(50 * time.Millisecond) // at least, and crowdReads reads of each reader
	crowdReads  = 3
	crowdRest   = 40 // windows between trials
	// readWork is what a read counts besides its bytes: it takes a device so much time.
	readWork = 16 << 10
)

func (w *crowd) init(readers, most int) {
	w.most = crowdMost
	if most > 0 {
		w.most = most
	}
	w.size = min(readers, w.most)
}

// add counts a read that waited, after which chunks were waiting, or none. It reports
// whether size has changed.
func (w *crowd) add(now, bytes int64, backlog bool) (changed bool) {
	pause := w.idle && now-w.last > crowdWindow/2
	w.last, w.idle = now, !backlog
	if w.begin == 0 || pause {
		w.begin, w.reads, w.work, w.lacking = now, 0, 0, 0
		return false
	}
	w.reads++
	w.work += bytes + readWork
	if !backlog {
		w.lacking++
	}
	took := now - w.begin
	if took < crowdWindow || w.reads < int64(crowdReads*w.size) {
		return false
	}
	rate, lacking := float64(w.work)/float64(took), w.lacking > w.reads/4
	w.begin, w.reads, w.work, w.lacking = now, 0, 0, 0
	if lacking {
		return false // the readers were not what it was waiting for
	}
	size := w.size
	w.judge(rate)
	return w.size != size
}

// judge ends or begins a trial after a window with so much work per second.
func (w *crowd) judge(rate float64) {
	switch {
	case w.tried > w.size: // of fewer
		if rate < 0.95*w.before {
			w.size, w.down = w.tried, false
		} else {
			w.down = w.size > crowdLeast
		}
		w.tried, w.rest = 0, crowdRest
	case w.tried > 0: // of more
		pays := 0.75 + float64(w.size)/float64(4*w.tried) // a quarter of the growth
		if rate < pays*w.before {
			if w.slips++; w.slips < 2 { // a window may have had a pause of others
				return
			}
			w.size, w.tried, w.rest, w.down = w.tried, 0, crowdRest, true
			return
		}
		w.tried = 0
		w.more(rate)
	case w.rest > 0:
		w.rest--
	case w.down:
		if w.size > crowdLeast {
			w.tried, w.before = w.size, rate
			w.size = max(crowdLeast, w.size*2/3)
		}
		w.down = false
	default:
		w.more(rate)
	}
}

// more begins a trial of more readers, if there may be more.
func (w *crowd) more(rate float64) {
	w.slips = 0
	n := min(w.most, w.size+(w.size+1)/2)
	if n == w.size {
		w.rest, w.down = crowdRest, true
		return
	}
	w.tried, w.before, w.size = w.size, rate, n
}
