package order_test

import (
	"math"
	"slices"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/rng"
	"github.com/stoker-data/stoker/internal/stage/order"
)

const wordDraw = 1<<64 - 16

// naiveDraw is the samples that are drawn in one epoch.
func naiveDraw(n int64, d order.Draw, key rng.Key) []int64 {
	num := d.Num
	if num == 0 {
		num = n
	}
	weights := d.Weights
	switch {
	case d.Replacement && weights == nil:
		var out []int64
		for place := range uint64(num) {
			out = append(out, key.Intn(place, n))
		}
		return out
	case d.Replacement:
		var out []int64
		for place := range uint64(num) {
			out = append(out, roulette(weights, key.Float64(place)))
		}
		return out
	}
	ids := slices.DeleteFunc(numbers(n), func(id int64) bool { return weights[id] == 0 })
	times := make([]float64, n)
	for _, id := range ids {
		u := (float64(key.Uint64(uint64(id))>>12) + 0.5) / (1 << 52)
		times[id] = -math.Log(u) / weights[id]
	}
	slices.SortStableFunc(ids, func(a, b int64) int {
		switch {
		case times[a] < times[b]:
			return -1
		case times[a] > times[b]:
			return 1
		}
		return 0
	})
	return ids[:num]
}

// roulette is the sample whose stretch of the weights, laid end to end, holds
// the part x of their length.
func roulette(weights []float64, x float64) int64 {
	var sum float64
	for _, w := range weights {
		sum += w
	}
	x *= sum
	var end float64
	last := int64(0)
	for id, w := range weights {
		if end += w; w > 0 {
			last = int64(id)
			if x < end {
				break
			}
		}
	}
	return last
}

// drawnDraw puts a Draw on top of an order of n samples.
func drawnDraw(t *rapid.T) (int64, order.Policy) {
	n := rapid.Int64Range(1, 300).Draw(t, "n")
	p := order.Policy{Shuffle: rapid.SampledFrom([]order.Shuffle{"", order.None, order.Full}).Draw(t, "shuffle")}
	d := &p.Draw
	d.Replacement = rapid.Bool().Draw(t, "replacement")
	there := n
	if rapid.Bool().Draw(t, "weighted") {
		weight := rapid.OneOf(rapid.Float64Range(0, 1), rapid.SampledFrom([]float64{0, 1, 1e-9, 1e100}))
		d.Weights = rapid.SliceOfN(weight, int(n), int(n)).Draw(t, "weights")
		d.Weights[rapid.Int64Range(0, n-1).Draw(t, "positive")] = 0.5
		there = 0
		for i, w := range d.Weights {
			if w > 0 && w < 1e-100 { // no weight that a draw without replacement refuses
				d.Weights[i] = 0
			}
			if d.Weights[i] > 0 {
				there++
			}
		}
		d.Num = there
	}
	switch {
	case d.Replacement:
		d.Num = rapid.Int64Range(0, 400).Draw(t, "num")
	case rapid.Bool().Draw(t, "some"):
		d.Num = rapid.Int64Range(1, there).Draw(t, "num")
	}
	return n, p
}
