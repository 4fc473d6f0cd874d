package model

// Walk simulates a loop whose batches take different times, and returns the mean
// seconds per batch after the first: costs are the seconds of each batch in its
// worker, in order.
//
// The queue is that of torch's DataLoader. Batch i is made by worker i mod workers;
// it is requested when batch i - workers*prefetch has been taken; and batches are
// taken in order, so that a slow one delays those after it:
//
//	begin[i] = max(done[i-workers], taken[i-workers*prefetch])
//	done[i]  = begin[i] + costs[i]
//	taken[i] = max(done[i], taken[i-1] + step)
//
// Cores are not modelled: costs are those on a machine with enough cores.
func Walk(costs []float64, step float64, workers, prefetch int) float64 {
	n := len(costs)
	if n < 2 {
		return step
	}
	if workers <= 0 {
		sum := 0.0
		for _, c := range costs[1:] {
			sum += c + step
		}
		return sum / float64(n-1)
	}
	ahead := workers * max(prefetch, 1)
	done, taken := make([]float64, n), make([]float64, n)
	for i, c := range costs {
		begin := 0.0
		if i >= workers {
			begin = done[i-workers]
		}
		if i >= ahead {
			begin = max(begin, taken[i-ahead])
		}
		done[i] = begin + c
		taken[i] = done[i]
		if i > 0 {
			taken[i] = max(done[i], taken[i-1]+step)
		}
	}
	return (taken[n-1] - taken[0]) / float64(n-1)
}
