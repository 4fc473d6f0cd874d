package score

import "github.com/stoker-data/stoker/harness/slowfs"

// healthy are jobs with nothing wrong: about as much of everything as the sick
// ones have, where there is room for it.
func healthy() []Scenario {
	job := func(name string, short bool, j Job) Scenario {
		kind := Torch
		if j.Loader != nil {
			kind = Spec
		}
		return Scenario{Name: name, Label: notDataBound, Kind: kind, Short: short, Sick: func(float64) Job { return j }}
	}
	files := Job{Data: Files, Script: &Script{Batch: 8, Workers: 2, Persistent: true, Shuffle: true, Epoch: 1600, Step: 40 * ms}}
	inline := made(4, 60*ms)
	inline.Script.Workers, inline.Script.Persistent = 0, false
	busy := made(8, 40*ms, computing(ms))
	busy.Script.Computes, busy.Script.Workers = true, 1
	ranks := made(8, 50*ms, sleeping(ms))
	ranks.Ranks = 2
	return []Scenario{
		job("small files on a quick disk", true, stored(files, slowfs.Delays{Open: 200 * 1000})),
		job("pictures, decoded in time", false, pictured(Small, 4, 80*ms, nil, "transforms.RandomHorizontalFlip()")),
		job("cheap samples and no workers", false, inline),
		job("a step on the processor", false, busy),
		job("two ranks, alike", false, ranks),
		job("pinned batches, copied beside the steps", false, moved(50*ms, true, beside)),
		spec("a Spec: small pictures, in time", folderSpec(Small, 4, ""), 80*ms),
		spec("a Spec: small files, in time", bytesSpec(Files, 8, ""), 40*ms),
		spec("a Spec: large files, in time", bytesSpec(Blobs, 2, ""), 80*ms),
		spec("a Spec: an array, in time", arraySpec(8, ""), 40*ms),
		spec("a Spec: pictures and a long step", folderSpec(Small, 4, ""), 120*ms),
	}
}
