package need

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/stoker-data/stoker/internal/tool/show"
)

// Change is something that gives more samples a second.
type Change struct {
	Name string `json:"name"`
	Why  string `json:"why"` // the figures that it rests on
	// Rate is samples a second after it; 0: no figure says. If Most is true, it is a bound
	// that no such change can pass, and what it gives has to be measured.
	Rate   float64 `json:"samples_per_second,omitempty"`
	Most   bool    `json:"at_most"`
	Enough bool    `json:"enough"`        // Rate is what is needed, or more
	Try    string  `json:"try,omitempty"` // what to type or change
}

// findChanges are those that apply, in the order of what they cost to try: a setting,
// the samples, the machine. Those that may close the gap alone come first.
func (p Plan) findChanges() []Change {
	out := []Change{}
	all := []func() (Change, bool){p.moreLanes, p.alone, p.largerReads, p.asBytes, p.smaller, p.larger, p.faster, p.moreCores}
	if p.Enough() { // but not from the storage
		all = all[:0]
		if p.StorageTooSlow {
			all = append(all, p.faster)
		}
	}
	for _, of := range all {
		if c, ok := of(); ok {
			c.Enough = c.Rate >= p.Total*(1-slip)
			out = append(out, c)
		}
	}
	slices.SortStableFunc(out, func(a, b Change) int { return cmp.Compare(rank(a), rank(b)) })
	return out
}

func rank(c Change) int {
	if c.Enough {
		return 0
	}
	return 1
}

// computes says whether processor time is what limits.
func (p Plan) computes() bool { return p.Bound == Lanes || p.Bound == Cores }

// work is the processor time of a sample that stages account for.
func (m Measured) work() float64 { return m.Read + m.Decode + m.Transform + m.Batch }

// worth is the share of a sample's work from which a part of it is named.
const worth = 0.03

// cheaper is the rate if a part of a sample's work cost nothing, and whether that is
// worth a word.
func (p Plan) cheaper(part float64) (rate float64, ok bool) {
	work := p.from.work()
	if !p.computes() || part < worth*work || part >= work {
		return 0, false
	}
	return p.Gives * work / (work - part), true
}

// capped is a rate that the storage allows, if it does not have to be read from.
func (p Plan) capped(rate float64) float64 {
	if p.Storage > 0 && p.ReadPerSample > 0 && !p.held() {
		return min(rate, max(p.Gives, p.stored()))
	}
	return rate
}

// stored is the samples a second that the storage gives.
func (p Plan) stored() float64 {
	if p.ReadPerSample <= 0 {
		return math.Inf(1)
	}
	return p.Storage / p.ReadPerSample
}

// moreLanes: fewer were asked for than there are cores.
func (p Plan) moreLanes() (Change, bool) {
	m := p.from
	return Change{
		Name: show.Things(m.Cores, "lane"), Rate: p.capped(p.Gives * float64(m.Cores) / float64(max(m.Lanes, 1))),
		Why: fmt.Sprintf("The run had %s, and this machine has cores for %d.", show.Things(m.Lanes, "lane"), m.Cores),
		Try: fmt.Sprintf("--workers %d, or leave --workers out", m.Cores),
	}, m.Lanes < m.Cores && p.computes()
}

// disturbed says whether lanes that had work were off their cores for long: another
// process had these, or a host another machine.
func (m Measured) disturbed() bool { return m.Bound == Lanes && m.OnCore > 0 && m.OnCore < 0.85 }

// alone: on cores that other processes leave alone.
func (p Plan) alone() (Change, bool) {
	m := p.from
	return Change{
		Name: "nothing else on these cores", Rate: p.capped(max(p.Gives, float64(m.Lanes)/max(m.CPU, slip))), Most: true,
		Why: fmt.Sprintf("The lanes were off their cores for %s of their time. At %s a sample, %s could give more.", show.Percent(1-m.OnCore), show.Took(m.CPU), show.Things(m.Lanes, "lane")),
		Try: "measure again when nothing else runs",
	}, m.disturbed()
}

func (p Plan) asBytes() (Change, bool) {
	m := p.from
	rate, ok := p.cheaper(m.Float)
	return Change{
		Name: "uint8 instead of floats", Rate: rate, Most: true,
		Why: fmt.Sprintf("Making floats takes %s of the %s of a sample. As bytes, %s a sample go to the GPU instead of %s.", show.Took(m.Float), show.Took(m.work()), show.Bytes(m.AsBytes), show.Bytes(m.GPUBytes)),
		Try: "leave out --output-float, or ToTensor and Normalize, and make floats on the GPU",
	}, ok && m.Float > 0
}

// smaller pictures cost less to decode and, if reads limit, less to read; how much, a
// dry run says.
func (p Plan) smaller() (Change, bool) {
	m := p.from
	c := Change{Name: "smaller pictures", Most: true, Try: p.pack()}
	rate, ok := p.cheaper(m.Decode)
	if ok {
		c.Rate, c.Why = rate, fmt.Sprintf("Decoding takes %s of the %s of a sample; smaller pictures save a part of that.", show.Took(m.Decode), show.Took(m.work()))
	} else {
		c.Why = fmt.Sprintf("A sample is %s as it is stored; smaller ones need fewer bytes from the storage.", show.Bytes(m.ReadBytes))
	}
	return c, m.Pictures && m.ReadBytes > 0 && (ok || p.Bound == Reads)
}

// pack is the command that measures what packing gains, and writes nothing. A crop at
// random wants pictures that are an eighth larger.
func (p Plan) pack() string {
	return fmt.Sprintf("stoker pack %s packed --resize %d --jpeg index --dry-run", p.source(), (cmp.Or(p.from.Size, 224)*8+6)/7)
}

func (p Plan) source() string { return show.ShellWord(cmp.Or(p.from.Path, "SRC")) }

// many is how many times as fast as the run the storage answers large reads, if it is
// not its bandwidth that limited the run.
const many = 1.5

// got is the bytes a second that the run read.
func (p Plan) got() float64 { return p.Gives * p.ReadPerSample }

func (p Plan) latency() bool { return p.Bound == Reads && p.Storage > many*p.got() }

// largerReads: the storage gives more to large reads than the run read from it.
func (p Plan) largerReads() (Change, bool) {
	c := Change{
		Name: "larger reads", Rate: min(p.byCores(), p.stored()), Most: true,
		Why: fmt.Sprintf("The run read %s/s, and the same storage gave %s/s to many large reads at once: waiting for reads to begin is what costs.", show.Bytes(p.got()), show.Bytes(p.Storage)),
		Try: "a shuffle by blocks, which reads neighbours together: docs/guides/order.md",
	}
	if p.from.PerFile {
		c.Name, c.Try = "fewer, larger files", fmt.Sprintf("stoker pack %s packed --shuffle", p.source())
	}
	return c, p.latency()
}

// byCores is what the cores here give once bytes are there.
func (p Plan) byCores() float64 { return max(p.Gives, float64(p.Cores)/max(p.CPU, slip)) }

// larger batches cost less a sample to plan and hand over.
func (p Plan) larger() (Change, bool) {
	return Change{
		Name: "larger batches",
		Why:  "Neither lanes, nor cores, nor reads limit this, but one batch after another being planned and handed over.",
		Try:  "a larger --batch-size",
	}, p.Bound == Between
}

func (p Plan) moreCores() (Change, bool) {
	c := Change{
		Name: show.Things(p.CoresMissing, "more core"), Rate: p.capped(p.Total),
		Why: fmt.Sprintf("The need is %s at %s a sample, and the loader has %d here.", cores(p.CoresNeeded), show.Took(p.CPU), p.Cores),
	}
	if !p.computes() {
		c.Rate, c.Why = 0, c.Why+" They do not help before what limits now."
	}
	return c, p.CoresMissing > 0
}

// faster storage, where it limits the run or would limit the rate that is needed.
func (p Plan) faster() (Change, bool) {
	c := Change{Name: "faster storage", Try: "a faster disk, a copy on a local one, or more memory for the page cache"}
	if p.Bound == Reads && !p.latency() {
		c.Rate, c.Most = p.byCores(), true
		c.Why = fmt.Sprintf("The run read %s/s, and the need is %s/s. If reads cost nothing, the cores here are the limit.", show.Bytes(p.got()), show.Bytes(p.ReadPerSecond))
		return c, true
	}
	c.Why = fmt.Sprintf("The need is %s/s, and the storage gave %s/s, which is %s samples/s. More than the page cache keeps has to be read in every epoch.", show.Bytes(p.ReadPerSecond), show.Bytes(p.Storage), rate(p.stored()))
	return c, p.StorageTooSlow
}
