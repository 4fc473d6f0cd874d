// Package transform compiles the transforms of one field into a program, and
// runs it: randomness by key, geometry resolved for the sample at hand, decode
// and pixels fused into one kernel job. Which steps fuse is decided here and
// nowhere else.
//
// Names, arguments, defaults and random distributions are torchvision v2's, and
// so are the results: uint8 within 1 of its antialiased result on the same
// region, float32 within 1e-6 of what those bytes give. "nearest" is its NEAREST
// for tensors. What would give other numbers is refused when it is compiled,
// with what to write instead.
//
//	program, err := transform.Compile("rgb", ops, "")  // once a field
//	lane := transform.NewLane()                         // once a goroutine
//	shape, err := program.Begin(lane, encoded, key)     // what the sample will need
//	err = program.Finish(lane, place)                   // decoded to where it stays
package transform

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
)

// codec is how the encoded bytes of a field are read.
type codec uint8

const (
	codecRGB codec = iota
	codecGray
	codecBytes
	codecText
	codecInt
	codecFloat
	codecJSON
	codecArray // CompileArray's
)

// codecs is what there is to know about each, in the order above.
func codecs() []codecInfo {
	return []codecInfo{
		{"rgb", "image", mem.Uint8},
		{"gray", "image", mem.Uint8},
		{"bytes", "bytes", mem.Object},
		{"text", "text", mem.Object},
		{"int", "number", mem.Int64},
		{"float", "number", mem.Float64},
		{"json", "json", mem.Object},
	}
}

type codecInfo struct {
	name  string
	kind  string
	dtype mem.DType
}

// Program is the compiled work of one field. It is immutable: any number of
// lanes may run it.
type Program struct {
	codec  codec
	kind   string
	dtype  mem.DType
	ops    []operation
	at     known // what is known of every result
	chw    bool  // floats lie in planes
	shown  string
	digest string
	stored size // of pictures that lie decoded; zero: they are encoded

	maxPixels int64 // of a picture; 0: kernel.MaxPixels

	array Array // of codecArray
	step  int   // of codecArray: bytes stored, of a sample or of one step of a ragged one
}

// Compile makes the program of a field: its codec (rgb, gray, bytes, text, int,
// float, json), what is done to its pictures, in order, and the layout in which
// the user sees them, "nchw" (also ""), or "nhwc". An error names every problem
// there is.
func Compile(codecName string, ops []Op, layout string) (*Program, error) {
	c := &compiler{}
	p := &Program{}
	p.setCodec(c, codecName)
	if layout != "" && layout != "nchw" && layout != "nhwc" {
		c.note("", *problemf("possible are nchw and nhwc", "there is no layout %q", layout))
	}
	if p.kind != "image" && p.kind != "" && len(ops) > 0 {
		c.note("", *problemf("leave the transforms of this field out, or decode it as rgb or gray",
			"transforms are for pictures, and the codec of this field is %s", codecName))
	}
	p.at = known{c: 3, tone: plain()}
	if p.codec == codecGray {
		p.at.c = 1
	}
	p.ops = c.list(ops, "", &p.at)
	c.checkCount(p.ops)
	if err := report(c.problems); err != nil {
		return nil, err
	}
	if p.kind == "image" {
		p.lay(layout)
	}
	p.digest = p.fingerprint()
	return p, nil
}

func (p *Program) setCodec(c *compiler, name string) {
	all := codecs()
	i := slices.IndexFunc(all, func(known codecInfo) bool { return known.name == name })
	if i >= 0 {
		p.codec, p.kind, p.dtype = codec(i), all[i].kind, all[i].dtype
		return
	}
	var names []string
	for _, known := range all {
		names = append(names, known.name)
	}
	names = append(names, "array", "npy") // CompileArray's
	hint := "possible are " + strings.Join(names, ", ")
	if near := errs.Nearest(name, names); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	c.note("", *problemf(hint, "there is no codec %q", name))
}

// lay decides how pictures lie: bytes as HWC, which is how they are decoded,
// floats as they are shown.
func (p *Program) lay(layout string) {
	p.shown = "chw"
	if layout == "nhwc" {
		p.shown = "hwc"
	}
	if p.at.tone.float {
		p.dtype = mem.Float32
		p.chw = p.shown == "chw"
	}
}

func (p *Program) fingerprint() string {
	lies, shown := p.Axes()
	b := fmt.Appendf(nil, "stoker transform 1\n%s %s %s\n", codecs()[p.codec].name, lies, shown)
	if p.stored != (size{}) {
		b = fmt.Appendf(b, "pixels %d %d\n", p.stored.w, p.stored.h)
	}
	for _, op := range p.ops {
		b = append(op.canon(b), '\n')
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// Limit sets the pixels that a picture may have, before the program is used; 0 is
// kernel.MaxPixels.
func (p *Program) Limit(maxPixels int64) { p.maxPixels = maxPixels }

// Kind is image, array, number, bytes, text or json.
func (p *Program) Kind() string { return p.kind }

// DType is the type of one element; Object for bytes, text and json.
func (p *Program) DType() mem.DType { return p.dtype }

// Shape is the shape of every sample as it lies in memory; false if it depends
// on the sample.
func (p *Program) Shape() (mem.Shape, bool) {
	switch {
	case p.codec == codecArray:
		return p.array.Shape, !p.array.Ragged
	case p.kind == "number":
		return mem.Shape{}, true
	case p.kind != "image" || !p.at.sized():
		return nil, false
	}
	dims := p.dims(p.at.w, p.at.h, p.at.c)
	return dims[:], true
}

func (p *Program) dims(w, h, c int) [3]int {
	if p.chw {
		return [3]int{c, h, w}
	}
	return [3]int{h, w, c}
}

// Axes is how a picture lies in memory and how it is shown to the user, each
// "hwc" or "chw"; empty for other kinds.
func (p *Program) Axes() (lies, shown string) {
	switch {
	case p.kind != "image":
		return "", ""
	case p.chw:
		return "chw", p.shown
	}
	return "hwc", p.shown
}

// Digest is equal for programs that do the same, whatever way they were
// written, and only for them. It is kept in saved states.
func (p *Program) Digest() string { return p.digest }
