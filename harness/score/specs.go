package score

import (
	"fmt"
	"strings"
	"time"

	"github.com/stoker-data/stoker/harness/slowfs"
	"github.com/stoker-data/stoker/harness/slownet"
)

// folderSpec is a Spec over a folder of pictures; more is further keys, a line
// each.
func folderSpec(d Data, batch int, more string) specText {
	return specText{d, fmt.Sprintf("dataset: {path: DATA}\nfields:\n  - {name: image, decode: rgb, transform: [{op: Resize, size: [96, 96]}, ToTensor]}\nbatch: {size: %d}\norder: {shuffle: full, tail: drop}\nworkers: 2\n%s", batch, more)}
}

// bytesSpec is a Spec over files whose bytes are delivered as they are.
func bytesSpec(d Data, batch int, more string) specText {
	return specText{d, fmt.Sprintf("dataset: {path: DATA, extensions: [.bin]}\nfields:\n  - {name: image, decode: bytes}\nbatch: {size: %d}\norder: {shuffle: full}\nworkers: 2\n%s", batch, more)}
}

// arraySpec is a Spec over one .npy file.
func arraySpec(batch int, more string) specText {
	return specText{Array, fmt.Sprintf("dataset: {path: DATA/x.npy}\nbatch: {size: %d}\norder: {shuffle: full}\nworkers: 2\n%s", batch, more)}
}

// specText is a Spec, and the dataset that it is of.
type specText struct {
	data Data
	yaml string
}

// job is a Spec with a consumer that takes so long a batch.
func (s specText) job(step time.Duration) Job {
	return Job{Data: s.data, Loader: &Loader{Spec: s.yaml, Step: step}}
}

// spec is a healthy scenario of a Spec.
func spec(name string, s specText, step time.Duration) Scenario {
	return Scenario{Name: name, Label: notDataBound, Kind: Spec, Sick: func(float64) Job { return s.job(step) }}
}

// wide enlarges pictures on their way to 96 pixels, which nobody needs.
func wide(side int) specText {
	s := folderSpec(Small, 16, "")
	s.yaml = strings.Replace(s.yaml, "{op: Resize, size: [96, 96]}", fmt.Sprintf("{op: Resize, size: [%d, %d]}, {op: Resize, size: [96, 96]}", side, side), 1)
	return s
}

// A large picture takes a lane 4 to 7 ms, by the machine and what else it does:
// steps are such that labels are right over all of that.
func specs() []Scenario {
	lanes := func(n int) specText {
		s := folderSpec(Large, 8, "")
		s.yaml = strings.Replace(s.yaml, "workers: 2", fmt.Sprintf("workers: %d", n), 1)
		return s
	}
	squeezed := func(limit int64) Job {
		s := arraySpec(16, "")
		s.data = Sizeable
		j := stored(s.job(6*ms), slowfs.Delays{BytesPerSecond: 120e6})
		j.Cache, j.Memory = slowfs.Keep, limit
		return j
	}
	limited := func(j Job, cores float64) Job { j.Quota = cores; return j }
	slow := func(name, label string, s specText, step time.Duration, d func(x float64) slowfs.Delays) Scenario {
		return Scenario{
			Name: name, Label: label, Kind: Spec,
			Sick: func(x float64) Job { return stored(s.job(step), d(x)) },
			Well: func(float64) Job { return s.job(step) },
		}
	}
	refusing := func(name string, s specText, step time.Duration, from, to float64) Scenario {
		over := func(l slownet.Link) Job {
			j := s.job(step)
			j.Link = &l
			return j
		}
		return Scenario{
			Name: name, Label: throttled, Kind: Spec,
			Sick: func(x float64) Job { return over(slownet.Link{Requests: mix(from, to, x)}) },
			Well: func(float64) Job { return over(slownet.Link{}) },
		}
	}
	return []Scenario{
		slow("a Spec: samples far apart in one file", latency, arraySpec(32, ""), 10*ms,
			func(x float64) slowfs.Delays { return slowfs.Delays{Read: between(40*ms, 80*ms, x)} }),
		slow("a Spec: large files on storage that is slow to begin", latency, bytesSpec(Blobs, 8, ""), 25*ms,
			func(x float64) slowfs.Delays { return slowfs.Delays{Read: between(100*ms, 200*ms, x)} }),
		slow("a Spec: small files", smallFiles, bytesSpec(Files, 64, ""), 15*ms,
			func(x float64) slowfs.Delays { return slowfs.Delays{Open: between(30*ms, 60*ms, x)} }),
		slow("a Spec: small pictures on slow storage", smallFiles, folderSpec(Small, 32, ""), 30*ms,
			func(x float64) slowfs.Delays { return slowfs.Delays{Open: between(60*ms, 120*ms, x)} }),
		slow("a Spec: large files over a narrow link", bandwidth, bytesSpec(Blobs, 4, ""), 60*ms,
			func(x float64) slowfs.Delays { return slowfs.Delays{BytesPerSecond: int64(mix(60e6, 25e6, x))} }),
		slow("a Spec: an array over a narrow link", bandwidth, arraySpec(32, ""), 40*ms,
			func(x float64) slowfs.Delays { return slowfs.Delays{BytesPerSecond: int64(mix(40e6, 20e6, x))} }),
		refusing("a Spec: large files of a store that takes fewer requests", bytesSpec(Blobs, 4, ""), 40*ms, 60, 25),
		refusing("a Spec: small pictures of a store that takes fewer requests", folderSpec(Small, 16, ""), 20*ms, 150, 60),
		{
			Name: "a Spec: large pictures", Label: decode, Kind: Spec,
			Sick: func(x float64) Job { return folderSpec(Large, 16, "").job(between(24*ms, 12*ms, x)) },
			Well: func(x float64) Job { return folderSpec(Small, 16, "").job(between(24*ms, 12*ms, x)) },
		},
		{
			Name: "a Spec: large pictures and a short step", Label: decode, Kind: Spec,
			Sick: func(x float64) Job { return folderSpec(Large, 8, "").job(between(11*ms, 6*ms, x)) },
			Well: func(x float64) Job { return folderSpec(Small, 8, "").job(between(11*ms, 6*ms, x)) },
		},
		{
			Name: "a Spec: a container with a part of a core", Label: cpuLimit, Kind: Spec,
			Sick: func(x float64) Job { return limited(folderSpec(Large, 8, "").job(100*ms), mix(0.25, 0.12, x)) },
			Well: func(float64) Job { return folderSpec(Large, 8, "").job(100 * ms) },
		},
		{
			Name: "a Spec: a resize that is not needed", Label: transform, Of: "Resize", Kind: Spec,
			Sick: func(x float64) Job { return wide(int(mix(3600, 4800, x))).job(40 * ms) },
			Well: func(float64) Job { return wide(128).job(40 * ms) },
		},
		{
			Name: "a Spec: one lane where two are needed", Label: tooFew, Kind: Spec,
			Sick: func(x float64) Job { return lanes(1).job(between(24*ms, 22*ms, x)) },
			Well: func(x float64) Job { return lanes(2).job(between(24*ms, 22*ms, x)) },
		},
		{
			Name: "a Spec: a dataset that would fit into memory, and may not", Label: memory, Kind: Spec,
			Sick: func(x float64) Job { return squeezed(int64(mix(110<<20, 90<<20, x))) },
			Well: func(float64) Job { return squeezed(0) },
		},
	}
}
