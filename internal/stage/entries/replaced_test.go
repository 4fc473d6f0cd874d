package entries

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stoker-data/stoker/internal/base/kernel"
)

// STOKER_REPLACED is how many pairs of each family are tried, STOKER_TEST_PHOTOS a folder of
// photographs that they are made of. STOKER_REPLACED_OUT is a file for the counts, in JSON.
const (
	replacedEnv    = "STOKER_REPLACED"
	replacedOutEnv = "STOKER_REPLACED_OUT"
	photosEnv      = "STOKER_TEST_PHOTOS"
)

// Pictures are small, so that a million pairs take minutes: a row of MCUs has one or two
// points, so many jumps in narrow crops are left before the next point, as in no large picture.
const pairW, pairH, pairQuality = 256, 192, 90

// replaced counts pairs: B is at the place of A, with its length, and A's record is used for
// it. All but Printed and Missed count as if the fingerprint did not exist.
type replaced struct {
	Pairs   int64 `json:"pairs"`
	Printed int64 `json:"told by the fingerprint"`
	Noticed int64 `json:"noticed by the comparison"`
	Unused  int64 `json:"decoded from the beginning"`
	Right   int64 `json:"not noticed and right"`
	Wrong   int64 `json:"not noticed and wrong"`
	// Missed is those of Wrong whose fingerprint is the same: wrong pictures.
	Missed int64 `json:"wrong pictures"`
}

func (c *replaced) add(o replaced) {
	for _, p := range []struct{ to, n *int64 }{
		{&c.Pairs, &o.Pairs},
		{&c.Printed, &o.Printed},
		{&c.Noticed, &o.Noticed},
		{&c.Unused, &o.Unused},
		{&c.Right, &o.Right},
		{&c.Wrong, &o.Wrong},
		{&c.Missed, &o.Missed},
	} {
		atomic.AddInt64(p.to, *p.n)
	}
}

// picture is a JPEG with its record, as a store would have it.
type picture struct {
	jpeg  []byte
	print uint64
	known []kernel.Point
}

// dressed gives pictures one length, by a comment, which no fingerprint covers, and points.
func dressed(t *testing.T, l *kernel.Lane, jpegs [][]byte) (all []picture) {
	t.Helper()
	most := 0
	for _, b := range jpegs {
		most = max(most, len(b))
	}
	for _, b := range jpegs {
		n := most + 4 - len(b) - 2 // what the segment's length says
		comment := append([]byte{0xff, 0xfe, byte(n >> 8), byte(n)}, make([]byte, n-2)...)
		b = append(append(b[:2:2], comment...), b[2:]...)
		p := picture{jpeg: b, print: kernel.Fingerprint(b)}
		raw := recordOf(t, l, b)
		var ok bool
		if p.known, ok = parseRecord(nil, raw, p.print); !ok {
			t.Fatal("its record cannot be read")
		}
		all = append(all, p)
	}
	return all
}

// recordOf is the record of a JPEG with all its points.
func recordOf(t testing.TB, l *kernel.Lane, jpeg []byte) []byte {
	t.Helper()
	points, err := l.Points(jpeg, Spacing)
	if err != nil || len(points) == 0 {
		t.Fatalf("a picture of %d bytes has %d points: %v", len(jpeg), len(points), err)
	}
	raw, ok := appendRecord(nil, kernel.Fingerprint(jpeg), points)
	if !ok {
		t.Fatal("it has no record")
	}
	return raw
}

// tried is B with the points of A, for one crop.
func tried(t *testing.T, l *kernel.Lane, r *rand.Rand, a, b *picture, dst, want []byte) (c replaced) {
	box := cropped(r, pairW, pairH)
	n := box.W * box.H * 3
	e := kernel.Entries{Known: a.known, Spacing: Spacing}
	c.Pairs = 1
	if a.print != b.print {
		c.Printed = 1
	}
	if err := l.Run(&kernel.Job{JPEG: b.jpeg, Steps: []kernel.Step{box}, Dst: dst[:n], Entries: &e}); err != nil {
		t.Error(err)
		return c
	}
	switch {
	case e.Wrong:
		c.Noticed = 1
		return c
	case e.Jumps == 0:
		c.Unused = 1
		return c
	}
	if err := l.Run(&kernel.Job{JPEG: b.jpeg, Steps: []kernel.Step{box}, Dst: want[:n]}); err != nil {
		t.Error(err)
	}
	if bytes.Equal(dst[:n], want[:n]) {
		c.Right = 1
		return c
	}
	c.Wrong = 1
	if a.print == b.print {
		c.Missed = 1
	}
	return c
}

// cropped is a box of RandomResizedCrop.
func cropped(r *rand.Rand, width, height int) kernel.Step {
	for {
		area := float64(width*height) * (0.08 + 0.92*r.Float64())
		aspect := math.Exp(math.Log(3.0/4) + r.Float64()*(math.Log(4.0/3)-math.Log(3.0/4)))
		w, h := int(math.Round(math.Sqrt(area*aspect))), int(math.Round(math.Sqrt(area/aspect)))
		if w > 0 && h > 0 && w <= width && h <= height {
			return kernel.Step{Op: kernel.OpCrop, X: r.IntN(width - w + 1), Y: r.IntN(height - h + 1), W: w, H: h}
		}
	}
}

// pairPhotos is all photographs, as files.
func pairPhotos(t *testing.T) (all [][]byte) {
	t.Helper()
	folder := os.Getenv(photosEnv)
	if folder == "" {
		folder = "../../../testdata/photos"
	}
	err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(strings.ToLower(filepath.Ext(path)), ".jp") {
			b, err := os.ReadFile(path)
			all = append(all, b)
			return err
		}
		return err
	})
	if err != nil || len(all) < 2 {
		t.Fatalf("%d photographs in %s: %v", len(all), folder, err)
	}
	return all
}

// scene is a part of a photograph, as pixels.
func scene(t *testing.T, l *kernel.Lane, r *rand.Rand, photo []byte) []byte {
	t.Helper()
	h, err := kernel.ReadHeader(photo)
	if err != nil {
		t.Fatal(err)
	}
	part := kernel.Step{Op: kernel.OpCrop, W: max(1, h.W*(50+r.IntN(50))/100), H: max(1, h.H*(50+r.IntN(50))/100)}
	part.X, part.Y = r.IntN(h.W-part.W+1), r.IntN(h.H-part.H+1)
	dst := make([]byte, pairW*pairH*3)
	if err := l.Run(&kernel.Job{JPEG: photo, Steps: []kernel.Step{part, {Op: kernel.OpResize, W: pairW, H: pairH}}, Dst: dst}); err != nil {
		t.Fatal(err)
	}
	return dst
}

// written is pixels as a JPEG; nil: it is too small for a record.
func written(t *testing.T, pix []byte) []byte {
	t.Helper()
	b, err := kernel.EncodeJPEG(kernel.Pixels{Pix: pix, W: pairW, H: pairH, C: 3}, pairQuality, "4:4:4", 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) < Least {
		return nil
	}
	return b
}

// edited is pixels with a change somewhere below the first rows: something covered, a text or
// a mark over it, light, a spot retouched, a part of another photograph, or all of one.
func edited(r *rand.Rand, pix, other []byte) []byte {
	out := bytes.Clone(pix)
	x, y := r.IntN(pairW-16), 24+r.IntN(pairH-40)
	w, h := 8+r.IntN(min(pairW-x-8, 120)), 8+r.IntN(min(pairH-y-8, 60))
	kind, by := r.IntN(6), 1+r.IntN(60)
	if kind == 3 {
		w, h = min(w, 8+r.IntN(16)), min(h, 8+r.IntN(16))
	}
	if kind == 5 {
		x, w, h = 0, pairW, pairH-y
	}
	for j := y; j < y+h; j++ {
		for i := x; i < x+w; i++ {
			at := (j*pairW + i) * 3
			for c := range 3 {
				p := &out[at+c]
				switch kind {
				case 0:
					*p = byte(4 * by)
				case 1:
					if (i-x)*7%11 < 3 && (j-y)%12 < 8 {
						*p = 255
					}
				case 2:
					*p = byte(min(255, int(*p)+by))
				case 3:
					*p = byte((int(pix[at+c]) + int(pix[at+c-3]) + int(pix[at+c-3*pairW])) / 3)
				default:
					*p = other[at+c]
				}
			}
		}
	}
	return out
}

// A picture is replaced by another one of the same length, in a file of the same version:
// how often is that not noticed? The kernel compares the points that it passes, and a record
// is only used for a picture of the same fingerprint.
func TestReplacedPictures(t *testing.T) {
	if !kernel.HasLibjpeg || kernel.Target() == "go" {
		t.Skip("the kernel's twin begins at no point")
	}
	pairs := 3000
	if n, err := strconv.Atoi(os.Getenv(replacedEnv)); err == nil {
		pairs = n
	} else if testing.Short() {
		pairs = 500
	}
	photos := pairPhotos(t)
	l := kernel.NewLane()
	defer l.Close()
	r := rand.New(rand.NewPCG(81, 82))
	results := map[string]*replaced{}

	// Each photograph is used alike often; versions of one photograph form a group.
	each := max(4, int(math.Ceil(1200/float64(len(photos)))))
	if pairs < 100_000 {
		each = 6
	}
	var groups [][][]byte
	for _, photo := range photos {
		var group [][]byte
		for range each {
			if b := written(t, scene(t, l, r, photo)); b != nil {
				group = append(group, b)
			}
		}
		groups = append(groups, group)
	}
	var flat [][]byte
	var of []int
	for g, group := range groups {
		for _, b := range group {
			flat, of = append(flat, b), append(of, g)
		}
	}
	all := dressed(t, l, flat)
	results["unrelated"] = sampled(t, pairs, func(r *rand.Rand) (a, b *picture) {
		for {
			i, k := r.IntN(len(all)), r.IntN(len(all))
			if of[i] != of[k] {
				return &all[i], &all[k]
			}
		}
	})

	// Of a scene: itself and edits.
	versions := 1 + int(math.Ceil(math.Sqrt(float64(pairs)/float64(len(photos)))))
	var scenes [][]picture
	for g, photo := range photos {
		pix := scene(t, l, r, photo)
		other := scene(t, l, r, photos[(g+1)%len(photos)])
		jpegs := [][]byte{written(t, pix)}
		for len(jpegs) < versions && jpegs[0] != nil {
			if b := written(t, edited(r, pix, other)); b != nil {
				jpegs = append(jpegs, b)
			}
		}
		if jpegs[0] != nil {
			scenes = append(scenes, dressed(t, l, jpegs))
		}
	}
	results["edited"] = sampled(t, pairs, func(r *rand.Rand) (a, b *picture) {
		s := scenes[r.IntN(len(scenes))]
		i, k := r.IntN(len(s)), r.IntN(len(s)-1)
		if k >= i {
			k++
		}
		return &s[i], &s[k]
	})

	for name, c := range results {
		t.Logf("%s: %+v", name, *c)
		if c.Missed > 0 {
			t.Errorf("%s: %d of %d replaced pictures were decoded wrong, and nobody noticed", name, c.Missed, c.Pairs)
		}
		if c.Noticed == 0 || name == "unrelated" && c.Printed == 0 {
			t.Errorf("%s: no wrong record was noticed: the test does not try what it should", name)
		}
	}
	if out := os.Getenv(replacedOutEnv); out != "" {
		b, _ := json.MarshalIndent(results, "", " ")
		if err := os.WriteFile(out, append(b, '\n'), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// sampled tries pairs that draw draws.
func sampled(t *testing.T, pairs int, draw func(r *rand.Rand) (a, b *picture)) *replaced {
	const lanes = 2
	sum := &replaced{}
	var wg sync.WaitGroup
	for id := range lanes {
		wg.Go(func() {
			l := kernel.NewLane()
			defer l.Close()
			r := rand.New(rand.NewPCG(83, uint64(id)))
			dst, want := make([]byte, pairW*pairH*3), make([]byte, pairW*pairH*3)
			var c replaced
			for range (pairs + lanes - 1) / lanes {
				a, b := draw(r)
				c.add(tried(t, l, r, a, b, dst, want))
			}
			sum.add(c)
		})
	}
	wg.Wait()
	return sum
}
