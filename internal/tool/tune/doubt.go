package tune

import (
	"fmt"
	"slices"

	"github.com/stoker-data/stoker/internal/tool/show"
)

// crowded is the share of the cores above which other processes decide the result:
// it is then about a loader on the remaining cores.
const crowded = 0.25

// doubt says why a choice of workers and share cannot be trusted; "" if it can. rates
// are all measurements of a setting, others the cores that other processes kept busy.
//
// A choice claims that more workers are not worth it, and that fewer are not enough
// with the same share; and the same of larger and smaller shares. All of it must hold
// wherever a setting may be in the range of its measurements.
func doubt(table []Measurement, rates map[Settings][]float64, choice Measurement, others, cores float64) (why string, noise float64) {
	noise = repeated(table, rates)
	several := slices.ContainsFunc(table, func(m Measurement) bool {
		return m.Failed == "" && m.Samples > 0 && (m.Workers != choice.Workers || m.Share != choice.Share)
	})
	if !several {
		return "", noise // there is no choice to make
	}
	if others > crowded*cores {
		return fmt.Sprintf("other processes kept %.1f of %.1f cores busy: the measurements are of a loader on the remaining cores", others, cores), noise
	}
	least, most := interval(choice, rates[choice.Settings], noise)
	for _, m := range table {
		if m.Failed != "" || m.Samples <= 0 || m.Batch != choice.Batch {
			continue
		}
		more, what, which := m.Share-choice.Share, fmt.Sprintf("%d/%d on the device from %d/%d", m.Share, Sixteenths, choice.Share, Sixteenths), "share"
		if more == 0 {
			more, what, which = m.Workers-choice.Workers, fmt.Sprintf("%s from %d", show.Things(m.Workers, "worker"), choice.Workers), "number"
		}
		_, top := interval(m, rates[m.Settings], noise)
		if more > 0 && least < (1-2*Slack)*top || more < 0 && top > most {
			return fmt.Sprintf("measurements of one setting differ by %.0f %%, and %s by %.0f %%: it cannot be told which %s is enough",
				100*max(noise, spread(rates[m.Settings]), spread(rates[choice.Settings])), what,
				100*max(m.Samples-choice.Samples, choice.Samples-m.Samples)/max(m.Samples, choice.Samples), which), noise
		}
	}
	return "", noise
}

// interval is the range of a setting's throughput: that of its measurements,
// without the outermost if there are many; for a single one, the noise of the
// others around it.
func interval(m Measurement, rates []float64, noise float64) (least, most float64) {
	if len(rates) < 2 {
		return m.Samples * (1 - noise/2), m.Samples * (1 + noise/2)
	}
	rates = slices.Sorted(slices.Values(rates))
	if len(rates) >= 5 { // another process may have disturbed one of them
		rates = rates[1 : len(rates)-1]
	}
	return rates[0], rates[len(rates)-1]
}

// spread is the range of measurements of one setting, as a share of their median.
func spread(rates []float64) float64 {
	if len(rates) < 2 {
		return 0
	}
	rates = slices.Sorted(slices.Values(rates))
	return (rates[len(rates)-1] - rates[0]) / max(rates[len(rates)/2], 1e-9)
}

// repeated is the usual spread of settings that were measured more than once; if
// there are none, half of the usual variation of throughput within a measurement.
func repeated(table []Measurement, rates map[Settings][]float64) float64 {
	var all []float64
	for _, r := range rates {
		if len(r) > 1 {
			all = append(all, spread(r))
		}
	}
	if all == nil {
		for _, m := range table {
			if m.Failed == "" {
				all = append(all, m.Spread/2)
			}
		}
	}
	if all == nil {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}
