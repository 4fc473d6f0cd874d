package loop

import (
	"cmp"
	"slices"

	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
)

// What a sample's time is spent on: computing, being held up, and neither.

// bit is one stage's part of a sample, before bits are put into groups.
type bit struct {
	part
	doubt int // how far what holds it up may be no more than a core that came late
}

// The doubts: who computes is held up by nothing; code and decoders may read; a
// call that reads or sleeps is held up for sure.
const (
	surely = iota
	maybeRead
	computes
)

// split divides a sample's time into what it was spent on. Time that a worker
// was ready to run and had no core is nobody's: with more cores it goes away.
func (v *View) split() {
	c, queue := v.Loop.Cost, v.Queue()
	var bits []bit
	wall, cpu := 0.0, 0.0
	for _, s := range c.Stages { // costliest first, so that a group has the name of its costliest
		own := 0.0
		if s.CPU.Known() {
			own = min(s.Wall.Value, s.CPU.Value)
		}
		wall, cpu = wall+s.Wall.Value, cpu+own
		held := max(0, s.Wall.Value-own-Late(own, queue))
		add := func(kind, name string, cpu, blocked float64, doubt int) {
			bits = append(bits, bit{part{kind, name, cpu, blocked}, doubt})
		}
		switch {
		case s.Kind == evidence.Decode && held > 0: // decoders read, too
			add(evidence.Read, s.Name, 0, held, maybeRead)
			add(evidence.Decode, s.Name, own, 0, surely)
		case s.Kind == evidence.Python && s.Name != evidence.Sleeping && c.Reading.Value > 0.5: // f.read(), a mapped file
			add(evidence.Read, "read", 0, held, maybeRead)
			add(evidence.Python, s.Name, own, 0, surely)
		case s.Kind == evidence.Read || s.Kind == evidence.Lock || s.Name == evidence.Sleeping:
			add(s.Kind, s.Name, own, held, surely)
		case s.Kind == evidence.Python:
			add(s.Kind, s.Name, own, held, maybeRead)
		default:
			add(s.Kind, s.Name, own, held, computes)
		}
	}
	relieve(bits, max(0, wall-cpu-Late(cpu, queue))) // a stage that was lucky leaves its share of the waiting to others
	if !v.Alone() && c.Held.Known() && c.Faults.Value <= 0.1 {
		// Others use the cores. What looks like waiting, and was not seen as such by the
		// kernel, is a core that comes late because others had its caches, or a host
		// that has given it away.
		relieve(bits, c.Held.Value*c.Batch.Value/v.Batch)
	}
	v.group(bits)
}

// relieve leaves no more than most seconds of being held up, and takes first from
// those that are likelier to have waited for a core.
func relieve(bits []bit, most float64) {
	for doubt := computes; doubt >= surely; doubt-- {
		all, these := 0.0, 0.0
		for _, p := range bits {
			all += p.Blocked
			if p.doubt == doubt {
				these += p.Blocked
			}
		}
		if all <= most || these == 0 {
			continue
		}
		by := max(0, 1-(all-most)/these)
		for i := range bits {
			if bits[i].doubt == doubt {
				bits[i].Blocked *= by
			}
		}
	}
}

func (v *View) group(bits []bit) {
	groups := map[string]*part{}
	for _, p := range bits {
		g := groups[p.Kind]
		if g == nil {
			g = &part{Kind: p.Kind, Name: p.Name}
			groups[p.Kind] = g
		}
		g.CPU, g.Blocked = g.CPU+p.CPU, g.Blocked+p.Blocked
	}
	for _, g := range groups {
		v.Parts = append(v.Parts, *g)
	}
	slices.SortFunc(v.Parts, func(a, b part) int {
		return cmp.Or(cmp.Compare(b.Seconds(), a.Seconds()), cmp.Compare(a.Kind, b.Kind))
	})
}

// Late is how many seconds a thread that computes for cpu seconds waits for a core, if
// queue is the share of waiting in the time in which it could run.
func Late(cpu, queue float64) float64 { return cpu * queue / (1 - min(queue, 0.98)) }

// Queue is the share of the time in which who makes batches could run, and had no
// core. Without workers that is the trainer.
func (v *View) Queue() float64 {
	if c := v.Loop.Cost; c.Queue.Known() || v.Loop.Settings.Workers > 0 {
		return c.Queue.Value
	}
	return v.Loop.TrainerQueue.Value
}
