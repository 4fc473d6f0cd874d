package tar

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/compressed"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// The columns beside those that every index has.
const (
	shardFirst  = "shard.first"   // int64, one more than shards: number of the first sample
	shardSkip   = "shard.skipped" // int64: members that are not data
	shardLinks  = "shard.links"   // int64: of them, hard links that would be fields of samples
	sampleShard = "sample.shard"  // int32
	sampleFirst = "sample.first"  // int64, one more than samples: number of the first member
	sampleKey   = "sample.key"    // int32: length of the key, which begins the first member's name
	memberName  = "member.name"   // strings: as in the archive
	memberField = "member.field"  // int32: number in field.name
	memberOff   = "member.off"    // int64: of the body, bytes
	memberSize  = "member.size"   // int64: of the body, bytes
	memberHead  = "member.head"   // int64: XXH64 of the header, which is the block before the body
	fieldName   = "field.name"    // strings
)

// shownFields bounds the names of fields in Meta, which is for people.
const shownFields = 256

func build(ctx context.Context, src source.Source, paths []string, old *index.Index, b *index.Builder, progress index.Progress) error {
	objs, err := format.Stat(ctx, src, paths, "tar file")
	if err != nil {
		return err
	}
	var before *Dataset
	if old != nil && valid(old) {
		before = open(old)
	}
	done := format.NewTally(progress, objs)
	shards := make([]*shard, len(objs))
	err = format.EachOf(ctx, src, objs[0].Name, len(objs), func(i int) error {
		if shards[i] = before.kept(i, objs[i]); shards[i] != nil {
			done.Add(objs[i].Size)
			return nil
		}
		var err error
		shards[i], err = settled(ctx, src, objs[i], done)
		return err
	})
	if err != nil {
		return err
	}
	return merge(objs, shards, b)
}

// settled scans a shard whose time is old enough to be a witness.
func settled(ctx context.Context, src source.Source, obj source.Info, done *format.Tally) (sh *shard, err error) {
	return sh, format.Settled(ctx, src, obj, func() (err error) {
		last := int64(0)
		sh, err = scan(ctx, src, obj, func(off int64) {
			if off-last >= 16<<20 || off == obj.Size {
				done.Add(off - last)
				last = off
			}
		})
		return err
	})
}

// unique says whether a key comes again after another one.
func (sh *shard) unique() error {
	type entry struct {
		hash uint64
		at   int
	}
	n := len(sh.keyLen)
	all := make([]entry, n)
	for i := range all {
		all[i] = entry{xxhash.Sum64(sh.key(i)), i}
	}
	slices.SortFunc(all, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), slices.Compare(sh.key(a.at), sh.key(b.at)), cmp.Compare(a.at, b.at))
	})
	twice, before := n, 0
	for i := 1; i < n; i++ {
		a, b := all[i-1], all[i]
		if a.hash == b.hash && b.at < twice && slices.Equal(sh.key(a.at), sh.key(b.at)) {
			twice, before = b.at, a.at
		}
	}
	if twice == n {
		return nil
	}
	m := sh.first[twice]
	return errs.New(errs.Damaged, "duplicate keys: sample %q begins at offset %d of the shard and comes again at offset %d",
		sh.key(twice), sh.off[sh.first[before]]-blockLen, sh.off[m]-blockLen).
		At(errs.Where{Shard: sh.obj.Name, Member: string(sh.name.At(int(m))), Offset: errs.Known(sh.off[m] - blockLen)}).
		Try("the members of a sample must follow each other; write the shard from a sorted list of files (tar --sort=name)")
}

func (sh *shard) key(i int) []byte { return sh.name.At(int(sh.first[i]))[:sh.keyLen[i]] }

// kept is what an index that is not fresh has of a shard that did not change.
func (d *Dataset) kept(i int, obj source.Info) *shard {
	if d == nil || i >= len(d.urls) || string(d.urls[i]) != obj.Name {
		return nil
	}
	if size, version := d.x.Stamp(i); size != obj.Size || version != obj.Version || version == "" {
		return nil
	}
	from, to := d.x.Int64s(shardFirst)[i], d.x.Int64s(shardFirst)[i+1]
	mfrom, mto := d.first[from], d.first[to]
	sh := &shard{obj: obj, skipped: d.x.Int64s(shardSkip)[i], links: d.x.Int64s(shardLinks)[i], points: d.compressed.Points(i)}
	no := make(map[int32]int32)
	for m := mfrom; m < mto; m++ {
		f, known := no[d.field[m]]
		if !known {
			f = int32(len(sh.fields))
			no[d.field[m]] = f
			sh.fields = append(sh.fields, string(d.fields.At(int(d.field[m]))))
		}
		sh.field = append(sh.field, f)
		sh.name.Append(d.name.At(int(m)))
	}
	sh.off = slices.Clone(d.off[mfrom:mto])
	sh.size = slices.Clone(d.size[mfrom:mto])
	sh.head = slices.Clone(d.head[mfrom:mto])
	sh.keyLen = slices.Clone(d.keyLen[from:to])
	for _, m := range d.first[from : to+1] {
		sh.first = append(sh.first, m-mfrom)
	}
	return sh
}

// columns are the shards, one after another.
type columns struct {
	name, fields             index.Texts
	skip, links, shardFirst  []int64
	first, off, length, head []int64
	shard, keyLen, field     []int32
	no                       map[string]int32
	points                   []*compressed.Points
	sizes                    []int64 // of shards, where they are not compressed
}

func merge(objs []source.Info, shards []*shard, b *index.Builder) error {
	c := columns{no: make(map[string]int32)}
	links, linked := int64(0), "" // how many, and the first shard that has some
	for i, sh := range shards {
		c.append(int32(i), sh)
		b.Meta.Skipped += sh.skipped
		if sh.links > 0 && links == 0 {
			linked = sh.obj.Name
		}
		links += sh.links
		shards[i] = nil
	}
	c.shardFirst = append(c.shardFirst, int64(len(c.shard)))
	c.first = append(c.first, int64(len(c.off)))
	if len(c.shard) == 0 {
		e := errs.New(errs.Empty, "there is no sample in %s", objs[0].Name).At(errs.Where{Shard: objs[0].Name})
		if len(objs) > 1 {
			e.What = "there is no sample in any of the shards"
		}
		if b.Meta.Skipped > 0 {
			return e.Try("%d members are not data: folders, links, hidden ones and those whose names have no dot; a sample is written as 0001.jpg and 0001.cls", b.Meta.Skipped)
		}
		return e.Try("a sample is written as members 0001.jpg, 0001.cls and so on")
	}
	b.Meta.Samples = int64(len(c.shard))
	for i := range min(c.fields.Len(), shownFields) {
		b.Meta.Fields = append(b.Meta.Fields, string(c.fields.At(i)))
	}
	if links > 0 {
		b.Meta.Note = fmt.Sprintf("%d members are hard links and were left out (the first is in %s): a link has no bytes of its own; write the shards with tar --hard-dereference",
			links, errs.Name(path.Base(linked)))
	}
	format.Describe(b, objs)
	c.write(b)
	return nil
}

func (c *columns) append(no int32, sh *shard) {
	c.points, c.sizes = append(c.points, sh.points), append(c.sizes, sh.obj.Size)
	c.skip, c.links = append(c.skip, sh.skipped), append(c.links, sh.links)
	c.shardFirst = append(c.shardFirst, int64(len(c.shard)))
	base := int64(len(c.off))
	for i := range sh.keyLen {
		c.first = append(c.first, base+sh.first[i])
		c.shard = append(c.shard, no)
	}
	c.keyLen = append(c.keyLen, sh.keyLen...)
	for m, f := range sh.field {
		name := sh.fields[f]
		global, known := c.no[name]
		if !known {
			global = int32(c.fields.Len())
			c.no[name] = global
			c.fields.AppendString(name)
		}
		c.field = append(c.field, global)
		c.name.Append(sh.name.At(m))
	}
	c.off, c.length, c.head = append(c.off, sh.off...), append(c.length, sh.size...), append(c.head, sh.head...)
}

// write adds the columns. Offsets and hashes of headers are not what the data
// is: they differ where it was compressed at another time.
func (c *columns) write(b *index.Builder) {
	b.Int64s(shardFirst, c.shardFirst, index.Identity)
	b.Int64s(shardSkip, c.skip, index.Aside)
	b.Int64s(shardLinks, c.links, index.Aside)
	b.Int32s(sampleShard, c.shard, index.Aside)
	b.Int64s(sampleFirst, c.first, index.Identity)
	b.Int32s(sampleKey, c.keyLen, index.Aside)
	b.Strings(memberName, &c.name, index.Identity)
	b.Int32s(memberField, c.field, index.Aside)
	b.Int64s(memberOff, c.off, index.Aside)
	b.Int64s(memberSize, c.length, index.Identity)
	b.Int64s(memberHead, c.head, index.Aside)
	b.Strings(fieldName, &c.fields, index.Aside)
	if slices.ContainsFunc(c.points, func(p *compressed.Points) bool { return p != nil }) {
		compressed.Write(b, c.points, c.sizes)
	}
}

// valid reports whether every number of the index can be used without further checks:
// none points outside its column or outside its shard.
func valid(x *index.Index) bool {
	d := open(x)
	members, samples := int64(d.name.Len()), x.Len()
	starts := x.Int64s(shardFirst)
	switch {
	case samples < 1, int64(len(d.first)) != samples+1, int64(len(d.keyLen)) != samples, int64(len(d.shard)) != samples,
		int64(len(d.off)) != members, int64(len(d.size)) != members, int64(len(d.head)) != members, int64(len(d.field)) != members,
		d.compressed != nil && !d.compressed.Valid(), len(starts) != x.Files()+1, len(x.Int64s(shardSkip)) != x.Files(), len(x.Int64s(shardLinks)) != x.Files(),
		!x.Watched(),
		!rising(starts, samples, 0), !rising(d.first, members, 1):
		return false
	}
	for _, f := range d.field {
		if uint32(f) >= uint32(d.fields.Len()) {
			return false
		}
	}
	for sh := range x.Files() {
		size := d.unpacked(sh)
		for id := starts[sh]; id < starts[sh+1]; id++ {
			if int(d.shard[id]) != sh || uint64(d.keyLen[id]) > uint64(len(d.name.At(int(d.first[id])))) {
				return false
			}
		}
		if starts[sh] == starts[sh+1] {
			continue
		}
		end := int64(0)
		for m := d.first[starts[sh]]; m < d.first[starts[sh+1]]; m++ {
			if d.off[m]-blockLen < end || d.off[m] > size || d.size[m] < 0 || d.size[m] > size-d.off[m] {
				return false
			}
			end = d.off[m] + d.size[m]
		}
	}
	return true
}

// rising says whether v runs from 0 to last in steps of at least that much.
func rising(v []int64, last, step int64) bool {
	if v[0] != 0 || v[len(v)-1] != last {
		return false
	}
	for i := 1; i < len(v); i++ {
		if v[i] < v[i-1] || v[i]-v[i-1] < step {
			return false
		}
	}
	return true
}
