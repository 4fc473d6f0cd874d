//go:build cgo && stoker_libjpeg

package kernel

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

// allEnv asks for every size with every kind; without it, every kind meets every
// quality, width, height, interval and sort of tables.
const allEnv = "STOKER_JPEG_ALL"

// everyEnv is n: one file in n is tried, of the generated set and of the photographs. firstEnv
// is a number below n: all of them together try every file once.
const (
	everyEnv = "STOKER_JPEG_EVERY"
	firstEnv = "STOKER_JPEG_FIRST"
)

// everyOf is the files that are tried. Which one in n moves on: files that alternate in
// something, as in their tables, would all be of one kind otherwise.
func everyOf[T any](all []T) (some []T) {
	n, _ := strconv.Atoi(os.Getenv(everyEnv))
	first, _ := strconv.Atoi(os.Getenv(firstEnv))
	if n <= 1 {
		return all
	}
	if first < 0 || first >= n { // no file would be tried
		panic(fmt.Sprintf("%s is %d, and must be 0 to %d", firstEnv, first, n-1))
	}
	for i, one := range all {
		if (i+i/n)%n == first {
			some = append(some, one)
		}
	}
	return some
}

// A generated is one file of the generated set.
type generated struct {
	kind     string
	w, h, q  int
	restart  int
	optimize bool
}

func (m generated) String() string {
	return fmt.Sprintf("%s %dx%d quality %d restart %d optimised %v", m.kind, m.w, m.h, m.q, m.restart, m.optimize)
}

// generatedKinds are those of the format's usual subsamplings, and such as nobody
// writes, by the sampling factors of their first component.
var generatedKinds = []string{
	"4:4:4", "4:2:2", "4:2:0", "4:4:0", "4:1:1", "gray", "rgb",
	"3x1", "1x3", "3x2", "2x4", "4x2", "1x4",
}

var generatedIntervals = []int{0, 1, 2, 3, 7, 16, 60}

func (m generated) encode(t failing, r *rand.Rand) []byte {
	t.Helper()
	o := encodeOptions{quality: m.q, restart: m.restart, optimize: m.optimize, subsampling: "4:4:4"}
	c := 3
	switch {
	case m.kind == "gray":
		c = 1
	case m.kind == "cmyk":
		c = 4
	case m.kind == "rgb":
		o.rgb = true
	case m.kind[1] == 'x':
		o.hs, o.vs = int(m.kind[0]-'0'), int(m.kind[2]-'0')
	default:
		o.subsampling = m.kind
	}
	p := smooth(r, m.w, m.h, c)
	if m.q%5 == 0 {
		p = random(r, m.w, m.h, c)
	}
	b, err := encode(p, o)
	if err != nil {
		t.Fatalf("%v: %v", m, err)
	}
	return b
}

// pairs is one file for each kind and quality. 17 and 23 have no factor in common
// with 70, so that every kind also meets every width and every height, and the
// intervals and the sorts of tables are walked through side by side.
func pairs() (all []generated) {
	for k, kind := range generatedKinds {
		for i := range 100 {
			all = append(all, generated{
				kind: kind, q: 1 + i, w: 1 + (17*i+29*k)%70, h: 1 + (23*i+31*k+i/70)%70,
				restart: generatedIntervals[(i+k)%7], optimize: (i/7+k)%2 == 0,
			})
		}
	}
	return all
}

// product is every kind with every size, interval and sort of tables; the qualities
// go round.
func product() (all []generated) {
	for _, kind := range generatedKinds {
		for w := 1; w <= 70; w++ {
			for h := 1; h <= 70; h++ {
				for _, restart := range generatedIntervals {
					q := 1 + len(all)*37%100
					all = append(all, generated{kind, w, h, q, restart, len(all)%2 == 0}, generated{kind, w, h, 101 - q, restart, len(all)%2 == 1})
				}
			}
		}
	}
	return all
}

// A place decodes boxes of a file whose bytes, and whose result, may begin at any
// address, and finds out what is written beside the result.
type place struct {
	lane *Lane
	in   []byte
	out  []byte
	way  Way // of the last picture
}

const placeMost = 64

// decode gives the box, valid until the next call. e may be nil.
func (p *place) decode(t failing, jpeg []byte, inAt, outAt int, b Step, e *Entries) []byte {
	t.Helper()
	n := 3 * b.W * b.H
	if need := len(jpeg) + placeMost; len(p.in) < need {
		p.in = make([]byte, 2*need)
	}
	if need := n + 2*placeMost; len(p.out) < need {
		p.out = make([]byte, 2*need)
	}
	in := p.in[inAt : inAt+len(jpeg) : inAt+len(jpeg)]
	copy(in, jpeg)
	around := p.out[outAt : outAt+n+placeMost]
	for i := range around {
		around[i] = 0xa5
	}
	dst := around[placeMost/2 : placeMost/2+n : placeMost/2+n]
	j := Job{JPEG: in, Dst: dst, Steps: []Step{b}, Entries: e}
	if err := p.lane.Run(&j); err != nil {
		t.Fatalf("%s: %+v: %v", p.lane.target, b, err)
	}
	p.way = j.Way
	if !bytes.Equal(in, jpeg) {
		t.Fatalf("%s changed its input", p.lane.target)
	}
	for i := range placeMost / 2 {
		if around[i] != 0xa5 || around[len(around)-1-i] != 0xa5 {
			t.Fatalf("%s wrote beside its result", p.lane.target)
		}
	}
	return dst
}

// checkBoxes compares the whole picture on every target, and boxes of it, which
// the targets share, with libjpeg's whole picture: from its beginning, and from entry points.
func checkBoxes(t failing, r *rand.Rand, stock *Lane, places []*place, jpeg []byte, boxes int) {
	t.Helper()
	h, err := ReadHeader(jpeg)
	if err != nil {
		t.Fatal(err)
	}
	whole := Pixels{Pix: run(t, stock, Job{JPEG: jpeg}), W: h.W, H: h.H, C: 3}
	for _, p := range places {
		if d := diff(p.decode(t, jpeg, r.IntN(placeMost), r.IntN(placeMost), Step{Op: OpCrop, W: h.W, H: h.H}, nil), whole.Pix); d != "" {
			t.Fatalf("%s: %s", p.lane.target, d)
		}
	}
	points := checkPoints(t, r, places, jpeg, whole, 1+r.IntN(1+len(jpeg)/(2+r.IntN(60))))
	for i := range boxes {
		p := places[i%len(places)]
		b := Step{Op: OpCrop}
		b.X, b.Y, b.W, b.H = box(r, h.W, h.H)
		inAt, outAt := r.IntN(placeMost), r.IntN(placeMost)
		want := crop(whole, b.X, b.Y, b.W, b.H).Pix
		if d := diff(p.decode(t, jpeg, inAt, outAt, b, nil), want); d != "" {
			t.Fatalf("%s: box %d,%d %dx%d, input at %d, output at %d: %s", p.lane.target, b.X, b.Y, b.W, b.H, inAt, outAt, d)
		}
		e := Entries{Known: points[:r.IntN(len(points)+1)]}
		if d := diff(p.decode(t, jpeg, outAt, inAt, b, &e), want); d != "" || e.Wrong {
			t.Fatalf("%s: box %d,%d %dx%d, with %d of %d points: %s; %+v", p.lane.target, b.X, b.Y, b.W, b.H, len(e.Known), len(points), d, e)
		}
	}
}

// allPlaces makes a place for each target in C.
func allPlaces() (all []*place, end func()) {
	for _, name := range tested()[1:] {
		all = append(all, &place{lane: newLane(name)})
	}
	return all, func() {
		for _, p := range all {
			p.lane.Close()
		}
	}
}

// named puts the file's name before what is said of it.
type named struct {
	*testing.T
	name fmt.Stringer
}

func (n named) Fatalf(format string, args ...any) {
	n.Helper()
	n.T.Errorf("%v: %s", n.name, fmt.Sprintf(format, args...))
	runtime.Goexit()
}

func (n named) Fatal(args ...any) {
	n.Helper()
	n.Fatalf("%s", fmt.Sprint(args...))
}

// Whatever the encoder writes: any box of it is that part of the whole picture, to
// the bit as libjpeg alone decodes it. All of it is of kinds that libjpeg is not asked for.
func TestGeneratedSet(t *testing.T) {
	set := pairs()
	if os.Getenv(allEnv) != "" {
		set = product()
	}
	if testing.Short() {
		set = set[:len(set)/4]
	}
	set = everyOf(set)
	var next, boxes atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			stock := stocked()
			defer stock.Close()
			places, end := allPlaces()
			defer end()
			for !t.Failed() {
				i := int(next.Add(1)) - 1
				if i >= len(set) {
					return
				}
				r := rand.New(rand.NewPCG(uint64(i), 7))
				in := named{t, set[i]}
				checkBoxes(in, r, stock, places, set[i].encode(in, r), 200)
				if w := places[0].way; w != WayOwn {
					in.Fatalf("decoded by way %d", w)
				}
				if n := boxes.Add(200); n%10_000_000 == 0 {
					t.Logf("%d million boxes", n/1_000_000)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d files, %d boxes", len(set), boxes.Load())
}

// Photographs: the six of the project, or all of a folder.
func TestBoxesOfPhotographs(t *testing.T) {
	stock := stocked()
	defer stock.Close()
	places, end := allPlaces()
	defer end()
	boxes := 12
	if os.Getenv(allEnv) != "" {
		boxes = 200
	}
	pictures := testPhotos(t)
	for _, name := range everyOf(slices.Sorted(maps.Keys(pictures))) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			r := rand.New(rand.NewPCG(71, uint64(len(pictures[name]))))
			checkBoxes(t, r, stock, places, pictures[name], boxes)
		})
	}
}

// Lanes know nothing of each other: any number of them, side by side, over the same
// bytes, make what one makes.
func TestLanesSideBySide(t *testing.T) {
	r := rand.New(rand.NewPCG(73, 74))
	var files [][]byte
	var want [][]byte
	stock := stocked()
	defer stock.Close()
	for _, kind := range generatedKinds {
		jpeg := generated{kind: kind, w: 61, h: 47, q: 88, restart: 3, optimize: true}.encode(t, r)
		files = append(files, jpeg)
		want = append(want, bytes.Clone(run(t, stock, Job{JPEG: jpeg})))
	}
	for _, lanes := range []int{1, 2, 7, 32} {
		var wg sync.WaitGroup
		for id := range lanes {
			wg.Go(func() {
				have := tested()[1:]
				l := newLane(have[id%len(have)])
				defer l.Close()
				dst := make([]byte, 3*61*47)
				for i := range 3 * len(files) {
					k := (i*5 + id) % len(files)
					if err := l.Run(&Job{JPEG: files[k], Dst: dst}); err != nil {
						t.Errorf("%s of %d lanes: %s: %v", l.target, lanes, generatedKinds[k], err)
						return
					}
					if !bytes.Equal(dst, want[k]) {
						t.Errorf("%s of %d lanes: %s: other bytes", l.target, lanes, generatedKinds[k])
						return
					}
				}
			})
		}
		wg.Wait()
	}
}
