package transform

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// policiesFile is what testdata/policies.py writes: what torchvision draws.
type policiesFile struct {
	Magnitudes []struct {
		Policy, Op    string
		Bins          int
		Height, Width int
		Signed        bool
		Values        []float64
	}
	Draws []struct {
		Policy    string
		Arguments map[string]json.RawMessage
		Draws     int
		Ops       map[string]int
		Lengths   map[string]int
		Weights   map[string][]int
	}
}

// policyOf compiles one policy.
func policyOf(t *testing.T, name string, args map[string]json.RawMessage) policy {
	t.Helper()
	p, err := Compile("rgb", []Op{{Name: name, Args: args}}, "nhwc")
	if err != nil {
		t.Fatal(err)
	}
	return p.steps[0].op.(policy)
}

// TestMagnitudes: those of every bin are torchvision's, to the bit.
func TestMagnitudes(t *testing.T) {
	var file policiesFile
	readJSON(t, "testdata/policies.json", &file)
	spaces := map[string]*augmentations{
		"RandAugment":        policyOf(t, "RandAugment", nil).(*randAugment).space,
		"TrivialAugmentWide": policyOf(t, "TrivialAugmentWide", nil).(*trivialAugment).space,
		"AugMix":             policyOf(t, "AugMix", nil).(*augMix).space,
	}
	seen := map[string][]string{}
	for _, m := range file.Magnitudes {
		space := spaces[m.Policy]
		i := slices.IndexFunc(space.of, func(a augmentation) bool { return a.String() == m.Op })
		if i < 0 || space.of[i].signed() != m.Signed {
			t.Fatalf("%s of %s is missing, or its sign", m.Op, m.Policy)
		}
		if !slices.Contains(seen[m.Policy], m.Op) {
			seen[m.Policy] = append(seen[m.Policy], m.Op)
		}
		for bin, want := range m.Values {
			if got := space.magnitude(space.of[i], bin, m.Bins, size{m.Width, m.Height}); got != want {
				t.Fatalf("%s of %s, bin %d of %d, %d x %d: %v, not %v", m.Op, m.Policy, bin, m.Bins, m.Width, m.Height, got, want)
			}
		}
	}
	for name, space := range spaces { // a draw means the same operation
		var ops []string
		for _, a := range space.of {
			ops = append(ops, a.String())
		}
		if !slices.Equal(ops, seen[name]) {
			t.Errorf("%s: %v, not %v", name, ops, seen[name])
		}
	}
}

// together is two counts of the same things in the same order.
func together(a, b map[string]int) (x, y []int) {
	var keys []string
	for key := range a {
		keys = append(keys, key)
	}
	for key := range b {
		if a[key] == 0 {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		x, y = append(x, a[key]), append(y, b[key])
	}
	return x, y
}

// TestPoliciesFollowTorchvision: as many draws as torchvision's give each list of operations
// as often, and AugMix's weights have the same laws.
func TestPoliciesFollowTorchvision(t *testing.T) {
	var file policiesFile
	readJSON(t, "testdata/policies.json", &file)
	if len(file.Draws) != 8 || file.Draws[0].Draws != 100_000 {
		t.Fatalf("%d policies", len(file.Draws))
	}
	compare := func(what string, want, got []int) {
		t.Helper()
		z := chiSquared(want, got)
		t.Logf("%s: %.2f in %d cells", what, z, len(want))
		if z > 4 {
			t.Errorf("%s: %.1f deviations from torchvision's", what, z)
		}
	}
	text := func(names []string, magnitudes []float64) []string {
		var out []string
		for i, name := range names {
			out = append(out, fmt.Sprintf("%s %.5g", name, magnitudes[i]))
		}
		return out
	}
	at := extent{size{40, 30}, 3}
	for _, d := range file.Draws {
		op := policyOf(t, d.Policy, d.Arguments)
		ops, lengths := map[string]int{}, map[string]int{}
		weights := map[string][]int{"picture": make([]int, 20), "first": make([]int, 20), "largest": make([]int, 20)}
		count := func(name string, v float64) { weights[name][min(19, int(v*20))]++ }
		for place := range int64(d.Draws) {
			c := op.list(rng.Sample(7, 0, place), at, nil)
			if d.Policy != "AugMix" {
				names, magnitudes, _ := c.operations(0)
				ops[strings.Join(text(names, magnitudes), ", ")]++
				continue
			}
			shares, names, magnitudes := c.chains()
			n := 0
			for i := range names {
				for _, one := range text(names[i], magnitudes[i]) {
					ops[one]++
					n++
				}
			}
			lengths[fmt.Sprint(n)]++
			sum := 0.0
			for _, w := range shares {
				sum += w
			}
			if math.Abs(sum-1) > 1e-12 {
				t.Fatalf("the weights %v add up to %v", shares, sum)
			}
			rest := 1 - shares[0]
			if rest == 0 {
				rest = 1
			}
			count("picture", shares[0])
			count("first", shares[1]/rest)
			count("largest", slices.Max(shares[1:])/rest)
		}
		name := fmt.Sprintf("%s %s", d.Policy, d.Arguments)
		want, got := together(d.Ops, ops)
		compare(name, want, got)
		if d.Policy == "AugMix" {
			want, got := together(d.Lengths, lengths)
			compare(name+" lengths", want, got)
			for law := range weights {
				compare(name+" "+law, d.Weights[law], weights[law])
			}
		}
	}
}

// TestGamma: mean and variance of a gamma variate are its shape.
func TestGamma(t *testing.T) {
	for _, alpha := range []float64{1e-3, 0.2, 0.9, 1, 1.1, 2, 7, 1000} {
		const n = 100_000
		sum, squares := 0.0, 0.0
		for i := range uint64(n) {
			x := math.Exp(logGamma(rng.New(5).With(i), alpha))
			sum += x
			squares += x * x
		}
		mean := sum / n
		variance := squares/n - mean*mean
		// The fourth moment gives the error of a variance: 3 alpha^2 + 6 alpha over alpha^2.
		if z := (mean - alpha) / math.Sqrt(alpha/n); math.Abs(z) > 4 {
			t.Errorf("the mean for %v is %v: %.1f deviations", alpha, mean, z)
		}
		if z := (variance - alpha) / math.Sqrt((2*alpha*alpha+6*alpha)/n); math.Abs(z) > 5 {
			t.Errorf("the variance for %v is %v: %.1f deviations", alpha, variance, z)
		}
	}
	var shares [3]float64
	for i := range uint64(1000) {
		for _, alpha := range []float64{1e-300, 1e-17, 1e-3, 1e30} {
			dirichlet(rng.New(6).With(i), alpha, shares[:])
			if sum := shares[0] + shares[1] + shares[2]; !(math.Abs(sum-1) < 1e-12) {
				t.Fatalf("alpha %v: shares %v", alpha, shares)
			}
		}
	}
}

// augment does the operations that a policy of parts has chosen, one after the other.
func (r *replay) augment(policy string, names, magnitudes any) error {
	o := &augmenter{warper: warper{filter: kernel.Nearest}}
	switch policy {
	case "TrivialAugmentWide":
		o.warper = warper{filter: kernel.Bilinear, filled: true, fill: fill{v: [3]float64{9, 50, 200}}}
	case "AugMix":
		o.filter = kernel.Bilinear
	}
	for i, name := range names.([]any) {
		a := augIdentity
		for a.String() != name {
			a++
		}
		var one run
		one.chain.Reset(r.p.W, r.p.H, r.p.C)
		o.one(&one, a, magnitudes.([]any)[i].(float64))
		q := kernel.Pixels{Pix: make([]byte, len(r.p.Pix)), W: r.p.W, H: r.p.H, C: r.p.C}
		if err := r.lane.Run(&kernel.Job{Src: r.p, Steps: one.chain.Steps(), Dst: q.Pix}); err != nil {
			return err
		}
		r.p = q
	}
	return nil
}

// augMix adds up what the chains make of the picture.
func (r *replay) augMix(s said) error {
	was := r.p
	sum := make([]float32, len(was.Pix))
	add := func(weight any) {
		for i, v := range r.p.Pix {
			sum[i] += float32(float32(v) * float32(weight.(float64)))
		}
		r.p = was
	}
	weights := s["weights"].([]any)
	add(weights[0])
	for i, names := range s["operations"].([]any) {
		if err := r.augment("AugMix", names, s["magnitudes"].([]any)[i]); err != nil {
			return err
		}
		add(weights[i+1])
	}
	r.p.Pix = make([]byte, len(sum))
	for i, v := range sum {
		r.p.Pix[i] = uint8(min(v, 255))
	}
	return nil
}
