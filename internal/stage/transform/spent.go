package transform

import (
	"slices"
	"time"

	"github.com/stoker-data/stoker/internal/base/kernel"
)

// A program is one job of the kernel, in which rows go through all operations at
// once. Colours, and operations that read the whole picture, have times of their own.
// Of the others only the decoder, the pixels, and the writing of rows can be told apart:
// Divide assigns each to the operations that cause it.

// Timed turns the timing of the lane's pictures on or off.
func (l *Lane) Timed(on bool) { l.timed, l.spent = on, Spent{} }

// Spent is where the time of pictures went: decoding; resampling, cropping and other
// moving of pixels; writing the result as numbers; colours and operations that read the
// whole picture, each by its number in Names.
type Spent struct {
	Decode, Pixels, Write time.Duration
	Own                   [kernel.Owners]time.Duration
}

// Names are the operations of a program as they are written, in order: those that
// do something. The operations in Compose are listed, those in containers are not.
func (p *Program) Names() []string {
	var names []string
	for i := 0; i < len(p.steps); i += 1 + p.steps[i].span() {
		names = append(names, p.steps[i].name)
	}
	return names
}

// Divide is the time of each of a program's operations for the last picture of a
// lane that is Timed, and whether there is one. Resampling gets the cost of moving
// pixels, if there is any, because a flip or a crop beside it only changes the
// order of reading; otherwise the operations that move pixels share it. Conversions
// share the writing. The rest is decoding.
func (p *Program) Divide(l *Lane, into []time.Duration) ([]time.Duration, bool) {
	if !l.timed || p.of != "image" {
		return into[:0], false
	}
	var many [nothing + 1]int
	for i := 0; i < len(p.steps); i += 1 + p.steps[i].span() {
		many[p.cost(i)]++
	}
	pixels := resamples
	if many[resamples] == 0 {
		pixels = moves
	}
	into = into[:0]
	for i := 0; i < len(p.steps); i += 1 + p.steps[i].span() {
		d := l.spent.Own[p.steps[i].owner]
		switch c := p.cost(i); c {
		case pixels:
			d += l.spent.Pixels / time.Duration(many[c])
		case converts:
			d += l.spent.Write / time.Duration(many[c])
		}
		into = append(into, d)
	}
	l.spent = Spent{}
	return into, true
}

// cost is the cost of step i. For a container, it is the one of its steps that gets the
// largest share of what has no time of its own.
func (p *Program) cost(i int) cost {
	in := p.steps[i : i+1+p.steps[i].span()]
	for _, c := range []cost{resamples, moves, converts} {
		if slices.ContainsFunc(in, func(s step) bool { return s.cost == c }) {
			return c
		}
	}
	return p.steps[i].descriptor.cost
}

// own sets the owners of a program's steps.
func own(steps []step) {
	owner := uint8(0) // below mostOps, which is below kernel.Owners
	for i := 0; i < len(steps); owner++ {
		for end := i + 1 + steps[i].span(); i < end; i++ {
			steps[i].owner = owner
		}
	}
}
