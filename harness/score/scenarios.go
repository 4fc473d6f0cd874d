package score

import (
	"fmt"
	"slices"
	"time"

	"github.com/stoker-data/stoker/harness/slowfs"
)

const ms = time.Millisecond

// between is the duration at a strength.
func between(a, b time.Duration, strength float64) time.Duration {
	return a + time.Duration(strength*float64(b-a))
}

// mix is the number at a strength.
func mix(a, b, strength float64) float64 { return a + strength*(b-a) }

// Scenarios is the table: what is wrong first, then mistakes that cost nothing,
// then what is healthy.
func Scenarios() []Scenario {
	return slices.Concat(storageOfScripts(), processorOfScripts(), workersOfScripts(), startsOfScripts(), othersOfScripts(), devicesOfScripts(), specs(), planted(), healthy())
}

// Costs are chosen against two cores, a step on a device, and two workers where
// nothing else is said: what needs more than two workers has to become cheaper,
// and that is the label; what needs one or two is short of workers.

func storageOfScripts() []Scenario {
	array := func(step time.Duration) Job {
		return Job{Data: Array, Script: &Script{Batch: 4, Workers: 2, Persistent: true, Shuffle: true, Epoch: 2048, Step: step}}
	}
	blobs := func(batch int, step time.Duration) Job {
		return Job{Data: Blobs, Script: &Script{Batch: batch, Workers: 2, Persistent: true, Shuffle: true, Epoch: 2048, Step: step}}
	}
	files := Job{Data: Files, Script: &Script{Batch: 16, Workers: 2, Persistent: true, Shuffle: true, Epoch: 1600, Step: 30 * ms}}
	return []Scenario{
		{
			Name: "reads far apart in one file, each waits", Label: latency, Kind: Torch, Short: true,
			Sick: func(x float64) Job { return stored(array(20*ms), slowfs.Delays{Read: between(20*ms, 45*ms, x)}) },
			Well: func(float64) Job { return array(20 * ms) },
		}, {
			Name: "a small file a sample, each open waits", Label: smallFiles, Finds: "millions of tiny files", Kind: Torch, Short: true,
			Sick: func(x float64) Job { return stored(files, slowfs.Delays{Open: between(8*ms, 16*ms, x)}) },
			Well: func(float64) Job { return files },
		}, {
			Name: "small pictures on slow storage", Label: smallFiles, Kind: Torch,
			Sick: func(x float64) Job {
				return stored(pictured(Small, 8, 40*ms, nil), slowfs.Delays{Open: between(15*ms, 30*ms, x), SmallBytes: 64 << 10, Small: 2 * ms})
			},
			Well: func(float64) Job { return pictured(Small, 8, 40*ms, nil) },
		}, {
			Name: "large files over a narrow link", Label: bandwidth, Kind: Torch,
			Sick: func(x float64) Job {
				return stored(blobs(4, 50*ms), slowfs.Delays{BytesPerSecond: int64(mix(60e6, 25e6, x))})
			},
			Well: func(float64) Job { return blobs(4, 50*ms) },
		},
	}
}

// stored is a job on slower storage.
func stored(j Job, d slowfs.Delays) Job {
	j.Storage = d
	return j
}

// pictured is a job over pictures, with torchvision's transforms as expressions.
func pictured(d Data, batch int, step time.Duration, define []string, transforms ...string) Job {
	sample := []string{"x = self.transform(x)"}
	list := "transforms.Compose([transforms.Resize((96, 96)), "
	for _, t := range transforms {
		list += t + ", "
	}
	return Job{Data: d, Script: &Script{
		Batch: batch, Workers: 2, Persistent: true, Shuffle: true, Epoch: 960, Step: step, Define: define,
		Imports: []string{"from PIL import Image", "from torchvision import transforms"},
		Setup:   []string{"self.transform = " + list + "transforms.ToTensor()])"},
		Sample:  sample,
	}}
}

// made is a job whose samples cost what the lines take.
func made(batch int, step time.Duration, lines ...string) Job {
	return Job{Script: &Script{Batch: batch, Workers: 2, Persistent: true, Epoch: 4096, Step: step, Sample: lines}}
}

func processorOfScripts() []Scenario {
	degrade := func(d time.Duration) []string {
		return []string{"class Degrade:\n    def __call__(self, x):\n        " + computing(d) + "\n        return x\n"}
	}
	parsing := func(words int) []string {
		return []string{
			fmt.Sprintf(`text = " ".join(str(i * 31 + k) for k in range(%d))`, words),
			`counts = {}`,
			`for word in text.split():`,
			`    counts[word] = counts.get(word, 0) + sum(ord(c) for c in word)`,
			`x = torch.tensor([float(len(counts))])`,
		}
	}
	quota := func(j Job, cores float64) Job { j.Quota = cores; return j }
	return []Scenario{
		{
			Name: "pictures far larger than what is trained on", Label: decode, Kind: Torch, Short: true,
			Sick: func(x float64) Job { return pictured(Large, 8, between(40*ms, 25*ms, x), nil) },
			Well: func(x float64) Job { return pictured(Small, 8, between(40*ms, 25*ms, x), nil) },
		}, {
			Name: "a blur of torchvision's", Label: transform, Of: "GaussianBlur", Kind: Torch,
			Sick: func(x float64) Job {
				return pictured(Small, 8, 40*ms, nil, "transforms.Resize(400)", fmt.Sprintf("transforms.GaussianBlur(%d, 9.0)", 2*int(mix(9, 15, x))+1), "transforms.Resize(96)")
			},
			Well: func(float64) Job {
				return pictured(Small, 8, 40*ms, nil, "transforms.Resize(400)", "transforms.Resize(96)")
			},
		}, {
			Name: "a transform of the script's own", Label: transform, Of: "Degrade", Kind: Torch, Short: true,
			Sick: func(x float64) Job { return pictured(Small, 8, 40*ms, degrade(between(20*ms, 35*ms, x)), "Degrade()") },
			Well: func(float64) Job { return pictured(Small, 8, 40*ms, nil) },
		}, {
			Name: "parsing in Python", Label: pythonCode, Kind: Torch, Short: true,
			Sick: func(x float64) Job { return made(16, 30*ms, parsing(int(mix(14000, 26000, x)))...) },
			Well: func(float64) Job { return made(16, 30*ms, parsing(20)...) },
		}, {
			Name: "a computation in __getitem__", Label: pythonCode, Kind: Torch,
			Sick: func(x float64) Job { return made(8, 40*ms, computing(between(13*ms, 25*ms, x))) },
			Well: func(float64) Job { return made(8, 40*ms) },
		}, {
			Name: "a call to somewhere in __getitem__", Label: tooFew, Kind: Torch,
			Sick: func(x float64) Job { return made(8, 30*ms, sleeping(between(20*ms, 45*ms, x))) },
			Well: func(float64) Job { return made(8, 30*ms) },
		}, {
			Name: "a container with a part of a core", Label: cpuLimit, Kind: Torch, Short: true,
			Sick: func(x float64) Job { return quota(made(8, 50*ms, computing(5*ms)), mix(0.35, 0.2, x)) },
			Well: func(float64) Job { return made(8, 50*ms, computing(5*ms)) },
		},
	}
}

func workersOfScripts() []Scenario {
	with := func(workers int, step time.Duration, lines ...string) Job {
		j := made(8, step, lines...)
		j.Script.Workers, j.Script.Persistent = workers, workers > 0
		return j
	}
	many := func(workers int, start time.Duration) Job {
		j := made(8, 12*ms)
		j.Script.Workers, j.Script.Persistent, j.Script.Epoch = workers, false, 8*24
		j.Script.Worker = []string{computing(start)}
		return j
	}
	uneven := func(prefetch int, spike time.Duration) Job {
		j := made(4, 30*ms, "if i // 4 % 17 == 5 and i % 4 == 0:", "    "+sleeping(spike))
		j.Script.Prefetch, j.Script.Epoch = prefetch, 1<<16
		return j
	}
	scattered := func(prefetch int, spike time.Duration) Job {
		j := made(4, 30*ms, "if i % 64 == 5:", "    "+sleeping(spike))
		j.Script.Prefetch, j.Script.Epoch, j.Script.Shuffle = prefetch, 1<<14, true
		return j
	}
	return []Scenario{
		{
			Name: "no workers beside a device", Label: tooFew, Finds: "no workers", Kind: Torch, Short: true,
			Sick: func(x float64) Job { return with(0, 40*ms, sleeping(between(5*ms, 8*ms, x))) },
			Well: func(x float64) Job { return with(2, 40*ms, sleeping(between(5*ms, 8*ms, x))) },
		}, {
			Name: "one worker where two are needed", Label: tooFew, Kind: Torch,
			Sick: func(x float64) Job { return with(1, 40*ms, sleeping(between(7500*time.Microsecond, 9*ms, x))) },
			Well: func(x float64) Job { return with(2, 40*ms, sleeping(between(7500*time.Microsecond, 9*ms, x))) },
		}, {
			Name: "twelve workers, started for every short epoch", Label: tooMany, Finds: "too many workers", Kind: Torch,
			Sick: func(x float64) Job { return many(12, between(40*ms, 80*ms, x)) },
			Well: func(x float64) Job { return many(1, between(40*ms, 80*ms, x)) },
		}, {
			Name: "sixteen workers that each load something", Label: tooMany, Kind: Torch,
			Sick: func(x float64) Job { return many(16, between(25*ms, 50*ms, x)) },
			Well: func(x float64) Job { return many(1, between(25*ms, 50*ms, x)) },
		}, {
			Name: "a rare sample takes long, and one batch is ready", Label: prefetch, Finds: "prefetch too small", Kind: Torch,
			Sick: func(x float64) Job { return uneven(1, between(500*ms, 800*ms, x)) },
			Well: func(x float64) Job { return uneven(24, between(500*ms, 800*ms, x)) },
		}, {
			Name: "some samples take long, nobody knows when", Label: prefetch, Kind: Torch,
			Sick: func(x float64) Job { return scattered(1, between(500*ms, 700*ms, x)) },
			Well: func(x float64) Job { return scattered(24, between(500*ms, 700*ms, x)) },
		},
	}
}

func startsOfScripts() []Scenario {
	worker := func(start time.Duration, persistent bool) Job {
		j := made(8, 15*ms)
		j.Script.Epoch, j.Script.Persistent = 8*24, persistent
		j.Script.Worker = []string{sleeping(start)}
		return j
	}
	sampler := func(start time.Duration) Job {
		j := made(8, 15*ms)
		j.Script.Epoch = 8 * 32
		j.Script.Sampler = "Weighted()"
		j.Script.Define = []string{"class Weighted(torch.utils.data.Sampler):\n    def __len__(self):\n        return 256\n\n    def __iter__(self):\n        " +
			computing(start) + "\n        return iter(torch.randperm(256).tolist())\n"}
		return j
	}
	return []Scenario{
		{
			Name: "workers that connect to something at every epoch", Label: epochStart, Finds: "workers torn down every epoch", Kind: Torch, Short: true,
			Sick: func(x float64) Job { return worker(between(300*ms, 700*ms, x), false) },
			Well: func(x float64) Job { return worker(between(300*ms, 700*ms, x), true) },
		}, {
			Name: "an order that is drawn slowly", Label: epochStart, Kind: Torch,
			Sick: func(x float64) Job { return sampler(between(300*ms, 700*ms, x)) },
			Well: func(float64) Job { return sampler(0) },
		},
	}
}

func othersOfScripts() []Scenario {
	collating := func(lines ...string) Job {
		j := made(32, 30*ms, "x = torch.full((64,), float(i))")
		if lines != nil {
			j.Script.Collate = append(lines, "return torch.stack(samples)")
		}
		return j
	}
	ranks := func(slow time.Duration) Job {
		j := made(8, 30*ms, "if RANK == 1:", "    "+sleeping(slow))
		j.Ranks = 2
		return j
	}
	// Operations just large enough for all threads, which spin where they meet, as
	// guides to quick inference say that they should.
	threads := func(n, side, operations int) Job {
		j := made(4, 15*ms, fmt.Sprintf("x = torch.full((%d, %d), float(i))", side, side), fmt.Sprintf("for _ in range(%d):", operations), "    x.add_(1.0)", "x = x[:8].clone()")
		j.Script.Imports = []string{"", `os.environ["OMP_WAIT_POLICY"] = "active"`}
		j.Script.Worker = []string{fmt.Sprintf("torch.set_num_threads(%d)", n)}
		return j
	}
	budget := func(batch int, limit int64) Job {
		j := Job{Data: Sizeable, Cache: slowfs.Keep, Memory: limit, Storage: slowfs.Delays{BytesPerSecond: 120e6}}
		j.Script = &Script{Batch: batch, Workers: 1, Persistent: true, Shuffle: true, Epoch: 1024, Step: 6 * ms}
		return j
	}
	blind := func(line string) Job {
		j := made(8, 30*ms, line)
		j.Alone = true
		return j
	}
	open := func(line ...string) Job { return made(8, 30*ms, line...) }
	return []Scenario{
		{
			Name: "padding in Python, number by number", Label: assembly, Finds: "Python collate", Kind: Torch, Short: true,
			Sick: func(x float64) Job {
				// For a time, not a number of rounds: machines differ in how long those take.
				until := "until = time.thread_time() + " + seconds(between(120*ms, 250*ms, x))
				return collating(until, "while time.thread_time() < until:", "    rows = [[float(v) for v in s] for s in samples]", "    samples = [torch.tensor(r) for r in rows]")
			},
			Well: func(float64) Job { return collating() },
		}, {
			Name: "a computation in collate", Label: assembly, Kind: Torch,
			Sick: func(x float64) Job { return collating(computing(between(120*ms, 250*ms, x))) },
			Well: func(float64) Job { return collating() },
		}, {
			Name: "one of two ranks has slower data", Label: imbalance, Kind: Torch,
			Sick: func(x float64) Job { return ranks(between(15*ms, 35*ms, x)) },
			Well: func(float64) Job { return ranks(0) },
		}, {
			Name: "one of two ranks has far slower data", Label: imbalance, Kind: Torch,
			Sick: func(x float64) Job { return ranks(between(35*ms, 70*ms, x)) },
			Well: func(float64) Job { return ranks(0) },
		}, {
			Name: "workers compute with eight threads each", Label: misset, Finds: "thread oversubscription in workers", Of: "thread oversubscription in workers", Kind: Torch,
			Sick: func(x float64) Job { return threads(8, 512, int(mix(80, 110, x))) },
			Well: func(x float64) Job { return threads(1, 512, int(mix(80, 110, x))) },
		}, {
			Name: "workers compute with sixteen threads each", Label: misset, Of: "thread oversubscription in workers", Kind: Torch,
			Sick: func(x float64) Job { return threads(16, 724, int(mix(45, 60, x))) },
			Well: func(x float64) Job { return threads(1, 724, int(mix(45, 60, x))) },
		}, {
			Name: "a dataset that would fit into memory, and may not", Label: memory, Kind: Torch,
			Sick: func(x float64) Job { return budget(16, int64(mix(420<<20, 380<<20, x))) },
			Well: func(float64) Job { return budget(16, 0) },
		}, {
			Name: "a script that lets no hook in, and waits", Label: insufficient, Kind: Torch,
			Sick: func(x float64) Job { return blind(sleeping(between(20*ms, 40*ms, x))) },
			Well: func(float64) Job { return open() },
		}, {
			Name: "a script that lets no hook in, and computes", Label: insufficient, Kind: Torch,
			Sick: func(x float64) Job { return blind(computing(between(20*ms, 40*ms, x))) },
			Well: func(float64) Job { return open() },
		},
	}
}

// moved is a job whose batches, of 2.5 MB, go to a device before each step.
func moved(step time.Duration, pin bool, move string) Job {
	j := made(8, step, "x = torch.full((3, 160, 160), float(i))")
	j.Device = true
	j.Script.Pin, j.Script.Move = pin, move
	return j
}

// beside is how a batch goes to a device while that computes, if it is pinned.
const beside = `x = x.to("cuda", non_blocking=True)`

func devicesOfScripts() []Scenario {
	return []Scenario{
		{
			Name: "batches that are not pinned, and a copy that blocks", Label: pageable, Finds: "not pinned", Kind: Torch, Short: true,
			Sick: func(x float64) Job { return moved(between(24*ms, 14*ms, x), false, `x = x.to("cuda")`) },
			Well: func(x float64) Job { return moved(between(24*ms, 14*ms, x), true, beside) },
		}, {
			Name: "batches that are not pinned, and a copy that should not block", Label: pageable, Finds: "not pinned", Kind: Torch,
			Sick: func(x float64) Job { return moved(between(24*ms, 14*ms, x), false, "x = x.cuda(non_blocking=True)") },
			Well: func(x float64) Job { return moved(between(24*ms, 14*ms, x), true, "x = x.cuda(non_blocking=True)") },
		},
	}
}
