package kernel

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// chainsEnv is the number of chains that TestChains draws.
const chainsEnv = "STOKER_CHAINS"

// TestChains: a random job gives the same bytes on every target, the twin included, and
// again if a Chain has composed its steps. Jobs are drawn until each kind of step, source
// and output was among them, and the test fails if one is not.
func TestChains(t *testing.T) {
	n := 800
	if v := os.Getenv(chainsEnv); v != "" {
		var err error
		if n, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
	}
	twin := newLane("go")
	var lanes []*Lane
	for _, name := range tested() {
		l := newLane(name)
		defer l.Close()
		lanes = append(lanes, l)
	}
	drawn := map[string]int{}
	for i := range n {
		j := anyJob(rand.New(rand.NewPCG(uint64(i), 91)))
		for _, k := range kindsOf(&j) {
			drawn[k]++
		}
		if why := disagree(twin, lanes, j); why != "" {
			short := shortened(twin, lanes, j)
			t.Fatalf("chain %d: %s\n%s\nand shortened: %s\n%s",
				i, why, describe(&j), disagree(twin, lanes, short), describe(&short))
		}
	}
	for _, k := range allKinds() {
		if drawn[k] == 0 {
			t.Errorf("none of %d chains has: %s", n, k)
		}
	}
	t.Logf("%d chains on %v, of %d kinds", n, tested(), len(allKinds()))
}

// anyJob draws a picture, steps and an output.
func anyJob(r *rand.Rand) Job {
	var j Job
	w, h, c, side := 1+r.IntN(90), 1+r.IntN(90), 1+2*r.IntN(2), 90
	switch r.IntN(40) {
	case 0:
		w, h, side = 1+r.IntN(900), 1+r.IntN(400), 300
	case 1:
		w, h = 1, 1+r.IntN(500)
	case 2:
		w, h = 1+r.IntN(2000), 1
	case 3:
		w, side = 500+r.IntN(1500), 5
	case 4:
		w, h = 1, 1
	}
	switch r.IntN(4) {
	case 0: // a JPEG that nobody encoded
		d := drawJPEG(r, true)
		if r.IntN(20) == 0 {
			d.x, d.y = 1, 1
		}
		j.JPEG, w, h = d.bytes(r), d.x, d.y
	case 1:
		b, err := EncodeJPEG(smooth(r, w, h, c), 60+r.IntN(40), "4:2:0", 0)
		if err != nil {
			panic(err)
		}
		j.JPEG = b
	case 2:
		j.Src = smooth(r, w, h, c)
	default:
		j.Src = random(r, w, h, c)
	}
	if j.JPEG != nil {
		j.Gray = r.IntN(4) == 0
		c = 3
		if j.Gray {
			c = 1
		}
		if r.IntN(3) == 0 {
			j.Steps, w, h = anyDraft(r, w, h)
		}
	}
	j.Steps = append(j.Steps, chain(r, w, h, c, r.IntN(8), side)...)
	for i := range j.Steps {
		j.Steps[i].Owner = uint8(r.IntN(Owners))
	}
	var err error
	if w, h, _, err = sizeOf(&j); err != nil {
		panic(err)
	}
	j.Out = withErased(r, anyOutput(r), w, h)
	j.Timed = r.IntN(4) == 0
	return j
}

// anyDraft draws steps that end with a resize for which a w x h JPEG may be decoded at a
// fraction of its size, and the size of their result.
func anyDraft(r *rand.Rand, w, h int) ([]Step, int, int) {
	var steps []Step
	if r.IntN(2) == 0 {
		s := Step{Op: OpCrop}
		s.X, s.Y, s.W, s.H = box(r, w, h)
		steps, w, h = append(steps, s), s.W, s.H
	}
	if r.IntN(3) == 0 {
		steps = append(steps, Step{Op: OpFlipH + Op(r.IntN(2))})
	}
	n := 1 << r.IntN(4)
	s := Step{Op: OpResize, W: 1 + r.IntN(max(1, w/n)), H: 1 + r.IntN(max(1, h/n)), Draft: true}
	return append(steps, s), s.W, s.H
}

// sizeOf is the size of a job's result.
func sizeOf(j *Job) (w, h, c int, err error) {
	w, h, c = j.Src.W, j.Src.H, j.Src.C
	if j.JPEG != nil {
		head, err := ReadHeader(j.JPEG)
		if err != nil {
			return 0, 0, 0, err
		}
		w, h, c = head.W, head.H, 3
		if j.Gray {
			c = 1
		}
	}
	return ResultSize(j.Steps, w, h, c)
}

// disagree says which lane does not make the bytes that the twin makes of the job, as it is
// or composed, or "".
func disagree(twin *Lane, lanes []*Lane, j Job) string {
	made := func(l *Lane, j Job) ([]byte, error) {
		w, h, c, err := sizeOf(&j)
		if err != nil {
			return nil, err
		}
		j.Dst = make([]byte, w*h*c*j.Out.size())
		return j.Dst, l.Run(&j)
	}
	want, err := made(twin, j)
	if err != nil {
		return fmt.Sprintf("the twin: %v", err)
	}
	forms := map[string]Job{"as asked": j}
	if c, ok := composed(j); ok {
		forms["composed"] = c
	}
	for name, form := range forms {
		for _, l := range lanes {
			got, err := made(l, form)
			if err != nil {
				return fmt.Sprintf("%s, %s: %v", l.target, name, err)
			}
			if d := diff(got, want); d != "" {
				return fmt.Sprintf("%s, %s: %s", l.target, name, d)
			}
		}
	}
	return ""
}

// composed is the job with the steps that a Chain makes of its own: fewer, and in another
// order. It is not for drafts, which have other pixels if their crop moves.
func composed(j Job) (Job, bool) {
	before := j
	before.Steps = nil
	w, h, c, err := sizeOf(&before)
	if err != nil {
		return Job{}, false
	}
	var g Chain
	g.Reset(w, h, c)
	for _, s := range j.Steps {
		g.Owner = s.Owner
		switch s.Op {
		case OpCrop:
			g.Crop(s.X, s.Y, s.W, s.H)
		case OpResize:
			if s.Draft {
				return Job{}, false
			}
			g.Resize(s.W, s.H, s.Filter, false)
		case OpPad:
			g.Pad(s.X, s.Y, s.W-g.w-s.X, s.H-g.h-s.Y, s.Mode, s.Fill)
		case OpFlipH, OpFlipV:
			g.Flip(s.Op)
		case OpGray:
			g.Gray(s.C)
		case OpAffine, OpPerspective:
			fill := &s.Fill
			if !s.Filled {
				fill = nil
			}
			g.Warp(s.Map, s.W, s.H, s.Filter, fill)
		default:
			g.Apply(s)
		}
	}
	j.Steps = slices.Clone(g.Steps())
	return j, true
}

// shortened is a job on which the lanes disagree, without the steps and boxes that do not
// matter for that.
func shortened(twin *Lane, lanes []*Lane, j Job) Job {
	try := func(k Job) bool {
		w, h, _, err := sizeOf(&k)
		if err != nil || k.Out.check(w, h) != nil || disagree(twin, lanes, k) == "" {
			return false
		}
		j = k
		return true
	}
	for again := true; again; {
		again = false
		for i := range j.Steps {
			for n := 1; i+n <= len(j.Steps) && !again; n++ { // a sum goes as a whole
				k := j
				k.Steps = slices.Delete(slices.Clone(j.Steps), i, i+n)
				again = try(k)
			}
			if again {
				break
			}
		}
	}
	k := j
	k.Out = Output{}
	try(k)
	return j
}

// kindsOf names what is in a job: allKinds has all of the names.
func kindsOf(j *Job) []string {
	w, h, c, err := sizeOf(j)
	if err != nil {
		panic(err)
	}
	kinds := []string{outputKind(j.Out.size(), j.Out.CHW, c)}
	switch {
	case j.JPEG == nil:
		kinds = append(kinds, fmt.Sprintf("pixels of %d channels", j.Src.C))
	default:
		kinds = append(kinds, fmt.Sprintf("JPEG, grey %v", j.Gray))
	}
	if w == 1 && h == 1 {
		kinds = append(kinds, "a result of one pixel")
	}
	if j.Src.W == 1 && j.Src.H == 1 {
		kinds = append(kinds, "a picture of one pixel")
	}
	for _, e := range j.Out.Erased {
		kinds = append(kinds, fmt.Sprintf("floats of %d bytes erased, noise %v", j.Out.size(), e.Noise))
	}
	summing := false
	for _, s := range j.Steps {
		kinds = append(kinds, fmt.Sprintf("operation %d", s.Op))
		switch s.Op {
		case OpResize:
			kinds = append(kinds, fmt.Sprintf("resize by filter %d, draft %v", s.Filter, s.Draft))
		case OpPad:
			kinds = append(kinds, fmt.Sprintf("pad by mode %d", s.Mode))
		case OpGray:
			kinds = append(kinds, fmt.Sprintf("grey of %d channels", s.C))
		case OpAffine, OpPerspective:
			kinds = append(kinds, warpKind(s.Op, s.Filter, s.Filled))
		case OpKeep, OpSum:
			summing = s.Op == OpKeep
		}
		if summing && !s.Op.summing() {
			kinds = append(kinds, fmt.Sprintf("operation %d in a sum", s.Op))
		}
	}
	return kinds
}

func outputKind(size int, chw bool, c int) string {
	return fmt.Sprintf("result of numbers of %d bytes, planes %v, %d channels", size, chw, c)
}

func warpKind(op Op, f Filter, filled bool) string {
	return fmt.Sprintf("warp %d by filter %d, filled %v", op, f, filled)
}

// allKinds is the names of everything that the kernel can do to a picture. It asks the
// kernel which operations, filters and modes it knows, so that it has the next one too.
func allKinds() []string {
	known := func(s Step) bool {
		_, _, _, err := ResultSize([]Step{s}, 3, 3, 3)
		return err == nil
	}
	kinds := []string{
		"a picture of one pixel", "a result of one pixel", "pixels of 1 channels", "pixels of 3 channels",
		"JPEG, grey false", "JPEG, grey true", "floats of 4 bytes erased, noise false", "floats of 4 bytes erased, noise true",
		"floats of 2 bytes erased, noise false", "floats of 2 bytes erased, noise true",
		"grey of 1 channels", "grey of 3 channels", "resize by filter 0, draft true",
	}
	for i := range 256 {
		_, _, _, err := ResultSize([]Step{{Op: Op(i)}}, 3, 3, 3)
		if err == nil || !strings.Contains(err.Error(), "unknown operation") {
			kinds = append(kinds, fmt.Sprintf("operation %d", i))
			switch o := Op(i); {
			case o.summing(), o == OpGray: // what is in a sum keeps its channels
			default:
				kinds = append(kinds, fmt.Sprintf("operation %d in a sum", i))
			}
		}
		if known(Step{Op: OpResize, W: 2, H: 2, Filter: Filter(i)}) {
			kinds = append(kinds, fmt.Sprintf("resize by filter %d, draft false", i))
		}
		if known(Step{Op: OpPad, W: 4, H: 4, Mode: PadMode(i)}) {
			kinds = append(kinds, fmt.Sprintf("pad by mode %d", i))
		}
		for _, op := range []Op{OpAffine, OpPerspective} {
			if known(Step{Op: op, W: 2, H: 2, Filter: Filter(i)}) {
				kinds = append(kinds, warpKind(op, Filter(i), false), warpKind(op, Filter(i), true))
			}
		}
	}
	for i := range 12 {
		kinds = append(kinds, outputKind(1<<(i/4), i&1 != 0, 1+i&2))
	}
	return kinds
}
