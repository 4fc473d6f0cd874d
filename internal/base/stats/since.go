package stats

// Interval is what a loader did between two snapshots.
type Interval struct {
	Seconds   float64           `json:"s"`
	Samples   float64           `json:"samples_per_s"`
	Batches   float64           `json:"batches_per_s"`
	Bytes     float64           `json:"read_bytes_per_s"`
	WaitShare float64           `json:"wait_share"`        // share of that time, or of the time since the first batch if shorter, that the consumer waited
	Queue     float64           `json:"queue_mean"`        // batches ready when the consumer asked
	JPEG      Ways              `json:"jpeg"`              // decoded
	Entries   *Entries          `json:"entries,omitempty"` // what they saved in that time; nil: none are kept
	Sources   map[string]Source `json:"sources,omitempty"` // what was asked of them in that time
	// Limiting is the bottleneck, see limiting.
	Limiting string `json:"limiting"`
}

// Since is what a loader did since an earlier snapshot, which may have been through
// JSON; the zero Snapshot means since it was opened.
func (s Snapshot) Since(before Snapshot) Interval { return s.SinceWaiting(before, -1) }

// SinceWaiting is Since with a more exact share of time that the consumer waited,
// measured in its own process, which includes the round trip. Negative: unknown.
func (s Snapshot) SinceWaiting(before Snapshot, share float64) Interval {
	d := s.less(before)
	from := before.At
	if from == 0 {
		from = s.Opened
	}
	i := Interval{Seconds: max(s.At-from, 0)}
	if i.Seconds > 0 {
		i.Samples, i.Batches, i.Bytes = float64(d.Samples)/i.Seconds, float64(d.Batches)/i.Seconds, float64(d.Read.Bytes)/i.Seconds
	}
	// Before its first request, and between passes, the consumer neither waits nor
	// works: only the time from one request to the next counts.
	if whole := d.Wait.BusySeconds + d.Wait.OutputSeconds; whole > 0 {
		i.WaitShare = min(d.Wait.BusySeconds/whole, 1)
	}
	if share >= 0 {
		i.WaitShare = min(share, 1)
	}
	i.Queue, i.JPEG = d.Wait.QueueMean, d.JPEG
	i.Sources = sourcesSince(s.Sources, before.Sources)
	if e := s.Entries; e != nil {
		since := e.less(before.Entries)
		i.Entries = &since
	}
	i.Limiting = d.limiting(i.WaitShare)
	return i
}

// less is the work between two snapshots: percentiles and means are of that time
// too.
func (s Snapshot) less(b Snapshot) Snapshot {
	s.Read, s.Decode, s.Batch = s.Read.less(b.Read), s.Decode.less(b.Decode), s.Batch.less(b.Batch)
	s.Plan = s.Plan.less(b.Plan)
	s.Deliver, s.Wait, s.Python = s.Deliver.less(b.Deliver), s.Wait.less(b.Wait), s.Python.less(b.Python)
	s.Transforms, s.Device = lessEach(s.Transforms, b.Transforms), lessEach(s.Device, b.Device)
	s.Samples, s.Batches, s.Bad = s.Samples-b.Samples, s.Batches-b.Batches, s.Bad-b.Bad
	s.JPEG = s.JPEG.less(b.JPEG)
	return s
}

// lessEach is less of stages that come in one order.
func lessEach(now, before []StageSnapshot) []StageSnapshot {
	out := make([]StageSnapshot, len(now))
	for i, s := range now {
		if i < len(before) {
			s = s.less(before[i])
		}
		out[i] = s
	}
	return out
}

func (s StageSnapshot) less(b StageSnapshot) StageSnapshot {
	s.BusySeconds, s.InputSeconds, s.OutputSeconds = s.BusySeconds-b.BusySeconds, s.InputSeconds-b.InputSeconds, s.OutputSeconds-b.OutputSeconds
	s.WaitedSeconds -= b.WaitedSeconds
	s.CPUSeconds = max(s.CPUSeconds-b.CPUSeconds, 0) // scaled estimates may shrink
	s.BusySeconds = max(s.BusySeconds, 0)
	s.Items, s.Bytes = s.Items-b.Items, s.Bytes-b.Bytes
	queued := s.QueueMean*float64(s.Queues) - b.QueueMean*float64(b.Queues)
	s.Queues -= b.Queues
	s.QueueMean = per(queued, s.Queues)
	if len(b.buckets) == len(s.buckets) {
		left := make([]int64, len(s.buckets))
		for i := range left {
			left[i] = s.buckets[i] - b.buckets[i]
		}
		s.buckets = left
		s.P50, s.P99 = percentile(left, 0.5), percentile(left, 0.99)
	}
	return s
}

// littleWait is the share of waiting below which the consumer limits itself.
const littleWait = 0.05

// limiting names what a consumer waits for: "training loop" if it hardly waits; ""
// if nothing is known. Otherwise it depends on what the lanes do most of the time:
// if they work, it is decoding or the most expensive transform; if they are blocked
// on input, it is "read"; if they are blocked on output although the consumer waits
// for batches, planning, closing or sending them is slow. If samples are so small
// that readers do all the work, it is what costs them most. With Python workers it is the
// user's code, unless the engine itself does more.
func (s *Snapshot) limiting(waitShare float64) string {
	if s.Batches == 0 {
		return ""
	}
	if waitShare < littleWait {
		return "training loop"
	}
	if p := s.Python.BusySeconds; p > s.Plan.BusySeconds+s.Batch.BusySeconds+s.Deliver.BusySeconds {
		return "python"
	}
	read, decode, after := s.Read.BusySeconds, s.Decode.BusySeconds, s.Plan.BusySeconds+s.Batch.BusySeconds+s.Deliver.BusySeconds
	input, output := s.Decode.InputSeconds, s.Decode.OutputSeconds
	if input+output == 0 {
		input, output = read, after
	}
	switch most := max(decode, input, output); {
	case most == decode:
		return s.costliest()
	case most == input:
		return "read"
	case s.Plan.BusySeconds > max(s.Batch.BusySeconds, s.Deliver.BusySeconds):
		return "plan"
	case s.Batch.BusySeconds > s.Deliver.BusySeconds:
		return "batch"
	}
	return "deliver"
}

// costliest is decode, or the transform that costs more than decoding without
// transforms.
func (s *Snapshot) costliest() string {
	name, most, alone := "decode", 0.0, s.Decode.BusySeconds
	for _, t := range s.Transforms {
		alone -= t.BusySeconds
		if t.BusySeconds > most {
			name, most = t.Name, t.BusySeconds
		}
	}
	if alone >= most {
		return "decode"
	}
	return name
}
