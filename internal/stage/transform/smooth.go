package transform

import (
	"fmt"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// blur is GaussianBlur. Draw 0 gives sigma.
type blur struct {
	over   size // pixels, odd numbers
	sigma  [2]float64
	number uint64
}

func describeGaussianBlur() descriptor {
	return descriptor{
		name: "GaussianBlur", params: []string{"kernel_size", "sigma"}, build: buildGaussianBlur,
		draws: true, cost: colours, says: amounts, numbers: []string{"sigma"},
		example: `{"kernel_size": [33, 41], "sigma": [3, 9]}`,
	}
}

func buildGaussianBlur(a *arguments, number uint64) operation {
	const wanted = "a positive odd number, or two: of columns and of rows"
	o := &blur{sigma: [2]float64{0.1, 2}, number: number}
	if n := a.wholes("kernel_size", wanted, 1, mostSide, 1, 2); a.required("kernel_size", wanted) && len(n) > 0 {
		o.over = size{n[0], n[len(n)-1]}
		if o.over.w%2 == 0 || o.over.h%2 == 0 {
			a.wrong("", "kernel_size must be %s, not %s", wanted, shown(a.op.Args["kernel_size"]))
		}
	}
	if v := a.numbers("sigma", "a positive number, or two, the smaller first", 1, 2); len(v) > 0 {
		o.sigma = [2]float64{v[0], v[len(v)-1]}
		if !(v[0] > 0 && v[0] <= o.sigma[1]) {
			a.wrong("", "sigma must be a positive number, or two, the smaller first, not %s", shown(a.op.Args["sigma"]))
		}
	}
	return o
}

// small says why pictures of s pixels are refused: they are too small to be reflected.
// torchvision refuses them too. It is empty for others.
func (o *blur) small(s size) (hint, what string) {
	if o.over.w/2 < s.w && o.over.h/2 < s.h {
		return "", ""
	}
	return "use a smaller kernel_size, or Resize before it",
		fmt.Sprintf("GaussianBlur over %d x %d pixels needs pictures of at least %d x %d, not %d x %d",
			o.over.w, o.over.h, o.over.w/2+1, o.over.h/2+1, s.w, s.h)
}

func (o *blur) plan(k *known) (operation, *problem) {
	if k.tone.float {
		return nil, before("GaussianBlur", k)
	}
	if hint, what := o.small(k.size); k.sized() && what != "" {
		return nil, problemf(hint, "%s", what)
	}
	return o, nil
}

func (o *blur) choose(key rng.Key, at extent) (c choice, _ *errs.Error) {
	if hint, what := o.small(at.size); what != "" {
		return c, misfit(hint, "%s", what)
	}
	c[0] = between(o.sigma, key.With(o.number).Float64(0))
	return c, nil
}

func (o *blur) do(r *run, c choice) *errs.Error {
	r.chain.Apply(kernel.Step{Op: kernel.OpBlur, W: o.over.w, H: o.over.h, N: nextWeight(c[0])})
	return nil
}

// nextWeight is the weight of a pixel beside another in a Gaussian.
func nextWeight(sigma float64) float64 {
	if sigma < 0.03 {
		return 0 // exp is for arguments above -700
	}
	return exp(-1 / (2 * sigma * sigma))
}

func (o *blur) canon(b []byte) []byte {
	return fmt.Appendf(b, "blur %d %d %d %v", o.number, o.over.w, o.over.h, o.sigma)
}
