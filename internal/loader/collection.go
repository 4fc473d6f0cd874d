package loader

import (
	"context"
	"fmt"
	"slices"
	"sort"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

// collection is the samples of a Spec: those of one dataset, or of the members
// of a mixture one behind the other. Sample ids, and the numbers of stored
// files that fetch sees, run through all of it.
type collection struct {
	parts  []*part
	n      int64
	digest string
	src    source.Source
	close  func() error
}

// part is one dataset of a collection.
type part struct {
	spec      spec.Dataset
	ds        format.Dataset // nil: synthetic
	synthetic []byte         // what every row of a synthetic dataset is a copy of
	n         int64
	first     int64 // id of its first sample
	files     int   // number of its first stored file
	digest    string
	from      packedFrom
	format    string
	notes     []string // for Loader.Notes: of fields that are left out
	left      string   // those of them that a format leaves out, and why; "": none

	fields   []spec.Field
	programs []*transform.Program // one a field
	wanted   []string             // stored names, each once
	value    []int                // of each field: number of its stored name in wanted
	// Where there is a cache: of every program of a picture what comes in front of
	// it (nil for others), and of every program what comes behind it.
	before, after []*transform.Program
}

// openCollection opens what the Spec names.
func openCollection(ctx context.Context, d spec.Dataset, opt Options) (*collection, error) {
	file := source.NewFile()
	c := &collection{src: file, close: file.Close}
	if opt.Wrap != nil {
		c.src = opt.Wrap(file)
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
			if len(specs) > 1 {
				e := *errs.From(err)
				e.What = fmt.Sprintf("dataset %d of the mixture: %s", i, e.What)
				err = &e
			}
			return nil, err
		}
		p.first, p.files = c.n, files
		c.n += p.n
		if p.ds != nil {
			files += p.ds.Index().Files()
		}
		c.parts = append(c.parts, p)
	}
	digests := make([]string, len(c.parts))
	for i, p := range c.parts {
		digests[i] = p.digest
	}
	c.digest = mixtureDigest(digests)
	return c, nil
}

// Close closes the datasets and their storage.
func (c *collection) Close() {
	for _, p := range c.parts {
		if p.ds != nil {
			_ = p.ds.Index().Close()
		}
	}
	_ = c.close()
}

// of is the part that sample id lies in, and its number there.
func (c *collection) of(id int64) (*part, int64) {
	if len(c.parts) == 1 {
		return c.parts[0], id
	}
	i := sort.Search(len(c.parts), func(i int) bool { return c.parts[i].first > id }) - 1
	return c.parts[i], id - c.parts[i].first
}

// extents appends where the wanted fields of a sample lie.
func (c *collection) extents(id int64, dst []format.Extent) []format.Extent {
	p, local := c.of(id)
	if p.ds == nil {
		return dst
	}
	begin := len(dst)
	dst = p.ds.Extents(local, p.wanted, dst)
	for i := range dst[begin:] {
		dst[begin+i].File += p.files
	}
	return dst
}

// file is the part that stored file number f is of, and its number there.
func (c *collection) file(f int) (*part, int) {
	i := len(c.parts) - 1
	for c.parts[i].files > f || c.parts[i].ds == nil {
		i--
	}
	return c.parts[i], f - c.parts[i].files
}

// AppendPath appends the path of a stored file.
func (c *collection) AppendPath(f int, dst []byte) []byte {
	p, local := c.file(f)
	return p.ds.Index().AppendPath(local, dst)
}

// Stamp is the size and time that a stored file had when it was indexed.
func (c *collection) Stamp(f int) (size, mtime int64) {
	p, local := c.file(f)
	return p.ds.Index().Stamp(local)
}

// stored says whether there is anything to read.
func (c *collection) stored() bool {
	return slices.ContainsFunc(c.parts, func(p *part) bool { return p.ds != nil })
}

// classes are the names of the classes, if all parts have the same.
func (c *collection) classes() []string {
	var names []string
	for i, p := range c.parts {
		if p.ds == nil {
			return nil
		}
		theirs := p.ds.Index().Classes()
		if i > 0 && !slices.Equal(names, theirs) {
			return nil
		}
		names = theirs
	}
	return names
}

// labels are the numbers of all samples' classes; nil unless every part has them.
func (c *collection) labels() []int32 {
	var out []int32
	for _, p := range c.parts {
		if p.ds == nil {
			return nil
		}
		column := p.ds.Index().Int32s(index.SampleClass)
		if column == nil {
			return nil
		}
		out = append(out, column...)
	}
	return out
}

// blocks is the number of samples in each run of up to size samples; with size
// 0, in each stored shard, or in runs of runSamples where a file is a sample.
// Runs end where a part does.
func (c *collection) blocks(size int64) (sizes []int64) {
	for _, p := range c.parts {
		sizes = append(sizes, p.blocks(size)...)
	}
	return sizes
}

// runSamples is the size of a block where nothing says it: what a directory's
// files may share of its metadata, and few enough to shuffle well.
const runSamples = 1024

// runner is a dataset whose stored files hold runs of samples that lie side by
// side, such as Parquet's row groups or the pages of FFCV; nil: it has none.
type runner interface {
	Runs() []int64
}

func (p *part) blocks(size int64) (sizes []int64) {
	if ds, ok := p.ds.(runner); ok && size == 0 {
		if sizes = ds.Runs(); sizes != nil {
			return sizes
		}
	}
	if size == 0 && p.ds != nil && p.n > int64(p.ds.Index().Files()) {
		return p.shards()
	}
	if size == 0 {
		size = runSamples
	}
	for left := p.n; left > 0; left -= size {
		sizes = append(sizes, min(size, left))
	}
	return sizes
}

// shards is the number of samples in each stored file that has any.
func (p *part) shards() (sizes []int64) {
	var ext []format.Extent
	last := -1
	for id := range p.n {
		ext = p.ds.Extents(id, nil, ext[:0])
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

// sizer is a dataset that knows, from its index alone, how many bytes a field of
// a sample has; -1: the sample has none there. Extents do not tell: those of a
// shard hold headers too.
type sizer interface {
	Size(id int64, field string) int64
}

// lengths is the length of a field of every sample: the steps of its first axis
// where it is stored as an array, else its bytes.
func (c *collection) lengths(field string) ([]int32, error) {
	out := make([]int32, 0, c.n)
	for _, p := range c.parts {
		ds, ok := p.ds.(sizer)
		if !ok {
			return nil, errs.New(errs.Config, "lengths is %q: a %s dataset does not say how long its fields are", field, p.format).
				Try("give lengths= as a list, one number a sample")
		}
		if ch, ok := p.ds.(checker); ok {
			if err := ch.Check([]string{field}); err != nil {
				return nil, err
			}
		}
		step := int64(1)
		if t, ok := p.stored(field); ok {
			if !t.Ragged && len(t.Shape) > 0 {
				t.Shape = t.Shape[1:]
			}
			step = max(int64(t.Shape.Elems()*t.DType.Size()), 1)
		}
		for id := range p.n {
			n := ds.Size(id, field)
			if n >= 0 {
				n /= step
			}
			switch {
			case n < 0:
				return nil, errs.New(errs.Config, "lengths is %q, and the index does not know how long that is in sample %d", field, p.first+id).
					Try("name a field that every sample has, or give lengths= as a list")
			case n > 1<<31-1:
				return nil, errs.New(errs.Config, "sample %d has %d bytes in field %q: lengths go to %d", p.first+id, n, field, 1<<31-1)
			}
			out = append(out, int32(n))
		}
	}
	return out, nil
}
