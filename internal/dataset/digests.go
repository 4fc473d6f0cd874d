package dataset

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"path"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/packing"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// digests compares the samples of a packing with what `stoker pack` has written: each once,
// the first time that all of it comes from a source that waits. Between such a source and
// the disk that a shard was written to are networks, proxies and copies, none of which has
// to notice a wrong bit.
//
// It covers what has no checksum of its own: tar shards and arrays that are not compressed.
// Records of TFRecord and compressed frames have checksums, which are compared every time.
// A sample of which only some fields are wanted is never whole, and one of tar whose names
// need headers of their own is not either: they are left out. The digests take as much
// memory as is in their file, 8 bytes a sample, and a bit.
type digests struct {
	manifest packing.Manifest[packing.Options]
	dir      string
	files    []packedFile // by number of the stored file

	mu   sync.Mutex
	sums []byte          // nil: not read yet
	gone bool            // there are none
	pass context.Context // of a pass in which they could not be read
	err  error           // why; the next pass tries again
	done []atomic.Uint64 // a bit for each sample: it was compared
}

// packedFile is a stored file in the manifest.
type packedFile struct {
	shard *packing.Shard // nil: it is not of the packing
	first int64          // id of the first sample in it
}

const digestBytes = 8

// newDigests returns what compares the samples of a part; nil: nothing does.
func newDigests(p *Part, m *packed, src source.Source) *digests {
	if m == nil || m.Digests.Name == "" || m.Options.Output != packing.Tar && m.Options.Output != packing.Npy {
		return nil
	}
	x := p.Stored.Index()
	first := string(x.AppendPath(0, nil))
	if _, waits := source.LinkOf(src, first); !waits {
		return nil
	}
	type written struct {
		shard *packing.Shard
		bytes int64
	}
	known := map[string]written{}
	for i := range m.Shards {
		for _, f := range m.Shards[i].Files {
			known[path.Base(f.Name)] = written{&m.Shards[i], f.Bytes}
		}
	}
	d := &digests{manifest: m.Manifest, dir: source.Dir(first), files: make([]packedFile, x.Files())}
	for no := range d.files {
		name := string(x.AppendPath(no, nil))
		w, size := known[path.Base(name)], int64(0)
		if size, _ = x.Stamp(no); w.shard != nil && source.Dir(name) == d.dir && size == w.bytes {
			d.files[no] = packedFile{shard: w.shard, first: p.firstOf(no)}
		}
	}
	d.done = make([]atomic.Uint64, (p.N+63)/64)
	return d
}

// firstOf is the first sample whose first extent is in a stored file, or in a later one.
func (p *Part) firstOf(file int) int64 {
	var room []format.Extent
	return int64(sort.Search(int(p.N), func(id int) bool {
		room = p.Stored.Extents(int64(id), nil, room[:0])
		return len(room) == 0 || room[0].File >= file
	}))
}

// Compare compares a sample that was read, of the extents of the wanted fields, with the
// digest that it was packed with. s is the sample, which says where a difference is.
func (p *Part) Compare(ctx context.Context, src source.Source, id int64, raw [][]byte, s *format.Sample) error {
	d := p.digests
	if d == nil || d.done[id/64].Load()&(1<<(id%64)) != 0 {
		return nil
	}
	got, at, whole := p.packedDigest(id, raw)
	if whole {
		sums, err := d.read(ctx, src)
		if err != nil {
			return err
		}
		if sums != nil && binary.LittleEndian.Uint64(sums[digestBytes*at:]) != got {
			return p.unlikePacked(id, s)
		}
	}
	d.done[id/64].Or(1 << (id % 64))
	return nil
}

// packedDigest is that of a sample, and its number in the packing; false: not all of it is there,
// or it is not of the packing.
func (p *Part) packedDigest(id int64, raw [][]byte) (sum uint64, at int64, whole bool) {
	var room, more [8]format.Extent
	all := p.Stored.Extents(id, p.Wanted, room[:0]) // what was read, in that order
	if len(all) == 0 || len(raw) != len(all) {
		return 0, 0, false
	}
	every := p.Stored.Extents(id, nil, more[:0])
	for _, e := range every {
		if !slices.Contains(all, e) {
			return 0, 0, false
		}
	}
	d := p.digests
	file := d.files[every[0].File] // which first is counted by
	if file.shard == nil || id < file.first || id-file.first >= file.shard.Samples {
		return 0, 0, false
	}
	at = file.shard.First + id - file.first
	h := xxhash.New()
	if d.manifest.Options.Output == packing.Npy { // a row of every file, one after the other
		x := p.Stored.Index()
		if len(all) != len(file.shard.Files) {
			return 0, 0, false
		}
		for _, f := range file.shard.Files {
			i := slices.IndexFunc(all, func(e format.Extent) bool { return path.Base(string(x.AppendPath(e.File, nil))) == path.Base(f.Name) })
			if i < 0 {
				return 0, 0, false
			}
			_, _ = h.Write(raw[i])
		}
		return h.Sum64(), at, true
	}
	// A run of blocks, which begins where the sample before it ends.
	begin := int64(0)
	if id > file.first {
		before := p.Stored.Extents(id-1, nil, more[:0])
		begin = blocks(before[len(before)-1])
	}
	if len(all) != 1 || all[0].Off != begin {
		return 0, 0, false
	}
	_, _ = h.Write(raw[0])
	var zeros [tarBlock]byte
	_, _ = h.Write(zeros[:blocks(all[0])-all[0].Off-all[0].Len])
	return h.Sum64(), at, true
}

const tarBlock = 512

// blocks is where an extent ends, rounded up to a block.
func blocks(e format.Extent) int64 { return (e.Off + e.Len + tarBlock - 1) / tarBlock * tarBlock }

// read reads the file of digests once; nil: there is none. Whoever comes meanwhile waits.
func (d *digests) read(ctx context.Context, src source.Source) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.sums != nil || d.gone:
		return d.sums, nil
	case d.pass == ctx:
		return nil, d.err
	}
	sums, err := d.load(ctx, src)
	if err != nil {
		d.pass, d.err = ctx, err
		return nil, err
	}
	d.sums, d.gone = sums, sums == nil
	return sums, nil
}

// load reads the file; nil: there is none. Its size and the counts of the manifest are what
// somebody else says: no memory is taken for bytes that have not come.
func (d *digests) load(ctx context.Context, src source.Source) ([]byte, error) {
	name := source.Join(d.dir, path.Base(d.manifest.Digests.Name))
	if !d.counted() {
		return nil, manifestDamage(source.Join(d.dir, packing.ManifestName), errors.New("its shards have other samples than it counts"))
	}
	st, err := src.Stat(ctx, name)
	var sums []byte
	if err == nil && !st.Dir && st.Size == digestBytes*d.manifest.Samples {
		sums, err = readGrowing(ctx, src, st)
	}
	if code := errs.CodeOf(err); err != nil && (code == errs.NotFound || code == errs.Denied) && ctx.Err() == nil {
		return nil, nil // not copied with the shards; a signed URL denies what it is not for
	}
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(sums); int64(len(sums)) != digestBytes*d.manifest.Samples || hex.EncodeToString(sum[:]) != d.manifest.Digests.SHA256 {
		return nil, errs.New(errs.Damaged, "the file of digests is damaged").At(errs.Where{File: name}).
			Try("download the file again, or remove it: samples are then not compared")
	}
	return sums, nil
}

// counted says whether every sample of every shard has a digest in a file of the size that
// the manifest means.
func (d *digests) counted() bool {
	all := d.manifest.Samples
	if all <= 0 || all > math.MaxInt64/digestBytes {
		return false
	}
	return !slices.ContainsFunc(d.manifest.Shards, func(s packing.Shard) bool {
		return s.First < 0 || s.Samples < 0 || s.First > all || s.Samples > all-s.First
	})
}

// readGrowing reads all of an object in ranges, each as long as all before it.
func readGrowing(ctx context.Context, src source.Source, obj source.Info) (all []byte, err error) {
	const first = 16 << 20 // bytes: two million samples
	for have := int64(0); have < obj.Size; have = int64(len(all)) {
		n := min(max(have, first), obj.Size-have)
		all = append(all, make([]byte, n)...)
		if err := src.ReadAt(ctx, obj, all[have:], have); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// unlikePacked is the error of a sample that differs from its digest.
func (p *Part) unlikePacked(id int64, s *format.Sample) error {
	e := errs.New(errs.Damaged, "its bytes differ from those that were packed").
		Try("run `stoker verify` on the packing; if the stored shard is intact, something between here and the store changes bytes")
	all := p.Stored.Extents(id, nil, nil)
	e.Where.Shard = string(p.Stored.Index().AppendPath(all[0].File, nil))
	e.Where.Offset = errs.Known(all[0].Off)
	e.Where.Sample = errs.Known(id)
	if i := slices.IndexFunc(s.Fields, func(f format.Field) bool { return f.Member != nil }); i >= 0 {
		e.Where.Member = string(s.Fields[i].Member)
	}
	return e
}
