// Package verify says whether a dataset is what it was: every sample that the
// index counts can be read, passes the checks of its format and decodes, and has
// the digest that was written down when it was indexed.
//
// Damage is found, never mended: the data of users are theirs. What Quarantine
// leaves is a folder with copies of what is damaged and the list of the samples
// that are sound, which order.subset takes.
package verify

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/loader"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/tool/inspect"
	"github.com/stoker-data/stoker/internal/tool/pack"
	"github.com/stoker-data/stoker/internal/tool/pack/shard"
)

// Config is one verification.
type Config struct {
	Dataset loader.Dataset
	Quick   bool    // what the index and the files' sizes and times tell; no sample is read
	Share   float64 // of the samples that are read, a keyed choice; 0: all

	Indexing func(done, total int64, what string) // may be nil
	Progress func(done, total int64)              // may be nil
}

// Report is what was found.
type Report struct {
	*inspect.Report
	Digests  string `json:"digests,omitempty"` // the file that samples were compared with
	Compared int64  `json:"compared"`          // samples whose digest was compared
	// Of what stoker pack has written: its manifest.
	Manifest string `json:"manifest,omitempty"`
	Hashed   int64  `json:"hashed,omitempty"` // shards that were compared with hashes that came with them
	// The shards that are not as their manifest or their hashes say.
	Shards []*wire.Error `json:"shards,omitempty"`
}

// hashed is a dataset whose shards come with hashes of theirs, as MDS has them in
// index.json.
type hashed interface {
	// Verify holds stored file no against its hashes; checked are their names, none
	// where it has none that is known.
	Verify(ctx context.Context, src source.Source, no int) (checked []string, err error)
}

// hashes compares every shard with its hashes.
func (r *Report) hashes(ctx context.Context, ds hashed, files int) error {
	src := source.NewFile()
	defer src.Close()
	for no := range files {
		checked, err := ds.Verify(ctx, src, no)
		switch {
		case errs.CodeOf(err) == errs.Damaged:
			r.Shards = append(r.Shards, wire.FromError(errs.From(err)))
		case err != nil:
			return err
		case checked == nil:
			continue
		}
		r.Hashed++
	}
	return nil
}

// Run verifies a dataset. Damage of samples is in the report; an error is what
// kept it from being verified, such as a shard that is cut off.
func Run(ctx context.Context, c Config) (*Report, error) {
	p, err := openPacked(c.Dataset)
	if err != nil {
		return nil, err
	}
	r := &Report{}
	if p != nil {
		src := source.NewFile()
		defer src.Close()
		p.src = src
		r.Manifest = filepath.Join(p.dir, pack.ManifestName)
		wrong, err := p.files(ctx, !c.Quick && c.Share == 0)
		if err != nil {
			return nil, err
		}
		for _, e := range wrong {
			r.Shards = append(r.Shards, wire.FromError(e))
		}
	}
	sums := &digests{}
	conf := inspect.Config{
		Dataset: c.Dataset, Check: -1, Indexing: c.Indexing, Progress: c.Progress,
		Opened: func(ds format.Dataset) error {
			if h, ok := ds.(hashed); ok && !c.Quick && c.Share == 0 {
				if err := r.hashes(ctx, h, ds.Index().Files()); err != nil {
					return err
				}
			}
			if p == nil {
				return sums.open(ds.Index())
			}
			if n := ds.Index().Len(); n != p.manifest.Samples && len(r.Shards) == 0 {
				return errs.New(errs.Damaged, "the shards have %d samples, and the manifest counts %d", n, p.manifest.Samples).
					At(errs.Where{File: r.Manifest, Offset: -1, Sample: -1}).Try("remove shards that are not of this packing")
			}
			p.ds = ds
			return sums.open(ds.Index())
		},
		Also: func(id int64, s *format.Sample) error {
			if p != nil && p.compares() && len(r.Shards) < len(p.manifest.Shards) && p.ds.Index().Len() == p.manifest.Samples {
				sums.compared.Add(1)
				return p.sample(id)
			}
			return sums.compare(id, s)
		},
	}
	switch {
	case c.Quick:
	case c.Share > 0 && c.Share < 1:
		conf.Share, conf.Decode = c.Share, true
	default:
		conf.All = true
	}
	report, err := inspect.Run(ctx, conf)
	if err != nil && (p == nil || len(r.Shards) == 0 || ctx.Err() != nil) {
		return nil, err
	}
	if err != nil { // the shards say more
		report = &inspect.Report{Path: c.Dataset.Path, Format: p.manifest.Options.Output, Samples: p.manifest.Samples, Bytes: p.manifest.Bytes}
		report.Damage = append(report.Damage, wire.FromError(errs.From(err)))
		report.Damaged = 1
	}
	r.Report, r.Digests, r.Compared = report, sums.path, sums.compared.Load()
	return r, nil
}

// digests are those of the samples of a dataset, as they were written down.
type digests struct {
	path     string
	want     []byte
	compared atomic.Int64
}

// digestBytes is the size of one digest: XXH64, little-endian.
const digestBytes = 8

// DigestsPath is where the digests of the samples of an index are kept, beside
// the data.
func DigestsPath(x *index.Index) string {
	return strings.TrimSuffix(format.BesidePath(x), filepath.Ext(format.BesidePath(x))) + ".xxh64"
}

func (d *digests) open(x *index.Index) error {
	path := DigestsPath(x)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	at := errs.Where{File: path, Offset: -1, Sample: -1}
	if err != nil {
		return errs.New(errs.Unreadable, "the digests of the samples can not be read").At(at).Because(err)
	}
	if int64(len(b)) != headBytes+digestBytes*x.Len() {
		return errs.New(errs.Damaged, "there are digests of %d samples, and the dataset has %d", (len(b)-headBytes)/digestBytes, x.Len()).At(at).
			Try("samples were added or lost since; if that was meant, run `stoker index --digests` again")
	}
	if string(b[:headBytes]) != head(x) {
		return errs.New(errs.Differs, "the digests are of another version of this dataset: its files' names, sizes or labels have changed").At(at).
			Try("if that was meant, run `stoker index --digests` again")
	}
	d.path, d.want = path, b[headBytes:]
	return nil
}

// head is what a file of digests begins with: what it is, and of which dataset.
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
			Try("fetch the file again from where it came from")
	}
	return nil
}

// Write reads every sample and writes down its digest beside the data.
func Write(ctx context.Context, c Config) (path string, report *inspect.Report, err error) {
	var sums []byte
	var x *index.Index
	report, err = inspect.Run(ctx, inspect.Config{
		Dataset: c.Dataset, Check: math.MaxInt64, Indexing: c.Indexing, Progress: c.Progress,
		Opened: func(ds format.Dataset) error {
			x = ds.Index()
			path = DigestsPath(x)
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

// writeWhole puts a file in its place whole or not at all, and makes its folder.
func writeWhole(path string, b []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return shard.Failed("the folder can not be made", dir, err)
	}
	return shard.WriteFile(shard.Place{Dir: dir, Temp: dir}, filepath.Base(path), b)
}

// sound are the ids of all samples but the broken ones, which rise.
func sound(n int64, broken []int64) []int64 {
	ids := make([]int64, 0, n-int64(len(broken)))
	for id := range n {
		if _, bad := slices.BinarySearch(broken, id); !bad {
			ids = append(ids, id)
		}
	}
	return ids
}
