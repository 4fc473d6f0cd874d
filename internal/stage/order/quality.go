package order

import (
	"math"
	"slices"
	"sort"

	"github.com/stoker-data/stoker/internal/base/rng"
)

// Quality is how well an epoch is mixed, and what that costs its readers. It is
// estimated from about a million places, the same ones every time; where chance
// matters, its effect is documented.
type Quality struct {
	Places int64 // of the epoch
	Depth  int64 // places considered together: as asked for, within [2, 524288] and the epoch
	Shards int64 // with samples

	// Displacement is the mean of |place/places - sample/samples|: how far, in
	// epochs, samples are from their position in storage. 0: the stored order; 1/3:
	// a perfect shuffle.
	Displacement float64
	// Entropy is the entropy of the shards among Depth consecutive places, the mean
	// over many such runs, as a share of that of Depth places distributed evenly
	// over all shards. 0: one shard at a time; near 1: mixed, but below 1 even for
	// a perfect shuffle, which is random and not even. 1 for a single shard.
	Entropy float64
	// Independence is chi-squared of place against sample, each cut into equal
	// bins, in standard deviations from independence (Wilson, Hilferty 1931). -3 to
	// 3 is chance; more shows that the place tells where a sample is stored, less
	// that the shuffle is more even than chance.
	Independence float64
	// Neighbours is the share of places followed by a sample that is stored
	// directly before or after theirs. 1: the stored order; 2/samples: a perfect
	// shuffle.
	Neighbours float64

	// Open is the mean number of shards that Depth consecutive places are in.
	Open float64
	// Run is the mean number of samples that can be read in one go if Depth
	// consecutive places are read in the order of storage. No run leaves its shard.
	Run float64
	// Reads is what a cluster reads in an epoch if every node, of one rank, reads
	// each shard that it needs completely, as a multiple of the data, for worlds of
	// 1, 2, 4 and 8. 1 is the least that reads everything, the world's size the
	// most. For draws and mixtures it is estimated from the places considered, and
	// too low if there are hundreds of thousands of shards.
	Reads []Reading
}

// Reading is what a cluster of World nodes reads in an epoch.
type Reading struct {
	World int64   // nodes, of one rank each
	Times float64 // the size of the dataset
}

const (
	scattered  = 1 << 18 // places considered one by one
	together   = 1 << 19 // places considered in runs of Depth
	mostBins   = 64
	binHolds   = 16 // minimum of expected places per cell
	mostWorld  = 8
	mostLayout = 1 << 20 // most streams to go through one by one
)

// Measure measures one epoch. blocks are the samples in each shard, in the order of
// ids; nil: there is one shard. depth is the number of places considered together:
// those of a batch, to judge mixing, or those of all that is prefetched, to judge
// reading. Lengths are ignored: they only move samples within their windows.
//
// It costs the opening of an epoch, and well below a second.
func Measure(p Plan, epoch int64, blocks []int64, depth int64) Quality {
	p.policy.Lengths = Lengths{}
	m := measure{plan: p, epoch: p.Epoch(epoch), shards: newShards(p.all, blocks)}
	depth = min(max(depth, 2), together, p.places)
	m.q = Quality{Places: p.places, Depth: depth, Shards: int64(len(m.shards.ends))}
	m.scatter()
	m.rows(rng.New(uint64(p.places)).With(1))
	m.reads()
	return m.q
}

type measure struct {
	plan    Plan
	epoch   Epoch
	shards  shards
	q       Quality
	touched []float64 // estimated places of each shard
}

// shards is where each shard ends, in samples; none is empty.
type shards struct{ ends []int64 }

// newShards makes the last shard end where the samples do, whatever the sizes say.
func newShards(samples int64, sizes []int64) shards {
	var s shards
	var end int64
	for _, size := range sizes {
		if size > 0 && size < samples-end {
			end += size
			s.ends = append(s.ends, end)
		}
	}
	s.ends = append(s.ends, samples)
	return s
}

func (s shards) of(sample int64) int {
	return sort.Search(len(s.ends)-1, func(i int) bool { return s.ends[i] > sample })
}

// size is the number of samples of shard i.
func (s shards) size(i int) int64 {
	if i > 0 {
		return s.ends[i] - s.ends[i-1]
	}
	return s.ends[0]
}

// strata calls fn with a random place in each of n equal parts of the places, or
// with every place if there are fewer.
func strata(places, n int64, key rng.Key, fn func(place int64)) {
	n = min(n, places)
	for i := range n {
		begin := i*(places/n) + min(i, places%n)
		size := places / n
		if i < places%n {
			size++
		}
		fn(begin + key.Intn(uint64(i), size))
	}
}

// scatter considers single places: displacement, independence, and how often each
// shard is used.
func (m *measure) scatter() {
	looked := min(scattered, m.plan.places)
	bins := min(max(2, int(math.Sqrt(float64(looked)/binHolds))), mostBins)
	cells := make([]float64, bins*bins)
	m.touched = make([]float64, len(m.shards.ends))
	weight := float64(m.plan.places) / float64(looked)
	var moved float64
	strata(m.plan.places, looked, rng.New(uint64(m.plan.places)), func(place int64) {
		sample := m.epoch.At(place)
		x, y := float64(place)/float64(m.plan.places), float64(sample)/float64(m.plan.all)
		moved += math.Abs(x - y)
		cells[min(bins-1, int(x*float64(bins)))*bins+min(bins-1, int(y*float64(bins)))]++
		m.touched[m.shards.of(sample)] += weight
	})
	m.q.Displacement = moved / float64(looked)
	m.q.Independence = independence(cells, bins)
}

// independence is how far a table of bins x bins counts is from the product of its
// margins, in standard deviations. Empty rows and columns do not count.
func independence(cells []float64, bins int) float64 {
	across, down := make([]float64, bins), make([]float64, bins)
	var all float64
	for i, c := range cells {
		across[i/bins] += c
		down[i%bins] += c
		all += c
	}
	var chi, rows, columns float64
	for i := range bins {
		rows += min(1, across[i])
		columns += min(1, down[i])
	}
	for i, c := range cells {
		if want := across[i/bins] * down[i%bins] / all; want > 0 {
			chi += float64((c - want) * (c - want) / want)
		}
	}
	free := (rows - 1) * (columns - 1)
	if free == 0 {
		return 0
	}
	return (math.Cbrt(chi/free) - (1 - 2/(9*free))) / math.Sqrt(2/(9*free))
}

// rows considers consecutive places: entropy, neighbours, open shards, runs.
func (m *measure) rows(key rng.Key) {
	depth, places := m.q.Depth, m.plan.places
	n := min(together, places) / depth
	samples := make([]int64, depth)
	var pairs, entropy, open, runs, held float64
	strata(places/depth, n, key, func(row int64) {
		for i := range samples {
			samples[i] = m.epoch.At(row*depth + int64(i))
			if i > 0 && (samples[i]-samples[i-1] == 1 || samples[i-1]-samples[i] == 1) {
				pairs++
			}
		}
		slices.Sort(samples)
		end, last, here := int64(0), int64(-1), 0.0 // of the shard; the sample before; places in the shard
		for _, sample := range samples {
			if sample >= end {
				entropy += surprise(here, float64(depth))
				here = 0
				open++
				runs++
				held++
				end = m.shards.ends[m.shards.of(sample)]
			} else if sample != last {
				held++
				if sample != last+1 {
					runs++
				}
			}
			last = sample
			here++
		}
		entropy += surprise(here, float64(depth))
	})
	m.q.Open = open / float64(n)
	m.q.Run = held / runs
	if depth > 1 {
		m.q.Neighbours = pairs / float64(n*(depth-1))
	}
	m.q.Entropy = 1
	if most := evenEntropy(depth, m.q.Shards); most > 0 {
		m.q.Entropy = min(1, entropy/float64(n)/most)
	}
}

// surprise is what c of all places add to their entropy.
func surprise(c, all float64) float64 {
	if c == 0 {
		return 0
	}
	return c / all * math.Log(all/c)
}

// evenEntropy is the entropy of places distributed evenly over shards.
func evenEntropy(places, shards int64) float64 {
	less, more := places/shards, places%shards
	return float64(float64(more)*surprise(float64(less+1), float64(places))) +
		float64(float64(shards-more)*surprise(float64(less), float64(places)))
}

// reads counts shard by shard if the layout of the order is known, and otherwise
// estimates from the number of places of each shard, which may be on any rank.
func (m *measure) reads() {
	ranks := m.layout()
	for world := int64(1); world <= mostWorld; world *= 2 {
		var read, all float64
		for i := range m.shards.ends {
			size := float64(m.shards.size(i))
			nodes := float64(0)
			if ranks != nil {
				var seen [mostWorld]bool
				for r := range int64(mostWorld) {
					if ranks[i]>>r&1 == 1 && !seen[r%world] {
						seen[r%world] = true
						nodes++
					}
				}
			} else {
				nodes = float64(world) * (1 - math.Pow(1-1/float64(world), m.places(i)))
			}
			read += float64(nodes * size)
			all += size
		}
		m.q.Reads = append(m.q.Reads, Reading{World: world, Times: read / all})
	}
}

// places is how many places have samples of shard i.
func (m *measure) places(i int) float64 {
	if m.plan.mix == nil && !m.plan.policy.Draw.any() && m.plan.places == m.plan.all && m.plan.policy.Subset == nil {
		return float64(m.shards.size(i))
	}
	return m.touched[i]
}

// layout returns, for each shard, the set of place mod mostWorld of its samples, as
// bits; nil for orders in which any place may have them. Windows are treated as not
// permuted: that changes which rank gets a shard's sample, but hardly how many
// ranks do.
func (m *measure) layout() []uint8 {
	o, ok := m.epoch.seq.(*blockOrder)
	if _, plain := m.epoch.seq.(identity); plain {
		o, ok = &blockOrder{n: m.plan.samples, streams: 1, blocks: []placed{{}}}, true
	}
	if !ok || o.streams > mostLayout || m.plan.places > m.plan.samples || m.plan.policy.Subset != nil {
		return nil
	}
	out := make([]uint8, len(m.shards.ends))
	share, more := o.n/o.streams, o.n%o.streams
	block, start := 0, int64(0)
	for stream := range o.streams {
		size := share
		if stream < more {
			size++
		}
		given := (m.plan.places - stream + o.streams - 1) / o.streams // fewer than size if an epoch ends early
		for i := int64(0); i < min(size, given); {                    // a run inside one stream, one block and one shard
			at := start + i
			for block+1 < len(o.blocks) && o.blocks[block+1].begin <= at {
				block++
			}
			end := o.n
			if block+1 < len(o.blocks) {
				end = o.blocks[block+1].begin
			}
			sample := o.blocks[block].from + at - o.blocks[block].begin
			shard := m.shards.of(sample)
			run := min(size-i, given-i, end-at, m.shards.ends[shard]-sample)
			for j := range min(run, mostWorld) {
				out[shard] |= 1 << (((i+j)%mostWorld*(o.streams%mostWorld) + stream) % mostWorld)
			}
			i += run
		}
		start += size
	}
	return out
}
