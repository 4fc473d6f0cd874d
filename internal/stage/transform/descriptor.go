package transform

import (
	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// descriptor is all that the engine has to know of one operation: whatever asks
// what an operation is like asks here, and nowhere lists operations by name. Every
// fact is held to what the operation does by TestDescriptors.
type descriptor struct {
	name   string
	params []string // by torchvision's names
	build  func(a *arguments, number uint64) operation

	draws   bool // has a number of its own, below which it draws; see draw.go
	cost    cost
	resizes bool // may give a picture of another size
	settled bool // gives the same bytes, of the same channels, for every key
	reduces bool // is a measurer: its steps need numbers worked out over all pixels
	slides  bool // it draws, and commutes with a Resize after it, up to rounding

	says    says     // how a choice is explained
	numbers []string // what a choice consists of, in snake case; none if it says nothing

	// example is JSON arguments by which it changes a colour picture of 120 x 90
	// pixels, for some keys if it draws: tests run every operation by it.
	example string
}

// cost is what takes an operation's time.
type cost uint8

const (
	moves     cost = iota + 1 // pixels, to other places
	resamples                 // pixels, to new values
	converts                  // the writing of the result: it changes only how numbers come from bytes
	held                      // what it holds
	nothing                   // leaves no trace of itself
)

// says is how the numbers of a choice are explained.
type says uint8

const (
	silent says = iota + 1 // not at all
	facts                  // as true and false
	counts                 // as whole numbers: pixels or channels
	region                 // as counts, of which the first are top, left, height and width of what is kept
)

// operation is one compiled transform.
type operation interface {
	// plan checks the operation against what is known before any picture is
	// seen, moves k past it, and gives the operation to run: nil if there is
	// nothing to do.
	plan(k *known) (operation, *problem)
	// choose is what is done to a picture like at: by what key, the sample's,
	// decides, and by what follows from the size. No number depends on pixels.
	choose(key rng.Key, at extent) (choice, *errs.Error)
	// do adds to r the kernel steps that a choice means, or changes its tone.
	do(r *run, c choice) *errs.Error
	// canon appends the operation to the text that the digest is made of: equal
	// work, equal text. It is part of saved states and may never change.
	canon(b []byte) []byte
}

// measurer is an operation whose steps follow from all the pixels that it is given,
// as contrast follows from their mean. The program is run up to it, measure sees
// the picture (uint8), and do finds the result in run.measured. Numbers may not
// change the size of what do gives, which is asked for before there are pixels.
type measurer interface {
	operation
	measure(p *kernel.Pixels) measured
}

type measured [4]float64

// choice is what one operation does to one picture: plain numbers, by the names of
// its descriptor; a fact is 0 or 1. Others are 0.
type choice [mostNumbers]float64

const mostNumbers = 6

// extent is a picture without its pixels.
type extent struct {
	size
	c int // channels
}

func acted(acts bool) (c choice) {
	if acts {
		c[0] = 1
	}
	return c
}

// regionOf is the choice of a region, of which the margins m are added by the
// operation itself.
func regionOf(b box, m margins) choice {
	return choice{float64(b.y - m.top), float64(b.x - m.left), float64(b.h), float64(b.w)}
}

// region is the box of a choice, in the picture with margins m.
func (c *choice) region(m margins) box {
	return box{int(c[1]) + m.left, int(c[0]) + m.top, int(c[3]), int(c[2])}
}

// known is what compiling knows of the pictures at one point of the program.
type known struct {
	size        // zero: differs from picture to picture
	c    int    // channels
	tone tone   // how the numbers come from the decoded bytes
	wild bool   // tone's numbers depend on a random choice
	by   string // the operation that made them floats
	laid bool   // ToImage or PILToTensor has made a tensor of it
}

func (k *known) sized() bool { return k.w > 0 }

type size struct{ w, h int }

// run is one sample on its way through a program.
type run struct {
	chain    kernel.Chain
	tone     tone
	key      rng.Key
	measured measured // by the operation with number by, the last that did; -1: none has
	by       int
	told     *[]Choice // nil: nobody asks what is chosen
}

// at is the picture as it is now.
func (r *run) at() extent {
	w, h, c := r.chain.Size()
	return extent{size{w, h}, c}
}

func (r *run) crop(b box) { r.chain.Crop(b.x, b.y, b.w, b.h) }

// step is an operation where it is in a program.
type step struct {
	*descriptor
	op   operation
	in   known // what is known in front of it
	span int   // of RandomApply: how many of the steps that follow it holds
}

// through takes r through the steps from number from on, and says how far that
// was: to the end, or, if it is to stop there, in front of an operation that has to
// measure first.
func (p *Program) through(r *run, from int, stop bool) (int, *errs.Error) {
	for i := from; i < len(p.steps); i++ {
		s := &p.steps[i]
		if stop && s.reduces && i != r.by {
			return i, nil
		}
		c, err := s.op.choose(r.key, r.at())
		if err != nil {
			return i, err
		}
		if r.told != nil {
			r.tell(s.descriptor, c)
		}
		if s.span > 0 && c[0] == 0 {
			i += s.span
			continue
		}
		if err := s.op.do(r, c); err != nil {
			return i, err
		}
	}
	return len(p.steps), nil
}
