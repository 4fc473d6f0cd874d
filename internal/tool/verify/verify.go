// Package verify checks a dataset: that every sample in the index can be read,
// passes the checks of its format, decodes, and has the digest that was recorded
// when it was indexed.
//
// Damage is found, never repaired: the data belongs to the user. Quarantine makes a
// folder with copies of what is damaged and the list of the undamaged samples, for
// order.subset.
package verify

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/mux"
	"github.com/stoker-data/stoker/internal/tool/inspect"
	"github.com/stoker-data/stoker/internal/tool/pack"
	"github.com/stoker-data/stoker/internal/tool/pack/shard"
)

// Config is one verification.
type Config struct {
	Dataset spec.Dataset
	Formats []dataset.Format // nil: dataset.Formats()
	Sources []source.Scheme  // nil: dataset.Sources
	Quick   bool             // only compares the index with the files' sizes and times; no sample is read
	Share   float64          // share of the samples to read, a keyed choice; 0: all

	Indexing func(done, total int64, what string) // may be nil
	Progress func(done, total int64)              // may be nil
}

// Report is the result.
type Report struct {
	*inspect.Report
	Digests  string `json:"digests,omitempty"` // the file that samples were compared with
	Compared int64  `json:"compared"`          // samples whose digest was compared
	// For a packing: its manifest.
	Manifest string `json:"manifest,omitempty"`
	Hashed   int64  `json:"hashed,omitempty"` // shards compared with hashes that came with the data
	// The shards that do not match their manifest or their hashes.
	Shards []*wire.Error `json:"shards,omitempty"`
	// What samples lack because of damage: for HDF5 files, whole datasets.
	Lost []*wire.Error `json:"lost,omitempty"`
	// Why the dataset does not open, if so.
	Unread *wire.Error `json:"unread,omitempty"`
	// Sound are the files that can be read, if others cannot: ids count in a
	// dataset of these files alone.
	Sound []string `json:"sound_files,omitempty"`

	Dataset spec.Dataset `json:"-"` // the dataset of the ids
	Opened  bool         `json:"-"` // whether it could be opened
}

// hashed is a dataset whose shards come with their own hashes, such as MDS in
// index.json.
type hashed interface {
	// Verify compares stored file no with its hashes. checked are the names of the
	// hashes, none if no known hash exists.
	Verify(ctx context.Context, src source.Source, no int) (checked []string, err error)
}

// lossy is a dataset that opens without its damaged fields if they are not asked
// for.
type lossy interface {
	// Lost returns the errors of these fields.
	Lost() []*errs.Error
}

// hashes compares every shard with its hashes. If a shard differs, the damaged
// sample is unknown, so all of its samples count as damaged.
func (r *Report) hashes(ctx context.Context, src source.Source, ds hashed, x format.Stored) (broken []*errs.Error, err error) {
	wrong := map[int]*errs.Error{} // by file
	for no := range x.Index().Files() {
		checked, err := ds.Verify(ctx, src, no)
		switch {
		case errs.CodeOf(err) == errs.Damaged:
			wrong[no] = errs.From(err)
			r.Shards = append(r.Shards, wire.FromError(wrong[no]))
		case err != nil:
			return nil, err
		case checked == nil:
			continue
		}
		r.Hashed++
	}
	var room [8]format.Extent
	for id := int64(0); id < x.Index().Len() && len(wrong) > 0; id++ {
		for _, e := range x.Extents(id, nil, room[:0]) {
			if why := wrong[e.File]; why != nil {
				e := errs.New(errs.Damaged, "its shard does not match its hash").At(why.Where)
				e.Where.Sample = errs.Known(id)
				broken = append(broken, e)
				break
			}
		}
	}
	return broken, nil
}

// source is where the dataset is stored.
func (c Config) source() (*mux.Mux, error) {
	return dataset.SourceOf(c.Sources, spec.Spec{Dataset: c.Dataset})
}

// Run verifies a dataset. Damage of samples and of shards is in the report; an
// error means that it could not be verified.
func Run(ctx context.Context, c Config) (*Report, error) {
	c.Dataset = c.Dataset.Hidden()
	src, err := c.source()
	if err != nil {
		return nil, err
	}
	defer src.Close()
	p, err := openPacked(ctx, src, c.Dataset)
	if err != nil {
		return nil, err
	}
	if p == nil {
		return plainly(ctx, c)
	}
	if p.manifest.Options.Output == pack.OutputTokens && c.Dataset.Window == (spec.Window{}) {
		c.Dataset.Window.Documents = true // documents are what was packed
	}
	r := &Report{Manifest: source.Join(p.dir, pack.ManifestName), Dataset: c.Dataset, Opened: true}
	deep := !c.Quick && c.Share == 0
	wrong, shards, err := p.files(ctx, deep)
	if err != nil {
		return nil, err
	}
	for _, e := range wrong {
		r.Shards = append(r.Shards, wire.FromError(e))
	}
	broken, compared, err := p.broken(ctx, shards, wrong, deep)
	if err != nil {
		return nil, err
	}
	sums := &digests{}
	conf := c.inspection(func(ds format.Stored) error {
		if n := ds.Index().Len(); n != p.manifest.Samples {
			return errs.New(errs.Damaged, "the shards have %s, but the manifest counts %d", errs.Many(n, "sample"), p.manifest.Samples).
				At(errs.Where{File: r.Manifest}).Try("remove shards that do not belong to this packing")
		}
		p.ds = ds
		return sums.open(ctx, src, ds.Index())
	}, func(id int64, s *format.Sample) error {
		if p.compares() {
			sums.compared.Add(1)
			return p.sample(ctx, id)
		}
		return sums.compare(id, s)
	})
	report, err := inspect.Run(ctx, conf)
	switch {
	case err != nil && (len(r.Shards) == 0 || ctx.Err() != nil):
		return nil, err
	case err != nil: // the shards tell more, and the digests identify their samples
		report = &inspect.Report{Path: c.Dataset.Path, Format: p.manifest.Options.Output, Samples: p.manifest.Samples, Bytes: p.manifest.Bytes}
		r.Opened = false
		if deep {
			report.Checked = p.manifest.Samples
		}
		r.Unread = wire.FromError(errs.From(err))
	}
	r.Report, r.Digests = report, sums.path
	r.Compared = max(sums.compared.Load(), compared)
	r.merge(broken)
	return r, nil
}

// inspection configures the reading of the dataset.
func (c Config) inspection(opened func(format.Stored) error, also func(int64, *format.Sample) error) inspect.Config {
	conf := inspect.Config{Dataset: c.Dataset, Formats: c.Formats, Sources: c.Sources, Check: -1, Indexing: c.Indexing, Progress: c.Progress, Opened: opened, Also: also}
	switch {
	case c.Quick:
	case c.Share > 0 && c.Share < 1:
		conf.Share, conf.Decode = c.Share, true
	default:
		conf.All = true
	}
	return conf
}

// broken are the samples of these shards that are not as they were packed.
func (p *packed) broken(ctx context.Context, shards []int, wrong []*errs.Error, deep bool) (all []*errs.Error, compared int64, err error) {
	if !deep || p.sums == nil {
		return nil, 0, nil
	}
	for _, no := range shards {
		s := &p.manifest.Shards[no]
		if s.First < 0 || s.Samples < 0 || s.First+s.Samples > p.manifest.Samples || len(s.Files) == 0 {
			return nil, 0, damagedFile(source.Join(p.dir, pack.ManifestName), "the manifest contradicts itself", nil)
		}
		at := source.Join(p.dir, path.Base(s.Files[0].Name))
		for _, f := range s.Files {
			own := source.Join(p.dir, path.Base(f.Name))
			if slices.ContainsFunc(wrong, func(e *errs.Error) bool { return e.Where.Shard == own }) {
				at = own
				break
			}
		}
		broken, known, err := p.damaged(ctx, s, at)
		if err != nil {
			return nil, 0, err
		}
		if known {
			compared += s.Samples
			all = append(all, broken...)
			continue
		}
		for id := s.First; id < s.First+s.Samples; id++ {
			all = append(all, errs.New(errs.Damaged, "its shard is not as it was written").At(errs.Where{Shard: at, Sample: errs.Known(id)}))
		}
	}
	return all, compared, nil
}

// merge adds damaged samples to those that were found by reading them, whose errors
// are more detailed.
func (r *Report) merge(broken []*errs.Error) {
	known := r.Broken
	for _, e := range broken {
		if _, found := slices.BinarySearch(known, e.Where.Sample.Or(-1)); found {
			continue
		}
		r.Broken = append(r.Broken, e.Where.Sample.Or(-1))
		r.Damage = append(r.Damage, wire.FromError(e))
	}
	slices.Sort(r.Broken)
	slices.SortStableFunc(r.Damage, func(a, b *wire.Error) int { return cmp.Compare(a.Where.Sample.Or(-1), b.Where.Sample.Or(-1)) })
	r.Damaged = int64(len(r.Broken))
	r.Damage = r.Damage[:min(len(r.Damage), maxDamage)]
}

// maxDamage bounds the errors that are reported in full.
const maxDamage = 1000

// digests are the recorded digests of a dataset's samples.
type digests struct {
	path     string
	want     []byte
	compared atomic.Int64
}

// digestBytes is the size of one digest: XXH64, little-endian.
const digestBytes = 8

// DigestsPath is where the digests of the samples of an index are stored, beside
// the data; "" if its files have no folder in common.
func DigestsPath(x *index.Index) string {
	at := format.BesidePath(x)
	if at == "" {
		return ""
	}
	return strings.TrimSuffix(at, path.Ext(at)) + ".xxh64"
}

func (d *digests) open(ctx context.Context, src source.Source, x *index.Index) error {
	name := DigestsPath(x)
	if name == "" {
		return nil
	}
	b, err := source.ReadAll(ctx, src, name, math.MaxInt64)
	// A store that may not be listed, or a signed URL, denies a name that is not there.
	if code := errs.CodeOf(err); err != nil && (code == errs.NotFound || code == errs.Denied) {
		return nil
	}
	if err != nil {
		return err
	}
	at := errs.Where{File: name}
	if int64(len(b)) != headBytes+digestBytes*x.Len() {
		return errs.New(errs.Damaged, "there are digests of %s, but the dataset has %d", errs.Many((len(b)-headBytes)/digestBytes, "sample"), x.Len()).At(at).
			Try("samples were added or lost since; if that was intended, run `stoker index --digests` again")
	}
	if string(b[:headBytes]) != head(x) {
		return errs.New(errs.Differs, "the digests are of another version of this dataset: its files' names, sizes or labels have changed").At(at).
			Try("if that was intended, run `stoker index --digests` again")
	}
	d.path, d.want = name, b[headBytes:]
	return nil
}

// head is the start of a file of digests: its kind, and the digest of its dataset.
func head(x *index.Index) string { return fmt.Sprintf("STOKERXX%-32s", x.Digest()) }

const headBytes = 8 + 32

func (d *digests) compare(id int64, s *format.Sample) error {
	if d.want == nil {
		return nil
	}
	d.compared.Add(1)
	want := binary.LittleEndian.Uint64(d.want[digestBytes*id:])
	if got := s.Digest(); got != want {
		return errs.New(errs.Damaged, "its bytes are not those that were indexed: digest %016x, not %016x", got, want).
			Try("fetch the file again from its source")
	}
	return nil
}

// Write reads every sample and records its digest beside the data.
func Write(ctx context.Context, c Config) (path string, report *inspect.Report, err error) {
	var sums []byte
	var x *index.Index
	report, err = inspect.Run(ctx, inspect.Config{
		Dataset: c.Dataset, Formats: c.Formats, Sources: c.Sources, Check: math.MaxInt64, Indexing: c.Indexing, Progress: c.Progress,
		Opened: func(ds format.Stored) error {
			x = ds.Index()
			if path = DigestsPath(x); path == "" || source.SchemeOf(path) != "" {
				return errs.New(errs.Unsupported, "digests can be written beside local files only").At(errs.Where{File: string(x.AppendPath(0, nil))}).
					Try("write them beside a local copy of the data, and copy the folder %s to where the data are", index.BesideDir)
			}
			sums = append(make([]byte, 0, headBytes+digestBytes*x.Len()), head(x)...)
			sums = sums[:cap(sums)]
			return nil
		},
		Also: func(id int64, s *format.Sample) error {
			binary.LittleEndian.PutUint64(sums[headBytes+digestBytes*id:], s.Digest())
			return nil
		},
	})
	if err != nil || report.Damaged > 0 {
		return path, report, err
	}
	return path, report, writeWhole(path, sums)
}

// writeWhole writes a file completely or not at all, and creates its folder.
func writeWhole(name string, b []byte) error {
	dir := filepath.Dir(name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return shard.Failed("cannot make the folder", dir, err)
	}
	return shard.WriteFile(shard.Target{Dir: dir, Temp: dir}, filepath.Base(name), b)
}

// sound are the ids of all samples except the broken ones, which are sorted.
func sound(n int64, broken []int64) []int64 {
	ids := make([]int64, 0, n-int64(len(broken)))
	for id := range n {
		if _, bad := slices.BinarySearch(broken, id); !bad {
			ids = append(ids, id)
		}
	}
	return ids
}
