package transform

import (
	"math"

	"github.com/stoker-data/stoker/internal/base/rng"
)

// Every random choice is a function of the sample's key, rng.Sample(seed, epoch,
// place), and of nothing else. Users' runs depend on it, testdata/draws.json and
// choices.json lock it, and it may never change:
//
//   - The operations that draw, as their descriptors say, are numbered 0, 1, 2, ...
//     in the order in which they are written, a container (RandomApply, RandomChoice,
//     RandomOrder) before the operations in it. Each of these has a number, whether it is
//     done or not. Others have none, so that adding a Normalize leaves every crop where it
//     was. Operation n draws with key.With(n).
//   - RandomApply, RandomGrayscale and the flips act if Float64(0) < p.
//   - RandomChoice does the first part up to which the sum of the probabilities is above
//     Float64(0).
//   - RandomOrder of n parts: Intn(0, n!) is the number of the order among all,
//     sorted as texts are.
//   - RandomCrop: the top is Intn(0, rows), the left Intn(1, columns), of all
//     positions where the crop fits.
//   - RandomResizedCrop: try t of 0 to 9 takes area, log ratio, top and left
//     from the draws 4t, 4t+1, 4t+2 and 4t+3.
//   - GaussianBlur: sigma is Float64(0) between its ends. RandomErasing: see erasing.go.
//   - Any other operation documents its draws where it chooses.
//
// Arithmetic is float64, with every product rounded before it is added (no fused
// multiply-add), and with the exp and log below: those of the standard library
// differ in the last bit between processors.

// box is a region of a picture, in pixels.
type box struct{ x, y, w, h int }

// boxLaw is the distribution of RandomResizedCrop's region.
type boxLaw struct {
	scale    [2]float64 // of the picture's area
	ratio    [2]float64 // width / height
	logRatio [2]float64
}

func newBoxLaw(scale, ratio [2]float64) boxLaw {
	return boxLaw{scale, ratio, [2]float64{log(ratio[0]), log(ratio[1])}}
}

// boxTries is how often torchvision draws before it uses the central region.
const boxTries = 10

// draw chooses a region of a picture of w x h pixels.
func (l *boxLaw) draw(key rng.Key, w, h int) box {
	area := float64(w) * float64(h)
	for try := uint64(0); try < boxTries; try++ {
		target := area * between(l.scale, key.Float64(4*try))
		aspect := exp(between(l.logRatio, key.Float64(4*try+1)))
		bw := math.RoundToEven(math.Sqrt(target * aspect))
		bh := math.RoundToEven(math.Sqrt(target / aspect))
		if bw < 1 || bh < 1 || bw > float64(w) || bh > float64(h) {
			continue
		}
		b := box{w: int(bw), h: int(bh)}
		b.y = int(key.Intn(4*try+2, int64(h-b.h+1)))
		b.x = int(key.Intn(4*try+3, int64(w-b.w+1)))
		return b
	}
	return l.central(w, h)
}

// central is the largest centred region whose ratio is allowed.
func (l *boxLaw) central(w, h int) box {
	b := box{w: w, h: h}
	switch ratio := float64(w) / float64(h); {
	case ratio < l.ratio[0]:
		b.h = max(1, int(math.RoundToEven(float64(w)/l.ratio[0])))
	case ratio > l.ratio[1]:
		b.w = max(1, int(math.RoundToEven(float64(h)*l.ratio[1])))
	}
	b.x, b.y = (w-b.w)/2, (h-b.h)/2
	return b
}

// between is the point u of [0, 1) between r[0] and r[1].
func between(r [2]float64, u float64) float64 { return r[0] + float64((r[1]-r[0])*u) }

const (
	ln2Hi = 6.93147180369123816490e-01 // ln 2 to 32 bits: k*ln2Hi is exact for the k that occur
	ln2Lo = 1.90821492927058770002e-10 // the rest
)

// exp is e^x with a relative error below 1e-15, for |x| < 700. The divisions keep a
// compiler from fusing a multiplication with an addition.
func exp(x float64) float64 {
	k := math.Floor(float64(x/math.Ln2) + 0.5)
	r := x - float64(k*ln2Hi)
	r -= float64(k * ln2Lo)
	sum := 1.0 // Taylor, |r| < 0.35: the term after r^14 is below 1e-19
	for i := 14; i >= 1; i-- {
		sum = 1 + sum*r/float64(i)
	}
	return math.Ldexp(sum, int(k))
}

// log is the natural logarithm with an error below 1e-15, for positive finite x.
func log(x float64) float64 {
	m, e := math.Frexp(x) // x = m * 2^e, m in [1/2, 1)
	if m < math.Sqrt2/2 {
		m, e = m*2, e-1
	}
	f := (m - 1) / (m + 1) // log m = 2 artanh f, |f| < 0.172
	sum, square := 0.0, f*f
	for i := 23; i >= 1; i -= 2 {
		sum = float64(sum*square) + 1/float64(i)
	}
	return float64(2*f*sum) + float64(float64(e)*math.Ln2)
}
