// Package need compares what GPUs train with what a machine loads: how much is
// missing, in samples, cores and servers, what that costs in time, and what would
// close the gap.
//
// It is arithmetic: [Weigh] is a function of what was measured ([Measured], which
// [Of] takes from a run of package bench) and of what is wanted ([Target]). Every
// figure that it gives follows from one of these, and what it assumes beyond them is
// in the plan, in words.
package need

import "math"

// Target is what a training takes.
type Target struct {
	PerGPU float64 // samples a second that one GPU trains
	GPUs   int     // of the whole training
}

// Total is samples a second of all GPUs.
func (t Target) Total() float64 { return t.PerGPU * float64(t.GPUs) }

// The bounds: what a loader that is asked for batches all the time is limited by.
const (
	Lanes   = "decode"   // lanes decode and transform all the time
	Cores   = "cores"    // the cores are busy, with other work than that of lanes
	Reads   = "read"     // readers wait for the storage, and all else waits for them
	Between = "handover" // none of these: batches are planned and handed over one by one
)

// Measured is what one machine does, at full speed. Times are seconds a sample.
type Measured struct {
	Rate  float64 // samples a second
	CPU   float64 // processor time of the whole process
	Bound string
	Lanes int     // of the run
	Cores int     // lanes that the loader takes if it is not told: all that it may use, less one for the trainer
	Busy  float64 // cores that the run kept busy, on average

	Read      float64 // processor time of reading
	Decode    float64 // decoding, without transforms; for data other than pictures all of it
	Transform float64 // transforms, those to floats included
	Float     float64 // of these the conversion to floats and what follows on floats
	Batch     float64
	OnCore    float64 // share of the lanes' time that they were on a core; 0: not known

	Samples   int64   // of an epoch
	ReadBytes float64 // read for a sample
	GPUBytes  float64 // of a sample in a batch
	AsBytes   float64 // the same, with pictures of bytes in place of floats
	Pictures  bool
	Storage   float64 // bytes a second that the storage gives to many readers, past the page cache; 0: not known
	Memory    float64 // bytes that are free
	PerFile   bool    // every sample is a file
	Whole     bool    // the run had more than an epoch
	Path      string  // of the dataset, if it has one
	Size      int     // pixels of a picture's side in a batch; 0: not known
}

// Plan is the answer. Rates are samples a second; a share is between 0 and 1.
type Plan struct {
	PerGPU float64 `json:"needed_per_gpu"`
	GPUs   int     `json:"gpus"`
	Total  float64 `json:"needed"`

	Gives       float64 `json:"gives"`
	GivesPerGPU float64 `json:"gives_per_gpu"`
	Share       float64 `json:"share"` // of what is needed; above 1: more
	Bound       string  `json:"bound"`
	Wasted      float64 `json:"gpu_time_wasted"`

	Samples     int64   `json:"epoch_samples"`
	EpochNeeded float64 `json:"epoch_s_needed"`
	EpochLoaded float64 `json:"epoch_s_loaded"` // never less than needed: the GPUs take no more

	CPU          float64 `json:"cpu_s_per_sample"`
	CoresNeeded  float64 `json:"cores_needed"`
	Cores        int     `json:"cores"`
	CoresMissing int     `json:"cores_missing"`

	// A server loads for its own GPUs. If it cannot feed one, no number of servers is
	// enough, and Servers is 0.
	GPUsPerServer int `json:"gpus_per_server"`
	Servers       int `json:"servers"`

	ReadPerSample float64 `json:"read_bytes_per_sample"`
	ReadPerSecond float64 `json:"read_bytes_per_second"`
	DatasetBytes  float64 `json:"dataset_bytes"` // read in an epoch
	Storage       float64 `json:"storage_bytes_per_second,omitempty"`
	Memory        float64 `json:"free_memory_bytes"`
	GPUPerSample  float64 `json:"gpu_bytes_per_sample"`
	GPUPerSecond  float64 `json:"gpu_bytes_per_second"`
	EachGPUPerSec float64 `json:"gpu_bytes_per_second_per_gpu"`
	// The storage is too slow if it was measured, gives less than is needed, and an epoch
	// does not stay in memory.
	StorageTooSlow bool `json:"storage_too_slow"`

	Changes []Change `json:"changes"` // what may close the gap alone first, then by what it costs to try
	Assumed []string `json:"assumed"`

	from Measured
}

// Weigh compares the target with what was measured.
func Weigh(t Target, m Measured) Plan {
	total := t.Total()
	p := Plan{
		PerGPU: t.PerGPU, GPUs: t.GPUs, Total: total,
		Gives: m.Rate, GivesPerGPU: m.Rate / float64(t.GPUs), Share: m.Rate / total, Bound: m.Bound,
		Samples: m.Samples, EpochNeeded: float64(m.Samples) / total, EpochLoaded: float64(m.Samples) / min(total, m.Rate),
		CPU: m.CPU, CoresNeeded: total * m.CPU, Cores: m.Cores,
		ReadPerSample: m.ReadBytes, ReadPerSecond: m.ReadBytes * total, DatasetBytes: m.ReadBytes * float64(m.Samples), Storage: m.Storage, Memory: m.Memory,
		GPUPerSample: m.GPUBytes, GPUPerSecond: m.GPUBytes * total, EachGPUPerSec: m.GPUBytes * t.PerGPU,
		from: m,
	}
	p.Wasted = max(0, 1-p.Share)
	p.CoresMissing = max(0, whole(p.CoresNeeded)-m.Cores)
	p.GPUsPerServer = min(t.GPUs, int(m.Rate/t.PerGPU+slip))
	if p.GPUsPerServer > 0 {
		p.Servers = (t.GPUs + p.GPUsPerServer - 1) / p.GPUsPerServer
	}
	p.StorageTooSlow = m.Storage > 0 && p.ReadPerSecond > m.Storage && !p.held()
	p.Changes = p.findChanges()
	p.Assumed = assumed(p)
	return p
}

// Enough says whether the run kept up.
func (p Plan) Enough() bool { return p.Share >= 1 }

// room is the share of the free memory that the page cache is trusted to have: training
// needs some, too.
const room = 0.5

// held says whether what an epoch reads stays in memory. If the storage limited the run,
// it did not, or not yet.
func (p Plan) held() bool { return p.Bound != Reads && p.DatasetBytes <= room*p.Memory }

// slip is what rounding in binary may cost a number that should be whole.
const slip = 1e-9

// whole is the cores that so much work needs.
func whole(cores float64) int { return int(math.Ceil(min(cores, 1e9) - slip)) }

// assumed is what the figures rest on beyond what was measured.
func assumed(p Plan) []string {
	out := []string{"The GPUs train all the time, each at the rate given."}
	if p.CPU > 0 {
		out = append(out, "The rate grows with the cores, until the storage limits it. No core is kept in reserve, and the cores that training itself needs are not counted.")
	}
	if p.GPUs > 1 {
		out = append(out, "A server is one like this, and loads for its own GPUs.")
	}
	switch {
	case p.ReadPerSample > 0 && p.Bound != Reads:
		out = append(out, "The run may have read from the page cache, which a dataset larger than the memory does not fit.")
	case p.Bound == Reads && !p.from.Whole:
		out = append(out, "Later epochs read like the first, of which the run had a part; if the page cache keeps what they read, they are faster.")
	}
	return out
}
