package dataset

import (
	"context"
	"fmt"
	"slices"
	"sort"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/dataset/script"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

// Collection is the samples of a Spec: those of one dataset, or of the members of a
// mixture one after the other. Sample ids, and the file numbers that fetch sees, count
// through all parts.
type Collection struct {
	Parts []*Part

	stored []*Part // the stored ones

	n       int64
	digest  string
	src     source.Source // for all names, by their schemes
	close   func() error
	spec    spec.Spec         // defaults and fields written out
	columns []batch.Field     // as users see them
	mix     *Mix              // nil without a batch transform
	left    []*transform.Left // by column, with Options.Bare or a device transform; nil: no floats are left

	pipeline, processing string // see State of package loader
}

// Part is one dataset of a collection.
type Part struct {
	spec    spec.Dataset
	kind    *Format
	Number  int // its index in Parts
	Dataset format.Dataset
	Samples format.Samples // Dataset, of which lanes make the samples; nil: a crew of other processes does
	Stored  format.Stored  // Dataset, where it is stored; nil: it is not
	locator locator        // Stored, or nowhere
	N       int64
	First   int64 // id of its first sample
	files   int   // number of its first stored file
	digest  string
	from    packedFrom
	digests *digests // that samples are compared with; nil: none
	format  string
	notes   []string // of fields that are left out, for Notes
	missing string   // fields that the format leaves out, and why; "": none

	Fields   []spec.Field
	Programs []*transform.Program // one a field; nil: its row is the field's bytes
	left     []*transform.Left    // of each program: the floats that it leaves to a device; nil: none
	Wanted   []string             // stored names, each once
	Value    []int                // of each field: number of its stored name in Wanted
	viewOf   map[string]string    // by the name of a field that is a view: the field of the Spec
}

// locator says where samples are stored; see format.Stored.
type locator interface {
	Extents(id int64, fields []string, dst []format.Extent) []format.Extent
}

// nowhere is the location of samples that are not stored.
type nowhere struct{}

func (nowhere) Extents(_ int64, _ []string, dst []format.Extent) []format.Extent { return dst }

// newPart describes an open dataset. One whose samples are not made in this process needs
// a crew that makes them, unless nothing but the order is asked for.
func newPart(ctx context.Context, src source.Source, d spec.Dataset, kind *Format, ds format.Dataset, opt Options) (*Part, error) {
	p := &Part{spec: d, kind: kind, Dataset: ds, locator: nowhere{}, N: ds.Len(), digest: ds.Digest(), format: kind.Name}
	var ok bool
	if p.Samples, ok = ds.(format.Samples); !ok {
		switch {
		case !opt.Crew && (!opt.Stored || d.Digest == ""): // a client names the contents
		default:
			return p, nil
		}
		return nil, errs.New(errs.Config, "dataset.format is %s: only the program whose code makes the samples can load them", kind.Name).
			Try("load this dataset with stoker.DataLoader in Python; a Spec cannot hold code")
	}
	if stored, ok := ds.(format.Stored); ok {
		x := stored.Index()
		m := manifestOf(ctx, src, x)
		p.Stored, p.locator, p.from, p.format = stored, stored, sourceOf(m, x), x.Meta().Format
		p.digests = newDigests(p, m, src)
	} else if _, ok := ds.(format.Ready); !ok {
		return nil, errs.New(errs.Unsupported, "samples of a %s dataset are neither stored nor made ready: nothing says where their bytes are", kind.Name)
	}
	return p, nil
}

// Format describes the part's format.
func (p *Part) Format() format.Format { return p.kind.Format }

// Lines are the lines of Python that load it, as Format.Lines.
func (p *Part) Lines(d spec.Dataset, c script.Contents) script.Lines { return p.kind.Lines(d, c) }

// openCollection opens what the Spec names.
func openCollection(ctx context.Context, s spec.Spec, opt Options) (*Collection, error) {
	d := s.Dataset
	all, err := SourceOf(opt.Sources, s)
	if err != nil {
		return nil, err
	}
	c := &Collection{src: all, close: all.Close}
	if opt.Wrap != nil {
		c.src = opt.Wrap(all)
	}
	specs := d.Mixed
	if specs == nil {
		specs = []spec.Dataset{d}
	}
	files := 0
	for i, one := range specs {
		p, err := openPart(ctx, c.src, one, opt)
		if err != nil {
			c.Close()
			if len(specs) > 1 && ctx.Err() == nil {
				e := *errs.From(err)
				e.What = fmt.Sprintf("dataset %d of the mixture: %s", i, e.What)
				err = &e
			}
			return nil, err
		}
		p.Number, p.First, p.files = i, c.n, files
		c.n += p.N
		if p.Stored != nil {
			files += p.Stored.Index().Files()
			c.stored = append(c.stored, p)
		}
		c.Parts = append(c.Parts, p)
	}
	digests := make([]string, len(c.Parts))
	for i, p := range c.Parts {
		digests[i] = p.digest
	}
	c.digest = mixtureDigest(digests)
	return c, nil
}

// Len is the number of samples.
func (c *Collection) Len() int64 { return c.n }

// Digest names the contents.
func (c *Collection) Digest() string { return c.digest }

// Spec is the Spec with every default and every field written out.
func (c *Collection) Spec() spec.Spec { return c.spec }

// Source is the source of the stored files.
func (c *Collection) Source() source.Source { return c.src }

// Layout is the columns of a batch: the fields, then the columns that come with them,
// such as lengths. The caller must not write to it.
func (c *Collection) Layout() []batch.Field { return c.columns }

// Pipeline is the digest of what is done to a sample. Processing is the same without the
// names of the fields.
func (c *Collection) Pipeline() string { return c.pipeline }

// Processing is described at Pipeline.
func (c *Collection) Processing() string { return c.processing }

// Dataset is what is stored; nil if it is synthetic or a mixture.
func (c *Collection) Dataset() format.Stored {
	if len(c.Parts) > 1 {
		return nil
	}
	return c.Parts[0].Stored
}

// Close closes the datasets and their storage.
func (c *Collection) Close() {
	for _, p := range c.stored {
		_ = p.Stored.Index().Close()
	}
	_ = c.close()
}

// Of returns the part that has the sample, and the sample's id in it.
func (c *Collection) Of(id int64) (*Part, int64) {
	if len(c.Parts) == 1 {
		return c.Parts[0], id
	}
	i := sort.Search(len(c.Parts), func(i int) bool { return c.Parts[i].First > id }) - 1
	return c.Parts[i], id - c.Parts[i].First
}

// Extents appends the extents of the wanted fields of a sample.
func (c *Collection) Extents(id int64, dst []format.Extent) []format.Extent {
	p, local := c.Of(id)
	return p.numbered(p.locator.Extents(local, p.Wanted, dst), len(dst))
}

// numbered gives the files of the extents from one on their numbers in the collection.
func (p *Part) numbered(all []format.Extent, from int) []format.Extent {
	for i := range all[from:] {
		all[from+i].File += p.files
	}
	return all
}

// Places appends where the wanted fields of a sample are stored: none if its format cannot say
// so from the index.
func (c *Collection) Places(id int64, dst []format.Extent) []format.Extent {
	p, local := c.Of(id)
	have := len(dst)
	if placed, ok := p.locator.(format.Placed); ok {
		return p.numbered(placed.Places(local, p.Wanted, dst), have)
	}
	dst = p.locator.Extents(local, p.Wanted, dst)
	whole := slices.DeleteFunc(dst[have:], func(e format.Extent) bool { return !e.Whole })
	return p.numbered(dst[:have+len(whole)], have)
}

// file returns the part that has stored file number f, and its number there.
func (c *Collection) file(f int) (*Part, int) {
	i := len(c.stored) - 1
	for c.stored[i].files > f {
		i--
	}
	return c.stored[i], f - c.stored[i].files
}

// AppendPath appends the path of a stored file.
func (c *Collection) AppendPath(f int, dst []byte) []byte {
	p, local := c.file(f)
	return p.Stored.Index().AppendPath(local, dst)
}

// Stamp is the size and version that a stored file had when it was indexed.
func (c *Collection) Stamp(f int) (size int64, version string) {
	p, local := c.file(f)
	return p.Stored.Index().Stamp(local)
}

// Stored says whether there is anything to read.
func (c *Collection) Stored() bool {
	return len(c.stored) > 0
}

// Native says whether lanes make all samples.
func (c *Collection) Native() bool {
	return !slices.ContainsFunc(c.Parts, func(p *Part) bool { return p.Samples == nil })
}

// Classes are the names of the classes, if all parts have the same.
func (c *Collection) Classes() []string {
	var names []string
	for i, p := range c.Parts {
		theirs := p.Dataset.Classes()
		if i > 0 && !slices.Equal(names, theirs) {
			return nil
		}
		names = theirs
	}
	return names
}

// Labels are the numbers of all samples' classes; nil unless every part has them.
func (c *Collection) Labels() []int32 {
	if len(c.stored) < len(c.Parts) {
		return nil
	}
	var out []int32
	for _, p := range c.stored {
		column := p.Stored.Index().Int32s(index.SampleClass)
		if column == nil {
			return nil
		}
		out = append(out, column...)
	}
	return out
}

// Blocks is the number of samples in each run of up to size samples. With size 0 a run
// is a stored shard, or runSamples samples if a file is a sample. Runs never span two
// parts.
func (c *Collection) Blocks(size int64) (sizes []int64) {
	for _, p := range c.Parts {
		sizes = append(sizes, p.Blocks(size)...)
	}
	return sizes
}

// runSamples is the default size of a block: as many files of a directory share
// metadata, and few enough to shuffle well.
const runSamples = 1024

// runner is a dataset whose stored files hold runs of samples stored side by
// side, such as Parquet's row groups or the pages of FFCV; nil: it has none.
type runner interface {
	Runs() []int64
}

func (p *Part) Blocks(size int64) (sizes []int64) {
	if ds, ok := p.Dataset.(runner); ok && size == 0 {
		if sizes = ds.Runs(); sizes != nil {
			return sizes
		}
	}
	if size == 0 && p.Sharded() {
		return p.shards()
	}
	if size == 0 {
		size = runSamples
	}
	for left := p.N; left > 0; left -= size {
		sizes = append(sizes, min(size, left))
	}
	return sizes
}

// Sharded says whether stored files hold several samples each.
func (p *Part) Sharded() bool { return p.Stored != nil && p.N > int64(p.Stored.Index().Files()) }

// Stale gives up the index of a stored part: the next Open makes another.
func (p *Part) Stale() {
	if p.Stored != nil {
		_ = p.Stored.Index().Invalidate()
	}
}

// shards is the number of samples in each stored file that has any.
func (p *Part) shards() (sizes []int64) {
	var ext []format.Extent
	last := -1
	for id := range p.N {
		ext = p.Stored.Extents(id, nil, ext[:0])
		at := last
		if len(ext) > 0 {
			at = ext[0].File
		}
		if at != last || len(sizes) == 0 {
			sizes = append(sizes, 0)
			last = at
		}
		sizes[len(sizes)-1]++
	}
	return sizes
}

// sizer is a dataset that knows from its index alone how many bytes a field of a sample
// has; -1: the sample does not have it. Extents cannot say that: those of a shard
// include headers.
type sizer interface {
	Size(id int64, field string) int64
}

// measurer is a dataset whose Size may be a guess; Length is -1 then.
type measurer interface {
	Length(id int64, field string) int64
}

// Lengths is the length of a field in every sample: the steps of its first axis if it is
// stored as an array, otherwise its bytes.
func (c *Collection) Lengths(field string) ([]int32, error) {
	out := make([]int32, 0, c.n)
	for _, p := range c.Parts {
		ds, ok := p.Dataset.(sizer)
		if !ok {
			return nil, errs.New(errs.Config, "lengths is %q: a %s dataset does not say how long its fields are", field, p.format).
				Try("give lengths= as a list, one number a sample")
		}
		if ch, ok := p.Dataset.(checker); ok {
			if err := ch.Check([]string{field}); err != nil {
				return nil, err
			}
		}
		size, try := ds.Size, "name a field that every sample has, or give lengths= as a list"
		if exact, ok := p.Dataset.(measurer); ok {
			size, try = exact.Length, "such an index knows pages, and few values: give lengths= as a list"
		}
		step := int64(1)
		if t, ok := p.stored(field); ok {
			if !t.Ragged && len(t.Shape) > 0 {
				t.Shape = t.Shape[1:]
			}
			step = max(int64(t.Shape.Elems()*t.DType.Size()), 1)
		}
		for id := range p.N {
			n := size(id, field)
			if n >= 0 {
				n /= step
			}
			switch {
			case n < 0:
				return nil, errs.New(errs.Config, "lengths is %q, and the index does not know how long that is in sample %d", field, p.First+id).Try("%s", try)
			case n > 1<<31-1:
				return nil, errs.New(errs.Config, "sample %d has %d bytes in field %q: lengths go to %d", p.First+id, n, field, 1<<31-1)
			}
			out = append(out, int32(n))
		}
	}
	return out, nil
}
