package transform

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/rng"
)

func mixOf(t testing.TB, text string) *Mix {
	t.Helper()
	var op Op
	if err := json.Unmarshal([]byte(text), &op); err != nil {
		t.Fatal(err)
	}
	m, err := CompileMix(op)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return m
}

// mixDrawn is one choice, as testdata/mixes.json has it.
type mixDrawn struct {
	Op     json.RawMessage `json:"op"`
	Seed   uint64          `json:"seed"`
	Epoch  int64           `json:"epoch"`
	Place  int64           `json:"place"`
	Number int             `json:"number"`
	Cut    bool            `json:"cut"`
	Lambda float64         `json:"lambda"`
	X      float64         `json:"x"`
	Y      float64         `json:"y"`
	Size   [2]int          `json:"size"`
	Box    [4]int          `json:"box"`
	Left   float64         `json:"left"` // share of the row itself after CutMix
}

func mixDraws(t *testing.T) (all []mixDrawn) {
	ops := []string{}
	for _, alpha := range []string{"1e-6", "0.05", "0.2", "0.4", "0.5", "0.8", "0.999", "1", "1.001", "1.5", "2", "8", "1000", "1e9"} {
		ops = append(ops, `{"op":"MixUp","alpha":`+alpha+`,"num_classes":10}`, `{"op":"CutMix","alpha":`+alpha+`,"num_classes":10}`)
	}
	ops = append(ops,
		`{"op":"RandomChoice","transforms":[{"op":"MixUp","alpha":0.2,"num_classes":10},{"op":"CutMix","num_classes":10}]}`,
		`{"op":"RandomChoice","transforms":[{"op":"CutMix","num_classes":10},{"op":"MixUp","num_classes":10},{"op":"MixUp","alpha":3,"num_classes":10}],"p":[1,0,3]}`)
	for i, text := range ops {
		m := mixOf(t, text)
		for n := range int64(4) {
			d := mixDrawn{Op: json.RawMessage(text), Seed: uint64(i) * 7, Epoch: n % 3, Place: n * 100_003, Size: [][2]int{{224, 224}, {61, 97}, {1, 1}, {32, 7}}[n]}
			c := m.Choose(rng.Sample(d.Seed, d.Epoch, d.Place))
			d.Number, d.Cut, d.Lambda, d.X, d.Y = c.Number, c.Cut, c.Lambda, c.X, c.Y
			if c.Cut {
				d.Box[0], d.Box[1], d.Box[2], d.Box[3], d.Left = c.Box(d.Size[0], d.Size[1])
			}
			all = append(all, d)
		}
	}
	return all
}

// TestMixesNeverChange: users keep runs by these numbers, and the Python client computes
// the same boxes.
func TestMixesNeverChange(t *testing.T) {
	const name = "testdata/mixes.json"
	got := mixDraws(t)
	if _, err := os.Stat(name); *update && os.IsNotExist(err) {
		var b strings.Builder
		for i, d := range got {
			line, err := json.Marshal(d)
			if err != nil {
				t.Fatal(err)
			}
			b.WriteString(map[bool]string{true: "[\n", false: ",\n"}[i == 0] + string(line))
		}
		if err := os.WriteFile(name, []byte(b.String()+"\n]\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var want []mixDrawn
	readJSON(t, name, &want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("random choices have changed (-kept +now):\n%s", diff)
	}
}

// mixHistogram is counts of 100,000 draws of torchvision's make_params, by testdata/mix.py.
type mixHistogram struct {
	Op     string           `json:"op"`
	Alpha  float64          `json:"alpha"`
	W      int              `json:"w"`
	H      int              `json:"h"`
	Draws  int              `json:"draws"`
	Counts map[string][]int `json:"counts"`
}

// TestMixesFollowTorchvision compares lambda, and the boxes of CutMix, with torchvision's.
func TestMixesFollowTorchvision(t *testing.T) {
	var all []mixHistogram
	readJSON(t, "testdata/mixes_torchvision.json", &all)
	if len(all) < 8 {
		t.Fatalf("%d laws", len(all))
	}
	for _, want := range all {
		if want.Draws != 100_000 {
			t.Fatalf("%d draws", want.Draws)
		}
		m := mixOf(t, fmt.Sprintf(`{"op":%q,"alpha":%v,"num_classes":10}`, want.Op, want.Alpha))
		got := map[string][]int{}
		count := func(name string, x float64) {
			if got[name] == nil {
				got[name] = make([]int, len(want.Counts[name]))
			}
			n := len(got[name])
			got[name][min(max(int(math.Floor(x*float64(n))), 0), n-1)]++
		}
		for place := range int64(want.Draws) {
			c := m.Choose(rng.Sample(5, 1, place))
			if !c.Cut {
				count("lam", c.Lambda)
				continue
			}
			x1, y1, x2, y2, left := c.Box(want.W, want.H)
			count("lam", left)
			count("x1", float64(x1)/float64(want.W))
			count("y1", float64(y1)/float64(want.H))
			count("x2", (float64(x2)-0.5)/float64(want.W))
			count("y2", (float64(y2)-0.5)/float64(want.H))
		}
		if len(got) != len(want.Counts) {
			t.Fatalf("counted %d, and torchvision's are %d", len(got), len(want.Counts))
		}
		for name, counts := range want.Counts {
			z := chiSquared(counts, got[name])
			t.Logf("%s %v %dx%d %s: %.2f", want.Op, want.Alpha, want.W, want.H, name, z)
			if z > 3.5 {
				t.Errorf("%s alpha %v, %d x %d, %s: %.1f deviations from torchvision's\n%v\n%v", want.Op, want.Alpha, want.W, want.H, name, z, counts, got[name])
			}
		}
	}
}

// TestBeta compares the law with its exact moments: mean 1/2, variance 1/(4(2a+1)), and
// with its symmetry.
func TestBeta(t *testing.T) {
	const n = 200_000
	for _, alpha := range []float64{0.01, 0.1, 0.3, 0.5, 0.9, 1, 1.1, 1.5, 2, 5, 50, 1e4} {
		sum, square, fourth := 0.0, 0.0, 0.0
		for i := range int64(n) {
			x := beta(rng.Sample(8, 0, i), 0, alpha)
			if !(x >= 0 && x <= 1) {
				t.Fatalf("alpha %v: %v", alpha, x)
			}
			d := x - 0.5
			sum, square, fourth = sum+d, square+d*d, fourth+d*d*d*d
		}
		variance := 1 / (4 * (2*alpha + 1))
		deviation := math.Sqrt(variance / n)
		spread := math.Sqrt(max(fourth/n-square/n*square/n, 1e-30) / n)
		if math.Abs(sum/n) > 4.5*deviation || math.Abs(square/n-variance) > 4.5*spread {
			t.Errorf("alpha %v: mean off by %.1f deviations, variance %g, not %g (%.1f deviations)", alpha, sum/n/deviation, square/n, variance, (square/n-variance)/spread)
		}
	}
}

// A RandomChoice chooses by p, and never what has p = 0.
func TestMixChoices(t *testing.T) {
	m := mixOf(t, `{"op":"RandomChoice","transforms":[{"op":"CutMix","num_classes":3},{"op":"MixUp","num_classes":3},{"op":"CutMix","alpha":2,"num_classes":3}],"p":[1,0,3]}`)
	counts := make([]int, 3)
	for place := range int64(40_000) {
		counts[m.Choose(rng.Sample(2, 2, place)).Number]++
	}
	if counts[1] != 0 || math.Abs(float64(counts[0])-10_000) > 400 {
		t.Error(counts)
	}
	if m.pick(math.Nextafter(1, 0)) != 2 || m.pick(0) != 0 {
		t.Error("the ends")
	}
}

func TestBoxesOfCutMixLieInThePicture(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, h := rapid.IntRange(1, 4000).Draw(t, "w"), rapid.IntRange(1, 4000).Draw(t, "h")
		unit := rapid.Float64Range(0, math.Nextafter(1, 0))
		m := Mixed{Cut: true, Lambda: rapid.Float64Range(0, 1).Draw(t, "lambda"), X: unit.Draw(t, "x"), Y: unit.Draw(t, "y")}
		x1, y1, x2, y2, left := m.Box(w, h)
		if x1 < 0 || y1 < 0 || x2 > w || y2 > h || x2 < x1 || y2 < y1 || left < 0 || left > 1 {
			t.Fatalf("%+v: %d %d %d %d %v in %d x %d", m, x1, y1, x2, y2, left, w, h)
		}
	})
}

func TestMixRefuses(t *testing.T) {
	for text, want := range map[string]string{
		`{"op":"MixUp","alpha":0}`:                                         "batch_transform (MixUp): alpha must be a positive number, not 0",
		`{"op":"MixUp","alpha":-1,"num_classes":2.5}`:                      "num_classes must be a positive whole number",
		`{"op":"MixUp","alpha":1e-60}`:                                     "alpha must be a positive number",
		`{"op":"CutMix","beta":1}`:                                         `unknown argument "beta"`,
		`{"op":"CutMx"}`:                                                   "did you mean CutMix",
		`{"op":"Resize"}`:                                                  "not a transform of batches",
		`{"op":"MixUp","labels":3}`:                                        "labels must be a text, not 3",
		`{"op":"RandomChoice"}`:                                            "transforms is missing",
		`{"op":"RandomChoice","transforms":[]}`:                            "transforms is empty",
		`{"op":"RandomChoice","transforms":["MixUp","CutMix"],"p":[1]}`:    "p has 1 numbers, and there are 2 transforms",
		`{"op":"RandomChoice","transforms":["MixUp","CutMix"],"p":1}`:      "p has 1 numbers, and there are 2 transforms",
		`{"op":"RandomChoice","transforms":["MixUp","CutMix"],"p":[0,0]}`:  "not all are 0",
		`{"op":"RandomChoice","transforms":["MixUp","CutMix"],"p":[2,-1]}`: "none is negative",
		`{"op":"RandomChoice","transforms":["MixUp","Flip"]}`:              "transform 2 of 2 in RandomChoice (Flip)",
		`{"op":"RandomChoice","transforms":[{"op":"MixUp","num_classes":3},{"op":"CutMix","num_classes":4}]}`: "must make the same labels",
	} {
		var op Op
		if err := json.Unmarshal([]byte(text), &op); err != nil {
			t.Fatal(err)
		}
		_, err := CompileMix(op)
		if err == nil || errs.CodeOf(err) != errs.Config {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if e := errs.From(err); !strings.Contains(e.What+" ("+e.Hint+")", want) {
			t.Errorf("%s: %v", text, e)
		}
	}
}

// Equal work, equal text; and the texts are kept: they are part of saved states.
func TestMixCanon(t *testing.T) {
	for text, want := range map[string]string{
		`{"op":"MixUp","num_classes":10}`:                         "mix 10 MixUp 3ff0000000000000",
		`{"num_classes":10,"op":"MixUp","alpha":1.0,"labels":""}`: "mix 10 MixUp 3ff0000000000000",
		`"CutMix"`: "mix 0 CutMix 3ff0000000000000",
		`{"op":"RandomChoice","transforms":[{"op":"MixUp","alpha":0.2},"CutMix"]}`: "mix 0 MixUp 3fc999999999999a 3fe0000000000000 CutMix 3ff0000000000000 3fe0000000000000",
	} {
		if got := mixOf(t, text).Canon(); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}

func TestMixExplain(t *testing.T) {
	m := mixOf(t, `{"op":"RandomChoice","transforms":["MixUp","CutMix"]}`)
	for want, got := range map[string][]Choice{
		`[{"op":"RandomChoice","chosen":0},{"op":"MixUp","lam":0.25}]`:                                         m.Explain(Mixed{Lambda: 0.25}, 9, 9),
		`[{"op":"RandomChoice","chosen":1},{"op":"CutMix","drawn":0.75,"x":0.5,"y":0.5}]`:                      m.Explain(Mixed{Number: 1, Cut: true, Lambda: 0.75, X: 0.5, Y: 0.5}, 0, 0),
		`[{"op":"RandomChoice","chosen":1},{"op":"CutMix","lam":0.75,"left":2,"top":4,"right":6,"bottom":12}]`: m.Explain(Mixed{Number: 1, Cut: true, Lambda: 0.75, X: 0.5, Y: 0.5}, 8, 16),
	} {
		b, err := json.Marshal(got)
		if err != nil || string(b) != want {
			t.Errorf("%s, not %s (%v)", b, want, err)
		}
	}
}
