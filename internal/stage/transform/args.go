package transform

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
)

// problem is one reason why a program cannot be compiled.
type problem struct {
	where string // which transform; empty: the whole program
	what  string
	hint  string
}

func problemf(hint, format string, a ...any) *problem {
	return &problem{what: fmt.Sprintf(format, a...), hint: hint}
}

func (p problem) String() string {
	if p.where == "" {
		return p.what
	}
	return p.where + ": " + p.what
}

// report returns one error that names every problem.
func report(problems []problem) error {
	switch len(problems) {
	case 0:
		return nil
	case 1:
		return errs.New(errs.Config, "%s", problems[0]).Try("%s", problems[0].hint)
	}
	var what, hints []string
	for _, p := range problems {
		what = append(what, p.String())
		if p.hint != "" && !slices.Contains(hints, p.hint) {
			hints = append(hints, p.hint)
		}
	}
	return errs.New(errs.Config, "%d problems in the transforms: %s", len(problems), strings.Join(what, "; ")).
		Try("%s", strings.Join(hints, "; "))
}

// arguments reads the arguments of one operation, and notes what is wrong with
// them. JSON null is Python's None: the argument counts as left out.
type arguments struct {
	op       Op
	problems []problem
}

func (a *arguments) wrong(hint, format string, v ...any) {
	a.problems = append(a.problems, *problemf(hint, format, v...))
}

func (a *arguments) raw(name string) (json.RawMessage, bool) {
	raw, ok := a.op.Args[name]
	if !ok || string(raw) == "null" {
		return nil, false
	}
	return raw, true
}

// required reports whether the argument is given, and notes it if not.
func (a *arguments) required(name, wanted string) bool {
	_, ok := a.raw(name)
	if !ok {
		a.wrong("", "%s is missing (%s)", name, wanted)
	}
	return ok
}

// checkNames notes arguments that the operation does not have.
func (a *arguments) checkNames(known []string) {
	var unknown []string
	for name := range a.op.Args {
		if !slices.Contains(known, name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		hint := "it has no arguments" + later
		if near := errs.Nearest(name, known); near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		} else if len(known) > 0 {
			hint = "it has " + strings.Join(known, ", ") + later
		}
		a.wrong(hint, "unknown argument %q", name)
	}
}

// numbers reads a number, or a list with one of the lengths; nil if it is left out
// or wrong.
func (a *arguments) numbers(name, wanted string, lengths ...int) []float64 {
	raw, ok := a.raw(name)
	if !ok {
		return nil
	}
	var one float64
	if json.Unmarshal(raw, &one) == nil {
		return []float64{one}
	}
	var many []float64
	if json.Unmarshal(raw, &many) != nil || !slices.Contains(lengths, len(many)) {
		a.wrong("", "%s must be %s, not %s", name, wanted, shown(raw))
		return nil
	}
	return many
}

// wholes reads whole numbers between least and most.
func (a *arguments) wholes(name, wanted string, least, most int, lengths ...int) []int {
	var out []int
	for _, f := range a.numbers(name, wanted, lengths...) {
		if f != math.Trunc(f) || f < float64(least) || f > float64(most) {
			a.wrong("", "%s must be %s, not %s", name, wanted, shown(a.op.Args[name]))
			return nil
		}
		out = append(out, int(f))
	}
	return out
}

// mostSide bounds the sides of results, and paddings. It is the kernel's limit.
const mostSide = 1 << 20

// size is torchvision's size of a crop: n, [n] or [h, w].
func (a *arguments) size() size {
	const wanted = "a positive whole number, or [height, width]"
	if !a.required("size", wanted) {
		return size{}
	}
	n := a.wholes("size", wanted, 1, mostSide, 1, 2)
	switch len(n) {
	case 1:
		n = append(n, n[0])
	case 0:
		return size{}
	}
	s := size{w: n[1], h: n[0]}
	if !s.possible() {
		a.wrong("", "size asks for pictures of %d x %d pixels, more than the limit of %d", s.w, s.h, kernel.MaxPixels)
	}
	return s
}

// probability reads p.
func (a *arguments) probability(standard float64) float64 {
	p := a.numbers("p", "a number from 0 to 1")
	if len(p) == 0 {
		return standard
	}
	if !(p[0] >= 0 && p[0] <= 1) {
		a.wrong("", "p must be a number from 0 to 1, not %v", p[0])
	}
	return p[0]
}

// pair reads a range of two numbers, the smaller first.
func (a *arguments) pair(name string, standard [2]float64, positive bool) [2]float64 {
	const wanted = "two numbers, the smaller first"
	if _, ok := a.raw(name); !ok {
		return standard
	}
	v := a.numbers(name, wanted, 2)
	if v == nil {
		return standard
	}
	if len(v) != 2 || v[0] > v[1] || v[0] < 0 || positive && v[0] == 0 {
		kind := "none negative"
		if positive {
			kind = "both positive"
		}
		a.wrong("", "%s must be %s, %s, not %s", name, wanted, kind, shown(a.op.Args[name]))
		return standard
	}
	return [2]float64{v[0], v[1]}
}

func (a *arguments) flag(name string, standard bool) bool {
	raw, ok := a.raw(name)
	if !ok {
		return standard
	}
	var v bool
	if json.Unmarshal(raw, &v) != nil {
		a.wrong("", "%s must be true or false, not %s", name, shown(raw))
		return standard
	}
	return v
}

// text reads one of words. If it is left out, the result is the default, which is
// the first word.
func (a *arguments) text(name string, words ...string) (string, bool) {
	raw, ok := a.raw(name)
	if !ok {
		return words[0], true
	}
	var v string
	if json.Unmarshal(raw, &v) != nil {
		a.wrong("", "%s must be one of %s, not %s", name, strings.Join(words, ", "), shown(raw))
		return "", false
	}
	if slices.Contains(words, v) {
		return v, true
	}
	hint := "the choices are " + strings.Join(words, ", ")
	if near := errs.Nearest(v, words); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	a.wrong(hint, "%s cannot be %q", name, v)
	return "", false
}

// name reads any text; "" if it is left out.
func (a *arguments) name(name string) (v string) {
	if raw, ok := a.raw(name); ok && json.Unmarshal(raw, &v) != nil {
		a.wrong("", "%s must be a text, not %s", name, shown(raw))
	}
	return v
}

// filter reads interpolation and antialias. antialias None means true, as it does
// for PIL pictures.
func (a *arguments) filter() kernel.Filter {
	names := []string{kernel.Bilinear: "bilinear", kernel.Nearest: "nearest", kernel.Bicubic: "bicubic", kernel.NearestExact: "nearest-exact"}
	name, ok := a.text("interpolation", names...)
	smooth := a.flag("antialias", true)
	f := kernel.Filter(max(0, slices.Index(names, name)))
	if ok && !smooth && f.Smooth() {
		a.wrong("leave antialias out, or use interpolation=\"nearest\"",
			"%s is available with antialias=True only", name)
	}
	return f
}

// draft reads draft, which is only for bilinear.
func (a *arguments) draft(f kernel.Filter) bool {
	wanted := a.flag("draft", false)
	if wanted && f != kernel.Bilinear {
		a.wrong("leave draft out, or use interpolation=\"bilinear\"", "draft needs bilinear")
	}
	return wanted
}

// mode reads padding_mode.
func (a *arguments) mode() kernel.PadMode {
	names := []string{"constant", "edge", "reflect", "symmetric"}
	name, _ := a.text("padding_mode", names...)
	return kernel.PadMode(max(0, slices.Index(names, name)))
}

// fill is the colour of constant padding, in the numbers that the picture has where
// it is padded.
type fill struct {
	v    [3]float64
	each bool // given for each channel
}

func (a *arguments) fill() fill {
	v := a.numbers("fill", "a number, or one for each channel", 1, 3)
	switch len(v) {
	case 1:
		return fill{v: [3]float64{v[0], v[0], v[0]}}
	case 3:
		return fill{[3]float64(v), true}
	}
	return fill{}
}

// nested reads the transforms of Compose and of containers.
func (a *arguments) nested() []Op {
	if !a.required("transforms", "a list") {
		return nil
	}
	raw, _ := a.raw("transforms")
	var ops []Op
	if err := json.Unmarshal(raw, &ops); err != nil {
		e := errs.From(err)
		if e.Code == errs.Bug {
			a.wrong("", "transforms must be a list, not %s", shown(raw))
		} else {
			a.wrong(e.Hint, "%s", e.What)
		}
	}
	return ops
}

// margins are pixels around a picture.
type margins struct{ left, top, right, bottom int }

// padding reads torchvision's padding: all, [left and right, top and bottom],
// or [left, top, right, bottom].
func (a *arguments) padding() margins {
	const wanted = "1, 2 or 4 whole numbers that are not negative"
	switch n := a.wholes("padding", wanted, 0, mostSide, 1, 2, 4); len(n) {
	case 1:
		return margins{n[0], n[0], n[0], n[0]}
	case 2:
		return margins{n[0], n[1], n[0], n[1]}
	case 4:
		return margins{n[0], n[1], n[2], n[3]}
	}
	return margins{}
}

// channels reads mean or std: a number for all channels, or one for each.
func (a *arguments) channels(name string) []float64 {
	const wanted = "a number, or one for each channel"
	if !a.required(name, wanted) {
		return nil
	}
	return a.numbers(name, wanted, 1, 3)
}
