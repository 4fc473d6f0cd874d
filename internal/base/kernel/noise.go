package kernel

import "math"

// normals fills a row with normal numbers (mean 0, variance 1), by the number of the row
// under a key. Number i of the first half, rounded up, and number i of the second are a pair,
// made by Box and Muller from two words of 32 bits, in float32, so that every processor gets
// the same. None is further than 5.77 from 0.
//
// Users keep runs by these numbers: testdata/noise.json locks them.
func normals(key, row uint64, out []float32) {
	k := rowKey(key, row)
	half := (len(out) + 1) / 2
	for i := range half {
		a, b := scrambled(uint32(k)+uint32(i)*0x9e3779b9), scrambled(uint32(k>>32)+uint32(i)*0x9e3779b9)
		x, y := pair(a, b)
		out[i] = x
		if half+i < len(out) {
			out[half+i] = y
		}
	}
}

// rowKey is draw number row of a key, as SplitMix64 makes it.
func rowKey(key, row uint64) uint64 {
	z := key + (row+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// scrambled is a permutation of 32 bits (Chris Wellons's lowbias32, with constants by TheIronBorn).
func scrambled(x uint32) uint32 {
	x = (x ^ x>>16) * 0x21f0aaad
	x = (x ^ x>>15) * 0x735a2d97
	return x ^ x>>15
}

// pair is two normal numbers: the distance from 0 by a, the angle by b.
func pair(a, b uint32) (x, y float32) {
	r := float32(math.Sqrt(float64(float32(-2 * logOf(a>>9*2+1)))))
	// The angle within an eighth of the circle; three bits say which eighth.
	t := float32(float32(b>>9) * (math.Pi / 4 * 0x1p-23))
	z := float32(t * t)
	s := float32(float32(sinus(z)*float32(z*t)) + t)
	c := float32(float32(cosinus(z)*float32(z*z))-float32(0.5*z)) + 1
	if b&1 != 0 {
		s, c = c, s
	}
	if b&2 != 0 {
		c = -c
	}
	if b&4 != 0 {
		s = -s
	}
	return float32(r * c), float32(r * s)
}

// logOf is the logarithm of v / 2^24, for v below 2^24: by Cephes's logf.
func logOf(v uint32) float32 {
	const root = 0x3f3504f3 // the square root of 1/2
	bits := math.Float32bits(float32(v))
	e := int32(bits-root) >> 23
	f := math.Float32frombits(bits-uint32(e)<<23) - 1
	n := float32(e - 24)
	y := float32(f * 7.0376836292e-2)
	for _, c := range [...]float32{
		-1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
		-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1,
	} {
		y = float32(float32(y+c) * f)
	}
	z := float32(f * f)
	y = float32(float32(float32(y+3.3333331174e-1)*f) * z)
	y += float32(n * -2.12194440e-4)
	y -= float32(0.5 * z)
	return float32(f+y) + float32(n*0.693359375)
}

// sinus and cosinus are Cephes's polynomials of z = t*t, without their first terms.
func sinus(z float32) float32 {
	return float32(float32(float32(float32(z*-1.9515295891e-4)+8.3321608736e-3)*z) - 1.6666654611e-1)
}

func cosinus(z float32) float32 {
	return float32(float32(float32(float32(z*2.443315711809948e-5)-1.388731625493765e-3)*z) + 4.166664568298827e-2)
}
