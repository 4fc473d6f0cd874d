// Package tar reads tar shards by the rules of WebDataset: consecutive members with the
// same key are one sample. The key is a member's name up to the first dot of its last
// part, including any folders before it, and what follows that dot, in lower case, is
// the name of the field. A member that is not a regular file, has no dot, begins with a
// dot or is called __like_this__ is not data.
//
// Three cases differ from WebDataset, which would silently give a wrong dataset: an
// archive that does not end with its two blocks of zeros is an error (it may have lost
// samples), so is a key that occurs again later in its shard (its fields would be split
// between two samples), and so is a name that would escape from a folder.
//
// Shards may be compressed with gzip, zstd or LZ4 (package compressed): reading a sample costs
// unpacking the piece of its shard that contains it.
//
// Headers are read once, when a shard is indexed. When a sample is read, the header
// before every wanted body is read with it and checked against the hash in the index,
// so that a body is known to be the one that was indexed.
package tar

import (
	"context"
	"fmt"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/compressed"
	"github.com/stoker-data/stoker/internal/stage/format/suffix"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// The fields that every sample has beside its members.
const (
	Key = format.Key // text
	URL = "__url__"  // text: path of the shard
)

// Options of tar shards.
type Options struct {
	Store    *index.Store   // where the index is kept; nil: index.DefaultStore()
	Progress index.Progress // of indexing; may be nil
}

// Dataset is an open list of shards; safe for concurrent use.
type Dataset struct {
	x    *index.Index
	urls [][]byte

	name       index.Strings
	field      []int32
	off        []int64
	size       []int64
	head       []int64
	first      []int64
	keyLen     []int32
	shard      []int32
	fields     index.Strings
	compressed *compressed.Table // nil: no shard is
}

var _ format.Stored = (*Dataset)(nil)

// Open opens shards in this order (pattern.Expand makes the list of what a user
// wrote), indexing those for which no index still holds. The size and time of
// every shard are compared at every Open and at every read. Errors: not_found,
// config, unreadable, damaged, unsupported (xz, sparse), empty (no sample
// in any shard), changed (a shard is being written to).
func Open(ctx context.Context, src source.Source, shards []string, opt Options) (*Dataset, error) {
	if len(shards) == 0 {
		return nil, errs.New(errs.Config, "the list of shards is empty").Try("give at least one tar file, or a pattern such as train-{000..099}.tar")
	}
	paths, err := format.Absolute(shards)
	if err != nil {
		return nil, err
	}
	x, err := format.Load(ctx, src, format.Plan{
		Format: "tar", Paths: paths,
		Store: opt.Store, Progress: opt.Progress,
		Valid: valid,
		Build: func(ctx context.Context, old *index.Index, b *index.Builder) error {
			return build(ctx, src, paths, old, b, opt.Progress)
		},
	})
	if err != nil {
		return nil, err
	}
	return open(x), nil
}

func open(x *index.Index) *Dataset {
	d := &Dataset{
		x:    x,
		urls: make([][]byte, x.Files()),

		name:       x.Strings(memberName),
		field:      x.Int32s(memberField),
		off:        x.Int64s(memberOff),
		size:       x.Int64s(memberSize),
		head:       x.Int64s(memberHead),
		first:      x.Int64s(sampleFirst),
		keyLen:     x.Int32s(sampleKey),
		shard:      x.Int32s(sampleShard),
		fields:     x.Strings(fieldName),
		compressed: compressed.Open(x),
	}
	for i := range d.urls {
		d.urls[i] = x.AppendPath(i, nil)
	}
	return d
}

// Sniff says whether a file of that name which begins with head is a tar file.
func Sniff(name string, head []byte) bool {
	if len(head) >= blockLen && string(head[257:262]) == "ustar" {
		return true
	}
	name = strings.ToLower(name)
	for _, ext := range []string{".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst", ".tar.lz4"} {
		if strings.HasSuffix(name, ext) {
			return true
		}
	}
	return false
}

// Refused says why a field is not delivered unless its bytes are asked for; "": it is.
func Refused(field string) string {
	if suffix.Of(field) == suffix.Pickle {
		return fmt.Sprintf("%q is a pickle, and reading a pickle runs code that it contains", field)
	}
	return ""
}

// Notes are what a user should know of how the shards are compressed.
func (d *Dataset) Notes() (notes []string) {
	for i := range d.urls {
		if !d.compressed.Compressed(i) {
			continue
		}
		if n, ok := d.compressed.Whole(i); !ok {
			return []string{fmt.Sprintf("%s is one zstd frame of more than %d MiB, so every sample costs decompressing all before it; pack it again: stoker pack --compress zstd", d.urls[i], n>>20)}
		}
	}
	return nil
}

// Plain says that Parse does no more than point into what was read: no shard is
// compressed.
func (d *Dataset) Plain() bool { return d.compressed == nil }

// unpacked is the bytes of a shard.
func (d *Dataset) unpacked(shard int) int64 {
	if d.compressed != nil {
		return d.compressed.Size(shard)
	}
	size, _ := d.x.Stamp(shard)
	return size
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

// Format describes the format.
func Format() format.Format {
	return format.Format{
		Name: "tar", Sniff: Sniff, Values: "bytes", ByName: true, Words: "tar shards", Python: "WebDataset",
		Names: format.Names{Key: format.Key, Members: true},
		Open: func(ctx context.Context, o format.Opening) (format.Dataset, error) {
			return Open(ctx, o.Source, o.Paths, Options{Progress: o.Progress})
		},
	}
}

// Refused says why a field is not taken unless it is asked for as bytes; "": it is.
func (d *Dataset) Refused(field string) string { return Refused(field) }
