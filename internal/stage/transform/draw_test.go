package transform

import (
	"encoding/json"
	"flag"
	"math"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/rng"
)

var update = flag.Bool("update", false, "keep the choices of new operations in testdata/choices.json; write draws.json anew (only before a first release)")

// law and boxes as testdata/draws.json and histograms.json hold them.
type drawn struct {
	Seed  uint64     `json:"seed"`
	Epoch int64      `json:"epoch"`
	Place int64      `json:"place"`
	W     int        `json:"w"`
	H     int        `json:"h"`
	Scale [2]float64 `json:"scale"`
	Ratio [2]float64 `json:"ratio"`
	Box   [4]int     `json:"box"`  // of RandomResizedCrop as operation 0: x, y, w, h
	Acts  [4]bool    `json:"acts"` // flips of p = 0.5 as operations 0 to 3
	Crop  [2]int     `json:"crop"` // RandomCrop of a quarter as operation 0: x, y
}

var standardScale, standardRatio = [2]float64{0.08, 1}, [2]float64{3.0 / 4, 4.0 / 3}

func drawAll() []drawn {
	var all []drawn
	for _, picture := range []size{{120, 90}, {61, 97}, {500, 375}, {1, 1}, {1000, 10}, {3, 4000}} {
		for place := range int64(6) {
			d := drawn{
				Seed: 17 + uint64(picture.w), Epoch: place % 2, Place: place * 100003, W: picture.w, H: picture.h,
				Scale: standardScale, Ratio: standardRatio,
			}
			if place >= 4 {
				d.Scale, d.Ratio = [2]float64{0.25, 0.75}, [2]float64{0.5, 2}
			}
			key := rng.Sample(d.Seed, d.Epoch, d.Place)
			law := newBoxLaw(d.Scale, d.Ratio)
			b := law.draw(key.With(0), d.W, d.H)
			d.Box = [4]int{b.x, b.y, b.w, b.h}
			for i := range d.Acts {
				d.Acts[i] = happens(key, uint64(i), 0.5)
			}
			crop := &randomCrop{to: size{(d.W + 3) / 4, (d.H + 3) / 4}}
			c, err := crop.choose(key, extent{picture, 3})
			if err != nil {
				panic(err)
			}
			d.Crop = [2]int{int(c[1]), int(c[0])}
			all = append(all, d)
		}
	}
	return all
}

// TestDrawsNeverChange: users keep runs by these numbers.
func TestDrawsNeverChange(t *testing.T) {
	const name = "testdata/draws.json"
	got := drawAll()
	if *update {
		b, err := json.MarshalIndent(got, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, append(b, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var want []drawn
	readJSON(t, name, &want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("random choices have changed (-kept +now):\n%s", diff)
	}
}

func readJSON(t *testing.T, name string, to any) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, to); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// histogram counts boxes the way testdata/make.py counts torchvision's.
type histogram struct {
	W      int        `json:"w"`
	H      int        `json:"h"`
	Scale  [2]float64 `json:"scale"`
	Ratio  [2]float64 `json:"ratio"`
	Draws  int        `json:"draws"`
	Area   []int      `json:"area"`
	Aspect []int      `json:"aspect"`
	X      []int      `json:"x"`
	Y      []int      `json:"y"`
	Joint  []int      `json:"joint"` // area x aspect, 5 x 5
}

func (h *histogram) count(b box) {
	bin := func(x float64, n int) int { return min(max(int(math.Floor(x*float64(n))), 0), n-1) }
	area := float64(b.w*b.h) / float64(h.W*h.H)
	aspect := 0.5
	if h.Ratio[0] < h.Ratio[1] {
		aspect = (math.Log(float64(b.w)/float64(b.h)) - math.Log(h.Ratio[0])) / (math.Log(h.Ratio[1]) - math.Log(h.Ratio[0]))
	}
	h.Area[bin(area, 20)]++
	h.Aspect[bin(aspect, 20)]++
	h.X[bin((float64(b.x)+0.5)/float64(h.W-b.w+1), 10)]++
	h.Y[bin((float64(b.y)+0.5)/float64(h.H-b.h+1), 10)]++
	h.Joint[bin(area, 5)*5+bin(aspect, 5)]++
}

// chiSquared compares two counts of equally many draws and gives how many
// standard deviations (Wilson and Hilferty) the statistic is above its mean.
func chiSquared(a, b []int) float64 {
	sum, free := 0.0, -1.0
	for i := range a {
		if n := float64(a[i] + b[i]); n > 0 {
			d := float64(a[i] - b[i])
			sum += d * d / n
			free++
		}
	}
	if free <= 0 {
		return sum
	}
	v := 2 / (9 * free)
	return (math.Cbrt(sum/free) - (1 - v)) / math.Sqrt(v)
}

func TestBoxesFollowTorchvision(t *testing.T) {
	var all []histogram
	readJSON(t, "testdata/histograms.json", &all)
	for _, want := range all {
		if want.Draws != 100_000 {
			t.Fatalf("%d draws", want.Draws)
		}
		got := want
		got.Area, got.Aspect = make([]int, 20), make([]int, 20)
		got.X, got.Y, got.Joint = make([]int, 10), make([]int, 10), make([]int, 25)
		law := newBoxLaw(want.Scale, want.Ratio)
		for place := range int64(want.Draws) {
			got.count(law.draw(rng.Sample(3, 0, place).With(0), want.W, want.H))
		}
		for name, pair := range map[string][2][]int{
			"area": {want.Area, got.Area}, "aspect": {want.Aspect, got.Aspect},
			"x": {want.X, got.X}, "y": {want.Y, got.Y}, "joint": {want.Joint, got.Joint},
		} {
			z := chiSquared(pair[0], pair[1])
			t.Logf("%dx%d %v %v %s: %.2f", want.W, want.H, want.Scale, want.Ratio, name, z)
			if z > 3.5 {
				t.Errorf("%dx%d %v %v %s: %.1f deviations from torchvision's\n%v\n%v",
					want.W, want.H, want.Scale, want.Ratio, name, z, pair[0], pair[1])
			}
		}
	}
}

// TestUniformChoices: positions of RandomCrop and acts of probability p against
// the rule itself, over 100,000 places.
func TestUniformChoices(t *testing.T) {
	const n = 100_000
	rows, columns := make([]int, 21), make([]int, 13)
	acts := map[float64]int{0.1: 0, 0.5: 0, 0.9: 0}
	crop := &randomCrop{to: size{20, 20}, frame: frame{margins: margins{4, 4, 4, 4}}, number: 2}
	for place := range int64(n) {
		key := rng.Sample(11, 4, place)
		for p := range acts {
			if happens(key, 5, p) {
				acts[p]++
			}
		}
		c, err := crop.choose(key, extent{size{24, 32}, 3})
		if err != nil {
			t.Fatal(err)
		}
		columns[int(c[1])+4]++
		rows[int(c[0])+4]++
	}
	for name, counts := range map[string][]int{"rows": rows, "columns": columns} {
		want := n / float64(len(counts))
		sum := 0.0
		for _, c := range counts {
			sum += (float64(c) - want) * (float64(c) - want) / want
		}
		free := float64(len(counts) - 1)
		if sum > free+4*math.Sqrt(2*free) {
			t.Errorf("%s: chi-squared %.1f with %v degrees: %v", name, sum, free, counts)
		}
	}
	for p, c := range acts {
		if d := math.Abs(float64(c)-n*p) / math.Sqrt(n*p*(1-p)); d > 4 {
			t.Errorf("p = %v: %d of %d", p, c, n)
		}
	}
}

func TestBoxesLieInThePicture(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, h := rapid.IntRange(1, 5000).Draw(t, "w"), rapid.IntRange(1, 5000).Draw(t, "h")
		lo, hi := rapid.Float64Range(0, 2).Draw(t, "lo"), rapid.Float64Range(0, 2).Draw(t, "hi")
		r0, r1 := rapid.Float64Range(1e-6, 1e6).Draw(t, "r0"), rapid.Float64Range(1e-6, 1e6).Draw(t, "r1")
		law := newBoxLaw([2]float64{min(lo, hi), max(lo, hi)}, [2]float64{min(r0, r1), max(r0, r1)})
		b := law.draw(rng.Key(rapid.Uint64().Draw(t, "key")), w, h)
		if b.w < 1 || b.h < 1 || b.x < 0 || b.y < 0 || b.x+b.w > w || b.y+b.h > h {
			t.Fatalf("%+v in %d x %d", b, w, h)
		}
	})
}

func TestExpAndLog(t *testing.T) {
	for x := -690.0; x < 690; x += 0.37 {
		if d := math.Abs(exp(x)/math.Exp(x) - 1); d > 1e-15 {
			t.Fatalf("exp(%v) is off by %g", x, d)
		}
	}
	for x := 1e-300; x < 1e300; x *= 1.73 {
		if d := math.Abs(log(x) - math.Log(x)); d > 1e-15*max(1, math.Abs(math.Log(x))) {
			t.Fatalf("log(%v) is off by %g", x, d)
		}
	}
	for _, x := range []float64{3.0 / 4, 4.0 / 3, 1, 2, 0.5} {
		if d := math.Abs(exp(log(x)) - x); d > 4e-16*x {
			t.Errorf("exp(log(%v)) is off by %g", x, d)
		}
	}
}
