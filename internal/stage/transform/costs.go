package transform

import "time"

// A program is one job of the kernel, in which rows go through all operations at
// once, so that none of them has a time of its own. What can be told apart is the
// decoder, the pixels, and the writing of rows: Divide gives each to the
// operations that cause it.

// Timed says whether the lane takes the times of the pictures that it finishes.
func (l *Lane) Timed(on bool) { l.timed, l.spent = on, Spent{} }

// Spent is where the time of pictures went: decoding; resampling, cropping and
// whatever else moves pixels; writing the result as numbers.
type Spent struct{ Decode, Pixels, Write time.Duration }

// Names are the operations of a program as they are written, in order: those that
// do something. What Compose holds stands there by itself, what RandomApply holds
// is RandomApply.
func (p *Program) Names() []string {
	names := make([]string, len(p.ops))
	for i, op := range p.ops {
		names[i], _ = cost(op)
	}
	return names
}

// Divide is the time of each of a program's operations for the picture finished
// last on a lane that is Timed, and whether there is one. Resampling takes what
// moving pixels cost where it is done, since a flip or a crop beside it is only
// another order of reading; else those that move pixels share it. Conversions share
// the writing. The rest is decoding.
func (p *Program) Divide(l *Lane, into []time.Duration) ([]time.Duration, bool) {
	if !l.timed || p.kind != "image" {
		return into[:0], false
	}
	var many [classes]int
	for _, op := range p.ops {
		_, class := cost(op)
		many[class]++
	}
	pixels := resamples
	if many[resamples] == 0 {
		pixels = moves
	}
	into = into[:0]
	for _, op := range p.ops {
		var d time.Duration
		switch _, class := cost(op); class {
		case pixels:
			d = l.spent.Pixels / time.Duration(many[class])
		case converts:
			d = l.spent.Write / time.Duration(many[class])
		}
		into = append(into, d)
	}
	l.spent = Spent{}
	return into, true
}

// The classes of operations.
const (
	moves = iota
	resamples
	converts
	classes
)

// cost is an operation's name, and what it costs.
func cost(op operation) (name string, class int) {
	switch o := op.(type) {
	case *randomResizedCrop:
		return "RandomResizedCrop", resamples
	case *resize:
		return "Resize", resamples
	case *convert:
		return o.name, converts
	case *normalize:
		return "Normalize", converts
	case *flip:
		return o.name, moves
	case *gray:
		return o.name, moves
	case *pad:
		return "Pad", moves
	case *centerCrop:
		return "CenterCrop", moves
	case *randomCrop:
		return "RandomCrop", moves
	case *apply:
		_, class = cost(o.held[0])
		return "RandomApply", class
	}
	return "Identity", moves
}
