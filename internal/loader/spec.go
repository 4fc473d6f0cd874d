package loader

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/jsontext"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/stage/order"
)

// Spec is everything that decides what a loader delivers, and how. The zero
// value of every key is its documented default. The same keys stand in files,
// flags, Python keywords and saved states.
type Spec struct {
	Dataset Dataset   `json:"dataset"`          // one, or a list: a mixture
	Mix     Mix       `json:"mix,omitzero"`     // how the datasets of a list are mixed
	Fields  []Field   `json:"fields,omitempty"` // in the order of delivery; none: the format's own
	Order   Order     `json:"order,omitzero"`
	Batch   BatchSpec `json:"batch,omitzero"`
	Cache   Cache     `json:"cache,omitzero"`
	Deliver Deliver   `json:"deliver,omitzero"`
	Workers int       `json:"workers,omitempty"` // lanes; 0: all that this process may use
	OnBad   OnBad     `json:"on_bad,omitzero"`
	Rank    int       `json:"rank,omitempty"`
	World   int       `json:"world_size,omitempty"` // 0: 1
}

// Dataset says where samples lie. In a document it is one, or a list of them.
type Dataset struct {
	Path       Paths    `json:"path,omitempty"`
	Format     string   `json:"format,omitempty"` // auto (""), or the name of one: folder, tar, tfrecord, npy, npz, hdf5, lmdb, parquet, tokens, mds, beton, files, table, synthetic
	Extensions []string `json:"extensions,omitempty"`
	AllowEmpty bool     `json:"allow_empty,omitempty"` // folder: classes without a sample
	Samples    int64    `json:"samples,omitempty"`     // synthetic
	Shape      []int    `json:"shape,omitempty"`       // synthetic: of one uint8 sample
	Columns    []Column `json:"columns,omitempty"`     // npy, npz, hdf5: the arrays; none: all
	Group      string   `json:"group,omitempty"`       // hdf5: where the arrays lie
	Pictures   bool     `json:"pictures,omitempty"`    // beton: raw pictures as pictures, not as arrays
	Manifest   string   `json:"manifest,omitempty"`    // files: a table (CSV, TSV, JSONL, Parquet) with a file a row
	PathColumn string   `json:"path_column,omitempty"` // files: the column of the manifest that has the paths; "": path, file, filename, ...
	Root       string   `json:"root,omitempty"`        // files: the folder that those paths are relative to; "": the manifest's
	Window     Window   `json:"window,omitzero"`       // tokens: what a sample is
	DType      string   `json:"dtype,omitempty"`       // tokens: of the numbers stored; "": found out
	Label      string   `json:"label,omitempty"`       // parquet, files, table: the column that numbers the classes; files: folder, or none
	Unpacked   Bytes    `json:"unpacked,omitempty"`    // npy, mds, parquet, hdf5: memory for what was decompressed; 0: the format's own
	MaxPixels  int64    `json:"max_pixels,omitempty"`  // of one picture; larger ones are not decoded; 0: kernel.MaxPixels
	Database   string   `json:"database,omitempty"`    // lmdb: the database in the environment; "": the only one
	Values     string   `json:"values,omitempty"`      // lmdb: what values are: auto (""), bytes, datum (Caffe's)

	// Of the members of a mixture only.
	Weight  float64       `json:"weight,omitempty"`  // its share of the samples, in whatever unit; 0: 1
	Fields  []Field       `json:"fields,omitempty"`  // of this member, where the Spec's are not also its own
	Shuffle order.Shuffle `json:"shuffle,omitempty"` // of this member; "": order.shuffle

	// Mixed are the members, where the Spec has a list.
	Mixed []Dataset `json:"-"`
}

// Column is one field of a dataset that has columns: a name, or an object.
type Column struct {
	Name string `json:"name"`
	From string `json:"from,omitempty"` // its name in the file; "": Name
	Path Paths  `json:"path,omitempty"` // npy: the files that hold it; none: those of the dataset
}

// Window is what a sample of a file of tokens is: Length tokens (and the next one,
// with Next), or a document.
type Window struct {
	Length int64 `json:"length,omitempty"`
	Stride int64 `json:"stride,omitempty"` // from the start of a window to that of the next; 0: Length
	// Random makes so many samples of windows that begin anywhere, drawn by Seed;
	// 0: windows by stride.
	Random int64  `json:"random,omitempty"`
	Seed   uint64 `json:"seed,omitempty"`
	Next   bool   `json:"next,omitempty"` // one token more: inputs are all but the last, targets all but the first

	Documents bool   `json:"documents,omitempty"`
	EOS       *int64 `json:"eos,omitempty"` // the token that ends a document, where no index says where they are
	BOS       *int64 `json:"bos,omitempty"` // the one that begins one
}

// column is a Column without its methods.
type column Column

// UnmarshalJSON takes a name or an object.
func (c *Column) UnmarshalJSON(b []byte) error {
	*c = Column{}
	if json.Unmarshal(b, &c.Name) == nil {
		return nil
	}
	return json.Unmarshal(b, (*column)(c))
}

// dataset is a Dataset without its methods.
type dataset Dataset

// UnmarshalJSON takes one dataset or a list of them.
func (d *Dataset) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '[' {
		*d = Dataset{}
		return json.Unmarshal(b, &d.Mixed)
	}
	return json.Unmarshal(b, (*dataset)(d))
}

// MarshalJSON writes what UnmarshalJSON reads.
func (d Dataset) MarshalJSON() ([]byte, error) {
	if d.Mixed != nil {
		return json.Marshal(d.Mixed)
	}
	return json.Marshal(struct {
		dataset
		Manifest jsontext.Name `json:"manifest,omitempty"`
		Root     jsontext.Name `json:"root,omitempty"`
	}{dataset(d), jsontext.Name(d.Manifest), jsontext.Name(d.Root)})
}

// Mix is how the datasets of a list become one stream. Shares are exact within
// every thousand samples (or batches).
type Mix struct {
	// Schedule gives the members' weights from a place of the epoch on, instead
	// of the datasets' own.
	Schedule []Stage `json:"schedule,omitempty"`
	// Linear moves the weights evenly from one stage of the schedule to the next.
	Linear bool `json:"linear,omitempty"`
	// Stop ends an epoch: first_exhausted (""), all_exhausted, or repeat, after
	// order.num_samples places.
	Stop order.Stop `json:"stop,omitempty"`
	// Batches is mixed ("") or single: every batch from one dataset.
	Batches string `json:"batches,omitempty"`
}

// Stage is the weights of a mixture from a place on.
type Stage struct {
	Place   int64     `json:"place"`
	Weights []float64 `json:"weights"`
}

// Paths is one path or a list of them; globs and braces are allowed.
type Paths []string

// UnmarshalJSON takes a string or a list.
func (p *Paths) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*p = Paths{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(p))
}

// MarshalJSON writes a list, in which every byte of a path is kept: whoever reads it
// uses jsontext.UnmarshalNames.
func (p Paths) MarshalJSON() ([]byte, error) { return json.Marshal(jsontext.Names(p)) }

// Order decides which sample comes when.
type Order struct {
	Shuffle order.Shuffle `json:"shuffle,omitempty"` // none (""), full, block, window
	Seed    uint64        `json:"seed,omitempty"`
	Tail    order.Tail    `json:"tail,omitempty"` // pad (""), fill, drop

	Block   int64 `json:"block,omitempty"`   // block: samples of a block; 0: a stored shard, or 1,024 where a file is a sample
	Window  int64 `json:"window,omitempty"`  // block, window: samples that are permuted together; 0: 10,000
	Streams int64 `json:"streams,omitempty"` // block: blocks read side by side; 0: 8

	Weights     Numbers `json:"weights,omitzero"`      // of every sample, for a weighted draw
	Balanced    bool    `json:"balanced,omitempty"`    // weights from the labels: every class alike
	Replacement *bool   `json:"replacement,omitempty"` // whether a sample may come again; nil: with weights yes, else no
	NumSamples  int64   `json:"num_samples,omitempty"` // places of an epoch; 0: one a sample
	Subset      Numbers `json:"subset,omitzero"`       // the samples that there are, as far as the order knows; none: all
}

// BatchSpec is how many samples come at once.
type BatchSpec struct {
	Size       int `json:"size,omitempty"`        // per rank; 0: 1
	GlobalSize int `json:"global_size,omitempty"` // over all ranks, instead of Size; the world must divide it

	// Batches by length. At most one of Bucket, Tokens and Pack is set.
	Lengths Lengths    `json:"lengths,omitzero"`
	Bucket  int64      `json:"bucket,omitempty"` // runs of so many samples have nearly one length
	Tokens  int64      `json:"tokens,omitempty"` // batches pad to at most so many tokens, and have at most Size rows (0: any number)
	Pack    int64      `json:"pack,omitempty"`   // rows of so many tokens, filled with whole samples
	Long    order.Long `json:"long,omitempty"`   // samples longer than Pack: split (""), truncate, refuse
	Window  int64      `json:"window,omitempty"` // samples that are looked at together; 0: 10,000
}

// ByLength says that lengths decide how samples are put together.
func (b BatchSpec) ByLength() bool { return b.Bucket != 0 || b.Tokens != 0 || b.Pack != 0 }

// Deliver is how far ahead, and within which memory.
type Deliver struct {
	Prefetch int `json:"prefetch,omitempty"` // batches ready ahead; 0: 4
	// PrefetchFactor is the same by the lane, as torch counts; 0: Prefetch holds.
	PrefetchFactor int   `json:"prefetch_factor,omitempty"`
	Memory         Bytes `json:"memory,omitempty"` // for batches; 0: a quarter of what is left, for all loaders together
}

// OnBad is what happens to a sample that can not be delivered.
type OnBad struct {
	Policy     string  `json:"policy,omitempty"`       // fail (""), skip, replace
	MaxBad     int64   `json:"max_bad,omitempty"`      // a pass with more ends; 0: no limit
	MaxBadRate float64 `json:"max_bad_rate,omitempty"` // likewise, of the samples so far, from the first 100 on and at the end; 0: no limit
}

// The policies.
const (
	Fail    = "fail"
	Skip    = "skip"    // a good row of the batch stands there, valid = False
	Replace = "replace" // another sample, chosen by key, stands there
)

// Bytes is an amount of memory: a number, or text such as "8GiB" or "500MB".
// "auto" is 0.
type Bytes int64

var units = []struct {
	name string
	size float64
}{
	{"kib", 1 << 10},
	{"mib", 1 << 20},
	{"gib", 1 << 30},
	{"tib", 1 << 40},
	{"kb", 1e3},
	{"mb", 1e6},
	{"gb", 1e9},
	{"tb", 1e12},
	{"b", 1},
	{"", 1},
}

// ParseBytes reads an amount of memory.
func ParseBytes(text string) (Bytes, error) {
	s := strings.ToLower(strings.TrimSpace(text))
	if s == "auto" {
		return 0, nil
	}
	for _, u := range units {
		if number, ok := strings.CutSuffix(s, u.name); ok {
			if n, err := strconv.ParseFloat(strings.TrimSpace(number), 64); err == nil && n >= 0 && n*u.size < 1<<62 {
				return Bytes(n * u.size), nil
			}
		}
	}
	return 0, fmt.Errorf("%q is no amount of memory: write \"auto\", a number of bytes, or one like \"8GiB\" or \"500MB\"", text)
}

// UnmarshalJSON takes a number or text.
func (b *Bytes) UnmarshalJSON(raw []byte) error {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		text = string(raw)
	}
	n, err := ParseBytes(text)
	*b = n
	return err
}

// defaults is the Spec with every default written out.
func (s Spec) defaults() Spec {
	if s.World == 0 {
		s.World = 1
	}
	if s.Batch.GlobalSize > 0 && s.Batch.Size == 0 && s.World > 0 && s.Batch.GlobalSize%s.World == 0 {
		s.Batch.Size = s.Batch.GlobalSize / s.World
	}
	if s.Batch.Size == 0 && s.Batch.Tokens == 0 {
		s.Batch.Size = 1
	}
	if s.Workers == 0 {
		s.Workers = Cores()
	}
	if s.Deliver.PrefetchFactor > 0 {
		s.Deliver.Prefetch = s.Deliver.PrefetchFactor * max(s.Workers, 1)
	}
	if s.Deliver.Prefetch == 0 {
		s.Deliver.Prefetch = 4
	}
	if s.Order.Shuffle == "" {
		s.Order.Shuffle = order.None
	}
	if s.Order.Tail == "" {
		s.Order.Tail = order.Pad
	}
	if s.OnBad.Policy == "" {
		s.OnBad.Policy = Fail
	}
	o := &s.Order
	if s.shuffles(order.BlockWise) && o.Streams == 0 {
		o.Streams = 8
	}
	if s.shuffles(order.BlockWise, order.WindowAlone) && o.Window == 0 {
		o.Window = defaultWindow
	}
	if (o.Weights.Len() > 0 || o.Balanced) && o.Replacement == nil {
		o.Replacement = new(true)
	}
	if s.Batch.ByLength() && s.Batch.Window == 0 {
		s.Batch.Window = defaultWindow
	}
	if s.Batch.Pack > 0 && s.Batch.Long == "" {
		s.Batch.Long = order.Split
	}
	if s.Dataset.Mixed != nil {
		if s.Mix.Stop == "" {
			s.Mix.Stop = order.FirstExhausted
		}
		if s.Mix.Batches == "" {
			s.Mix.Batches = mixed
		}
	}
	return s
}

// shuffles says that the dataset, or a member of the mixture, is shuffled in one
// of these ways.
func (s Spec) shuffles(ways ...order.Shuffle) bool {
	return slices.Contains(ways, s.Order.Shuffle) ||
		slices.ContainsFunc(s.Dataset.Mixed, func(d Dataset) bool { return slices.Contains(ways, d.Shuffle) })
}

// defaultWindow is the samples that are shuffled, or sorted by length, together.
const defaultWindow = 10_000

// The ways to make the batches of a mixture.
const (
	mixed  = "mixed"
	single = "single"
)

// problems collects what is wrong, so that the user hears of all of it at once.
type problems []string

func (p *problems) addf(format string, a ...any) { *p = append(*p, fmt.Sprintf(format, a...)) }

// err is one error for all problems, or nil.
func (p problems) err() error {
	switch len(p) {
	case 0:
		return nil
	case 1:
		return errs.New(errs.Config, "%s", p[0])
	}
	return errs.New(errs.Config, "%d things are wrong: %s", len(p), strings.Join(p, "; "))
}

// check names every problem that can be seen without the dataset.
func (s Spec) check() (p problems) {
	oneOf := func(key, got string, want ...string) {
		for _, w := range want {
			if got == w {
				return
			}
		}
		p.addf("%s is %q: it can be %s", key, got, strings.Join(want, ", "))
	}
	oneOf("shuffle", string(s.Order.Shuffle), shuffles...)
	oneOf("tail", string(s.Order.Tail), string(order.Pad), string(order.Fill), string(order.Drop))
	oneOf("on_bad", s.OnBad.Policy, Fail, Skip, Replace)
	oneOf("cache.after", s.Cache.After, "", afterSettled, afterDecode)
	if s.Dataset.Mixed == nil {
		s.Dataset.check(&p, oneOf)
		if s.Dataset.Weight != 0 || s.Dataset.Shuffle != "" || s.Dataset.Fields != nil {
			p.addf("weight, fields and shuffle of a dataset are for the members of a mixture: make dataset a list")
		}
		if s.Mix.Schedule != nil || s.Mix.Linear || s.Mix.Stop != "" || s.Mix.Batches != "" {
			p.addf("mix is for a list of datasets, and there is one")
		}
	}
	for _, d := range s.Dataset.Mixed {
		d.check(&p, oneOf)
	}
	s.checkMix(&p, oneOf)
	s.checkOrder(&p)
	s.checkBatch(&p)
	if s.Deliver.Prefetch < 0 || s.Deliver.PrefetchFactor < 0 {
		p.addf("prefetch is %d batches, %d a lane", s.Deliver.Prefetch, s.Deliver.PrefetchFactor)
	}
	if s.Workers < 0 || s.Workers > MaxLanes {
		p.addf("workers is %d: it can be 1 to %d lanes, or 0 for all", s.Workers, MaxLanes)
	}
	if s.World > maxWorld {
		p.addf("world_size is %d: it can be 1 to %d", s.World, maxWorld)
	}
	if s.World < 1 || s.Rank < 0 || s.Rank >= s.World {
		p.addf("rank is %d in a world of %d: ranks go from 0 to world_size - 1", s.Rank, s.World)
	}
	if s.OnBad.MaxBad < 0 || s.OnBad.MaxBadRate < 0 || s.OnBad.MaxBadRate > 1 {
		p.addf("max_bad is %d and max_bad_rate %g: a count, and a share between 0 and 1", s.OnBad.MaxBad, s.OnBad.MaxBadRate)
	}
	checkFields(&p, s.Fields, oneOf)
	return p
}

// Bounds that keep products of a step's places, and sums with the places of an
// epoch, within 64 bits.
const (
	maxWorld = 1 << 24 // ranks
	maxCount = 1 << 53 // samples or tokens; floats of other languages hold it too
)

// atMost names the counts that are too large to reckon with.
func atMost(p *problems, counts map[string]int64) {
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		if counts[key] > maxCount {
			p.addf("%s is %d: it can be at most 2^53", key, counts[key])
		}
	}
}

// The values that a key can have.
var (
	shuffles = []string{string(order.None), string(order.Full), string(order.BlockWise), string(order.WindowAlone)}
)

// choice says whether a value is one of those that a key can have.
type choice func(key, got string, want ...string)

func (d Dataset) check(p *problems, oneOf choice) {
	oneOf("format", d.Format, formatNames()...)
	switch {
	case d.Mixed != nil:
		p.addf("a member of a mixture is a list: mixtures do not nest")
	case d.Format == "synthetic":
		if d.Samples <= 0 || len(d.Shape) == 0 {
			p.addf("a synthetic dataset needs samples and a shape")
		}
	case len(d.paths()) == 0:
		p.addf("dataset.path is missing")
	}
	if d.MaxPixels < 0 || d.MaxPixels > kernel.MostPixels {
		p.addf("max_pixels is %d: it can be 1 to %d, or 0 for %d", d.MaxPixels, kernel.MostPixels, kernel.MaxPixels)
	}
	checkFields(p, d.Fields, oneOf)
}

// openable says that check finds nothing in the way of opening it.
func (d Dataset) openable() bool {
	if d.Mixed != nil {
		return len(d.Mixed) > 0 && !slices.ContainsFunc(d.Mixed, func(m Dataset) bool { return m.Mixed != nil || !m.openable() })
	}
	if d.Format == "synthetic" {
		return d.Samples > 0 && len(d.Shape) > 0
	}
	return slices.Contains(formatNames(), d.Format) && len(d.paths()) > 0
}

func (s Spec) checkMix(p *problems, oneOf choice) {
	if s.Dataset.Mixed == nil {
		return
	}
	if len(s.Dataset.Mixed) == 0 {
		p.addf("dataset is an empty list")
	}
	oneOf("mix.stop", string(s.Mix.Stop), string(order.FirstExhausted), string(order.AllExhausted), string(order.Repeat))
	oneOf("mix.batches", s.Mix.Batches, mixed, single)
	if s.Order.NumSamples != 0 && s.Mix.Stop != order.Repeat {
		p.addf("num_samples is %d, and mix.stop %s says when an epoch ends: num_samples goes with repeat", s.Order.NumSamples, s.Mix.Stop)
	}
	if s.Order.Shuffle == order.BlockWise {
		p.addf("shuffle block is of one dataset: give every member of the mixture its own shuffle")
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
		p.addf("weight of a dataset and mix.schedule say the same: keep one")
	case s.Mix.Schedule != nil && len(s.Mix.Schedule) == 0:
		p.addf("mix.schedule is empty: it gives the weights from place 0 on")
	case s.Mix.Schedule == nil && s.Mix.Linear:
		p.addf("mix.linear moves weights along mix.schedule, and there is none")
	}
}

func (s Spec) checkOrder(p *problems) {
	o := s.Order
	if o.Block < 0 || o.Window < 0 || o.Streams < 0 || o.NumSamples < 0 {
		p.addf("block is %d, window %d, streams %d, num_samples %d: none is negative", o.Block, o.Window, o.Streams, o.NumSamples)
	}
	atMost(p, map[string]int64{"block": o.Block, "window": o.Window, "streams": o.Streams, "num_samples": o.NumSamples})
	if !s.shuffles(order.BlockWise) && (o.Block != 0 || o.Streams != 0) {
		p.addf("block and streams are of shuffle block, and shuffle is %s", o.Shuffle)
	}
	if !s.shuffles(order.BlockWise, order.WindowAlone) && o.Window != 0 {
		p.addf("window is of shuffle block and of shuffle window, and shuffle is %s", o.Shuffle)
	}
	if o.Weights.Len() > 0 && o.Balanced {
		p.addf("weights and balanced both give the weights: keep one")
	}
	if !o.Subset.IsZero() && s.Dataset.Mixed != nil {
		p.addf("subset is of one dataset, and this is a mixture")
	}
	draws := o.Weights.Len() > 0 || o.Balanced || o.Replacement != nil && *o.Replacement
	if draws && s.Dataset.Mixed != nil {
		p.addf("weights, balanced and replacement are of one dataset: a mixture has the weights of its members")
	}
}

func (s Spec) checkBatch(p *problems) {
	b := s.Batch
	if b.Size < 0 || b.Size > 1<<20 {
		p.addf("batch size is %d: it can be 1 to %d", b.Size, 1<<20)
	}
	switch {
	case b.GlobalSize < 0 || b.GlobalSize > 1<<30:
		p.addf("global_batch_size is %d: it can be 1 to %d", b.GlobalSize, 1<<30)
	case b.GlobalSize > 0 && s.World > 0 && b.GlobalSize%s.World != 0:
		p.addf("global_batch_size %d can not be divided over %d ranks: world sizes that divide it are %s", b.GlobalSize, s.World, divisors(b.GlobalSize, s.World))
	case b.GlobalSize > 0 && b.Size*s.World != b.GlobalSize:
		p.addf("batch size %d and global_batch_size %d both say how large batches are: keep one", b.Size, b.GlobalSize)
	case b.GlobalSize > 0 && b.Tokens > 0:
		p.addf("global_batch_size %d and tokens %d both say how large batches are: keep one", b.GlobalSize, b.Tokens)
	}
	if b.Bucket < 0 || b.Tokens < 0 || b.Pack < 0 || b.Window < 0 {
		p.addf("bucket is %d, tokens %d, pack %d, window %d: none is negative", b.Bucket, b.Tokens, b.Pack, b.Window)
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
		p.addf("bucket, tokens and pack exclude one another")
	case kinds == 0 && !b.Lengths.IsZero():
		p.addf("lengths are given, and none of bucket, tokens and pack to use them")
	case kinds == 1 && b.Lengths.IsZero():
		p.addf("batches by length need lengths: the name of a stored field, or a list")
	case kinds == 0 && b.Window != 0:
		p.addf("batch.window is the samples that bucket, tokens or pack look at together, and none is set")
	case b.Pack == 0 && b.Long != "":
		p.addf("long is %q, and only pack has use for it", b.Long)
	}
	switch b.Long {
	case "", order.Split, order.Truncate, order.Refuse:
	default:
		p.addf("long is %q: it can be %s, %s, %s", b.Long, order.Split, order.Truncate, order.Refuse)
	}
}

// divisors are world sizes that divide n, those nearest to the one that does not.
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
