package pack

import (
	"context"
	"math/bits"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/order"
	"github.com/stoker-data/stoker/internal/stage/packing"
	"github.com/stoker-data/stoker/internal/tool/pack/prepare"
	"github.com/stoker-data/stoker/internal/tool/pack/shard"
)

// version is the version of the format of shards and of the files beside them.
const version = 2

type (
	// Manifest is DST/manifest.json of a finished packing.
	Manifest = packing.Manifest[Options]
	identity = packing.Identity[Options]
	layout   = packing.Layout
	// Shard is one finished shard.
	Shard = packing.Shard
)

// plan is the layout of a packing: which places of which order are in each shard.
type plan struct {
	identity
	layout
	First []int64 `json:"first"` // place of the first sample of each shard
}

// leftOut is what the dataset has but is not packed, if the user did not choose
// fields.
func (p *packer) leftOut() (all []format.Left) {
	if p.Options.Fields != nil || p.Options.Tokenize != "" {
		return nil
	}
	if ds, ok := p.ds.(interface{ Left() []format.Left }); ok {
		all = ds.Left()
	}
	ds, ok := p.ds.(interface {
		Decode(field string) string
		LeftOut(field string) string
	})
	for _, name := range p.ds.Index().Meta().Fields {
		if !ok || format.Hidden(name) || ds.Decode(name) != "none" {
			continue
		}
		if why := ds.LeftOut(name); why != "" {
			all = append(all, format.Left{Name: strings.Clone(name), Reason: why})
		}
	}
	return all
}

// shards is the number of shards.
func (p *plan) shards() int { return len(p.First) }

// span is the places of shard s.
func (p *plan) span(s int) (first, end int64) {
	if s+1 < len(p.First) {
		return p.First[s], p.First[s+1]
	}
	return p.First[s], p.Samples
}

// packer is one packing in progress.
type packer struct {
	Config
	ds      format.Stored
	kind    format.Format
	read    *reader
	program *prepare.Program
	output  shard.Output
	comp    *shard.Compressor
	plan    plan
	order   order.Epoch
	copies  int64
	note    string // for the user
}

// identify is what makes this packing different from others.
func (p *packer) identify() identity {
	x := p.ds.Index()
	id := identity{Version: version, Source: packing.Source{Format: x.Meta().Format, Digest: x.Digest(), Samples: x.Len()}, Options: p.Options}
	if p.program.Pictures() && (kernel.Target() == "go" || !kernel.HasLibjpeg) {
		id.Kernel = "go"
	}
	return id
}

// arrange sets up the order of samples.
func (p *packer) arrange() error {
	p.copies = max(1, p.Options.Augment)
	n := p.ds.Index().Len()
	if n == 0 {
		return errs.New(errs.Empty, "the dataset has no samples")
	}
	policy := order.Policy{Shuffle: order.None}
	if p.Options.Shuffle {
		policy = order.Policy{Shuffle: order.Full, Seed: p.Options.Seed}
	}
	o, err := order.New(n*p.copies, policy)
	if err != nil {
		return errs.New(errs.Config, "cannot make the order").Because(err)
	}
	p.order = o.Epoch(0)
	return nil
}

// at is the sample at a place, and the number of its copy. Copies are ordered like
// epochs: all samples once, then all of them again.
func (p *packer) at(place int64) (id, copied int64) {
	v := p.order.At(place)
	n := p.ds.Index().Len()
	return v % n, v / n
}

// probes is the number of samples that are made before the layout: they tell how
// large packed samples are, and which fields are text.
const probes = 32

// probe is the result of these samples.
type probe struct {
	in, out int64 // bytes: according to the index, and as written
}

// look reads the probes, the same ones every time, and decides the output.
func (p *packer) look(ctx context.Context, w weights) (probe, error) {
	ids := p.probed()
	var s seen
	for _, id := range ids {
		if err := p.read.sample(ctx, id, &s); p.passesOver(err) {
			continue
		} else if err != nil {
			return probe{}, err
		}
		p.program.Look(&s.sample)
	}
	return p.measure(ctx, w, ids)
}

// probed are the samples that are made before the layout is.
func (p *packer) probed() (ids []int64) {
	n := p.ds.Index().Len()
	for i := range min(int64(probes), n) {
		ids = append(ids, i*(n-1)/max(1, min(int64(probes), n)-1))
	}
	return ids
}

// measure makes samples and adds up their sizes.
func (p *packer) measure(ctx context.Context, w weights, ids []int64) (out probe, err error) {
	lane := prepare.NewLane()
	defer lane.Close()
	var s seen
	var parts [][]byte
	var bad error
	for _, id := range ids {
		made, err := p.made(ctx, lane, id, &s)
		if p.passesOver(err) {
			bad = err
			continue
		}
		if err != nil {
			return out, err
		}
		if parts == nil {
			if p.output, p.comp, err = p.Options.output(made); err != nil {
				return out, p.read.locate(err, id)
			}
			parts = make([][]byte, len(p.output.Files()))
		}
		for j := range parts {
			parts[j] = parts[j][:0]
		}
		if err := p.output.Encode(made, parts); err != nil {
			return out, p.read.locate(err, id)
		}
		out.in += w.of(id)
		for _, part := range parts {
			out.out += int64(len(part))
		}
	}
	if parts == nil {
		return out, bad // none of them can be read
	}
	return out, nil
}

// made is a sample as it will be packed.
func (p *packer) made(ctx context.Context, lane *prepare.Lane, id int64, s *seen) (*shard.Sample, error) {
	if err := p.read.sample(ctx, id, s); err != nil {
		return nil, err
	}
	made, err := p.program.Run(lane, &s.sample, 0)
	if err != nil {
		return nil, p.read.locate(err, id)
	}
	return made, nil
}

// settleOutput settles the output alone, by the first probe that can be read.
func (p *packer) settleOutput(ctx context.Context) (err error) {
	for _, id := range p.probed() {
		if _, err = p.measure(ctx, p.weigh(), []int64{id}); !p.passesOver(err) {
			return err
		}
	}
	return err
}

// divide decides which places go into which shard. The size of a packed sample is only
// known after it was made; here it is its size in the source times the growth of
// the probes. So shards have nearly the size that was asked for, and every task can
// compute where each ends without making anything.
func (p *packer) divide(ctx context.Context) error {
	w := p.weigh()
	seen, err := p.look(ctx, w)
	if err != nil {
		return err
	}
	x := p.ds.Index()
	p.plan = plan{identity: p.identify(), layout: layout{Texts: p.program.Texts(), Classes: x.Classes(), Samples: x.Len() * p.copies, LeftOut: p.leftOut()}}
	full := int64(0)
	for place := range p.plan.Samples {
		id, _ := p.at(place)
		size := scale(w.of(id), seen.out, seen.in)
		if place == 0 || full+size > p.Options.ShardSize {
			p.plan.First = append(p.plan.First, place)
			full = 0
		}
		full += size
		if place%(1<<16) == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// scale is n*a/b, limited to the largest int64.
func scale(n, a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(max(a, 1)))
	b = max(b, 1)
	if hi >= uint64(b) {
		return 1 << 62
	}
	q, _ := bits.Div64(hi, lo, uint64(b))
	return int64(min(q, 1<<62))
}

// weights is the size of samples in the source, from its index alone.
type weights struct {
	ds    format.Stored
	sized interface {
		Size(id int64, field string) int64
	} // nil: by extents
	fields []string
	each   int64 // of every sample, where extents are shared; 0: by extents
}

func (p *packer) weigh() weights {
	w := weights{ds: p.ds, fields: p.program.Wants()}
	if w.sized, _ = p.ds.(interface {
		Size(id int64, field string) int64
	}); w.sized != nil {
		if w.fields == nil {
			w.fields = p.ds.Index().Meta().Fields
		}
		return w
	}
	// Blocks that many samples share count for each of them in extents.
	all, files := int64(0), int64(0)
	for id := range p.ds.Index().Len() {
		all += w.of(id)
	}
	for f := range p.ds.Index().Files() {
		size, _ := p.ds.Index().Stamp(f)
		files += size
	}
	if all > 2*files {
		w.each = max(1, files/p.ds.Index().Len())
	}
	return w
}

// of is the size of a sample in bytes, at least 1.
func (w *weights) of(id int64) (sum int64) {
	switch {
	case w.sized != nil:
		for _, f := range w.fields {
			if n := w.sized.Size(id, f); n >= 0 {
				sum += n
			} else {
				sum += 8
			}
		}
	case w.each > 0:
		return w.each
	default:
		var room [8]format.Extent
		for _, e := range w.ds.Extents(id, w.fields, room[:0]) {
			sum += e.Len
		}
	}
	return max(sum, 1)
}
