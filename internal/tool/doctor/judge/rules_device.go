package judge

import (
	"fmt"

	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/doctor/loop"
	"github.com/stoker-data/stoker/internal/tool/model"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// mostOf is the share of a step that a device spends on what the loader has it do, from
// which on that is its bottleneck: with less, batches would be there in time.
const mostOf = 0.5

// onDevice: the device itself makes stoker's batches too late. Nobody waits in __next__
// then; the loop's stream waits until a batch has arrived.
var onDevice = rule{
	verdict: ForDevice,
	needs:   []need{aWait},
	holds: func(v *view) bool {
		d := v.Loop.Device
		return d.Waited.Known() && v.Now > 0 && d.Waited.Value >= loop.Threshold*v.Now && d.Waited.Value >= v.Lost()*v.Now && d.Busy() >= mostOf*v.Now
	},
	says: func(v *view) string {
		d := v.Loop.Device
		return fmt.Sprintf("The device spends %s of a step on the loader's own work, most of it on %s, and the model waits for that for %s of the time.", show.Percent(min(1, d.Busy()/v.Now)), v.mostThere(), show.Percent(d.Waited.Value/v.Now))
	},
	why: func(v *view) []evidence.Line {
		var out loop.Lines
		d := v.Loop.Device
		rate := ""
		if d.Rate.Known() {
			rate = fmt.Sprintf(", %s at %s per second", show.Bytes(d.Bytes.Value), show.Bytes(d.Rate.Value))
		}
		for _, w := range [...]struct {
			what, more string
			took       evidence.Figure
		}{{"copies there", rate, d.Copies}, {"transforms there", "", d.Transforms}, {"decoding there", "", d.Decoding}} {
			if w.took.Value > 0 {
				out.Add(w.what, w.took, "%s per batch%s", show.Seconds(w.took.Value), w.more)
			}
		}
		out.Add("the loop's stream", d.Waited, "waited %s per batch for them", show.Seconds(d.Waited.Value))
		return append(out, v.LoopLines()...)
	},
	change: changeOfDevice,
	after: func(v *view) model.Job {
		j := v.Job
		j.Step = max(0, j.Step-v.Loop.Device.Waited.Value)
		return j
	},
}

// mostThere is the kind of work that takes the most of the device.
func (v *view) mostThere() string {
	switch d := v.Loop.Device; max(d.Copies.Value, d.Transforms.Value, d.Decoding.Value) {
	case d.Copies.Value:
		return "copies"
	case d.Transforms.Value:
		return "transforms"
	}
	return "decoding"
}

func changeOfDevice(v *view) []Change {
	floats := Change{"transform=[..., T.ToDtype(torch.bfloat16, scale=True), T.Normalize(...)]", "as the last steps: bytes cross the bus, a quarter of float32, and the floats are made on the device"}
	switch v.mostThere() {
	case "transforms":
		half := floats
		half.Why = "half the memory that float32 takes there, and half the time to write it"
		return []Change{{"stoker.ImageFolder(root, transform=[...])", "with the first steps of device_transform=: the engine does them on the cores, with the same choices"}, half}
	case "decoding":
		return []Change{{`decode_device=("cuda", 0.5)`, "half of the pictures are decoded on the cores; stoker.tune measures which share is best"}}
	}
	small := Change{"T.RandomResizedCrop(160)", "smaller pictures: the bytes of a batch go with their area"}
	if v.Loop.Device.Transforms.Value > 0 { // bytes cross already, and become floats there
		return []Change{small}
	}
	return []Change{floats, small}
}
