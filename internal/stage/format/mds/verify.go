package mds

import (
	"context"
	"crypto/md5"  //nolint:gosec // what datasets were written with
	"crypto/sha1" //nolint:gosec // what datasets were written with
	"crypto/sha256"
	"crypto/sha3"
	"crypto/sha512"
	"encoding/hex"
	"hash"
	"io"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Hash is what index.json says of a stored file.
type Hash struct {
	Name string // as hashlib and xxhash call it
	Hex  string
}

// Hashes are those of a stored file, by its number in the index, in the order of
// their names.
func (d *Dataset) Hashes(file int) []Hash {
	var out []Hash
	for line := range strings.SplitSeq(string(d.x.Strings(shardHashes).At(file)), "\n") {
		if name, sum, ok := strings.Cut(line, "="); ok {
			out = append(out, Hash{name, sum})
		}
	}
	return out
}

// digest is the function of that name; nil: not known here.
func digest(name string) hash.Hash {
	switch name {
	case "md5":
		return md5.New() //nolint:gosec // what datasets were written with
	case "sha1":
		return sha1.New() //nolint:gosec // what datasets were written with
	case "sha224":
		return sha256.New224()
	case "sha256":
		return sha256.New()
	case "sha384":
		return sha512.New384()
	case "sha512":
		return sha512.New()
	case "sha3_224":
		return sha3.New224()
	case "sha3_256":
		return sha3.New256()
	case "sha3_384":
		return sha3.New384()
	case "sha3_512":
		return sha3.New512()
	case "xxh64":
		return xxhash.New()
	}
	return nil
}

// Verify reads a stored file whole, once, and holds it against every hash of it
// that is known here; checked are their names. A file without hashes is not read.
func (d *Dataset) Verify(ctx context.Context, src source.Source, file int) (checked []string, err error) {
	var want []Hash
	var sums []hash.Hash
	var all []io.Writer
	for _, h := range d.Hashes(file) {
		if sum := digest(h.Name); sum != nil {
			want, sums, all = append(want, h), append(sums, sum), append(all, sum)
		}
	}
	if len(want) == 0 {
		return nil, nil
	}
	obj := d.stored[file].obj
	in := &sourceReader{ctx: ctx, src: src, obj: obj}
	if _, err := io.CopyBuffer(io.MultiWriter(all...), onlyReader{in}, make([]byte, 1<<20)); err != nil {
		return nil, err
	}
	for i, h := range want {
		if got := hex.EncodeToString(sums[i].Sum(nil)); !strings.EqualFold(got, h.Hex) {
			return nil, errs.New(errs.Damaged, "the %s of the shard is %s, but %s says %s", h.Name, got, IndexName, h.Hex).
				At(errs.Where{Shard: obj.Name}).Try("fetch the shard again")
		}
		checked = append(checked, h.Name)
	}
	return checked, nil
}

// Damage is the Damage of a format.Format: it checks each shard as Open would, and returns
// the damage in the order of the shards.
func Damage(ctx context.Context, src source.Source, root string) (wrong []*errs.Error, shards int, err error) {
	top, err := format.Stat(ctx, src, []string{root + "/" + IndexName}, "index of an MDS dataset")
	if err != nil {
		return nil, 0, err
	}
	desc, err := describe(ctx, src, top[0])
	if err != nil {
		return nil, 0, err
	}
	wrong = make([]*errs.Error, len(desc.shards))
	u := newUnpacker(src)
	err = format.EachOf(ctx, src, root, len(wrong), func(i int) error {
		one := *desc
		one.shards = desc.shards[i : i+1]
		objs, zipped, err := locate(ctx, src, root, &one)
		if err == nil {
			_, err = read(ctx, u, objs[0], &one.shards[0], zipped[0], desc.cols)
		}
		if err != nil && ctx.Err() == nil {
			wrong[i] = errs.From(err)
		}
		return ctx.Err()
	})
	return slices.DeleteFunc(wrong, func(e *errs.Error) bool { return e == nil }), len(desc.shards), err
}

// onlyReader hides all methods but Read.
type onlyReader struct{ io.Reader }
