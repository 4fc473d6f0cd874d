package mds

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/browse"
)

// The columns beside those that every index has. File 0 is index.json, the others
// are the shards in its order.
const (
	shardFirst  = "shard.first"  // int64, one more than files: number of the first sample
	shardPack   = "shard.pack"   // strings: how the file is compressed, "" is not at all
	shardRaw    = "shard.raw"    // int64: bytes once unpacked
	shardHead   = "shard.head"   // int64: bytes at the beginning of a compressed file that are its witness
	shardMark   = "shard.mark"   // int64: XXH64 of the witness
	shardCheck  = "shard.check"  // int64, two a file: XXH64 of what is unpacked, and whether it is known
	shardHashes = "shard.hashes" // strings: hashes of the file in index.json, as name=hex lines
	sampleShard = "sample.shard" // int32
	sampleOff   = "sample.off"   // int64: offset once unpacked, of every sample and of the end of every shard
	sampleSize  = "sample.size"  // int64: bytes of every column without a fixed size as Parse gives it, sample by sample, where they were read
	columnText  = "column"       // bytes: []column as JSON
)

// witness is the bytes at the beginning of a compressed shard that are read with
// every sample.
const witness = 64

// built is one shard as it was read.
type built struct {
	stored
	hashes string
	off    []int64
	size   []int64
	cols   []column // as this shard has them: dynamic ones are narrowed to its samples
}

func build(ctx context.Context, src source.Source, root string, b *index.Builder, progress index.Progress) error {
	top, err := format.Stat(ctx, src, []string{root + "/" + IndexName}, "index of an MDS dataset")
	if err != nil {
		if errs.CodeOf(err) == errs.NotFound {
			return errs.From(err).Try("the folder of an MDS dataset holds %s and shard.00000.mds; give the folder of one split, such as %s/train", IndexName, root)
		}
		return err
	}
	var desc *description
	err = format.Settled(ctx, src, top[0], func() (err error) {
		desc, err = describe(ctx, src, top[0])
		return err
	})
	if err != nil {
		return err
	}
	objs, zipped, err := locate(ctx, src, root, desc)
	if err != nil {
		return err
	}
	shards := make([]built, len(objs))
	done := tally{tell: progress, total: int64(len(objs))}
	u := newUnpacker(src)
	err = format.EachOf(ctx, src, root, len(objs), func(i int) error {
		err := format.Settled(ctx, src, objs[i], func() (err error) {
			shards[i], err = read(ctx, u, objs[i], &desc.shards[i], zipped[i], desc.cols)
			return err
		})
		done.add()
		return err
	})
	if err != nil {
		return err
	}
	return merge(append(top, objs...), desc, shards, b)
}

// tally counts shards for the one who watches.
type tally struct {
	mu          sync.Mutex
	tell        index.Progress
	done, total int64
}

func (t *tally) add() {
	if t.tell == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done++
	t.tell(t.done, t.total, "shards")
}

// locate finds the file of every shard. If an unpacked copy of a compressed dataset is
// there, as in Streaming's local copies, that copy is used: its samples can be read
// alone.
func locate(ctx context.Context, src source.Source, root string, desc *description) (objs []source.Info, zipped []bool, err error) {
	paths, zipped := make([]string, len(desc.shards)), make([]bool, len(desc.shards))
	for i, s := range desc.shards {
		paths[i] = root + "/" + s.Raw.Basename
	}
	browse.Expect(ctx, src, paths)
	err = format.EachOf(ctx, src, root, len(paths), func(i int) error {
		s := &desc.shards[i]
		if s.Compression == "" {
			return nil
		}
		if _, err := src.Stat(ctx, paths[i]); errs.CodeOf(err) == errs.NotFound && err != nil {
			paths[i], zipped[i] = root+"/"+s.Zip.Basename, true
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	if objs, err = format.Stat(ctx, src, paths, "MDS shard"); err != nil {
		return nil, nil, err
	}
	for i, o := range objs {
		want := desc.shards[i].Raw.Bytes
		if zipped[i] {
			want = desc.shards[i].Zip.Bytes
		}
		if o.Size != want {
			return nil, nil, errs.New(errs.Damaged, "the shard has %d bytes, but %s says %d", o.Size, IndexName, want).
				At(errs.Where{Shard: o.Name, Offset: errs.Known(min(o.Size, want))}).Try("fetch the shard again; it may have been cut")
		}
	}
	return objs, zipped, nil
}

// read reads what the index keeps of one shard.
func read(ctx context.Context, u unpacker, obj source.Info, s *shardInfo, zipped bool, cols []column) (built, error) {
	out := built{stored: stored{obj: obj, raw: s.Raw.Bytes}, hashes: s.Raw.hashes()}
	var err error
	if zipped {
		out.hashes, out.pack = s.Zip.hashes(), s.Compression
		if sum, err := hex.DecodeString(s.Raw.Hashes["xxh64"]); err == nil && len(sum) == 8 {
			out.check, out.known = int64(binary.BigEndian.Uint64(sum)), true
		}
		head, err := format.Read(ctx, u.src, obj, 0, min(witness, obj.Size))
		if err != nil {
			return out, err
		}
		out.head, out.mark = int64(len(head)), int64(xxhash.Sum64(head))
	}
	var at int64
	if out.off, at, err = readOffsets(ctx, u.src, &out.stored, s); err != nil {
		return out, offsetsError(ctx, &out.stored, at, err)
	}
	if !slices.ContainsFunc(cols, func(c column) bool { return c.Kind == dynamic }) {
		return out, nil
	}
	w := &window{ctx: ctx, src: u.src, obj: obj, ahead: maxArrayHead}
	if n := int64(len(out.off)) - 1; n > 0 && out.raw/n < 64<<10 {
		w.ahead = 1 << 20 // samples are so close that what is between them costs less than a read
	}
	if zipped {
		if w.data, err = u.whole(ctx, &out.stored); err != nil {
			return out, err
		}
		w.whole = true
	}
	out.cols = slices.Clone(cols)
	return out, out.readShapes(w)
}

func readOffsets(ctx context.Context, src source.Source, s *stored, info *shardInfo) ([]int64, int64, error) {
	in := bufio.NewReaderSize(&sourceReader{ctx: ctx, src: src, obj: s.obj}, 64<<10)
	if s.pack == "" {
		return readTable(in, info, s.raw)
	}
	z, end, err := stream(s.pack, in, s.raw)
	if err != nil {
		return nil, 0, err
	}
	defer end()
	return readTable(z, info, s.raw)
}

func offsetsError(ctx context.Context, s *stored, at int64, err error) error {
	var known *errs.Error
	if errors.As(err, &known) {
		return known
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if s.pack != "" {
		return notDecompressed(s.obj, s.pack, err)
	}
	return errs.New(errs.Damaged, "the beginning of the shard is damaged").At(errs.Where{Shard: s.obj.Name, Offset: errs.Known(at)}).
		Because(err).Try("fetch the shard again; stoker verify checks all shards against their hashes")
}

// readShapes reads the sizes of all values and the shapes of dynamic arrays, which
// decide the types of their columns.
func (s *built) readShapes(w *window) error {
	wide := 0
	for _, c := range s.cols {
		if c.Size == 0 {
			wide++
		}
	}
	at := make([]int64, len(s.cols)+1)
	for i := range len(s.off) - 1 {
		begin, length := s.off[i], s.off[i+1]-s.off[i]
		head := min(int64(4*wide), length)
		p, err := w.bytes(begin, head)
		if err != nil {
			return err
		}
		wrong := split(s.cols, p, length, at)
		for k := 0; k < len(s.cols) && wrong == ""; k++ {
			c, size := &s.cols[k], at[k+1]-at[k]
			if c.Kind != dynamic {
				if c.Size == 0 {
					s.size = append(s.size, size)
				}
				continue
			}
			v, err := w.bytes(begin+at[k], min(size, maxArrayHead))
			if err != nil {
				return err
			}
			var h arrayHead
			if h, wrong = c.head(v, size); wrong == "" {
				c.meet(h, i == 0)
				s.size = append(s.size, size-h.at)
			}
		}
		if wrong != "" {
			off := begin
			if s.pack != "" {
				off = 0
			}
			return errs.New(errs.Damaged, "sample %d of the shard is damaged: %s", i, wrong).
				At(errs.Where{Shard: s.obj.Name, Offset: errs.Known(off)}).Try("fetch the shard again; stoker verify checks all shards against their hashes")
		}
	}
	return nil
}

// split finds where the values of a sample of length bytes are, of which head is the
// beginning: column k is from at[k] to at[k+1]. It returns what is wrong.
func split(cols []column, head []byte, length int64, at []int64) string {
	wide := 0
	for i := range cols {
		if cols[i].Size == 0 {
			wide++
		}
	}
	pos := int64(4 * wide)
	if int64(len(head)) < pos {
		return "it is too short for the lengths of its columns"
	}
	for i := range cols {
		at[i] = pos
		if cols[i].Size > 0 {
			pos += cols[i].Size
			continue
		}
		pos += int64(binary.LittleEndian.Uint32(head))
		head = head[4:]
	}
	at[len(cols)] = pos
	if pos != length {
		return "the lengths of its columns do not add up to its own"
	}
	return ""
}

// merge puts the shards one after another.
func merge(files []source.Info, desc *description, shards []built, b *index.Builder) error {
	var (
		packs, hashes                     index.Texts
		first, raws, heads, marks, checks = []int64{0}, []int64{0}, []int64{0}, []int64{0}, []int64{0, 0}
		off, size                         []int64
		shard                             []int32
		scanned                           = slices.ContainsFunc(desc.cols, func(c column) bool { return c.Kind == dynamic })
		types                             = make([]bool, len(desc.cols))
	)
	packs.AppendString("")
	hashes.AppendString("")
	for i := range shards {
		s := &shards[i]
		first = append(first, int64(len(shard)))
		packs.AppendString(s.pack)
		hashes.AppendString(s.hashes)
		raws, heads, marks = append(raws, s.raw), append(heads, s.head), append(marks, s.mark)
		known := int64(0)
		if s.known {
			known = 1
		}
		checks = append(checks, s.check, known)
		off, size = append(off, s.off...), append(size, s.size...)
		for range len(s.off) - 1 {
			shard = append(shard, int32(i+1))
		}
		for k := range desc.cols {
			if desc.cols[k].Kind == dynamic && len(s.off) > 1 {
				desc.cols[k].join(&s.cols[k], !types[k])
				types[k] = true
			}
		}
		s.off, s.size, s.cols = nil, nil, nil
	}
	first = append(first, int64(len(shard)))
	if len(shard) == 0 {
		return errs.New(errs.Empty, "there is no sample in any of the shards").At(desc.at)
	}
	cols, err := json.Marshal(desc.cols)
	if err != nil {
		return errs.New(errs.Bug, "cannot write the columns").Because(err)
	}
	b.Meta.Samples = int64(len(shard))
	for _, c := range desc.cols {
		if c.Kind != refused {
			b.Meta.Fields = append(b.Meta.Fields, c.Name)
		}
	}
	format.Describe(b, files)
	b.Int64s(shardFirst, first, index.Identity)
	b.Strings(shardPack, &packs, index.Aside)
	b.Int64s(shardRaw, raws, index.Aside)
	b.Int64s(shardHead, heads, index.Aside)
	b.Int64s(shardMark, marks, index.Aside)
	b.Int64s(shardCheck, checks, index.Aside)
	b.Strings(shardHashes, &hashes, index.Aside)
	b.Int32s(sampleShard, shard, index.Aside)
	b.Int64s(sampleOff, off, index.Identity)
	if scanned {
		b.Int64s(sampleSize, size, index.Aside)
	}
	b.Bytes(columnText, cols, index.Identity)
	return nil
}

// join widens the type of a dynamic column by that of one more shard.
func (c *column) join(o *column, first bool) {
	if first {
		c.DType, c.Shape, c.Ragged, c.Mixed = o.DType, o.Shape, o.Ragged, o.Mixed
		return
	}
	tail := func(x *column) []int {
		if x.Ragged || len(x.Shape) == 0 {
			return x.Shape
		}
		return x.Shape[1:]
	}
	switch {
	case c.Mixed:
	case o.Mixed, o.DType != c.DType:
		c.Mixed = true
	case !c.Ragged && !o.Ragged && slices.Equal(c.Shape, o.Shape):
	case slices.Equal(tail(c), tail(o)):
		c.Shape, c.Ragged = tail(c), true
	default:
		c.Mixed = true
	}
	if c.Mixed {
		c.Shape, c.Ragged = nil, false
	}
}

// valid reports whether every number of the index can be used without further checks.
func valid(x *index.Index) bool {
	files := x.Files()
	first, raws, checks, shard, off := x.Int64s(shardFirst), x.Int64s(shardRaw), x.Int64s(shardCheck), x.Int32s(sampleShard), x.Int64s(sampleOff)
	if files < 2 || x.Len() < 1 || len(first) != files+1 || len(raws) != files || len(x.Int64s(shardHead)) != files || len(x.Int64s(shardMark)) != files ||
		len(checks) != 2*files || x.Strings(shardPack).Len() != files || x.Strings(shardHashes).Len() != files || int64(len(shard)) != x.Len() ||
		int64(len(off)) != x.Len()+int64(files)-1 || first[0] != 0 || first[1] != 0 || first[files] != x.Len() {
		return false
	}
	var cols []column
	if json.Unmarshal(x.Bytes(columnText), &cols) != nil || !sane(cols) {
		return false
	}
	wide := int64(0)
	for _, c := range cols {
		if c.Size == 0 {
			wide++
		}
	}
	if n := int64(len(x.Int64s(sampleSize))); n != 0 && n != x.Len()*wide {
		return false
	}
	for f := 1; f < files; f++ {
		size, _ := x.Stamp(f)
		limit, pack := size, x.Strings(shardPack).At(f)
		if len(pack) > 0 {
			limit = raws[f]
			if !slices.Contains(packs, string(pack)) || limit < 0 || limit > maxUnpacked {
				return false
			}
		}
		if h := x.Int64s(shardHead)[f]; h < 0 || h > min(size, witness) || first[f+1] < first[f] {
			return false
		}
		last := int64(0)
		for id := first[f]; id <= first[f+1]; id++ {
			if id < first[f+1] && int(shard[id]) != f {
				return false
			}
			if o := off[id+int64(f)-1]; o < last || o > limit {
				return false
			} else {
				last = o
			}
		}
	}
	return true
}

// sane says whether columns are as newColumn and readShapes make them.
func sane(cols []column) bool {
	for _, c := range cols {
		size := &c.Size
		again, wrong := newColumn(c.Name, c.Encoding, size)
		if wrong != "" || again.Kind != c.Kind || again.Size != c.Size || c.DType > mem.Float16 {
			return false
		}
		if c.Kind == dynamic {
			for _, n := range c.Shape {
				if n < 1 {
					return false
				}
			}
		} else if !slices.Equal(again.Shape, c.Shape) || again.DType != c.DType {
			return false
		}
	}
	return len(cols) > 0
}
