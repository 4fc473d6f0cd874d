//go:build !cgo

package kernel

const lzwInC = false

type lzwState struct{}

func (t *LZW) decode([]byte, []byte, int, bool) (n, code int) { return 0, 0 }

func unpredict(block []byte, n, rows, back int) { unpredictGo(block, n, rows, back) }
