package verify

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"io"
	"math"
	"path"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/packing"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/tool/pack"
)

// packed is a folder that stoker pack has written, with its manifest.
type packed struct {
	dir      string
	manifest pack.Manifest
	sums     []byte // XXH64 of the bytes of every sample in its shard; nil if missing

	ds      format.Stored
	src     source.Source
	buffers sync.Pool // *[]byte
}

// mostManifest bounds what is read of a manifest, in bytes.
const mostManifest = 1 << 30

// openPacked opens the packing of a dataset; nil if it is not a packing.
func openPacked(ctx context.Context, src source.Source, d spec.Dataset) (*packed, error) {
	if len(d.Path) != 1 {
		return nil, nil
	}
	p := &packed{dir: source.Bare(d.Path[0]), src: src, buffers: sync.Pool{New: func() any { return new([]byte) }}}
	at := source.Join(p.dir, pack.ManifestName)
	b, err := source.ReadAll(ctx, src, at, mostManifest)
	if err != nil {
		return nil, ctx.Err() // it has no manifest
	}
	m, err := packing.Read[pack.Options](bytes.NewReader(b))
	if m == nil {
		if broken := dataset.CheckManifest(ctx, src, at); broken != nil || !packing.Ours(b) {
			return nil, broken // broken, or of another tool
		}
		return nil, damagedFile(at, "cannot read the manifest", err)
	}
	p.manifest = *m
	if m.Digests.Name == "" {
		return p, nil
	}
	at = source.Join(p.dir, path.Base(m.Digests.Name))
	if p.sums, err = source.ReadAll(ctx, src, at, math.MaxInt64); err != nil {
		return nil, damagedFile(at, "cannot read the digests of the samples", err)
	}
	sum := sha256.Sum256(p.sums)
	if int64(len(p.sums)) != digestBytes*m.Samples || hex.EncodeToString(sum[:]) != m.Digests.SHA256 {
		return nil, damagedFile(at, "the file of digests is damaged", nil)
	}
	return p, nil
}

func damagedFile(path, what string, cause error) *errs.Error {
	return errs.New(errs.Damaged, "%s", what).At(errs.Where{File: path}).Because(cause).
		Try("fetch the file again, or pack the dataset again: undamaged shards are kept")
}

// files compares the shards with the manifest: that they exist, their sizes, and
// with deep their SHA-256. It returns the differences, file by file, and the
// numbers of their shards.
func (p *packed) files(ctx context.Context, deep bool) (wrong []*errs.Error, shards []int, err error) {
	for no, s := range p.manifest.Shards {
		before := len(wrong)
		for _, f := range s.Files {
			name := source.Join(p.dir, path.Base(f.Name))
			at := errs.Where{Shard: name}
			st, err := p.src.Stat(ctx, name)
			switch {
			case errs.CodeOf(err) == errs.NotFound:
				wrong = append(wrong, errs.New(errs.Damaged, "the shard of samples %d to %d is missing", s.First, s.First+s.Samples-1).At(at))
				continue
			case err != nil:
				return nil, nil, format.InShard(err)
			case st.Size != f.Bytes:
				at.Offset = errs.Known(min(st.Size, f.Bytes))
				wrong = append(wrong, errs.New(errs.Damaged, "the shard has %d bytes, and was written with %d", st.Size, f.Bytes).At(at))
				continue
			case !deep:
				continue
			}
			sum, err := p.digestOf(ctx, st)
			if err != nil {
				return nil, nil, err
			}
			if sum != f.SHA256 {
				wrong = append(wrong, errs.New(errs.Damaged, "the shard's bytes are not those that were written: SHA-256 %.16s..., not %.16s...", sum, f.SHA256).At(at))
			}
		}
		if len(wrong) > before {
			shards = append(shards, no)
		}
	}
	return wrong, shards, nil
}

// digestOf is the SHA-256 of a file.
func (p *packed) digestOf(ctx context.Context, obj source.Info) (string, error) {
	h := sha256.New()
	if _, err := io.CopyBuffer(h, source.Reader(ctx, p.src, obj), make([]byte, 1<<20)); err != nil {
		return "", format.InShard(err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// blockBytes is what members of a tar archive are padded to.
const blockBytes = 512

// compares reports whether samples can be compared with the manifest one by one: in
// plain tar shards, where each is a run of blocks. In other shards the format has
// checksums for every sample.
func (p *packed) compares() bool {
	return p.sums != nil && p.manifest.Options.Output == pack.OutputTar && p.manifest.Options.Compress == ""
}

// sample compares the stored bytes of one sample with its digest.
func (p *packed) sample(ctx context.Context, id int64) error {
	extents := p.ds.Extents(id, nil, nil)
	if len(extents) == 0 {
		return nil
	}
	first, last := extents[0], extents[len(extents)-1]
	// A sample begins where the one before it ends: names that are long or not
	// ASCII have a header that is not in any extent.
	begin := int64(0)
	if id > 0 {
		if before := p.ds.Extents(id-1, nil, nil); len(before) > 0 && before[0].File == first.File {
			begin = wholeBlocks(before[len(before)-1])
		}
	}
	n := max(0, wholeBlocks(last)-begin)
	buf := p.buffers.Get().(*[]byte)
	defer p.buffers.Put(buf)
	if int64(cap(*buf)) < n {
		*buf = make([]byte, n)
	}
	b := (*buf)[:n]
	x := p.ds.Index()
	size, version := x.Stamp(first.File)
	obj := source.Info{Name: string(x.AppendPath(first.File, nil)), Size: size, Version: version}
	if err := p.src.ReadAt(ctx, obj, b, begin); err != nil {
		return err
	}
	if got, want := xxhash.Sum64(b), binary.LittleEndian.Uint64(p.sums[digestBytes*id:]); got != want {
		e := errs.New(errs.Damaged, "its bytes differ from those that were packed: XXH64 %016x, not %016x", got, want)
		e.Where.Offset = errs.Known(begin)
		return e
	}
	return nil
}

// wholeBlocks is where an extent ends, rounded up to a block.
func wholeBlocks(e format.Extent) int64 {
	return (e.Off + e.Len + blockBytes - 1) / blockBytes * blockBytes
}
