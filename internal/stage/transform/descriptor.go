package transform

import (
	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// descriptor is everything that the engine knows about one operation: code that
// depends on an operation asks here, and no other place lists operations by name.
// TestDescriptors checks every fact against what the operation does.
type descriptor struct {
	name   string
	params []string // by torchvision's names
	build  func(a *arguments, number uint64) operation
	hold   func(c *compiler, a *arguments, number uint64, ops []Op) container // for containers
	each   bool                                                               // a container with one part for each operation in it, not one for all
	one    bool                                                               // a container that does one of its parts

	draws   bool // has a number of its own, under which it draws; see draw.go
	cost    cost
	resizes bool // may give a picture of another size
	settled bool // gives the same bytes and channels for every key
	erases  bool // given floats, it changes them in the result: no pixel may move after it
	slides  bool // draws, and commutes with a Resize after it, up to rounding
	frames  bool // only crops, pads, resamples and mirrors; see Head
	kernels int  // steps of the kernel that it adds, at most; 0: 2, or for a policy 2 for each that it does

	says    says     // how a choice is explained
	numbers []string // names of a choice's numbers, in snake case; none if it has none

	// example is JSON arguments that change a colour picture of 120 x 90 pixels,
	// for some keys if the operation draws. Tests run every operation with its
	// example.
	example string
}

// cost is where an operation's time goes.
type cost uint8

const (
	moves     cost = iota + 1 // pixels, to other places
	resamples                 // pixels, to new values
	colours                   // gives pixels new values, where they are
	converts                  // the writing of the result: it only changes how numbers are made from bytes
	held                      // the operations in it
	nothing                   // leaves no trace in the program
)

// says is how the numbers of a choice are explained.
type says uint8

const (
	silent     says = iota + 1 // not at all
	facts                      // as true and false
	counts                     // as whole numbers: pixels, channels, orders or parts
	amounts                    // as numbers
	order                      // as a list: the numbers are those of permutation, and have one name
	operations                 // as lists: the operations of a policy and their magnitudes
	mixture                    // as the weights of chains of operations, and their lists
	region                     // as counts, of which the first are top, left, height and width of what is kept
)

// operation is one compiled transform.
type operation interface {
	// plan checks the operation against what is known before any picture is read,
	// moves k past it, and returns the operation to run; nil if there is nothing to
	// do.
	plan(k *known) (operation, *problem)
	// choose returns what is done to a picture like at: what the sample's key
	// decides, and what follows from the size. No number depends on pixels.
	choose(key rng.Key, at extent) (choice, *errs.Error)
	// do adds the kernel steps of a choice to r, or changes its tone.
	do(r *run, c choice) *errs.Error
	// canon appends the operation to the text that the digest is computed from:
	// equal work, equal text. It is part of saved states and may never change.
	canon(b []byte) []byte
}

// policy is an operation that does others: adds is the most of them. It may choose any
// number of numbers, which list appends to its argument; its choice has none.
type policy interface {
	operation
	adds() int
	list(key rng.Key, at extent, to list) list
}

// choice is what one operation does to one picture: plain numbers, named by its
// descriptor. A fact is 0 or 1; unused numbers are 0. It is copied for each picture and
// operation, so it is small.
type choice [mostNumbers]float64

const mostNumbers = 8

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

// regionOf is the choice of a region. The operation itself adds the margins m.
func regionOf(b box, m margins) choice {
	return choice{float64(b.y - m.top), float64(b.x - m.left), float64(b.h), float64(b.w)}
}

// region is the box of a choice, in the picture with margins m.
func (c *choice) region(m margins) box {
	return box{int(c[1]) + m.left, int(c[0]) + m.top, int(c[3]), int(c[2])}
}

// known is what the compiler knows about the pictures at one point of the program.
type known struct {
	size          // zero: differs from picture to picture
	c      int    // channels
	tone   tone   // how the numbers are made from the decoded bytes
	wild   bool   // tone's numbers depend on a random choice
	by     string // the operation that made them floats
	erased bool   // floats were erased: pixels can no longer move
	laid   bool   // ToImage or PILToTensor has made a tensor of it
}

func (k *known) sized() bool { return k.w > 0 }

type size struct{ w, h int }

// run is the state of one sample in a program.
type run struct {
	chain  kernel.Chain
	tone   tone
	key    rng.Key
	told   *[]Choice       // nil: choices are not recorded
	away   int             // if they are: the first step that is left to the client's device
	way    []int           // the numbers of the steps that it takes, in order
	turns  []int           // of the containers that follow is in
	list   list            // what the policy that is being done has chosen
	erased []erasure       // floats
	into   []kernel.Erased // memory for what the kernel is told of them
	exacts exacts
}

// at is the picture as it is now.
func (r *run) at() extent {
	w, h, c := r.chain.Size()
	return extent{size{w, h}, c}
}

func (r *run) crop(b box) { r.chain.Crop(b.x, b.y, b.w, b.h) }

// step is an operation at its position in a program.
type step struct {
	*descriptor
	op    operation
	in    known // what is known before it
	holds []int // for a container: how many of the following steps are in each part
	owner uint8 // what its time counts for: its number, or that of what it is in, in Names
}

// through takes r along its way.
func (p *Program) through(r *run) *errs.Error {
	for _, number := range r.way {
		s := &p.steps[number]
		c, err := s.op.choose(r.key, r.at())
		if err != nil {
			return err
		}
		if o, ok := s.op.(policy); ok {
			r.list = o.list(r.key, r.at(), r.list[:0])
		}
		if r.told != nil {
			r.tell(s.descriptor, c)
			if n := len(*r.told); number >= r.away && n > 0 && (*r.told)[n-1].Op == s.name {
				said := &(*r.told)[n-1]
				said.Values = append(said.Values, Value{"device", true})
			}
		}
		r.chain.Owner = s.owner
		if err := s.op.do(r, c); err != nil {
			return err
		}
	}
	return nil
}
