package need

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/stoker-data/stoker/internal/tool/bench"
)

// floats are the operations that make floats, or work on them.
var floats = []string{"ToTensor", "ToDtype", "ConvertImageDtype", "Normalize"}

// How much of its time something must be busy to be what limits.
const (
	lanesBusy = 0.75
	readsBusy = 0.5 // of all readers, waiting for bytes
	coresBusy = 0.75
)

// Of is what a run at full speed measured. cores are the lanes that the loader takes by
// itself on this machine.
func Of(r *bench.Report, cores int) Measured {
	s := r.Stats
	n := float64(max(s.Decode.Items, 1))
	m := Measured{
		Rate: r.PerSecond, CPU: r.CPUPer1000 / 1000, Lanes: r.Lanes, Cores: max(cores, 1), Busy: r.CPUSeconds / r.Seconds,
		Read: min(s.Read.CPUSeconds, s.Read.BusySeconds) / n, Batch: s.Batch.BusySeconds / n,
		Samples: r.Dataset, ReadBytes: float64(s.Read.Bytes) / float64(max(s.Read.Items, 1)),
	}
	if s.Read.Items == 0 { // nothing is read: it is made, or cached
		m.ReadBytes = 0
	}
	for _, t := range s.Transforms {
		m.Transform += t.BusySeconds / n
		if slices.Contains(floats, t.Name) {
			m.Float += t.BusySeconds / n
		}
	}
	m.Decode = max(0, s.Decode.BusySeconds/n-m.Transform)
	if s.Decode.BusySeconds > 0 && s.Decode.CPUSeconds > 0 {
		m.OnCore = min(1, s.Decode.CPUSeconds/s.Decode.BusySeconds)
		for _, of := range []*float64{&m.Decode, &m.Transform, &m.Float} { // transforms are timed by the clock
			*of *= m.OnCore
		}
	}
	m.sizes(r)
	m.PerFile, m.Whole = r.PerFile, r.Samples > r.Dataset
	if len(r.Path) == 1 {
		m.Path = r.Path[0]
	}
	m.Bound = bound(r, m)
	return m
}

// sizes are those of a sample in a batch: of its fields, or of whole batches if a field
// has no fixed size.
func (m *Measured) sizes(r *bench.Report) {
	fixed := 0.0
	for _, f := range r.Fields {
		each := elements(f.Shape) * width(f.DType)
		if each == 0 {
			fixed = math.NaN()
		}
		fixed += each
		if f.Kind == "image" {
			m.Pictures = true
			m.AsBytes -= each - each/width(f.DType)
			if len(f.Shape) == 3 && m.Size == 0 {
				m.Size = max(0, f.Shape[1])
			}
		}
	}
	switch b := r.Stats.Batch; {
	case fixed > 0:
		m.GPUBytes = fixed
	case b.Items > 0 && r.Samples > 0:
		m.GPUBytes = float64(b.Bytes) / float64(b.Items) * float64(r.Batches) / float64(r.Samples)
	}
	m.AsBytes += m.GPUBytes
}

// bound says what limits a loader from which batches are taken as fast as they come.
func bound(r *bench.Report, m Measured) string {
	s, lanes := r.Stats, float64(max(r.Lanes, 1))*r.Seconds
	waited := (s.Read.BusySeconds - m.Read*float64(s.Decode.Items)) / math.Max(s.Read.BusySeconds+s.Read.OutputSeconds, 1e-9)
	switch {
	case s.Decode.BusySeconds >= lanesBusy*lanes:
		return Lanes
	case waited >= readsBusy, s.Decode.InputSeconds >= readsBusy*lanes:
		return Reads
	case m.Busy >= coresBusy*float64(m.Cores):
		return Cores
	case s.Decode.BusySeconds >= readsBusy*lanes: // a short run, whose start is part of it
		return Lanes
	}
	return Between
}

// elements of a shape, which is empty for a number; 0 if it is not the same for all
// samples.
func elements(shape []int) float64 {
	if shape == nil {
		return 0
	}
	n := 1
	for _, d := range shape {
		n *= max(d, 0)
	}
	return float64(n)
}

// width is the bytes of an element of a NumPy type; 1 if it has no width.
func width(dtype string) float64 {
	digits := strings.TrimLeft(dtype, "abcdefghijklmnopqrstuvwxyz")
	bits, err := strconv.Atoi(digits)
	if err != nil || bits < 8 {
		return 1
	}
	return float64(bits) / 8
}
