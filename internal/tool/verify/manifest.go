package verify

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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

// openPacked opens the packing of a dataset; nil if it is not a packing.
func openPacked(d spec.Dataset) (*packed, error) {
	if len(d.Path) != 1 {
		return nil, nil
	}
	p := &packed{dir: d.Path[0], buffers: sync.Pool{New: func() any { return new([]byte) }}}
	path := filepath.Join(p.dir, pack.ManifestName)
	b, err := source.ReadFile(path)
	if err != nil {
		return nil, nil //nolint:nilerr // it has no manifest
	}
	m, err := packing.Read[pack.Options](bytes.NewReader(b))
	if m == nil {
		if broken := dataset.CheckManifest(path); broken != nil || !packing.Ours(b) {
			return nil, broken // broken, or of another tool
		}
		return nil, damagedFile(path, "cannot read the manifest", err)
	}
	p.manifest = *m
	if m.Digests.Name == "" {
		return p, nil
	}
	at := filepath.Join(p.dir, filepath.Base(m.Digests.Name))
	if p.sums, err = source.ReadFile(at); err != nil {
		return nil, damagedFile(at, "cannot read the digests of the samples", err)
	}
	sum := sha256.Sum256(p.sums)
	if int64(len(p.sums)) != digestBytes*m.Samples || hex.EncodeToString(sum[:]) != m.Digests.SHA256 {
		return nil, damagedFile(at, "the digests of the samples are not those that were written", nil)
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
			path := filepath.Join(p.dir, filepath.Base(f.Name))
			at := errs.Where{Shard: path}
			st, err := os.Stat(path)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				wrong = append(wrong, errs.New(errs.Damaged, "the shard of samples %d to %d is missing", s.First, s.First+s.Samples-1).At(at))
				continue
			case err != nil:
				return nil, nil, errs.New(errs.Unreadable, "cannot check a shard").At(at).Because(err)
			case st.Size() != f.Bytes:
				at.Offset = errs.Known(min(st.Size(), f.Bytes))
				wrong = append(wrong, errs.New(errs.Damaged, "the shard has %d bytes, and was written with %d", st.Size(), f.Bytes).At(at))
				continue
			case !deep:
				continue
			}
			sum, err := digestOf(ctx, path)
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

func digestOf(ctx context.Context, path string) (string, error) {
	f, err := source.Open(path)
	if err == nil {
		defer f.Close()
		h := sha256.New()
		buf := make([]byte, 1<<20)
		for {
			var n int
			n, err = f.Read(buf)
			_, _ = h.Write(buf[:n])
			if errors.Is(err, io.EOF) {
				return hex.EncodeToString(h.Sum(nil)), nil
			}
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				break
			}
		}
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	return "", errs.New(errs.Unreadable, "cannot read a shard").At(errs.Where{Shard: path}).Because(err)
}

// blockBytes is what members of a tar archive are padded to.
const blockBytes = 512

// compares reports whether samples can be compared with the manifest one by one: in
// plain tar shards, where each is a run of blocks. In other shards the format has
// checksums for every sample.
func (p *packed) compares() bool {
	return p.sums != nil && p.manifest.Options.Output == "tar" && p.manifest.Options.Compress == ""
}

// sample compares the stored bytes of one sample with its digest.
func (p *packed) sample(id int64) error {
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
	size, mtime := x.Stamp(first.File)
	obj := source.Info{Name: string(x.AppendPath(first.File, nil)), Size: size, MTime: mtime}
	if err := p.src.ReadAt(context.Background(), obj, b, begin); err != nil {
		return err
	}
	if got, want := xxhash.Sum64(b), binary.LittleEndian.Uint64(p.sums[digestBytes*id:]); got != want {
		e := errs.New(errs.Damaged, "its bytes are not those that were packed: XXH64 %016x, not %016x", got, want)
		e.Where.Offset = errs.Known(begin)
		return e
	}
	return nil
}

// wholeBlocks is where an extent ends, rounded up to a block.
func wholeBlocks(e format.Extent) int64 {
	return (e.Off + e.Len + blockBytes - 1) / blockBytes * blockBytes
}
