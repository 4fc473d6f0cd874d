package transform

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// said is a choice as a user's program reads it.
type said map[string]any

func (s said) op() string           { return s["op"].(string) }
func (s said) yes(name string) bool { return s[name].(bool) }

func (s said) whole(name string) int {
	f := s[name].(float64)
	if f != math.Trunc(f) {
		panic(fmt.Sprintf("%s is %v", name, f))
	}
	return int(f)
}

func readChoices(choices []Choice) ([]said, error) {
	b, err := json.Marshal(choices)
	if err != nil {
		return nil, err
	}
	var out []said
	return out, json.Unmarshal(b, &out)
}

// replay is a program of which the test knows how it pads and resamples, and a
// picture to do its choices to, one after the other, each over the whole.
type replay struct {
	lane   *kernel.Lane
	mode   string
	fill   byte
	filter kernel.Filter
	p      kernel.Pixels
}

// do is one choice, by its numbers alone.
func (r *replay) do(s said) error {
	switch s.op() {
	case "RandomApply", "RandomChoice", "RandomOrder": // what they do follows
	case "RandomHorizontalFlip":
		if s.yes("flipped") {
			r.map2(r.p.W, r.p.H, func(x, y int) (int, int) { return r.p.W - 1 - x, y })
		}
	case "RandomVerticalFlip":
		if s.yes("flipped") {
			r.map2(r.p.W, r.p.H, func(x, y int) (int, int) { return x, r.p.H - 1 - y })
		}
	case "RandomGrayscale":
		if s.yes("gray") {
			r.gray(r.p.C)
		}
	case "Grayscale", "RGB":
		r.gray(s.whole("channels"))
	case "Pad", "RandomZoomOut":
		if s.op() == "RandomZoomOut" {
			defer func(mode string) { r.mode = mode }(r.mode)
			r.mode = "constant"
		}
		left, top := s.whole("pad_left"), s.whole("pad_top")
		r.region(-left, -top, left+r.p.W+s.whole("pad_right"), top+r.p.H+s.whole("pad_bottom"), r.mode)
	case "Resize", "RandomResize", "RandomShortestSize", "ScaleJitter":
		if s.whole("from_width") != r.p.W || s.whole("from_height") != r.p.H {
			return fmt.Errorf("%v of a picture of %d x %d", s, r.p.W, r.p.H)
		}
		return r.resize(s)
	case "RandomResizedCrop":
		r.region(s.whole("left"), s.whole("top"), s.whole("width"), s.whole("height"), "outside")
		return r.resize(s)
	case "RandomCrop":
		r.region(s.whole("left"), s.whole("top"), s.whole("width"), s.whole("height"), r.mode)
	case "CenterCrop":
		fill := r.fill
		r.fill = 0
		r.region(s.whole("left"), s.whole("top"), s.whole("width"), s.whole("height"), "constant")
		r.fill = fill
	case "GaussianBlur":
		return r.apply(kernel.Step{Op: kernel.OpBlur, W: 3, H: 5, N: math.Exp(-1 / (2 * s["sigma"].(float64) * s["sigma"].(float64)))})
	case "RandomErasing":
		return r.apply(kernel.Step{
			Op: kernel.OpErase, X: s.whole("left"), Y: s.whole("top"), W: s.whole("width"), H: s.whole("height"), Fill: [3]uint8{r.fill, r.fill, r.fill},
		})
	case "RandAugment", "TrivialAugmentWide", "AutoAugment":
		return r.augment(s.op(), s["operations"], s["magnitudes"])
	case "AugMix":
		return r.augMix(s)
	default:
		return r.recolour(s)
	}
	return nil
}

// recolour is the choices of colours. Those that need an argument have that of parts.
func (r *replay) recolour(s said) error {
	adjust := func(order string) error {
		for _, digit := range order {
			i := digit - '1'
			if err := r.apply(kernel.Step{Op: kernel.OpBrightness + kernel.Op(i), N: s[adjusted()[i]].(float64)}); err != nil {
				return err
			}
		}
		return nil
	}
	permute := func(order string) error {
		to := [3]uint8{0, 1, 2}
		for i := range order {
			to[i] = order[i] - '1'
		}
		return r.apply(kernel.Step{Op: kernel.OpPermute, Perm: to})
	}
	simple := map[string]kernel.Step{
		"RandomInvert": {Op: kernel.OpInvert}, "RandomAutocontrast": {Op: kernel.OpAutocontrast}, "RandomEqualize": {Op: kernel.OpEqualize},
		"RandomAdjustSharpness": {Op: kernel.OpSharpness, N: 2.5}, "RandomPosterize": {Op: kernel.OpPosterize, N: 3}, "RandomSolarize": {Op: kernel.OpSolarize, N: 90},
	}
	switch step, ok := simple[s.op()]; {
	case slices.Contains([]string{"RandomRotation", "RandomAffine", "RandomPerspective"}, s.op()):
		return r.warp(s)
	case ok && s.yes("applied"):
		return r.apply(step)
	case ok:
		return nil
	case s.op() == "RandomChannelPermutation":
		return permute(fmt.Sprint(s.whole("order")))
	case s.op() == "ColorJitter":
		return adjust(fmt.Sprint(s["order"]))
	case s.op() == "RandomPhotometricDistort":
		order := "1342"
		if s["contrast_first"] == 1.0 {
			order = "1234"
		}
		if err := adjust(order); err != nil {
			return err
		}
		return permute(fmt.Sprint(s["order"]))
	}
	return fmt.Errorf("a choice of %q", s.op())
}

// apply is a step that keeps the size.
func (r *replay) apply(step kernel.Step) error {
	q := kernel.Pixels{Pix: make([]byte, len(r.p.Pix)), W: r.p.W, H: r.p.H, C: r.p.C}
	if err := r.lane.Run(&kernel.Job{Src: r.p, Steps: []kernel.Step{step}, Dst: q.Pix}); err != nil {
		return err
	}
	r.p = q
	return nil
}

// map2 makes a picture of w x h whose pixel x, y is that at from(x, y); at
// (-1, -1) it is the fill.
func (r *replay) map2(w, h int, from func(x, y int) (int, int)) {
	q := kernel.Pixels{W: w, H: h, C: r.p.C}
	for y := range h {
		for x := range w {
			for c := range q.C {
				v := r.fill
				if fx, fy := from(x, y); fx >= 0 {
					v = r.p.Pix[(fy*r.p.W+fx)*q.C+c]
				}
				q.Pix = append(q.Pix, v)
			}
		}
	}
	r.p = q
}

func (r *replay) region(left, top, w, h int, mode string) {
	r.map2(w, h, func(x, y int) (int, int) {
		fx, fy := beyond(left+x, r.p.W, mode), beyond(top+y, r.p.H, mode)
		if fx < 0 || fy < 0 {
			return -1, -1
		}
		return fx, fy
	})
}

// beyond walks to where padding of the mode takes its pixel from.
func beyond(i, n int, mode string) int {
	for i < 0 || i >= n {
		switch mode {
		case "constant":
			return -1
		case "edge":
			i = min(max(i, 0), n-1)
		case "reflect":
			if n == 1 {
				return 0
			}
			if i < 0 {
				i = -i
			} else {
				i = 2*(n-1) - i
			}
		case "symmetric":
			if i < 0 {
				i = -1 - i
			} else {
				i = 2*n - 1 - i
			}
		default:
			panic(fmt.Sprintf("pixel %d of %d", i, n))
		}
	}
	return i
}

func (r *replay) gray(channels int) {
	q := kernel.Pixels{W: r.p.W, H: r.p.H, C: channels}
	for i := 0; i < len(r.p.Pix); i += r.p.C {
		v := r.p.Pix[i]
		if r.p.C == 3 {
			v = byte((19595*int(v) + 38470*int(r.p.Pix[i+1]) + 7471*int(r.p.Pix[i+2]) + 32768) >> 16)
		}
		q.Pix = append(q.Pix, bytes.Repeat([]byte{v}, channels)...)
	}
	r.p = q
}

func (r *replay) resize(s said) error {
	w, h := s.whole("to_width"), s.whole("to_height")
	if w == r.p.W && h == r.p.H {
		return nil
	}
	q := kernel.Pixels{Pix: make([]byte, w*h*r.p.C), W: w, H: h, C: r.p.C}
	step := kernel.Step{Op: kernel.OpResize, W: w, H: h, Filter: r.filter}
	if err := r.lane.Run(&kernel.Job{Src: r.p, Steps: []kernel.Step{step}, Dst: q.Pix}); err != nil {
		return err
	}
	r.p = q
	return nil
}

// parts are operations with MODE, FILL and FILTER left open.
var parts = []string{
	`"RandomHorizontalFlip"`, `"RandomVerticalFlip"`, `{"op":"RandomGrayscale","p":0.5}`, `{"op":"Grayscale","num_output_channels":3}`, `"Grayscale"`,
	`{"op":"RandomResizedCrop","size":[19,23]FILTER}`, `{"op":"RandomResizedCrop","size":40,"scale":[0.5,1.5],"ratio":[0.3,3]FILTER}`,
	`{"op":"RandomCrop","size":[17,21],"pad_if_needed":trueMODE}`, `{"op":"RandomCrop","size":30,"padding":[3,9,5,0],"pad_if_needed":trueMODE}`,
	`{"op":"CenterCrop","size":[25,14]}`, `{"op":"CenterCrop","size":61}`, `{"op":"Pad","padding":[4,0,11,2]MODE}`,
	`{"op":"Resize","size":33FILTER}`, `{"op":"Resize","size":[31,18]FILTER}`, `{"op":"Resize","size":20,"max_size":27FILTER}`,
	`{"op":"RandomApply","transforms":["RandomVerticalFlip",{"op":"RandomCrop","size":12,"pad_if_needed":trueMODE},{"op":"RandomApply","p":0.5,"transforms":["RandomHorizontalFlip"]}]}`,
	`{"op":"Compose","transforms":["Identity",{"op":"Pad","padding":1MODE}]}`,
	`{"op":"RandAugment","num_ops":3,"magnitude":25}`, `{"op":"TrivialAugmentWide","interpolation":"bilinear","fill":[9,50,200]}`,
	`{"op":"AutoAugment","policy":"cifar10"}`, `{"op":"AutoAugment","policy":"svhn"}`, `{"op":"AugMix","severity":9}`,
	`"RandomInvert"`, `"RandomAutocontrast"`, `"RandomEqualize"`, `{"op":"RandomPosterize","bits":3}`, `{"op":"RandomSolarize","threshold":90}`,
	`{"op":"RandomAdjustSharpness","sharpness_factor":2.5}`, `{"op":"GaussianBlur","kernel_size":[3,5]}`, `{"op":"RandomErasing","value":FILLED,"scale":[0,0.5]}`,
	`"RandomChannelPermutation"`, `"RandomPhotometricDistort"`, `{"op":"ColorJitter","brightness":0.9,"contrast":0.9,"saturation":[0,3],"hue":0.5}`,
	`{"op":"RandomResize","min_size":9,"max_size":60FILTER}`, `{"op":"RandomShortestSize","min_size":[12,33,50],"max_size":55FILTER}`,
	`{"op":"ScaleJitter","target_size":[50,40],"scale_range":[0.3,1.5]FILTER}`, `{"op":"RandomZoomOut","side_range":[1,1.5],"p":0.8FILL}`, `"RGB"`,
	`{"op":"RandomChoice","transforms":["RandomVerticalFlip",{"op":"Pad","padding":[0,3]MODE},{"op":"Compose","transforms":[{"op":"CenterCrop","size":20},"RandomHorizontalFlip"]},"Identity"],"p":[1,2,2,1]}`,
	`{"op":"RandomOrder","transforms":[{"op":"Pad","padding":[4,0,1,2]MODE},{"op":"RandomApply","transforms":["RandomVerticalFlip",{"op":"CenterCrop","size":30}]},"RandomHorizontalFlip",
		{"op":"RandomChoice","transforms":[{"op":"Resize","size":25FILTER},{"op":"RandomOrder","transforms":[{"op":"Resize","size":[20,26]FILTER},{"op":"CenterCrop","size":24}]}]}]}`,
	rotated, sheared, tilted,
	// Quarters of a turn, and shifts alone, which become other steps.
	`{"op":"RandomRotation","degrees":[90,90],"expand":true}`, `{"op":"RandomRotation","degrees":[180,180]}`,
	`{"op":"RandomAffine","degrees":0,"translate":[0.9,0.9],"fill":null}`,
}

const (
	rotated = `{"op":"RandomRotation","degrees":180,"expand":true,"interpolation":"bilinear","fill":90}`
	sheared = `{"op":"RandomAffine","degrees":20,"translate":[0.5,0.4],"scale":[0.5,2],"shear":[-10,10,0,20],"fill":null}`
	tilted  = `{"op":"RandomPerspective","distortion_scale":0.6,"p":0.7}`
)

// drawProgram gives the operations of a program, and what a replay must know.
func drawProgram(t *rapid.T, from []string) (string, replay) {
	r := replay{
		mode:   rapid.SampledFrom([]string{"constant", "edge", "reflect", "symmetric"}).Draw(t, "mode"),
		fill:   rapid.Byte().Draw(t, "fill"),
		filter: rapid.SampledFrom([]kernel.Filter{kernel.Bilinear, kernel.Nearest, kernel.Bicubic, kernel.NearestExact}).Draw(t, "filter"),
	}
	ops := strings.Join(rapid.SliceOfN(rapid.SampledFrom(from), 0, 5).Draw(t, "ops"), ",")
	ops = strings.ReplaceAll(ops, "FILLED", fmt.Sprint(r.fill))
	ops = strings.ReplaceAll(ops, "MODE", fmt.Sprintf(`,"padding_mode":%q,"fill":%d`, r.mode, r.fill))
	ops = strings.ReplaceAll(ops, "FILL", fmt.Sprintf(`,"fill":%d`, r.fill))
	ops = strings.ReplaceAll(ops, "FILTER", fmt.Sprintf(`,"interpolation":%q`, [...]string{"bilinear", "nearest", "bicubic", "nearest-exact"}[r.filter]))
	return "[" + ops + "]", r
}

// deliver is what Begin and Finish give, as pixels.
func deliver(l *Lane, p *Program, encoded []byte, key rng.Key) (kernel.Pixels, error) {
	shape, err := p.Begin(l, encoded, key)
	if err != nil {
		return kernel.Pixels{}, err
	}
	q := kernel.Pixels{H: shape[0], W: shape[1], C: shape[2], Pix: make([]byte, shape.Elems())}
	return q, p.Finish(l, q.Pix)
}

// TestChoicesMakeThePicture: the whole picture, taken through what Explain
// says, is the picture that is delivered, to the bit.
func TestChoicesMakeThePicture(t *testing.T) {
	l := NewLane()
	defer l.Close()
	pictures := [][]byte{readSource(t, "wide.png"), readSource(t, "tall.png"), readSource(t, "gray.png"), readSource(t, "chelsea.jpg")}
	pictures = append(pictures, readDecodable(t, "orientation6.tif"), readDecodable(t, "lossy-odd.webp"), readDecodable(t, "plain.gif"))
	plain := map[string]*Program{"rgb": mustCompile(t, "rgb", nil, ""), "gray": mustCompile(t, "gray", nil, "")}
	rapid.Check(t, func(rt *rapid.T) {
		codec := rapid.SampledFrom([]string{"rgb", "gray"}).Draw(rt, "codec")
		ops, r := drawProgram(rt, parts)
		p, err := Compile(codec, opsOf(t, ops), "nhwc")
		if err != nil {
			rt.Skip(err) // channels at random
		}
		encoded := rapid.SampledFrom(pictures).Draw(rt, "picture")
		key := rng.Sample(rapid.Uint64().Draw(rt, "seed"), 1, rapid.Int64Range(0, 1<<40).Draw(rt, "place"))
		choices, err := p.Explain(l, encoded, key)
		delivered, beginErr := deliver(l, p, encoded, key)
		if fmt.Sprint(err) != fmt.Sprint(beginErr) {
			rt.Fatalf("%s: explained %v, delivered %v", ops, err, beginErr)
		}
		if err != nil {
			return
		}
		if r.p, err = deliver(l, plain[codec], encoded, key); err != nil {
			rt.Fatal(err)
		}
		r.lane = l.Kernel
		all, err := readChoices(choices)
		if err != nil {
			rt.Fatal(err)
		}
		for _, s := range all {
			if err := r.do(s); err != nil {
				rt.Fatalf("%s: %v", ops, err)
			}
		}
		if r.p.W != delivered.W || r.p.H != delivered.H || r.p.C != delivered.C || !bytes.Equal(r.p.Pix, delivered.Pix) {
			rt.Fatalf("%s: %v gives another picture", ops, all)
		}
	})
}

// TestStoredBoxes: every pixel that is delivered comes from where the last box says
// that it is in the file. The picture is a map of itself: red is the column, green
// the row, and blue, 255, is missing in padding only.
func TestStoredBoxes(t *testing.T) {
	l := NewLane()
	defer l.Close()
	steps := []string{
		`"RandomHorizontalFlip"`, `"RandomVerticalFlip"`, `{"op":"Pad","padding":[4,0,11,2]}`, `{"op":"RandomCrop","size":[60,70],"padding":7,"pad_if_needed":true}`,
		`{"op":"CenterCrop","size":[90,71]}`, `{"op":"CenterCrop","size":[55,130]}`, `{"op":"RandomApply","transforms":["RandomHorizontalFlip",{"op":"Pad","padding":5}]}`,
	}
	rapid.Check(t, func(rt *rapid.T) {
		w, h := rapid.IntRange(40, 200).Draw(rt, "w"), rapid.IntRange(40, 200).Draw(rt, "h")
		encoded := fmt.Appendf(nil, "P6 %d %d 255\n", w, h)
		for y := range h {
			for x := range w {
				encoded = append(encoded, byte(x), byte(y), 255)
			}
		}
		before, _ := drawProgram(rt, steps)
		ops := strings.Trim(before, "[]")
		resized := rapid.Bool().Draw(rt, "resized")
		if resized {
			ops += `,{"op":"Resize","size":[101,83],"interpolation":"nearest"},"RandomHorizontalFlip"`
		}
		ops = "[" + strings.TrimPrefix(ops+`,{"op":"RandomCrop","size":[33,37],"pad_if_needed":true},"RandomVerticalFlip"]`, ",")
		p, err := Compile("rgb", opsOf(t, ops), "")
		if err != nil {
			rt.Fatal(err)
		}
		key := rng.Key(rapid.Uint64().Draw(rt, "key"))
		choices, err := p.Explain(l, encoded, key)
		if err != nil {
			rt.Fatal(err)
		}
		got, err := deliver(l, p, encoded, key)
		if err != nil {
			rt.Fatal(err)
		}
		all, err := readChoices(choices)
		if err != nil {
			rt.Fatal(err)
		}
		var box said
		var mirrored, upended bool
		for _, s := range all {
			switch s.op() {
			case "RandomHorizontalFlip":
				mirrored = mirrored != s.yes("flipped")
			case "RandomVerticalFlip":
				upended = upended != s.yes("flipped")
			case "RandomCrop":
				box = s
			}
		}
		for y := range got.H {
			for x := range got.W {
				pixel := got.Pix[(y*got.W+x)*3:]
				if pixel[2] != 255 {
					continue
				}
				if !touches(box, "stored_left", "stored_width", x, got.W, mirrored, pixel[0]) ||
					!touches(box, "stored_top", "stored_height", y, got.H, upended, pixel[1]) {
					rt.Fatalf("%s: %v: pixel %d, %d is that at %d, %d", ops, all, x, y, pixel[0], pixel[1])
				}
			}
		}
	})
}

// touches reports whether pixel i of n along one side of a stored box covers pixel
// at of the file: it alone, unless it was resampled.
func touches(box said, from, length string, i, n int, turned bool, at byte) bool {
	if turned {
		i = n - 1 - i
	}
	scale := box[length].(float64) / float64(n)
	begin := box[from].(float64) + scale*float64(i)
	if scale == 1 {
		return begin == float64(at)
	}
	return float64(at) <= begin+scale+1e-9 && begin <= float64(at)+1+1e-9
}
