package watch

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/doctor/gather"
	"github.com/stoker-data/stoker/internal/tool/doctor/judge"
	"github.com/stoker-data/stoker/internal/tool/doctor/system"
)

// Beside is a process that runs a loop for us, and has asked to be watched:
// stoker.doctor in Python. It is told where the hook is, so that it can load it
// into itself, and says when the loop is over and what else it timed.
type Beside struct {
	PID     int
	In      io.Reader // lines of it, a JSON object each: first one when the loop is over, then an Aside
	Out     io.Writer // one line to it: {"hook": folder, "lines": folder}
	Version string
}

// Aside is what the process timed itself.
type Aside struct {
	Name      string  `json:"name"`      // of the loader
	Step      bool    `json:"step"`      // the loop had one
	Loop      Counted `json:"loop"`      // with the loader
	Synthetic Counted `json:"synthetic"` // with batches that cost nothing
}

// Counted is how long some batches took.
type Counted struct {
	Batches float64 `json:"batches"`
	Samples float64 `json:"samples"`
	Seconds float64 `json:"seconds"`
}

// often is how often the process is looked at, and patient how long after the
// end of its loop a probe of the storage may take.
const (
	often   = 250 * time.Millisecond
	patient = 3 * time.Second
)

// Watch looks at the process until its loop is over, and says what limited it.
func (b Beside) Watch(ctx context.Context) (judge.Report, error) {
	h, err := newHooked()
	if err != nil {
		return judge.Report{}, err
	}
	defer h.remove()
	w := &watching{Script: Script{Version: b.Version}, pages: gather.NewPages(), folder: gather.NewFolder(h.lines), watched: system.NewWatched("/"), machine: system.Look(ctx), began: system.Now()}
	defer w.pages.Close()
	if err := json.NewEncoder(b.Out).Encode(map[string]string{"hook": h.code, "lines": h.lines}); err != nil {
		return judge.Report{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	heard := b.listen(ctx)
	if _, err := w.until(ctx, b.PID, heard); err != nil {
		return judge.Report{}, err
	}
	for late := time.Now().Add(patient); !w.beside(b.PID) && time.Now().Before(late); {
		select {
		case <-time.After(often):
		case <-ctx.Done():
		}
	}
	ev := w.evidence()
	line, err := w.next(ctx, heard)
	if err != nil {
		return judge.Report{}, err
	}
	var a Aside
	if err := json.Unmarshal(line, &a); err != nil {
		return judge.Report{}, errs.New(errs.Config, "the process at standard input says what is not JSON").Because(err).Try("stoker.doctor in Python speaks this; --attach PID is for people")
	}
	ev.Subject = evidence.Subject{Kind: evidence.OfLoader, PID: b.PID, Command: []string{a.Name}}
	a.add(&ev)
	return judge.Judge(ev), nil
}

// listen passes on lines as they come, and closes at the end of input.
func (b Beside) listen(ctx context.Context) <-chan []byte {
	heard := make(chan []byte)
	go func() {
		defer close(heard)
		sc := bufio.NewScanner(b.In)
		for sc.Scan() {
			select {
			case heard <- append([]byte(nil), sc.Bytes()...):
			case <-ctx.Done():
				return
			}
		}
	}()
	return heard
}

// until looks at the process again and again, until it says something.
func (w *watching) until(ctx context.Context, pid int, heard <-chan []byte) ([]byte, error) {
	ticks := time.NewTicker(often)
	defer ticks.Stop()
	for {
		select {
		case line, open := <-heard:
			return line, left(open)
		case <-ticks.C:
			w.beside(pid)
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), context.Canceled)
		}
	}
}

// next is the next line.
func (w *watching) next(ctx context.Context, heard <-chan []byte) ([]byte, error) {
	select {
	case line, open := <-heard:
		return line, left(open)
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), context.Canceled)
	}
}

// left is the error of a process that ended without a word, as one does whose step
// has failed: nobody waits for a report then.
func left(open bool) error {
	if open {
		return nil
	}
	return errors.Join(io.ErrUnexpectedEOF, context.Canceled)
}

// beside looks once, and says whether the storage is known as well as it is needed.
func (w *watching) beside(pid int) bool {
	t := system.Now()
	_, _ = w.folder.Poll()
	w.watched.Look(pid, t)
	w.pages.Look(w.pids(), true)
	if first, came := w.firstBatch(); !came || t-first < soon/2 {
		return true
	}
	w.storage.Watch(w.watched.Root, w.folder.Pids(), w.folder.Readers())
	return w.storage.Settled(judge.Measure(w.evidence()).Reads)
}

// add makes the Evidence say what there is to gain at all.
func (a Aside) add(ev *evidence.Evidence) {
	if a.Step {
		ev.Subject.Step = evidence.Ratio(a.Synthetic.Seconds, a.Synthetic.Batches, evidence.FromLoop)
	}
	ev.Tiers = []evidence.Tier{a.Synthetic.tier(evidence.OutOfNothing), a.Loop.tier(evidence.TheDataset)}
}

func (c Counted) tier(name string) evidence.Tier {
	t := evidence.Tier{Of: evidence.OfGain, Name: name, Rate: evidence.Ratio(c.Samples, c.Seconds, evidence.FromLoop), Batch: evidence.Ratio(c.Seconds, c.Batches, evidence.FromLoop)}
	if !t.Rate.Known() {
		t.Cut = "fewer than three batches came"
	}
	return t
}
