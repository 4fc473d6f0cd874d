package spec

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/stage/order"
)

// Problems collects everything that is wrong, so that the user sees all of it at
// once.
type Problems []string

// Addf adds one problem.
func (p *Problems) Addf(format string, a ...any) { *p = append(*p, fmt.Sprintf(format, a...)) }

// oneOf adds a value that is none of those that its key can have.
func (p *Problems) oneOf(key, got string, want ...string) {
	if slices.Contains(want, got) {
		return
	}
	want = slices.DeleteFunc(slices.Clone(want), func(w string) bool { return w == "" })
	p.Addf("%s is %q: it can be %s", key, got, strings.Join(want, ", "))
}

// Err is one error for all Problems, or nil.
func (p Problems) Err() error {
	switch len(p) {
	case 0:
		return nil
	case 1:
		return errs.New(errs.Config, "%s", p[0])
	}
	return errs.New(errs.Config, "%d things are wrong: %s", len(p), strings.Join(p, "; "))
}

// Formats are the names that dataset.format can have. Made are those that need no path,
// because their samples are made, not stored. Shaped are those of Made that need
// dataset.samples and dataset.shape.
type Formats struct{ Names, Made, Shaped []string }

// Check returns every problem that can be found without the dataset. formats are
// the formats that exist.
func (s Spec) Check(formats Formats) (p Problems) {
	oneOf := p.oneOf
	oneOf("shuffle", string(s.Order.Shuffle), shuffles...)
	oneOf("tail", string(s.Order.Tail), string(order.Pad), string(order.Fill), string(order.Drop))
	oneOf("on_bad", s.OnBad.Policy, Fail, Skip, Replace)
	oneOf("cache.after", s.Cache.After, "", AfterRandom, AfterDecode)
	if s.Dataset.Mixed == nil {
		s.Dataset.check(&p, oneOf, formats)
		if s.Dataset.Weight != 0 || s.Dataset.Shuffle != "" || s.Dataset.Fields != nil {
			p.Addf("weight, fields and shuffle of a dataset apply to the members of a mixture: make dataset a list")
		}
		if s.Mix.Schedule != nil || s.Mix.Linear || s.Mix.Stop != "" || s.Mix.Batches != "" {
			p.Addf("mix needs a list of datasets, but dataset is a single one")
		}
	}
	for _, d := range s.Dataset.Mixed {
		d.check(&p, oneOf, formats)
	}
	s.checkMix(&p, oneOf)
	s.checkOrder(&p)
	s.checkBatch(&p)
	if s.Deliver.PrefetchFactor < 0 || s.Deliver.PrefetchFactor > maxAhead {
		p.Addf("deliver.prefetch_factor is %d: it can be 1 to %d batches for each lane", s.Deliver.PrefetchFactor, maxAhead)
	} else if s.Deliver.Prefetch < 0 || s.Deliver.Prefetch > maxAhead*max(s.Deliver.PrefetchFactor, 1) {
		p.Addf("deliver.prefetch is %d: it can be 1 to %d batches", s.Deliver.Prefetch, maxAhead)
	}
	if s.Workers < 0 || s.Workers > MaxLanes {
		p.Addf("workers is %d: it can be 1 to %d lanes, or 0 for all", s.Workers, MaxLanes)
	}
	if s.World > maxWorld {
		p.Addf("world_size is %d: it can be 1 to %d", s.World, maxWorld)
	}
	if s.World < 1 || s.Rank < 0 || s.Rank >= s.World {
		p.Addf("rank is %d in a world of %d: ranks go from 0 to world_size - 1", s.Rank, s.World)
	}
	if s.OnBad.MaxBad < 0 || s.OnBad.MaxBadRate < 0 || s.OnBad.MaxBadRate > 1 {
		p.Addf("max_bad is %d and max_bad_rate is %g: the first is a count, the second a share between 0 and 1", s.OnBad.MaxBad, s.OnBad.MaxBadRate)
	}
	if d := s.DecodeDevice; d != (DecodeDevice{}) && (d.By == "" || d.Share < 0 || d.Share > 16) {
		p.Addf("decode_device is by %q, with a share of %d: by must name a decoder, and share is in sixteenths, 1 to 16 (0 means 16)", d.By, d.Share)
	}
	checkFields(&p, s.Fields, oneOf)
	return p
}

// Bounds that keep products of a step's places, and sums with the places of an
// epoch, within 64 bits.
const (
	maxWorld = 1 << 24 // ranks
	maxAhead = 1 << 31 // batches made ahead, in total or per lane
	maxCount = 1 << 53 // samples or tokens; a float64 is still exact
)

// atMost reports the counts that are too large to calculate with.
func atMost(p *Problems, counts map[string]int64) {
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		if counts[key] > maxCount {
			p.Addf("%s is %d: it can be at most 2^53", key, counts[key])
		}
	}
}

// The values that a key can have.
var (
	shuffles = []string{string(order.None), string(order.Full), string(order.BlockWise), string(order.WindowAlone)}
)

// choice checks that a value is one of those that a key can have.
type choice func(key, got string, want ...string)

func (d Dataset) check(p *Problems, oneOf choice, formats Formats) {
	oneOf("format", d.Format, formats.Names...)
	switch {
	case d.Mixed != nil:
		p.Addf("a member of a mixture cannot be a list: mixtures do not nest")
	case slices.Contains(formats.Shaped, d.Format):
		if d.Samples <= 0 || len(d.Shape) == 0 {
			p.Addf("a %s dataset needs samples and a shape", d.Format)
		}
	case slices.Contains(formats.Made, d.Format):
	case len(d.Paths()) == 0:
		p.Addf("dataset.path is missing")
	}
	if d.MaxPixels < 0 || d.MaxPixels > kernel.MostPixels {
		p.Addf("dataset.max_pixels is %d: it can be 1 to %d, or 0 for %d", d.MaxPixels, kernel.MostPixels, kernel.MaxPixels)
	}
	checkStorage(p, d.Storage, oneOf)
	checkOrigins(p, d.Origins)
	checkFields(p, d.Fields, oneOf)
}

// Openable reports whether Check finds nothing that prevents opening the dataset.
func (d Dataset) Openable(formats Formats) bool {
	var p Problems
	if checkStorage(&p, d.Storage, p.oneOf); len(p) > 0 {
		return false // nothing is sent to a store that may not be the one that was meant
	}
	if d.Mixed != nil {
		return len(d.Mixed) > 0 && !slices.ContainsFunc(d.Mixed, func(m Dataset) bool { return m.Mixed != nil || !m.Openable(formats) })
	}
	if slices.Contains(formats.Shaped, d.Format) {
		return d.Samples > 0 && len(d.Shape) > 0
	}
	return slices.Contains(formats.Names, d.Format) && (len(d.Paths()) > 0 || slices.Contains(formats.Made, d.Format))
}

func (s Spec) checkMix(p *Problems, oneOf choice) {
	if s.Dataset.Mixed == nil {
		return
	}
	if len(s.Dataset.Mixed) == 0 {
		p.Addf("dataset is an empty list")
	}
	oneOf("mix.stop", string(s.Mix.Stop), string(order.FirstExhausted), string(order.AllExhausted), string(order.Repeat))
	oneOf("mix.batches", s.Mix.Batches, BatchesMixed, BatchesSingle)
	if s.Order.NumSamples != 0 && s.Mix.Stop != order.Repeat {
		p.Addf("num_samples is %d, but mix.stop %s decides when an epoch ends: num_samples needs mix.stop repeat", s.Order.NumSamples, s.Mix.Stop)
	}
	if s.Order.Shuffle == order.BlockWise {
		p.Addf("shuffle block needs a single dataset: give every member of the mixture its own shuffle")
	}
	weighted := 0
	for i, d := range s.Dataset.Mixed {
		if d.Weight != 0 {
			weighted++
		}
		if d.Shuffle != "" {
			oneOf(fmt.Sprintf("shuffle of dataset %d of the mixture", i), string(d.Shuffle), shuffles...)
		}
	}
	switch {
	case s.Mix.Schedule != nil && weighted > 0:
		p.Addf("weight of a dataset and mix.schedule exclude each other: keep one")
	case s.Mix.Schedule != nil && len(s.Mix.Schedule) == 0:
		p.Addf("mix.schedule is empty: it gives the weights from place 0 on")
	case s.Mix.Schedule == nil && s.Mix.Linear:
		p.Addf("mix.linear needs mix.schedule, which is missing")
	}
}

func (s Spec) checkOrder(p *Problems) {
	o := s.Order
	if o.Block < 0 || o.Window < 0 || o.Streams < 0 || o.NumSamples < 0 {
		p.Addf("block is %d, window %d, streams %d, num_samples %d: none can be negative", o.Block, o.Window, o.Streams, o.NumSamples)
	}
	atMost(p, map[string]int64{"block": o.Block, "window": o.Window, "streams": o.Streams, "num_samples": o.NumSamples})
	if !s.shuffles(order.BlockWise) && (o.Block != 0 || o.Streams != 0) {
		p.Addf("block and streams need shuffle block, but shuffle is %s", o.Shuffle)
	}
	if !s.shuffles(order.BlockWise, order.WindowAlone) && o.Window != 0 {
		p.Addf("window needs shuffle block or window, but shuffle is %s", o.Shuffle)
	}
	if o.Weights.Len() > 0 && o.Balanced {
		p.Addf("weights and balanced both set the weights: keep one")
	}
	draws := o.Weights.Len() > 0 || o.Balanced || o.Replacement != nil && *o.Replacement
	if draws && s.Dataset.Mixed != nil {
		p.Addf("weights, balanced and replacement need a single dataset: a mixture has the weights of its members")
	}
}

func (s Spec) checkBatch(p *Problems) {
	b := s.Batch
	if (b.Size < 0 || b.Size > 1<<20) && b.GlobalSize <= 1<<30 { // else a wrong global size is reported instead
		p.Addf("batch.size is %d: it can be 1 to %d", b.Size, 1<<20)
	}
	switch {
	case b.GlobalSize < 0 || b.GlobalSize > 1<<30:
		p.Addf("batch.global_size is %d: it can be 1 to %d", b.GlobalSize, 1<<30)
	case b.GlobalSize > 0 && s.World > 0 && b.GlobalSize%s.World != 0:
		p.Addf("batch.global_size %d cannot be divided over %d ranks: world sizes that divide it are %s", b.GlobalSize, s.World, divisors(b.GlobalSize, s.World))
	case b.GlobalSize > 0 && b.Size*s.World != b.GlobalSize:
		p.Addf("batch.size %d and batch.global_size %d both set the size of batches: keep one", b.Size, b.GlobalSize)
	case b.GlobalSize > 0 && b.Tokens > 0:
		p.Addf("batch.global_size %d and batch.tokens %d both set the size of batches: keep one", b.GlobalSize, b.Tokens)
	}
	if b.Bucket < 0 || b.Tokens < 0 || b.Pack < 0 || b.Window < 0 {
		p.Addf("bucket is %d, tokens %d, pack %d, window %d: none can be negative", b.Bucket, b.Tokens, b.Pack, b.Window)
	}
	atMost(p, map[string]int64{"bucket": b.Bucket, "tokens": b.Tokens, "pack": b.Pack, "batch.window": b.Window})
	kinds := 0
	for _, n := range []int64{b.Bucket, b.Tokens, b.Pack} {
		if n > 0 {
			kinds++
		}
	}
	switch {
	case kinds > 1:
		p.Addf("bucket, tokens and pack exclude each other")
	case kinds == 0 && !b.Lengths.IsZero():
		p.Addf("lengths are used by bucket, tokens and pack, but none of these is set")
	case kinds == 1 && b.Lengths.IsZero():
		p.Addf("bucket, tokens and pack need lengths: the name of a stored field, or a list")
	case kinds == 0 && b.Window != 0:
		p.Addf("batch.window is used by bucket, tokens and pack, but none of these is set")
	case b.Pack == 0 && b.Long != "":
		p.Addf("long is %q, but only pack uses it", b.Long)
	}
	switch b.Long {
	case "", order.Split, order.Truncate, order.Refuse:
	default:
		p.Addf("long is %q: it can be %s, %s, %s", b.Long, order.Split, order.Truncate, order.Refuse)
	}
}

// divisors are world sizes that divide n, nearest to the one that does not.
func divisors(n, near int) string {
	var all []int
	for d := 1; d <= n/d; d++ {
		if n%d == 0 {
			all = append(all, d)
			if d != n/d {
				all = append(all, n/d)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b int) int { return cmp.Compare(max(a-near, near-a), max(b-near, near-b)) })
	all = all[:min(len(all), 24)]
	slices.Sort(all)
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(all), " ", ", "), "[]")
}
