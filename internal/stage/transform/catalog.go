package transform

import (
	"fmt"
	"math"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// operation is one compiled transform.
type operation interface {
	// plan checks the operation against what is known before any picture is
	// seen, moves k past it, and gives the operation to run: nil if there is
	// nothing to do.
	plan(k *known) (operation, *problem)
	// resolve makes its random choices, tells r of them, and adds its work to
	// r. key is the sample's.
	resolve(r *run, key rng.Key) *errs.Error
	// canon appends the operation to the text that the digest is made of: equal
	// work, equal text. It is part of saved states and may never change.
	canon(b []byte) []byte
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

// run is one sample on its way through the program.
type run struct {
	geometry
	tone tone
	told *[]Choice // nil: nobody asks what is chosen
}

// catalog lists the operations, by torchvision's names. Compose and
// RandomApply hold others and are the compiler's business.
func catalog() []entry {
	return []entry{
		{"CenterCrop", []string{"size"}, buildCenterCrop},
		{"Compose", []string{"transforms"}, nil},
		{"ConvertImageDtype", []string{"dtype"}, buildConvertImageDtype},
		{"Grayscale", []string{"num_output_channels"}, buildGrayscale},
		{"Identity", nil, func(*arguments, uint64) operation { return identity{} }},
		{"Normalize", []string{"mean", "std", "inplace"}, buildNormalize},
		{"PILToTensor", nil, buildLay},
		{"Pad", []string{"padding", "fill", "padding_mode"}, buildPad},
		{"RandomApply", []string{"transforms", "p"}, nil},
		{"RandomCrop", []string{"size", "padding", "pad_if_needed", "fill", "padding_mode"}, buildRandomCrop},
		{"RandomGrayscale", []string{"p"}, buildRandomGrayscale},
		{"RandomHorizontalFlip", []string{"p"}, buildFlip},
		{"RandomResizedCrop", []string{"size", "scale", "ratio", "interpolation", "antialias", "draft"}, buildRandomResizedCrop},
		{"RandomVerticalFlip", []string{"p"}, buildFlip},
		{"Resize", []string{"size", "interpolation", "max_size", "antialias", "draft"}, buildResize},
		{"ToDtype", []string{"dtype", "scale"}, buildToDtype},
		{"ToImage", nil, buildLay},
		{"ToTensor", nil, buildToTensor},
	}
}

type entry struct {
	name  string
	args  []string
	build func(a *arguments, number uint64) operation // number: which of those that draw
}

// draws says which operations have a number of their own for random choices.
func draws(name string) bool {
	switch name {
	case "RandomApply", "RandomCrop", "RandomGrayscale", "RandomHorizontalFlip", "RandomResizedCrop", "RandomVerticalFlip":
		return true
	}
	return false
}

// compiler turns what a Spec writes into operations, and keeps every problem.
type compiler struct {
	problems []problem
	drawn    uint64 // operations that draw, so far
	depth    int    // of Compose and RandomApply
	lost     bool   // an operation could not be read: what is known since is not
}

func (c *compiler) note(place string, problems ...problem) {
	for _, p := range problems {
		p.place = place
		c.problems = append(c.problems, p)
	}
}

// list compiles ops, which stand in (a phrase for errors, empty at the top),
// and moves k past them.
func (c *compiler) list(ops []Op, in string, k *known) []operation {
	var out []operation
	for i, op := range ops {
		place := fmt.Sprintf("transform %d of %d%s (%s)", i+1, len(ops), in, op.Name)
		if compiled := c.one(op, place, k); compiled != nil {
			out = append(out, compiled...)
		}
	}
	return out
}

func (c *compiler) one(op Op, place string, k *known) []operation {
	var found *entry
	for _, e := range catalog() {
		if e.name == op.Name {
			found = &e
		}
	}
	if found == nil {
		c.note(place, *unknownOperation(op.Name))
		c.lost = true
		return nil
	}
	number := c.drawn
	if draws(op.Name) {
		c.drawn++
	}
	a := &arguments{op: op}
	a.checkNames(found.args)
	if found.build == nil {
		return c.nest(a, place, number, k)
	}
	built := found.build(a, number)
	c.note(place, a.problems...)
	if len(a.problems) > 0 {
		c.lost = true
		return nil
	}
	done, p := built.plan(k)
	if p != nil && !c.lost {
		c.note(place, *p)
	}
	if done == nil || p != nil {
		return nil
	}
	return []operation{done}
}

func unknownOperation(name string) *problem {
	var names []string
	for _, e := range catalog() {
		names = append(names, e.name)
	}
	if near := errs.Nearest(name, names); near != "" {
		return problemf(fmt.Sprintf("did you mean %s?", near), "there is no operation %q", name)
	}
	hint := "built are"
	for i, n := range names {
		if i > 0 {
			hint += ","
		}
		hint += " " + n
	}
	return problemf(hint, "the operation %q is not built", name)
}

// mostDepth bounds Compose in Compose.
const mostDepth = 32

// nest compiles Compose, which leaves no trace of itself, and RandomApply.
func (c *compiler) nest(a *arguments, place string, number uint64, k *known) []operation {
	if c.depth == mostDepth {
		c.note(place, *problemf("write them in one list", "transforms in transforms, more than %d deep", mostDepth))
		return nil
	}
	c.depth++
	defer func() { c.depth-- }()
	ops := a.nested()
	p := 1.0
	random := a.op.Name == "RandomApply"
	if random {
		p = a.probability(0.5)
	}
	c.note(place, a.problems...)
	inner := *k
	held := c.list(ops, " in "+place, &inner)
	if !random {
		*k = inner
		return held
	}
	if problem := k.join(inner); problem != nil && !c.lost {
		c.note(place, *problem)
	}
	if len(held) == 0 {
		return nil
	}
	return []operation{&apply{held: held, p: p, number: number}}
}

// mostOps bounds the operations of a program: each gives the kernel at most two
// steps and one pass over the picture, of which it takes 64 and 15.
const mostOps, mostSizeOps = 30, 15

// checkCount notes programs that are too long for the kernel.
func (c *compiler) checkCount(ops []operation) {
	all, sizes := count(ops)
	if all > mostOps || sizes > mostSizeOps {
		c.note("", *problemf("leave some out, or do them once, in files",
			"%d operations, %d of which change the size: the limits are %d and %d", all, sizes, mostOps, mostSizeOps))
	}
}

func count(ops []operation) (all, sizes int) {
	for _, op := range ops {
		switch o := op.(type) {
		case *apply:
			a, s := count(o.held)
			all, sizes = all+a, sizes+s
		case *resize, *randomResizedCrop, *pad, *centerCrop, *randomCrop:
			sizes++
		}
		all++
	}
	return all, sizes
}

// join makes k what is known where the picture may have gone past an operation
// or not.
func (k *known) join(past known) *problem {
	if k.size != past.size {
		k.size = size{}
	}
	k.laid = k.laid || past.laid
	switch {
	case k.c != past.c:
		return problemf("use RandomGrayscale, which keeps the channels, or Grayscale(num_output_channels=3)",
			"the number of channels would be %d or %d at random", k.c, past.c)
	case k.tone.float != past.tone.float:
		return problemf("move it out of RandomApply", "the type of the result would be uint8 or float32 at random")
	}
	k.wild = k.wild || past.wild || k.tone != past.tone
	return nil
}

// apply is RandomApply.
type apply struct {
	held   []operation
	p      float64
	number uint64
}

func (o *apply) plan(*known) (operation, *problem) { return o, nil } // the compiler has

func (o *apply) resolve(r *run, key rng.Key) *errs.Error {
	acts := happens(key, o.number, o.p)
	r.tellActed("RandomApply", "applied", acts)
	if !acts {
		return nil
	}
	for _, held := range o.held {
		if err := held.resolve(r, key); err != nil {
			return err
		}
	}
	return nil
}

func (o *apply) canon(b []byte) []byte {
	b = fmt.Appendf(b, "apply %d %x{", o.number, math.Float64bits(o.p))
	for _, held := range o.held {
		b = append(held.canon(b), ';')
	}
	return append(b, '}')
}

// happens is the choice of an operation that acts with probability p.
func happens(key rng.Key, number uint64, p float64) bool {
	return key.With(number).Float64(0) < p
}

// identity does nothing, and leaves no trace.
type identity struct{}

func (identity) plan(*known) (operation, *problem) { return nil, nil }
func (identity) resolve(*run, rng.Key) *errs.Error { return nil }
func (identity) canon(b []byte) []byte             { return b }
