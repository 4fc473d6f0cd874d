package stats

import "sync/atomic"

// Worker is the books of one lane or reader: what it does now, and for how long
// it has done what. Busy, blocked and idle together are all of its time, without
// a gap. One goroutine at a time writes it: the worker, or whoever holds the lock
// under which the worker sleeps. Nil counts nothing.
type Worker [workerWords]atomic.Int64

// begin makes a free entry that of a new worker.
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

// Turn ends the state that the worker was in, at the moment now (Monotonic), and
// says which that was and how long it has lasted.
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

// WorkerSnapshot is a worker's books at one moment; the state that it is in
// counts up to then.
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

// snapshot is the books at the moment now.
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

// named is the word for a number; a newer writer may have one that has none here.
func named(words []string, n int64) string {
	if n < 0 || n >= int64(len(words)) {
		return "unknown"
	}
	return words[n]
}
