package tokens

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/rng"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/browse"
	"github.com/stoker-data/stoker/internal/stage/source/pattern"
)

// The columns beside those that every index has.
const (
	shardFile    = "shard.file"    // int32: stored file of its tokens
	shardOff     = "shard.off"     // int64: of the first token, bytes
	shardTokens  = "shard.tokens"  // int64
	shardFirst   = "shard.first"   // int64, one more than shards: number of the first document or window
	sampleStart  = "sample.start"  // int64, documents only: first token in the shard
	sampleTokens = "sample.tokens" // int32, documents only
	tokenDType   = "token.dtype"   // int32: a mem.DType
	windowCut    = "window.cut"    // int64: length, stride, random and seed of a cut
)

// part is one file of tokens, with Megatron's index of it or without.
type part struct{ bin, idx string }

func (p part) megatron() bool { return p.idx != "" }

// pairs finds the index beside every .bin, unless flat is set. A pattern that
// finds both names of a pair stands for it once.
func pairs(ctx context.Context, src source.Source, paths []string, flat bool) ([]part, error) {
	paths = slices.DeleteFunc(slices.Clone(paths), func(p string) bool {
		stem, isIdx := strings.CutSuffix(p, ".idx")
		return isIdx && slices.Contains(paths, stem+".bin")
	})
	parts := make([]part, len(paths))
	if len(paths) == 0 {
		return parts, ctx.Err()
	}
	if !flat {
		browse.Expect(ctx, src, indexes(paths))
	}
	err := format.EachOf(ctx, src, paths[0], len(paths), func(i int) error {
		parts[i].bin = paths[i]
		stem, isIdx := strings.CutSuffix(paths[i], ".idx")
		if isIdx {
			parts[i].bin = stem + ".bin"
		}
		stem, isBin := strings.CutSuffix(parts[i].bin, ".bin")
		if flat || !isBin {
			return nil
		}
		switch _, err := src.Stat(ctx, stem+".idx"); {
		case err == nil:
			parts[i].idx = stem + ".idx"
		case errs.CodeOf(err) != errs.NotFound:
			return format.InShard(err)
		case isIdx:
			return errs.New(errs.NotFound, "there is no index file %q", stem+".idx").At(errs.Where{Shard: stem + ".idx"}).
				Try("%s", pattern.Suggest(ctx, src, stem+".idx"))
		}
		return nil
	})
	return parts, err
}

// indexes are the names that the indexes of files would have.
func indexes(paths []string) (all []string) {
	for _, p := range paths {
		if stem, ok := strings.CutSuffix(p, ".bin"); ok {
			all = append(all, stem+".idx")
		}
	}
	return all
}

// files returns all stored files, a pair's index after its tokens.
func files(parts []part) []string {
	var out []string
	for _, p := range parts {
		if out = append(out, p.bin); p.megatron() {
			out = append(out, p.idx)
		}
	}
	return out
}

// shard is what indexing one part found.
type shard struct {
	dtype   mem.DType
	off     int64 // of the first token, bytes
	count   int64 // tokens
	start   []int64
	tokens  []int32
	skipped int64 // empty documents
}

// reader reads one stored file while it is indexed.
type reader struct {
	ctx  context.Context
	src  source.Source
	obj  source.Info
	done *tally
	seen int64 // bytes of progress told
}

// end tells the progress of what was not looked at.
func (r *reader) end() { r.done.add(r.obj.Size - r.seen) }

func (r *reader) read(off, n int64) ([]byte, error) {
	return format.Read(r.ctx, r.src, r.obj, off, n)
}

// stream hands a stretch of the file on in runs that are no longer than a
// megabyte, all but the last a multiple of 8 bytes; each is valid in the call only.
func (r *reader) stream(off, n int64, f func(p []byte) error) error {
	const run = 1 << 20
	if n < 0 || off < 0 || off > r.obj.Size || n > r.obj.Size-off {
		return r.damaged(max(off, 0), "%d bytes should be here, but the file has %d", n, r.obj.Size)
	}
	room := make([]byte, min(n, run))
	for n > 0 {
		p := room[:min(n, run)]
		if err := r.into(p, off); err != nil {
			return err
		}
		if err := f(p); err != nil {
			return err
		}
		off, n = off+int64(len(p)), n-int64(len(p))
		if err := r.ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// into fills p from off on, a range within the file.
func (r *reader) into(p []byte, off int64) error {
	if err := r.src.ReadAt(r.ctx, r.obj, p, off); err != nil {
		return format.InShard(err)
	}
	r.seen += int64(len(p))
	r.done.add(int64(len(p)))
	return nil
}

func (r *reader) at(off int64) errs.Where {
	return errs.Where{Shard: r.obj.Name, Offset: errs.Known(off)}
}

func (r *reader) damaged(off int64, what string, a ...any) *errs.Error {
	return errs.New(errs.Damaged, "the file is damaged: "+what, a...).At(r.at(off)).Try("fetch or write the file again")
}

func build(ctx context.Context, src source.Source, parts []part, opt Options, b *index.Builder) error {
	objs, err := format.Stat(ctx, src, files(parts), "token file")
	if err != nil {
		return err
	}
	bins := make([]int, len(parts)) // number of each part's tokens in objs
	for i, at := 0, 0; i < len(parts); i++ {
		if bins[i], at = at, at+1; parts[i].megatron() {
			at++
		}
	}
	shards := make([]*shard, len(parts))
	done := &tally{tell: opt.Progress}
	for _, o := range objs {
		done.total += o.Size
	}
	err = format.EachOf(ctx, src, parts[0].bin, len(parts), func(i int) error {
		bin := &reader{ctx: ctx, src: src, obj: objs[bins[i]], done: done}
		defer bin.end()
		return format.Settled(ctx, src, bin.obj, func() (err error) {
			if !parts[i].megatron() {
				shards[i], err = flat(bin, opt)
				return err
			}
			idx := &reader{ctx: ctx, src: src, obj: objs[bins[i]+1], done: done}
			defer idx.end()
			return format.Settled(ctx, src, idx.obj, func() error {
				shards[i], err = megatron(bin, idx, opt)
				return err
			})
		})
	})
	if err != nil {
		return err
	}
	format.Describe(b, objs)
	return merge(parts, bins, shards, opt, b)
}

// tally adds up what all files have of progress.
type tally struct {
	mu          sync.Mutex
	tell        index.Progress
	done, total int64
}

func (t *tally) add(n int64) {
	if t.tell == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done += n
	t.tell(t.done, t.total, "bytes")
}

func merge(parts []part, bins []int, shards []*shard, opt Options, b *index.Builder) error {
	var (
		c             = opt.cut()
		file          []int32
		off, count    []int64
		first         = []int64{0}
		start         []int64
		tokens        []int32
		samples, most int64
		rest          tail
	)
	for i, sh := range shards {
		if sh.dtype != shards[0].dtype {
			return errs.New(errs.Config, "the tokens of %s are %s, those of %s are %s", parts[i].bin, sh.dtype, parts[0].bin, shards[0].dtype).
				Try("open them as two datasets, or leave one out; if dtype was guessed, give it")
		}
		if opt.Documents {
			samples += int64(len(sh.start))
		} else {
			samples += c.windows(sh.count)
			rest.add(c, sh.count)
		}
		file, off, count = append(file, int32(bins[i])), append(off, sh.off), append(count, sh.count)
		first = append(first, samples)
		start, tokens = append(start, sh.start...), append(tokens, sh.tokens...)
		most = max(most, sh.count)
		b.Meta.Skipped += sh.skipped
		shards[i].start, shards[i].tokens = nil, nil
	}
	if samples == 0 {
		at := errs.Where{Shard: parts[0].bin}
		if opt.Documents || most == 0 {
			return errs.New(errs.Empty, "there is no token in %s", count1(len(parts), parts[0].bin)).At(at).Try("look at the program that wrote it")
		}
		return errs.New(errs.Empty, "no window of %d tokens fits into %s, which has %d", c.length, count1(len(parts), parts[0].bin), most).At(at).
			Try("take window=%d or less, or give longer files: a window does not continue into the next file", max(1, most-(c.length-opt.Window)))
	}
	b.Meta.Samples, b.Meta.Fields = samples, []string{Field}
	if c.random > 0 {
		b.Meta.Samples = c.random
	}
	if b.Meta.Note = rest.note(c); b.Meta.Skipped > 0 {
		b.Meta.Note = fmt.Sprintf("%d documents without a token are left out", b.Meta.Skipped)
	}
	b.Int32s(shardFile, file, index.Aside)
	b.Int64s(shardOff, off, index.Aside)
	b.Int64s(shardTokens, count, index.Identity)
	b.Int64s(shardFirst, first, index.Identity)
	b.Int32s(tokenDType, []int32{int32(shards[0].dtype)}, index.Identity)
	b.Int64s(windowCut, []int64{c.length, c.stride, c.random, int64(c.seed)}, index.Identity)
	if opt.Documents {
		b.Int64s(sampleStart, start, index.Identity)
		b.Int32s(sampleTokens, tokens, index.Identity)
	}
	return nil
}

// tail counts the tokens after the last window of each file.
type tail struct{ left, all, files int64 }

func (r *tail) add(c cut, tokens int64) {
	r.all += tokens
	left := tokens
	if n := c.windows(tokens); n > 0 {
		left -= (n-1)*c.stride + c.length
	}
	if left > 0 {
		r.left, r.files = r.left+left, r.files+1
	}
}

func (r *tail) note(c cut) string {
	switch {
	case r.left == 0:
		return ""
	case r.files == 1:
		return fmt.Sprintf("the last %d of %d tokens belong to no sample: they are too few for a window of %d", r.left, r.all, c.length)
	}
	return fmt.Sprintf("%d of %d tokens, at the ends of %d files, belong to no sample: they are too few for a window of %d", r.left, r.all, r.files, c.length)
}

// count1 is one file by its name, or "the longest of n files".
func count1(n int, name string) string {
	if n == 1 {
		return name
	}
	return "any of the files"
}

func open(x *index.Index) *Dataset {
	d := &Dataset{
		x:    x,
		file: x.Int32s(shardFile), off: x.Int64s(shardOff), count: x.Int64s(shardTokens), first: x.Int64s(shardFirst),
		start: x.Int64s(sampleStart), tokens: x.Int32s(sampleTokens),
	}
	if t := x.Int32s(tokenDType); len(t) == 1 && uint32(t[0]) <= uint32(mem.Float16) && integer(mem.DType(t[0])) {
		d.dtype = mem.DType(t[0])
		d.size = int64(d.dtype.Size())
	}
	if c := x.Int64s(windowCut); len(c) == 4 {
		d.cut = cut{c[0], c[1], c[2], uint64(c[3])}
		d.key = rng.New(d.cut.seed)
	}
	return d
}

// valid reports whether every number of the index can be used without further checks.
func valid(x *index.Index, want cut) bool {
	d := open(x)
	n := len(d.count)
	documents, total := want == cut{}, x.Len()
	if want.random > 0 && n > 0 && len(d.first) > n { // windows to draw from
		if total = d.first[n]; total < 1 || x.Len() != want.random {
			return false
		}
	}
	if x.Len() < 1 || n < 1 || len(d.file) != n || len(d.off) != n || len(d.first) != n+1 || d.size == 0 || d.cut != want ||
		d.first[0] != 0 || d.first[n] != total || !x.Watched() ||
		documents != (d.start != nil) || documents && (int64(len(d.start)) != x.Len() || int64(len(d.tokens)) != x.Len()) {
		return false
	}
	for i := range n {
		if uint32(d.file[i]) >= uint32(x.Files()) {
			return false
		}
		size, _ := x.Stamp(int(d.file[i]))
		if d.off[i] < 0 || d.off[i] > size || d.count[i] < 0 || d.count[i] > (size-d.off[i])/d.size || d.first[i+1] < d.first[i] || d.first[i+1] > total {
			return false
		}
		if !documents {
			if d.first[i+1]-d.first[i] != want.windows(d.count[i]) {
				return false
			}
			continue
		}
		for id := d.first[i]; id < d.first[i+1]; id++ {
			if d.tokens[id] < 1 || d.start[id] < 0 || d.start[id] > d.count[i]-int64(d.tokens[id]) {
				return false
			}
		}
	}
	return true
}
