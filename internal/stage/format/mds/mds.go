// Package mds reads MosaicML Streaming's datasets: a folder with index.json (version 2)
// and shards shard.00000.mds, plain or compressed whole.
//
//	index.json   every shard: file names, sizes, hashes, samples, columns
//	shard        count u32 | count+1 offsets u32 | the columns as JSON | samples
//	sample       length u32 of every column without a fixed size | the values
//
// (little-endian; streaming/base/format/mds/writer.py). Columns become fields of the
// same name: numbers and arrays as their elements, pictures, text and JSON as the
// encoded bytes. Raw Pillow pictures become PNM and arrays whose shapes have nothing in
// common NPY, which decoders read. Pickles are not read.
//
// The offsets of all shards are read when the dataset is indexed. A compressed shard
// can only be read from its beginning: it is unpacked whole when a sample of it is
// requested, and kept with the others that were used last, up to Options.Memory. What
// the plan reads ahead of such a sample is only the first bytes of its shard, which are
// checked against the index as a witness that the shard is the one that was indexed;
// the lane that meets a shard first reads and unpacks it. Reading the shard itself
// ahead would read it again with every batch, whether it is unpacked already or not.
// Shuffle compressed shards by block.
package mds

import (
	"context"
	"encoding/json"
	"path"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// IndexName is the file that makes a folder a dataset.
const IndexName = "index.json"

// DefaultMemory is the bytes of unpacked shards kept where Options say nothing:
// eight of the size that Streaming writes.
const DefaultMemory = 512 << 20

// maxUnpacked is the most bytes of one unpacked shard; Streaming writes 64 MiB
// unless told otherwise.
const maxUnpacked = 2 << 30

// Options of a dataset.
type Options struct {
	Store    *index.Store   // where the index is kept; nil: index.DefaultStore()
	Progress index.Progress // of indexing; may be nil
	Memory   int64          // bytes of unpacked shards that are kept; 0: DefaultMemory. A shard larger than this is unpacked for every sample
}

// Sniff says whether a file looks like the index of such a dataset.
func Sniff(name string, head []byte) bool {
	text := string(head)
	return path.Base(name) == IndexName && strings.HasPrefix(strings.TrimSpace(text), "{") && strings.Contains(text, `"shards"`)
}

// Dataset is an open dataset; safe for concurrent use.
type Dataset struct {
	x      *index.Index
	paths  []string // of the stored files; 0 is index.json
	cols   []column
	wide   int     // columns without a fixed size
	shard  []int32 // of each sample: its stored file
	first  []int64 // of each stored file, one more than files: its first sample
	off    []int64 // of each sample, and the end of each shard: sample id of file f begins at off[id+f-1]
	size   []int64 // of every wide column of each sample as Parse gives it, where they were read
	stored []stored
	blocks *format.Blocks
	unpack unpacker
}

// stored is one file as it is stored.
type stored struct {
	obj   source.Info
	pack  string // compression; "": none
	raw   int64  // bytes once unpacked
	head  int64  // bytes of the witness
	mark  int64  // XXH64 of the witness
	check int64  // XXH64 of what is unpacked, where known
	known bool
}

var (
	_ format.Stored = (*Dataset)(nil)
	_ format.Typed  = (*Dataset)(nil)
)

// Open opens the dataset in a folder (or that index.json), indexing it where no
// index of it still holds. The sizes and times of index.json and of all shards
// are compared at every Open and at every read. Errors: not_found, config,
// unreadable, damaged, unsupported, empty, changed.
func Open(ctx context.Context, src source.Source, root string, opt Options) (*Dataset, error) {
	if root == "" {
		return nil, errs.New(errs.Config, "the path of the dataset is empty").Try("give the folder that holds %s", IndexName)
	}
	abs, err := format.Absolute([]string{strings.TrimSuffix(strings.TrimRight(root, "/"), "/"+IndexName)})
	if err != nil {
		return nil, err
	}
	root = abs[0]
	x, err := format.Load(ctx, src, format.Plan{
		Format: "mds", Paths: []string{root},
		Store: opt.Store, Progress: opt.Progress,
		Valid:  valid,
		Fresh:  func(x *index.Index) bool { return fresh(ctx, src, root, x) },
		Beside: format.BesideIn,
		Build: func(ctx context.Context, _ *index.Index, b *index.Builder) error {
			return build(ctx, src, root, b, opt.Progress)
		},
	})
	if err != nil {
		return nil, err
	}
	d, err := open(x)
	if err != nil {
		_ = x.Close()
		return nil, err
	}
	memory := opt.Memory
	if memory == 0 {
		memory = DefaultMemory
	}
	d.blocks, d.unpack = format.NewBlocks(memory), newUnpacker(src)
	return d, nil
}

// fresh says whether index.json and all shards are those that were indexed.
func fresh(ctx context.Context, src source.Source, root string, x *index.Index) bool {
	paths := make([]string, x.Files())
	for i := range paths {
		paths[i] = string(x.AppendPath(i, nil))
	}
	return paths[0] == root+"/"+IndexName && format.Fresh(ctx, src, paths, x)
}

func open(x *index.Index) (*Dataset, error) {
	d := &Dataset{
		x:     x,
		paths: make([]string, x.Files()),
		first: x.Int64s(shardFirst),
		off:   x.Int64s(sampleOff),
		size:  x.Int64s(sampleSize),
	}
	d.stored = make([]stored, x.Files())
	packs, raws, heads, marks, checks := x.Strings(shardPack), x.Int64s(shardRaw), x.Int64s(shardHead), x.Int64s(shardMark), x.Int64s(shardCheck)
	for i := range d.paths {
		d.paths[i] = string(x.AppendPath(i, nil))
		size, version := x.Stamp(i)
		d.stored[i] = stored{
			obj: source.Info{Name: d.paths[i], Size: size, Version: version}, pack: string(packs.At(i)),
			raw: raws[i], head: heads[i], mark: marks[i], check: checks[2*i], known: checks[2*i+1] != 0,
		}
	}
	d.shard = x.Int32s(sampleShard)
	if err := json.Unmarshal(x.Bytes(columnText), &d.cols); err != nil {
		return nil, errs.New(errs.Bug, "cannot read the columns in the index").Because(err)
	}
	for _, c := range d.cols {
		if c.Size == 0 {
			d.wide++
		}
	}
	return d, nil
}

// Index is format.Stored's.
func (d *Dataset) Index() *index.Index { return d.x }

// Len is format.Dataset's.
func (d *Dataset) Len() int64 { return d.x.Len() }

// Digest is format.Dataset's.
func (d *Dataset) Digest() string { return d.x.Digest() }

// Classes is format.Dataset's.
func (d *Dataset) Classes() []string { return d.x.Classes() }

// Close closes the index; no sample may be in use.
func (d *Dataset) Close() error { return d.x.Close() }

// Blocks is how often an unpacked shard was there already or had to be unpacked,
// and the bytes kept.
func (d *Dataset) Blocks() (hits, misses, kept int64) { return d.blocks.Counts() }

// Format describes the format.
func Format() format.Format {
	return format.Format{Name: "mds", Sniff: Sniff, Endings: []string{".mds"}, Root: true, Damage: Damage, Python: "MDSDataset"}
}
