// Package transform compiles what is done to one field into a program, and runs it:
// randomness by key, geometry computed for each sample, decoding and pixels fused
// into one kernel job.
//
// Names, arguments, defaults and random distributions are those of torchvision v2,
// and so are the results: uint8 within 1 of its antialiased result on the same
// region, float32 within 1e-6 of what those bytes give, float16 and bfloat16 equal to
// it. "nearest" and "nearest-exact" are its own for tensors. Operations that would give
// other numbers are rejected by Compile, with what to write instead.
//
//	program, err := transform.Compile("rgb", ops, "")  // once per field
//	lane := transform.NewLane()                         // once per goroutine
//	shape, err := program.Begin(lane, encoded, key)     // what the sample will need
//	err = program.Finish(lane, place)                   // decoded to where it stays
//
// An operation is described once, by the descriptor beside its code; catalog.go
// lists them. For each picture it chooses plain numbers, from the key and the size
// alone; these give the kernel steps and the explanation. Programs of pictures can
// be cut before any operation (Cut). Fields that are not pictures have other kinds
// of programs: a number, a text, an array whose shape is stored beside the values
// or in each of them (Described).
//
// Mix is for whole batches: it chooses, and others mix the rows.
package transform

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// kind is how the values of a field become rows.
type kind interface {
	// begin is Begin for a value without its header. The lane may own the shape.
	begin(p *Program, l *Lane, value []byte, key rng.Key) (mem.Shape, *errs.Error)
	// finish is Finish: dst has size bytes.
	finish(p *Program, l *Lane, dst []byte) *errs.Error
	// size is the size in bytes of the result of what was begun last.
	size(p *Program, l *Lane) int
}

// codec is a way of reading encoded bytes, by its name in a Spec.
type codec struct {
	name  string
	of    string // Program.Kind
	dtype mem.DType
	kind  kind
}

func codecs() []codec {
	return []codec{
		{"rgb", "image", mem.Uint8, &picture{}},
		{"gray", "image", mem.Uint8, &picture{gray: true}},
		{"bytes", "bytes", mem.Object, blob{}},
		{"text", "text", mem.Object, blob{validText}},
		{"int", "number", mem.Int64, number{readInt}},
		{"float", "number", mem.Float64, number{readFloat}},
		{"json", "json", mem.Object, blob{validJSON}},
	}
}

// Program is the compiled work of one field. It is immutable: any number of
// lanes may run it.
type Program struct {
	codec  string // "" if the values are arrays
	of     string
	kind   kind
	says   *Described // nil unless values have their own type and shape
	from   mem.DType  // for numbers and arrays: the stored type
	dtype  mem.DType
	digest string

	// For pictures.
	steps     []step
	at        known // what is known about every result
	chw       bool  // floats are in planes
	shown     string
	undone    bool  // bytes are delivered, whatever the tone: see Cut
	maxPixels int64 // of a picture; 0: kernel.MaxPixels
	rest      *rest // operations that are left to others; nil: none. See Leave
}

// Compile makes the program of a field: its codec (rgb, gray, bytes, text, int,
// float, json), the operations on its pictures, in order, and the layout for the
// user, "nchw" (also ""), or "nhwc". An error names every problem.
func Compile(codecName string, ops []Op, layout string) (*Program, error) {
	c := &compiler{catalog: catalog()}
	p := &Program{}
	p.setCodec(c, codecName)
	if layout != "" && layout != "nchw" && layout != "nhwc" {
		c.note("", *problemf("the choices are nchw and nhwc", "unknown layout %q", layout))
	}
	if p.of != "image" && p.of != "" && len(ops) > 0 {
		c.note("", *problemf("leave the transforms of this field out, or decode it as rgb or gray",
			"transforms need pictures, but the codec of this field is %s", codecName))
	}
	p.at = known{c: 3, tone: plain()}
	if codecName == "gray" {
		p.at.c = 1
	}
	p.steps = c.list(ops, "", &p.at)
	own(p.steps)
	c.checkCount(p.steps)
	if err := report(c.problems); err != nil {
		return nil, err
	}
	if p.of == "image" {
		p.arrange(layout)
	}
	p.digest = p.fingerprint()
	return p, nil
}

func (p *Program) setCodec(c *compiler, name string) {
	all := codecs()
	i := slices.IndexFunc(all, func(known codec) bool { return known.name == name })
	if i >= 0 {
		p.codec, p.of, p.kind, p.dtype = name, all[i].of, all[i].kind, all[i].dtype
		p.from = p.dtype
		return
	}
	var names []string
	for _, known := range all {
		names = append(names, known.name)
	}
	names = append(names, "array", "npy") // by CompileField
	hint := "the choices are " + strings.Join(names, ", ")
	if near := errs.Nearest(name, names); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	c.note("", *problemf(hint, "unknown codec %q", name))
}

// arrange decides the layout of pictures: bytes as HWC, as they are decoded, floats as
// the user wants them.
func (p *Program) arrange(layout string) {
	p.shown = "chw"
	if layout == "nhwc" {
		p.shown = "hwc"
	}
	if p.at.tone.float {
		p.dtype = p.at.tone.dtype()
		p.chw = p.shown == "chw"
	}
}

func (p *Program) fingerprint() string {
	stored, shown := p.Axes()
	b := fmt.Appendf(nil, "stoker transform 1\n%s %s %s\n", p.codec, stored, shown)
	if pic, ok := p.kind.(*picture); ok && pic.stored != (size{}) {
		b = fmt.Appendf(b, "pixels %d %d\n", pic.stored.w, pic.stored.h)
	}
	return digest(canon(b, p.steps, '\n'))
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// Limit sets the number of pixels that a picture may have; 0 is kernel.MaxPixels.
// It is called before the program is used.
func (p *Program) Limit(maxPixels int64) {
	p.maxPixels = maxPixels
	if p.rest != nil {
		p.rest.whole.maxPixels = maxPixels // which explains
	}
}

// Kind is image, array, number, bytes, text or json.
func (p *Program) Kind() string { return p.of }

// DType is the type of one element; Object for bytes, text and json.
func (p *Program) DType() mem.DType { return p.dtype }

// Shape is the shape of every sample in memory; false if it depends on the sample.
func (p *Program) Shape() (mem.Shape, bool) {
	if a, ok := p.Array(); ok {
		return a.Shape, !a.Ragged
	}
	switch {
	case p.of == "number":
		return mem.Shape{}, true
	case p.of != "image" || !p.at.sized():
		return nil, false
	}
	dims := p.dims(extent{p.at.size, p.at.c})
	return dims[:], true
}

func (p *Program) dims(at extent) [3]int {
	if p.chw {
		return [3]int{at.c, at.h, at.w}
	}
	return [3]int{at.h, at.w, at.c}
}

// Axes is the layout of a picture in memory and for the user, each "hwc" or "chw";
// empty for other kinds.
func (p *Program) Axes() (stored, shown string) {
	switch {
	case p.of != "image":
		return "", ""
	case p.chw:
		return "chw", p.shown
	}
	return "hwc", p.shown
}

// Digest is equal for programs that do the same, however they were written, and
// only for them. It is part of saved states.
func (p *Program) Digest() string { return p.digest }

// Begin reads what must be known before there is room for the sample: it makes all
// random choices (key is rng.Sample of its place) and returns the shape of the
// result in memory. bytes, text and json have one dimension, their length, and are
// valid when Begin returns.
//
// The shape is valid until the next Begin; encoded must not change until Finish has
// returned. Errors are *errs.Error without a place: damaged or unsupported.
func (p *Program) Begin(l *Lane, encoded []byte, key rng.Key) (mem.Shape, error) {
	l.program = nil
	value, err := p.open(l, encoded)
	if err != nil {
		return nil, err
	}
	l.value = value
	shape, e := p.kind.begin(p, l, value, key)
	if e != nil {
		return nil, e
	}
	l.program = p
	return shape, nil
}

// Finish writes the sample begun last into dst, which has the size of its shape and
// type. After an error the contents of dst are undefined.
func (p *Program) Finish(l *Lane, dst []byte) error {
	if l.program != p {
		return errs.New(errs.Bug, "transform: Finish without a Begin of the same program")
	}
	l.program, l.decoded = nil, false
	if need := p.kind.size(p, l); len(dst) != need {
		return errs.New(errs.Bug, "transform: a sample of %d bytes is to be written to %d", need, len(dst))
	}
	if err := p.kind.finish(p, l, dst); err != nil {
		return err
	}
	return nil
}
