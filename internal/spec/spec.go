// Package spec is what a user asks for: everything that decides what a loader
// delivers, and how. It reads and writes a Spec, fills in its defaults and reports
// every problem that can be found without opening a dataset.
package spec

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/stoker-data/stoker/internal/base/jsontext"
	"github.com/stoker-data/stoker/internal/base/rng"
	"github.com/stoker-data/stoker/internal/stage/order"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

// Spec is everything that decides what a loader delivers, and how. The zero value
// of every key is its documented default. Files, flags, Python keywords and saved
// states all use the same keys.
type Spec struct {
	Dataset Dataset `json:"dataset"`          // one, or a list: a mixture
	Mix     Mix     `json:"mix,omitzero"`     // how the datasets of a list are mixed
	Fields  []Field `json:"fields,omitempty"` // in the order of delivery; none: the format's own
	Order   Order   `json:"order,omitzero"`
	Batch   Batch   `json:"batch,omitzero"`
	// Mix of the rows of each batch: MixUp, CutMix, or a RandomChoice of these, as
	// transform.CompileMix reads it; nil: none.
	BatchTransform *transform.Op `json:"batch_transform,omitempty"`
	// DeviceTransform is what the client does to every picture after its field's Transform:
	// batches have a column with the steps, see transform.Leave.
	DeviceTransform []transform.Op `json:"device_transform,omitempty"`
	// DecodeDevice is which pictures the client decodes: batches have columns with what it
	// needs of them, see transform.Sent.
	DecodeDevice DecodeDevice `json:"decode_device,omitzero"`

	Cache   Cache   `json:"cache,omitzero"`
	Entries Entries `json:"entries,omitzero"` // of JPEGs, learned while decoding
	Fetch   Fetch   `json:"fetch,omitzero"`   // of data that other machines store
	Deliver Deliver `json:"deliver,omitzero"`
	Workers int     `json:"workers,omitempty"` // lanes; 0: as many as this process may use
	OnBad   OnBad   `json:"on_bad,omitzero"`
	Rank    int     `json:"rank,omitempty"`
	World   int     `json:"world_size,omitempty"` // 0: 1
}

// Dataset says where samples are stored. In a document it is one dataset, or a
// list.
type Dataset struct {
	Path       Paths    `json:"path,omitempty"`
	Format     string   `json:"format,omitempty"` // auto (""), or the name of one: folder, tar, tfrecord, npy, npz, hdf5, lmdb, parquet, tokens, mds, beton, files, table, synthetic; python: samples that the client's own code makes
	Extensions []string `json:"extensions,omitempty"`
	AllowEmpty bool     `json:"allow_empty,omitempty"` // folder: allow classes without samples
	Samples    int64    `json:"samples,omitempty"`     // synthetic, python
	Shape      []int    `json:"shape,omitempty"`       // synthetic: of one uint8 sample
	Columns    []Column `json:"columns,omitempty"`     // npy, npz, hdf5: the arrays; none: all
	Group      string   `json:"group,omitempty"`       // hdf5: the group that has the arrays
	Pictures   bool     `json:"pictures,omitempty"`    // beton: raw pictures as pictures, not as arrays
	Manifest   string   `json:"manifest,omitempty"`    // files: a table (CSV, TSV, JSONL, Parquet) with one file per row
	PathColumn string   `json:"path_column,omitempty"` // files: the column of the manifest that has the paths; "": path, file, filename, ...
	Root       string   `json:"root,omitempty"`        // files: the folder that those paths are relative to; "": the manifest's
	Window     Window   `json:"window,omitzero"`       // tokens: what a sample is
	DType      string   `json:"dtype,omitempty"`       // tokens: of the numbers stored; "": found out
	Label      string   `json:"label,omitempty"`       // parquet, files, table: the column that numbers the classes; files: folder, or none
	Unpacked   Bytes    `json:"unpacked,omitempty"`    // npy, mds, parquet, hdf5: memory for what was decompressed; 0: the format's own
	MaxPixels  int64    `json:"max_pixels,omitempty"`  // of one picture; larger ones are not decoded; 0: kernel.MaxPixels
	Database   string   `json:"database,omitempty"`    // lmdb: the name of the database in the environment; "": the only one
	Values     string   `json:"values,omitempty"`      // lmdb: what values are: auto (""), bytes, datum (Caffe's)
	Digest     string   `json:"digest,omitempty"`      // python: names the contents
	Code       string   `json:"code,omitempty"`        // python: names the functions that samples go through

	Storage source.Storage `json:"storage,omitzero"`  // how the store that has the paths is reached
	Origins Paths          `json:"origins,omitempty"` // prefixes of names that a table or a manifest may name, besides those below its own folder or root

	// Only for the members of a mixture.
	Weight  float64       `json:"weight,omitempty"`  // its share of the samples, relative to the others; 0: 1
	Fields  []Field       `json:"fields,omitempty"`  // of this member; none: the Spec's
	Shuffle order.Shuffle `json:"shuffle,omitempty"` // of this member; "": order.shuffle

	// Mixed are the members, if the document has a list.
	Mixed []Dataset `json:"-"`

	// Given is for Hidden and Places only.
	Given Given `json:"-"`
}

// DecodeDevice says what the decoder of a client's device gets: JPEGs, or the parts of them
// that are needed. The zero value: nothing.
type DecodeDevice struct {
	By    string `json:"by"`              // the decoder: states remember it
	Share int    `json:"share,omitempty"` // of the rows, in sixteenths; 0: 16
	// Repeats: it repeats samples of chroma, and does not interpolate between them.
	Repeats bool `json:"repeats,omitempty"`
}

// sixteenths is the unit of a share of rows.
const sixteenths = 16

// wordTakes separates the choice of rows from everything else that is random.
const wordTakes = 1<<63 + 2

// Takes reports whether the pictures of a row go to the decoder. It depends on the key of the
// row's place, so a resumed pass chooses the same rows. The lanes decode pictures that the
// decoder refuses, and all that are not JPEGs of a kind that can be sent.
func (d DecodeDevice) Takes(key rng.Key) bool {
	return d.By != "" && key.With(wordTakes).Intn(0, sixteenths) < int64(cmp.Or(d.Share, sixteenths))
}

// Column is one field of a dataset that has columns: a name, or an object.
type Column struct {
	Name string `json:"name"`
	From string `json:"from,omitempty"` // stored name; "": Name
	Path Paths  `json:"path,omitempty"` // npy: the files that have it; none: those of the dataset
}

// Window is what a sample of a file of tokens is: Length tokens (and the next one,
// with Next), or a document.
type Window struct {
	Length int64 `json:"length,omitempty"`
	Stride int64 `json:"stride,omitempty"` // from the start of a window to that of the next; 0: Length
	// Random makes that many samples of windows that begin anywhere, drawn by Seed;
	// 0: windows by stride.
	Random int64  `json:"random,omitempty"`
	Seed   uint64 `json:"seed,omitempty"`
	Next   bool   `json:"next,omitempty"` // one more token: inputs are all but the last, targets all but the first

	Documents bool   `json:"documents,omitempty"`
	EOS       *int64 `json:"eos,omitempty"` // the token that ends a document, if no index tells
	BOS       *int64 `json:"bos,omitempty"` // the token that begins a document
}

// column is a Column without its methods.
type column Column

// UnmarshalJSON reads a name or an object.
func (c *Column) UnmarshalJSON(b []byte) error {
	*c = Column{}
	if json.Unmarshal(b, &c.Name) == nil {
		return nil
	}
	return json.Unmarshal(b, (*column)(c))
}

// dataset is a Dataset without its methods.
type dataset Dataset

// UnmarshalJSON reads one dataset or a list of them.
func (d *Dataset) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '[' {
		*d = Dataset{}
		return json.Unmarshal(b, &d.Mixed)
	}
	var keys struct{ Storage, Path json.RawMessage }
	if json.Unmarshal(b, &keys) == nil {
		if err := refuseSecrets(keys.Storage, pathsOf(keys.Path)); err != nil {
			return err
		}
	}
	return json.Unmarshal(b, (*dataset)(d))
}

// pathsOf are the paths of a dataset's path, or none if it has another form.
func pathsOf(raw json.RawMessage) []string {
	var paths Paths
	if len(raw) == 0 || json.Unmarshal(raw, &paths) != nil {
		return nil
	}
	return paths
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
	// Schedule sets the members' weights from a place of the epoch on, instead of
	// the datasets' own.
	Schedule []Stage `json:"schedule,omitempty"`
	// Linear moves the weights evenly from one stage of the schedule to the next.
	Linear bool `json:"linear,omitempty"`
	// Stop decides when an epoch ends: first_exhausted (""), all_exhausted, or
	// repeat, after order.num_samples places.
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

// UnmarshalJSON reads a string or a list.
func (p *Paths) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*p = Paths{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(p))
}

// MarshalJSON writes a list in which every byte of a path is kept; read it with
// jsontext.UnmarshalNames.
func (p Paths) MarshalJSON() ([]byte, error) { return json.Marshal(jsontext.Names(p)) }

// Order decides which sample comes when.
type Order struct {
	Shuffle order.Shuffle `json:"shuffle,omitempty"` // none (""), full, block, window
	Seed    uint64        `json:"seed,omitempty"`
	Tail    order.Tail    `json:"tail,omitempty"` // pad (""), fill, drop

	Block   int64 `json:"block,omitempty"`   // block: samples per block; 0: those of a stored shard, or 1,024 if every file is one sample
	Window  int64 `json:"window,omitempty"`  // block, window: samples that are permuted together; 0: 10,000
	Streams int64 `json:"streams,omitempty"` // block: blocks read concurrently; 0: 8

	Weights     Numbers `json:"weights,omitzero"`      // of every sample, for a weighted draw
	Balanced    bool    `json:"balanced,omitempty"`    // weights from the labels: every class equally likely
	Replacement *bool   `json:"replacement,omitempty"` // whether a sample may come again; nil: only with weights
	NumSamples  int64   `json:"num_samples,omitempty"` // places of an epoch; 0: one per sample
	Subset      Numbers `json:"subset,omitzero"`       // ids of the samples to use; none: all
}

// Batch decides how many samples come at once.
type Batch struct {
	Size       int `json:"size,omitempty"`        // per rank; 0: 1
	GlobalSize int `json:"global_size,omitempty"` // over all ranks, instead of Size; the world must divide it

	// Batches by length. At most one of Bucket, Tokens and Pack is set.
	Lengths Lengths    `json:"lengths,omitzero"`
	Bucket  int64      `json:"bucket,omitempty"` // runs of this many samples have nearly the same length
	Tokens  int64      `json:"tokens,omitempty"` // batches have at most this many tokens after padding, and at most Size rows (0: any number)
	Pack    int64      `json:"pack,omitempty"`   // rows of this many tokens, filled with whole samples
	Long    order.Long `json:"long,omitempty"`   // samples longer than Pack: split (""), truncate, refuse
	Window  int64      `json:"window,omitempty"` // samples that are sorted together; 0: 10,000
}

// ByLength reports whether lengths decide how samples are put together.
func (b Batch) ByLength() bool { return b.Bucket != 0 || b.Tokens != 0 || b.Pack != 0 }

// Deliver decides how far ahead batches are made, and in how much memory.
type Deliver struct {
	Prefetch int `json:"prefetch,omitempty"` // batches ready ahead; 0: 4
	// PrefetchFactor is the same per lane, as torch counts; 0: use Prefetch.
	PrefetchFactor int   `json:"prefetch_factor,omitempty"`
	Memory         Bytes `json:"memory,omitempty"` // for batches; 0: a quarter of the free memory, for all loaders together
}

// OnBad decides what happens to a sample that cannot be delivered.
type OnBad struct {
	Policy     string  `json:"policy,omitempty"`       // fail (""), skip, replace
	MaxBad     int64   `json:"max_bad,omitempty"`      // a pass with more of them ends; 0: no limit
	MaxBadRate float64 `json:"max_bad_rate,omitempty"` // the same as a share of the samples so far, from the first 100 on and at the end; 0: no limit
}

// The policies.
const (
	Fail    = "fail"
	Skip    = "skip"    // a good row of the batch is repeated, with valid = False
	Replace = "replace" // another sample, chosen by key, replaces it
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
	return 0, fmt.Errorf("%q is not an amount of memory: write \"auto\", a number of bytes, or one like \"8GiB\" or \"500MB\"", text)
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

// Defaults returns the Spec with every default filled in.
func (s Spec) Defaults() Spec {
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
			s.Mix.Batches = BatchesMixed
		}
	}
	return s
}

// shuffles reports whether the dataset, or a member of the mixture, is shuffled in
// one of these ways.
func (s Spec) shuffles(ways ...order.Shuffle) bool {
	return slices.Contains(ways, s.Order.Shuffle) ||
		slices.ContainsFunc(s.Dataset.Mixed, func(d Dataset) bool { return slices.Contains(ways, d.Shuffle) })
}

// defaultWindow is the number of samples that are shuffled, or sorted by length,
// together.
const defaultWindow = 10_000

// Cache keeps in memory what is the same in every epoch: the fields of samples,
// with pictures decoded and transformed up to the first random step. What is
// delivered is the same with and without it.
type Cache struct {
	// Memory bounds it; 0: a quarter of the free memory.
	Memory Bytes `json:"memory,omitempty"`
	// After decides where the cache is: random (""), before the first random step,
	// or decode, right after decoding.
	After string `json:"after,omitempty"`
}

// IsZero reports whether nothing is kept.
func (c Cache) IsZero() bool { return c == Cache{} }

// Entries is the keeping of entry points: places in JPEGs where decoding can begin, which
// the first epoch learns. What is delivered is the same with and without them. In a document
// it is "auto", "off", or {"limit": 4GiB}.
type Entries struct {
	Off   bool
	Limit Bytes // of what is kept of one dataset, besides 1 % of its data; 0: 4 GiB
}

// IsZero reports whether it is "auto".
func (e Entries) IsZero() bool { return e == Entries{} }

// MarshalJSON writes it as a document has it.
func (e Entries) MarshalJSON() ([]byte, error) {
	switch {
	case e.Off:
		return []byte(`"off"`), nil
	case e.Limit == 0:
		return []byte(`"auto"`), nil
	}
	return json.Marshal(struct {
		Limit Bytes `json:"limit"`
	}{e.Limit})
}

// UnmarshalJSON reads it.
func (e *Entries) UnmarshalJSON(b []byte) error {
	*e = Entries{}
	var way string
	if json.Unmarshal(b, &way) == nil {
		switch way {
		case "", "auto":
			return nil
		case "off":
			e.Off = true
			return nil
		}
		return fmt.Errorf("entries is %q: it is auto, off, or an object with limit", way)
	}
	var o struct {
		Limit Bytes `json:"limit"`
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil {
		return err
	}
	if o.Limit <= 0 {
		return errors.New(`entries has no limit above 0: give one, such as {"limit": "4GiB"}, or say off`)
	}
	e.Limit = o.Limit
	return nil
}

// The positions of a cache.
const (
	AfterRandom = "random"
	AfterDecode = "decode"
)

// Paths are those of the dataset, or of its columns if they have their own.
func (d Dataset) Paths() (all []string) {
	if d.Path != nil {
		return d.Path
	}
	if d.Manifest != "" {
		return []string{d.Manifest}
	}
	for _, c := range d.Columns {
		all = append(all, c.Path...)
	}
	return all
}

// The ways to make the batches of a mixture.
const (
	BatchesMixed  = "mixed"
	BatchesSingle = "single"
)
