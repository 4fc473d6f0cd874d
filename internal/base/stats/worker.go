package stats

import "sync/atomic"

// Worker is the times of one lane or reader: what it is doing now, and how long it
// has done what. Busy, blocked and idle add up to all of its time, without a gap.
// One goroutine at a time writes it: the worker, or the one that has the lock under
// which the worker sleeps. A nil Worker counts nothing.
type Worker [workerWords]atomic.Int64

// begin gives a free entry to a new worker.
func (w *Worker) begin(kind int, now int64) *Worker {
	w[wSeq].Add(1)
	for i := wSeq + 1; i < wEnd; i++ {
		w[i].Store(0)
	}
	w[wBegun].Store(now)
	w[wSince].Store(now)
	w[wKind].Store(int64(kind))
	w[wSeq].Add(1)
	return w
}

// Turn ends the worker's state at the time now (Monotonic), and returns which it
// was and how long it lasted.
func (w *Worker) Turn(state int, now int64) (was int, took int64) {
	if w == nil {
		return Idle, 0
	}
	was = int(w[wState].Load())
	took = now - w[wSince].Load()
	w[wSeq].Add(1)
	at := [...]int{Idle: wIdle, Busy: wBusy, Input: wInput, Output: wOutput}[was&3]
	w[at].Store(w[at].Load() + took)
	w[wState].Store(int64(state))
	w[wSince].Store(now)
	w[wSeq].Add(1)
	return was, took
}

// Done counts samples of a loader.
func (w *Worker) Done(loader, items int64) {
	if w != nil {
		w[wItems].Store(w[wItems].Load() + items)
		w[wLoader].Store(loader)
	}
}

// WorkerSnapshot is the times of a worker at one moment; its current state counts
// up to then.
type WorkerSnapshot struct {
	Kind          string  `json:"kind"` // lane, reader
	State         string  `json:"state"`
	Seconds       float64 `json:"s"` // since it began
	BusySeconds   float64 `json:"busy_s"`
	InputSeconds  float64 `json:"blocked_in_s"`
	OutputSeconds float64 `json:"blocked_out_s"`
	IdleSeconds   float64 `json:"idle_s"`
	Items         int64   `json:"items"`
	Loader        int64   `json:"loader"`
}

var (
	workerKinds = [...]string{"free", "lane", "reader"}
	stateNames  = [...]string{"idle", "busy", "blocked on input", "blocked on output"}
)

// worker is the times at now.
func (w row) worker(now int64) WorkerSnapshot {
	s := WorkerSnapshot{Kind: named(workerKinds[:], w.at(wKind)), State: named(stateNames[:], w.at(wState))}
	sums := [...]int64{w.at(wIdle), w.at(wBusy), w.at(wInput), w.at(wOutput)}
	now = max(now, w.at(wSince))
	sums[w.at(wState)&3] += now - w.at(wSince)
	s.Seconds = seconds(now - w.at(wBegun))
	s.IdleSeconds, s.BusySeconds = seconds(sums[Idle]), seconds(sums[Busy])
	s.InputSeconds, s.OutputSeconds = seconds(sums[Input]), seconds(sums[Output])
	s.Items, s.Loader = w.at(wItems), w.at(wLoader)
	return s
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }

// named is the word for a number; a newer writer may have numbers without a word
// here.
func named(words []string, n int64) string {
	if n < 0 || n >= int64(len(words)) {
		return "unknown"
	}
	return words[n]
}
