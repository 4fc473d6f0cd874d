package tree

import "math/bits"

// checksum is lookup3 with the initial value 0 (Bob Jenkins, 2006: "hashlittle"),
// which HDF5 takes for its structures.
func checksum(p []byte) uint32 {
	a := 0xdeadbeef + uint32(len(p))
	b, c := a, a
	for len(p) > 12 {
		a, b, c = a+le.Uint32(p), b+le.Uint32(p[4:]), c+le.Uint32(p[8:])
		a, b, c = mix(a, b, c)
		p = p[12:]
	}
	if len(p) == 0 {
		return c
	}
	var last [12]byte
	copy(last[:], p)
	a, b, c = a+le.Uint32(last[:]), b+le.Uint32(last[4:]), c+le.Uint32(last[8:])

	rot := bits.RotateLeft32
	c = (c ^ b) - rot(b, 14)
	a = (a ^ c) - rot(c, 11)
	b = (b ^ a) - rot(a, 25)
	c = (c ^ b) - rot(b, 16)
	a = (a ^ c) - rot(c, 4)
	b = (b ^ a) - rot(a, 14)
	return (c ^ b) - rot(b, 24)
}

func mix(a, b, c uint32) (uint32, uint32, uint32) {
	rot := bits.RotateLeft32
	a, c = (a-c)^rot(c, 4), c+b
	b, a = (b-a)^rot(a, 6), a+c
	c, b = (c-b)^rot(b, 8), b+a
	a, c = (a-c)^rot(c, 16), c+b
	b, a = (b-a)^rot(a, 19), a+c
	c, b = (c-b)^rot(b, 4), b+a
	return a, b, c
}
