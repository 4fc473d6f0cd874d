// Package tokens reads text that was converted to numbers before: flat files of tokens
// as nanoGPT, GPT-NeoX and llm.c write them, one-dimensional .npy files of them, and
// Megatron's pairs of .bin and .idx. A sample is a window of tokens or a document, as a
// view of the file in the type in which it is stored.
//
// A window is determined by its start: window i of a file begins at token i times the
// stride, so that an id means the same tokens in every epoch, and windows cost the
// index nothing. Random windows, as nanoGPT draws them, begin anywhere: sample i begins
// at a position given by a hash of the seed and i. Windows never reach from one file
// into the next; what remains after the last one of a file belongs to no window, and
// the index's note says how much that is.
//
// A file of bare numbers does not say what type they are: uint16, unless the options, a
// header or Megatron's index say otherwise. What can only be uint32 is refused until
// the type is given. A meta.pkl beside a file is never opened, because unpickling runs
// code.
package tokens

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/rng"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Field is the one field of a sample.
const Field = "tokens"

// Options of token files. One of Window and Documents must be set.
type Options struct {
	// DType of the stored tokens, an integer of any kind; Object: what the file says,
	// or uint16. If it is set, a .bin is read flat even if there is an .idx beside it,
	// unless that is needed to separate the documents.
	DType mem.DType
	// Window is the number of tokens that a model takes at once.
	Window int64
	// Next adds one token to every window, so that inputs are all but the last and
	// targets all but the first of one run of memory.
	Next bool
	// Stride is the distance in tokens of the starts of windows; 0: Window.
	Stride int64
	// Random makes so many samples of windows that begin anywhere in the files, every
	// start as likely as any other, drawn by Seed; 0: windows by stride. The samples
	// are the same in every epoch: an epoch of n, and seeds for more of them.
	Random int64
	Seed   uint64
	// Documents makes a sample of every document: those of Megatron's index, or
	// what EOS or BOS part in other files.
	Documents bool
	// EOS is the token that ends a document, BOS the one that begins one; it
	// belongs to its document. One of them at most.
	EOS, BOS *int64

	Store    *index.Store   // where the index is kept; nil: index.DefaultStore()
	Progress index.Progress // of indexing; may be nil
}

// maxWindow keeps a window's bytes far from the range of an int.
const maxWindow = 1 << 28

// check says what is wrong with the options by themselves.
func (o Options) check() error {
	bad := func(hint, what string, a ...any) error { return errs.New(errs.Config, what, a...).Try("%s", hint) }
	switch {
	case o.DType != mem.Object && !integer(o.DType):
		return bad("give uint16 or uint32, or another integer type", "tokens of dtype %s", o.DType)
	case o.EOS != nil && o.BOS != nil:
		return bad("give one of them: the token that ends a document, or the one that begins one", "eos and bos are both set")
	case o.Documents && (o.Window != 0 || o.Stride != 0 || o.Next || o.Random != 0):
		return bad("give one of them", "documents and windows are both set")
	case o.Documents:
		return nil
	case o.marked():
		return bad("set documents too, or leave it out: windows ignore documents", "eos and bos separate documents, but windows are set")
	case o.Window == 0:
		return bad("give window=1024 for windows of 1024 tokens, or documents=True", "the options do not say what a sample is")
	case o.Window < 0 || o.Window > maxWindow:
		return bad("a window has at least 1 token", "a window of %d tokens; the limit is %d", o.Window, maxWindow)
	case o.Stride < 0:
		return bad("1 makes a window begin at every token; 0 puts them side by side", "a stride of %d tokens", o.Stride)
	case o.Random < 0:
		return bad("give the number of samples of an epoch", "%d random windows", o.Random)
	case o.Random > 0 && o.Stride != 0:
		return bad("give one of them: random windows begin at any token", "random windows and a stride are both set")
	}
	return nil
}

// marked says whether a token parts the documents.
func (o Options) marked() bool { return o.EOS != nil || o.BOS != nil }

// cut is how windows are placed; the zero value means documents.
type cut struct {
	length, stride int64  // tokens
	random         int64  // windows that are drawn of those that there are; 0: all
	seed           uint64 // of the draws
}

func (o Options) cut() cut {
	if o.Documents {
		return cut{}
	}
	c := cut{length: o.Window, stride: o.Stride}
	switch {
	case o.Random > 0:
		c.stride, c.random, c.seed = 1, o.Random, o.Seed
	case c.stride == 0:
		c.stride = c.length
	}
	if o.Next {
		c.length++
	}
	return c
}

// windows is how many a file of n tokens has.
func (c cut) windows(n int64) int64 {
	if n < c.length {
		return 0
	}
	return (n-c.length)/c.stride + 1
}

// text is the options that decide what the index holds.
func (o Options) text() string {
	c := o.cut()
	b, _ := json.Marshal(struct {
		DType          string
		Length, Stride int64
		Random         int64
		Seed           uint64
		EOS, BOS       *int64
	}{o.DType.String(), c.length, c.stride, c.random, c.seed, o.EOS, o.BOS})
	return string(b)
}

func integer(d mem.DType) bool {
	switch d {
	case mem.Uint8, mem.Uint16, mem.Uint32, mem.Uint64, mem.Int8, mem.Int16, mem.Int32, mem.Int64:
		return true
	}
	return false
}

// Dataset is an open list of token files; safe for concurrent use.
type Dataset struct {
	x     *index.Index
	dtype mem.DType
	cut   cut
	key   rng.Key // of random windows
	size  int64   // bytes of a token

	file  []int32 // of shards: stored file
	off   []int64 // of shards: of the first token, bytes
	count []int64 // of shards: tokens
	first []int64 // of shards, and one more: number of the first document or window

	start  []int64 // of documents: first token in the shard
	tokens []int32 // of documents
}

var (
	_ format.Stored = (*Dataset)(nil)
	_ format.Typed  = (*Dataset)(nil)
)

// Open opens token files in this order, indexing them where no index still holds.
// A .bin with an .idx beside it is Megatron's pair; either name stands for both.
// Errors: config, not_found, unreadable, damaged, unsupported, empty (no file is
// as long as a window), changed (a file is being written to).
func Open(ctx context.Context, src source.Source, paths []string, opt Options) (*Dataset, error) {
	if err := opt.check(); err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, errs.New(errs.Config, "the list of token files is empty").Try("give at least one, such as train.bin")
	}
	paths, err := format.Absolute(paths)
	if err != nil {
		return nil, err
	}
	parts, err := pairs(ctx, src, paths, opt.DType != mem.Object && (!opt.Documents || opt.marked()))
	if err != nil {
		return nil, err
	}
	x, err := format.Load(ctx, src, format.Plan{
		Format: "tokens", Options: opt.text(), Paths: files(parts),
		Store: opt.Store, Progress: opt.Progress,
		Valid: func(x *index.Index) bool { return valid(x, opt.cut()) },
		Build: func(ctx context.Context, _ *index.Index, b *index.Builder) error {
			return build(ctx, src, parts, opt, b)
		},
	})
	if err != nil {
		return nil, err
	}
	return open(x), nil
}

// Sniff says whether a file is one of tokens, by its name and its first bytes.
func Sniff(name string, head []byte) bool {
	name = strings.ToLower(name)
	return strings.HasSuffix(name, ".bin") || strings.HasSuffix(name, ".idx") && strings.HasPrefix(string(head), megatronMagic)
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

// Plain says that Parse does no more than point into what was read.
func (d *Dataset) Plain() bool { return true }

// Type is format.Typed's.
func (d *Dataset) Type(field string) (format.Type, bool) {
	if !named(field) {
		return format.Type{}, false
	}
	if d.cut == (cut{}) {
		return format.Type{DType: d.dtype, Ragged: true}, true
	}
	return format.Type{DType: d.dtype, Shape: mem.Shape{int(d.cut.length)}}, true
}

// Span returns the place of a sample: a stored file, its first token counted from the
// file's first one, and its number of tokens.
func (d *Dataset) Span(id int64) (file int, start, tokens int64) {
	sh, start, tokens := d.span(id)
	return int(d.file[sh]), start, tokens
}

// Tokens is the number of tokens in all files, those that belong to no sample
// included.
func (d *Dataset) Tokens() int64 {
	sum := int64(0)
	for _, n := range d.count {
		sum += n
	}
	return sum
}

// span returns the place of sample id: the shard, the first token in it, and how many.
// A random window is draw 0 of the key derived from the seed and the id; what users
// have seen depends on that, and it must never change.
func (d *Dataset) span(id int64) (sh int, start, tokens int64) {
	no := id
	if d.cut.random > 0 {
		no = d.key.With(uint64(id)).Intn(0, d.first[len(d.first)-1])
	}
	sh, hi := 0, len(d.count)
	for hi-sh > 1 {
		if mid := (sh + hi) / 2; d.first[mid] <= no {
			sh = mid
		} else {
			hi = mid
		}
	}
	if d.start != nil {
		return sh, d.start[id], int64(d.tokens[id])
	}
	return sh, (no - d.first[sh]) * d.cut.stride, d.cut.length
}

func (d *Dataset) extent(id int64) format.Extent {
	sh, start, n := d.span(id)
	return format.Extent{File: int(d.file[sh]), Off: d.off[sh] + start*d.size, Len: n * d.size}
}

// Extents is format.Stored's.
func (d *Dataset) Extents(id int64, fields []string, dst []format.Extent) []format.Extent {
	if uint64(id) >= uint64(d.x.Len()) || !wants(fields) {
		return dst
	}
	return append(dst, d.extent(id))
}

// Size is the bytes of a field of sample id as Parse will give them, without any
// I/O; -1 if the sample has no such field.
func (d *Dataset) Size(id int64, field string) int64 {
	if !named(field) {
		return -1
	}
	_, _, n := d.span(id)
	return n * d.size
}

// named says whether one of a field's alternatives is the one there is.
func named(field string) bool {
	for more := true; more; {
		var alt string
		if alt, field, more = strings.Cut(field, ";"); alt == Field {
			return true
		}
	}
	return false
}

func wants(fields []string) bool {
	for _, f := range fields {
		if named(f) {
			return true
		}
	}
	return fields == nil
}

// Parse is format.Stored's.
func (d *Dataset) Parse(id int64, fields []string, raw [][]byte, s *format.Sample) error {
	if uint64(id) >= uint64(d.x.Len()) {
		return errs.New(errs.Bug, "there is no sample %d, the dataset has %d", id, d.x.Len())
	}
	s.Begin(id)
	e := d.extent(id)
	if fields == nil {
		fields = all
	}
	for _, f := range fields {
		if !named(f) {
			return d.missing(id, f)
		}
		if len(raw) != 1 || int64(len(raw[0])) != e.Len {
			return errs.New(errs.Bug, "the bytes passed in are not those of the extent").At(d.where(id))
		}
		s.Fields = append(s.Fields, format.Field{Name: Field, Data: raw[0], File: e.File, Off: e.Off})
	}
	return nil
}

var all = []string{Field}

func (d *Dataset) where(id int64) errs.Where {
	e := d.extent(id)
	return errs.Where{Shard: string(d.x.AppendPath(e.File, nil)), Field: Field, Offset: errs.Known(e.Off), Sample: errs.Known(id)}
}

func (d *Dataset) missing(id int64, field string) error {
	at := d.where(id)
	at.Field = field
	return errs.New(errs.MissingField, "a sample of a token file has no field %q; it has %q", field, Field).At(at).Try("ask for %q", Field)
}

// Check says whether samples have these fields, before the first one is read.
func (d *Dataset) Check(fields []string) error {
	for _, f := range fields {
		if !named(f) {
			e := errs.From(d.missing(0, f))
			e.Code, e.Where.Sample, e.Where.Offset = errs.Config, errs.Number{}, errs.Number{}
			return e
		}
	}
	return nil
}

// Format describes the format.
func Format() format.Format {
	return format.Format{Name: "tokens", Sniff: Sniff, Python: "TokenDataset", Arguments: "1024"}
}
