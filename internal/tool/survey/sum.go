package survey

import (
	"math"
	"math/big"
)

// sum is an exact sum of float64s: it does not depend on the order of additions, so
// goroutines can add in any order. It is a fixed-point number in words of 32 bits, word
// i worth 2^(32 i - 1074); a word has room for the carries of 2^30 additions.
type sum struct {
	words [68]int64
	adds  int   // since the last carry
	count int64 // numbers that were added
}

const (
	lowest  = 1074 // 2^-1074 is the smallest float64
	maxAdds = 1 << 30
)

// add adds a finite x.
func (s *sum) add(x float64) {
	bits := math.Float64bits(x)
	exp, m := int(bits>>52&0x7ff), bits&(1<<52-1)
	if exp == 0 {
		exp = 1 // subnormal
	} else {
		m |= 1 << 52
	}
	i, shift := (exp-1)/32, uint((exp-1)%32)
	low, mid, high := int64(m<<shift&math.MaxUint32), int64(m>>(32-shift)&math.MaxUint32), int64(m>>(64-shift))
	if bits>>63 == 0 {
		s.words[i] += low
		s.words[i+1] += mid
		s.words[i+2] += high
	} else {
		s.words[i] -= low
		s.words[i+1] -= mid
		s.words[i+2] -= high
	}
	s.count++
	if s.adds++; s.adds == maxAdds {
		s.carry()
	}
}

// carry makes room for more additions.
func (s *sum) carry() {
	for i := range len(s.words) - 1 {
		over := s.words[i] >> 32
		s.words[i] -= over << 32
		s.words[i+1] += over
	}
	s.adds = 1
}

// merge adds another sum.
func (s *sum) merge(o *sum) {
	s.carry()
	o.carry()
	for i := range s.words {
		s.words[i] += o.words[i]
	}
	s.adds++
	s.count += o.count
}

// value is the sum itself.
func (s *sum) value() *big.Float {
	total := new(big.Int)
	for i := len(s.words) - 1; i >= 0; i-- {
		total.Lsh(total, 32).Add(total, big.NewInt(s.words[i]))
	}
	f := exact().SetInt(total)
	if total.Sign() == 0 {
		return f
	}
	return f.SetMantExp(f, -lowest)
}

// precision is enough bits for the square of any sum: two times 68 words, and the digits
// of a count.
const precision = 2*68*32 + 128

func exact() *big.Float { return new(big.Float).SetPrec(precision) }

// meanStd is mean and standard deviation of n numbers with sum s and sum of
// squares q, all divided by scale: sqrt(n q - s^2) / n, rounded once at the end.
func meanStd(s, q *big.Float, n int64, scale float64) (mean, std float64) {
	if n == 0 {
		return 0, 0
	}
	count, div := exact().SetInt64(n), exact().SetFloat64(scale)
	mean, _ = exact().Quo(exact().Quo(s, count), div).Float64()
	v := exact().Sub(exact().Mul(count, q), exact().Mul(s, s))
	if v.Sign() <= 0 { // rounding of the squares of float64s
		return mean, 0
	}
	root := new(big.Float).SetPrec(128).Sqrt(v.SetPrec(256))
	std, _ = root.Quo(root, exact().Mul(count, div)).Float64()
	return mean, std
}
