package stream

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/cespare/xxhash/v2"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// numbersDigest is the digest of a list of numbers, for states.
func numbersDigest(numbers []float64) string {
	h := xxhash.New()
	var b [8]byte
	for _, x := range numbers {
		binary.LittleEndian.PutUint64(b[:], math.Float64bits(x))
		_, _ = h.Write(b[:])
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

// int32s converts numbers to lengths.
func int32s(numbers []float64) ([]int32, error) {
	out := make([]int32, len(numbers))
	for i, x := range numbers {
		if x != math.Trunc(x) || x < 0 || x > 1<<31-1 {
			return nil, errs.New(errs.Config, "length %d is %v: lengths are whole numbers from 0 to %d", i, x, 1<<31-1)
		}
		out[i] = int32(x)
	}
	return out, nil
}

// ids converts numbers to ids of a dataset of n samples.
func ids(numbers []float64, n int64) ([]int64, error) {
	out := make([]int64, len(numbers))
	for i, x := range numbers {
		if x != math.Trunc(x) || x < 0 || x >= float64(n) {
			return nil, errs.New(errs.Config, "subset[%d] is %v: ids are whole numbers from 0 to %d", i, x, n-1)
		}
		out[i] = int64(x)
	}
	return out, nil
}
