package npy

import (
	"context"
	"hash/crc32"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Rows of an array that is not compressed are read one by one, and the checksum is
// of all of them: so it is compared once, when the file is indexed, and whenever
// somebody asks (Verify). From then on size and time say that the file is the same.

// sumLen is what is read at once for a checksum.
const sumLen = 1 << 20

// compare reads all of a member that is not compressed, and compares its CRC. summed is
// called with the number of bytes that were read; it may be nil.
func (z *zipFile) compare(m member, summed func(n int64)) error {
	sum := crc32.NewIEEE()
	buf := make([]byte, min(m.compressed, sumLen))
	for at := int64(0); at < m.compressed; at += int64(len(buf)) {
		buf = buf[:min(m.compressed-at, sumLen)]
		if err := z.src.ReadAt(z.ctx, z.obj, buf, m.body+at); err != nil {
			return format.InShard(err)
		}
		_, _ = sum.Write(buf)
		if summed != nil {
			summed(int64(len(buf)))
		}
	}
	if sum.Sum32() == m.crc {
		return nil
	}
	return errs.New(errs.Damaged, "the bytes of an array do not match its checksum").
		At(errs.Where{Shard: z.obj.Name, Member: m.name, Offset: errs.Known(m.body)}).Because(errSum).Try("fetch or write the file again")
}

// Verify compares the checksums of all arrays of stored file no that are not
// compressed; compressed ones are compared whenever they are unpacked. checked are the
// names of the arrays; it is empty if the file is not a .npz.
func (d *Dataset) Verify(ctx context.Context, src source.Source, no int) (checked []string, err error) {
	name := string(d.x.AppendPath(no, nil))
	if !zipped(name) {
		return nil, nil
	}
	size, version := d.x.Stamp(no)
	z := &zipFile{ctx: ctx, src: src, obj: source.Info{Name: name, Size: size, Version: version}}
	begin, err := z.read(0, min(size, int64(len(Magic))))
	if err != nil || string(begin) == Magic {
		return nil, err
	}
	members, err := z.members()
	if err != nil {
		return nil, err
	}
	for _, m := range members {
		if _, array := arrayName(m.name); !array || m.method != stored || z.readable(m, 0) != nil {
			continue
		}
		if err := z.compare(m, nil); err != nil {
			return nil, err
		}
		checked = append(checked, m.name)
	}
	return checked, nil
}
