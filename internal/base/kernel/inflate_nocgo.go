//go:build !cgo

package kernel

type inflateState struct{}

func inflateLevel(string) int { return inflateTwinLevel }

func (z *Inflater) open()     {}
func (z *Inflater) used() int { return 0 }

func (z *Inflater) run([]byte, int, int) (n int, end bool, err error) {
	panic("kernel: the C inflater is not built in")
}

func (z *Inflater) adler32(sum uint32, p []byte) uint32 { return adlerGo(sum, p) }

func unfilter(dst, src, up []byte, n, rows, back int) int {
	return unfilterGo(dst, src, up, n, rows, back)
}
