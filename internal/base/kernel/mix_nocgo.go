//go:build !cgo

package kernel

func mixLevel(string) int { return -1 }

func mixUpAt(data []byte, size int, of Float, rows []int32, lambda float64, _ int) {
	mixUpGo(data, size, of, rows, lambda)
}
