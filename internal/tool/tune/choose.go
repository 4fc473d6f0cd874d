package tune

import (
	"cmp"
	"slices"
)

// Settings are the result of tuning. Prefetch is in batches: of the whole loader
// for stoker, per worker for torch, and 0 without workers.
type Settings struct {
	Workers  int  `json:"num_workers" yaml:"num_workers"`
	Prefetch int  `json:"prefetch" yaml:"prefetch"`
	Pin      bool `json:"pin_memory" yaml:"pin_memory"`
	Batch    int  `json:"batch_size" yaml:"batch_size"`
	// Share is how many sixteenths of the rows a device decodes.
	Share int `json:"decode_sixteenths,omitempty" yaml:"decode_sixteenths,omitempty"`
}

// Figures are the measurements with some settings in the steady state; the first
// batch of an epoch is separate.
type Figures struct {
	Samples float64 `json:"samples_per_second" yaml:"samples_per_second"`
	Batches float64 `json:"batches_per_second" yaml:"batches_per_second"`
	// Cores is the mean number of busy cores: CPU time of all processes, divided by
	// the time.
	Cores  float64 `json:"cores_busy" yaml:"cores_busy"`
	First  float64 `json:"first_batch_s" yaml:"first_batch_s"`
	Spread float64 `json:"spread" yaml:"spread"` // of windows: (largest - smallest) / median
}

// Measurement is one row of the table.
type Measurement struct {
	Settings
	Figures
	Failed string `json:"failed,omitempty"` // why there are no figures
}

// Slack is how much of the best throughput is given up for a smaller share, fewer
// workers and less prefetch: a share costs time of the trainer's device, workers its
// cores, and both workers and prefetch memory.
const Slack = 0.05

// Choose returns the settings with the smallest share, then the fewest workers, then
// the least prefetch, whose throughput is within Slack of the best; of these the
// fastest. It also returns the best itself; false if nothing was measured.
func Choose(table []Measurement) (choice, best Measurement, ok bool) {
	good := slices.DeleteFunc(slices.Clone(table), func(m Measurement) bool { return m.Failed != "" || m.Samples <= 0 })
	if len(good) == 0 {
		return choice, best, false
	}
	best = slices.MaxFunc(good, func(a, b Measurement) int { return cmp.Compare(a.Samples, b.Samples) })
	good = slices.DeleteFunc(good, func(m Measurement) bool { return m.Samples < best.Samples*(1-Slack) })
	choice = slices.MinFunc(good, func(a, b Measurement) int {
		return cmp.Or(cmp.Compare(a.Share, b.Share), cmp.Compare(a.Workers, b.Workers), cmp.Compare(a.Prefetch, b.Prefetch),
			cmp.Compare(b.Samples, a.Samples))
	})
	return choice, best, true
}
