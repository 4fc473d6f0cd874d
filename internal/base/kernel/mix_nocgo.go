//go:build !cgo

package kernel

func mixUp(data []byte, size, bytes int, rows []int32, lambda, rest float64) {
	mixUpGo(data, size, bytes, rows, lambda, rest)
}
