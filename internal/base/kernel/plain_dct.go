package kernel

// The inverse DCT, by C. Loeffler, A. Ligtenberg and G. S. Moschytz, "Practical
// fast 1-D DCT algorithms with 11 multiplications" (ICASSP 1989), here with 12
// of them, of which no two follow each other: so rounding is done once.
//
// T.81 defines (A.3.3) the samples of a block as
//
//	s(y,x) = 1/4 Σu Σv Cu Cv S(v,u) cos((2x+1)uπ/16) cos((2y+1)vπ/16),
//
// C0 = 1/√2 and all others 1. The sum over v is the same as one of eight
// coefficients for every column; the sum over u is one for every row of what the
// columns gave. idct8 is that sum over eight values,
//
//	y(x) = √8 · 1/2 Σu Cu S(u) cos((2x+1)uπ/16) = S(0) + √2 Σu>0 S(u) cos((2x+1)uπ/16),
//
// which is √8 times too large. Twice that is 8, taken away at the end with a
// shift by 3.
//
// Fixed point. "Qm" are integers that stand for a multiple of 2^-m:
//
//	coefficients, dequantised             Q0   16 bits
//	constants                             Q13
//	columns, out of idct8                 Q13  32 bits
//	columns, rounded                      Q2   16 bits
//	rows, out of idct8                    Q15  32 bits
//	rows, rounded and divided by 8        Q0   8 bits
//
// No sound file leaves these sizes. Of damaged ones they decide the pixels: what
// is too large wraps or saturates as it does in libjpeg-turbo's vector code for
// x86, which the C kernel follows too.
const (
	constBits = 13 // of the constants
	pass1Bits = 2  // fraction bits that columns keep
)

// With ck = cos(kπ/16), times 2^13 and rounded:
const (
	k0298 = 2446  // √2 (-c1 + c3 + c5 - c7)
	k0390 = 3196  // √2 (c3 - c5)
	k0541 = 4433  // √2 c6
	k0765 = 6270  // √2 (c2 - c6)
	k0899 = 7373  // √2 (c3 - c7)
	k1175 = 9633  // √2 c3
	k1501 = 12299 // √2 (c1 + c3 - c5 - c7)
	k1847 = 15137 // √2 (c2 + c6)
	k1961 = 16069 // √2 (c3 + c5)
	k2053 = 16819 // √2 (c1 + c3 - c5 + c7)
	k2562 = 20995 // √2 (c1 + c3)
	k3072 = 25172 // √2 (c1 + c3 + c5 - c7)
)

// idct8 is the sum above for eight values; its results have 13 more bits of fraction.
// Sums of two inputs have 16 bits, unless they are multiplied separately.
func idct8(x0, x1, x2, x3, x4, x5, x6, x7 int16) (y0, y1, y2, y3, y4, y5, y6, y7 int32) {
	// Even coefficients: x2 and x6 are rotated by 6π/16.
	z := (int32(x2) + int32(x6)) * k0541
	t2 := z - int32(x6)*k1847
	t3 := z + int32(x2)*k0765
	t0 := int32(x0+x4) << constBits
	t1 := int32(x0-x4) << constBits
	e0, e3 := t0+t3, t0-t3
	e1, e2 := t1+t2, t1-t2

	// Odd coefficients: two rotations, and what they share.
	z3, z4 := int32(x7+x3), int32(x5+x1)
	z5 := (z3 + z4) * k1175
	z1 := (int32(x7) + int32(x1)) * -k0899
	z2 := (int32(x5) + int32(x3)) * -k2562
	z3 = z5 - z3*k1961
	z4 = z5 - z4*k0390
	o3 := int32(x7)*k0298 + z1 + z3
	o2 := int32(x5)*k2053 + z2 + z4
	o1 := int32(x3)*k3072 + z2 + z3
	o0 := int32(x1)*k1501 + z1 + z4

	return e0 + o0, e1 + o1, e2 + o2, e3 + o3, e3 - o3, e2 - o2, e1 - o1, e0 - o0
}

// descale drops n bits of fraction, rounding to nearest.
func descale(v int32, n uint) int32 { return (v + 1<<(n-1)) >> n }

func saturate16(v int32) int16 { return int16(min(max(v, -1<<15), 1<<15-1)) }

// inverseDCT dequantises a block (A.3.4), transforms it, and undoes the level
// shift (A.3.1): 8 rows of 8 samples, stride bytes apart.
func inverseDCT(out []byte, stride int, s *block, q *quantTable) {
	// Columns, to ws in Q2.
	var ws block
	if [56]int16(s[8:]) == [56]int16{} {
		// Only row 0 is not zero. Its shift makes every row, and wraps where rounding
		// below would saturate.
		for c := range 8 {
			dc := s[c] * q[c] << pass1Bits
			for r := range 8 {
				ws[8*r+c] = dc
			}
		}
	} else {
		for c := range 8 {
			inverseColumn(&ws, s, q, c)
		}
	}

	// Rows.
	const n = constBits + pass1Bits + 3
	for r := range 8 {
		w, o := ws[8*r:8*r+8:8*r+8], out[r*stride:r*stride+8:r*stride+8]
		if [7]int16(w[1:]) == [7]int16{} {
			v := level(descale(int32(w[0])<<constBits, n))
			for x := range o {
				o[x] = v
			}
			continue
		}
		y0, y1, y2, y3, y4, y5, y6, y7 := idct8(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7])
		o[0], o[1] = level(descale(y0, n)), level(descale(y1, n))
		o[2], o[3] = level(descale(y2, n)), level(descale(y3, n))
		o[4], o[5] = level(descale(y4, n)), level(descale(y5, n))
		o[6], o[7] = level(descale(y6, n)), level(descale(y7, n))
	}
}

func inverseColumn(ws, s *block, q *quantTable, c int) {
	const n = constBits - pass1Bits
	y0, y1, y2, y3, y4, y5, y6, y7 := idct8(
		s[c]*q[c], s[8+c]*q[8+c], s[16+c]*q[16+c], s[24+c]*q[24+c],
		s[32+c]*q[32+c], s[40+c]*q[40+c], s[48+c]*q[48+c], s[56+c]*q[56+c])
	ws[c], ws[8+c] = saturate16(descale(y0, n)), saturate16(descale(y1, n))
	ws[16+c], ws[24+c] = saturate16(descale(y2, n)), saturate16(descale(y3, n))
	ws[32+c], ws[40+c] = saturate16(descale(y4, n)), saturate16(descale(y5, n))
	ws[48+c], ws[56+c] = saturate16(descale(y6, n)), saturate16(descale(y7, n))
}

// level is a sample of the picture: in A.3.1 they are centred on 0.
func level(v int32) byte { return byte(min(max(v, -128), 127) + 128) }
