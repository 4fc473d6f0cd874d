// Package tree reads what is stored where in an HDF5 file: its groups, datasets,
// types and attributes, and the place of every chunk. It reads no data of samples and
// unpacks nothing.
//
// It follows "HDF5 File Format Specification Version 3.0" (The HDF Group), for
// files with addresses of eight bytes, which are those of every machine of 64
// bits. Whatever the bytes are, reading ends in an answer whose every number was
// checked against the file, or in an error that says where: trees are bounded in
// depth and visited once, no length that the file could not hold is allocated, and
// whatever has a checksum is checked against it.
package tree

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
)

const (
	undefined = ^uint64(0) // the address of something that does not exist
	signature = "\x89HDF\r\n\x1a\n"

	// windowLen is what is read at once: structures are stored near each other.
	windowLen = 32 << 10
	// windows bounds what is kept of it.
	windows = 64
	// maxBlock bounds one structure; real ones are some KiB, and a header full of
	// attributes is at most 64 KiB a message.
	maxBlock = 16 << 20
)

var le = binary.LittleEndian

// File is an open HDF5 file; not safe for concurrent use.
type File struct {
	ctx   context.Context
	src   source.Source
	obj   source.Info
	base  int64  // offset of address 0
	root  uint64 // address of the root group
	known map[int64][]byte
	// within is how deep named types are that are being read.
	within int
}

// HasSignature says whether the first bytes of a file are those of HDF5.
func HasSignature(head []byte) bool {
	return len(head) >= len(signature) && string(head[:len(signature)]) == signature
}

// Open reads the superblock of a file.
func Open(ctx context.Context, src source.Source, obj source.Info) (*File, error) {
	f := &File{ctx: ctx, src: src, obj: obj, known: make(map[int64][]byte)}
	// The superblock is at 0, or after a user block whose length is 512 times a power
	// of two.
	for at := int64(0); at+int64(len(signature)) <= obj.Size; at = max(2*at, 512) {
		head, err := f.read(at, int64(len(signature)))
		if err != nil {
			return nil, err
		}
		if HasSignature(head) {
			return f, f.superblock(at)
		}
	}
	return nil, f.Damaged(0, "this is not an HDF5 file: its signature is missing")
}

func (f *File) superblock(at int64) error {
	b, err := f.read(at, min(f.obj.Size-at, 96))
	if err != nil {
		return err
	}
	c := cursor{b: b, off: at, at: 8}
	version := c.u8()
	var offsets, lengths uint8
	switch version {
	case 0, 1:
		c.skip(4)
		offsets, lengths = c.u8(), c.u8()
		c.skip(9)
		if version == 1 {
			c.skip(4)
		}
	case 2, 3:
		offsets, lengths = c.u8(), c.u8()
		if flags := c.u8(); version == 3 && flags&1 != 0 {
			return errs.New(errs.Changed, "the file is open for writing, or was not closed by the one that wrote it").At(f.where(at + 11)).
				Try("wait until it is complete; if no program is writing to it any more, run h5clear -s FILE")
		}
	default:
		return f.Unsupported(at+8, repack, "a superblock of version %d", version)
	}
	if offsets != 8 || lengths != 8 {
		return f.Unsupported(at, repack, "addresses of %d bytes and lengths of %d", offsets, lengths)
	}
	base := c.u64()
	c.skip(8)
	end := c.u64()
	if version < 2 {
		c.skip(16)
	}
	f.root = c.u64()
	if version >= 2 {
		if c.skip(4); !c.short {
			if err := f.sum(b[:c.at], at); err != nil {
				return err
			}
		}
	}
	switch {
	case c.short:
		return f.Damaged(at, "the file ends within its superblock")
	case base > uint64(f.obj.Size) || base != 0 && base != uint64(at):
		return f.Damaged(at, "the base address is %d", base)
	// Offsets count from the base, except that of the end of the file in some
	// versions.
	case end > uint64(f.obj.Size):
		return f.Damaged(f.obj.Size, "the file has %d bytes, but should have %d: it was cut", f.obj.Size, end)
	}
	f.base = int64(base)
	return nil
}

const (
	repack  = "write it again in the current layout: h5repack OLD NEW"
	rewrite = "fetch or write the file again; h5dump -H FILE shows what the HDF5 library makes of it"
)

func (f *File) where(off int64) errs.Where {
	return errs.Where{Shard: f.obj.Name, Offset: errs.Known(off)}
}

// Damaged is an error of bytes that are not what HDF5 says.
func (f *File) Damaged(off int64, what string, a ...any) error {
	return errs.New(errs.Damaged, "%s", fmt.Sprintf(what, a...)).At(f.where(off)).Try("%s", rewrite)
}

// Unsupported is an error about a feature of HDF5 that stoker does not read.
func (f *File) Unsupported(off int64, hint, what string, a ...any) error {
	return errs.New(errs.Unsupported, "%s", fmt.Sprintf(what, a...)).At(f.where(off)).Try("%s", hint)
}

// read is n bytes at an offset of the file; they are shared, and must not be written
// to.
func (f *File) read(off, n int64) ([]byte, error) {
	if n > maxBlock {
		return nil, f.Damaged(off, "a structure of %d bytes", n)
	}
	first := off / windowLen * windowLen
	if off < 0 || n < 0 || off > f.obj.Size || n > f.obj.Size-off || off+n > first+windowLen {
		return format.Read(f.ctx, f.src, f.obj, off, n)
	}
	w := f.known[first]
	if w == nil {
		var err error
		if w, err = format.Read(f.ctx, f.src, f.obj, first, min(windowLen, f.obj.Size-first)); err != nil {
			return nil, err
		}
		if len(f.known) >= windows {
			clear(f.known)
		}
		f.known[first] = w
	}
	return w[off-first : off-first+n : off-first+n], nil
}

// at is the offset of an address.
func (f *File) at(address uint64) (int64, error) {
	if address >= uint64(f.obj.Size-f.base) {
		return 0, f.Damaged(f.obj.Size, "the address %d is outside the file, which ends at %d", address, f.obj.Size)
	}
	return f.base + int64(address), nil
}

// longBlock is block for what may be longer than other structures are; it is not
// cached.
func (f *File) longBlock(address uint64, n int64) (*cursor, error) {
	off, err := f.at(address)
	if err != nil {
		return nil, err
	}
	b, err := format.Read(f.ctx, f.src, f.obj, off, n)
	if err != nil {
		return nil, err
	}
	return &cursor{b: b, off: off}, nil
}

// block is a cursor over n bytes at an address.
func (f *File) block(address uint64, n int64) (*cursor, error) {
	off, err := f.at(address)
	if err != nil {
		return nil, err
	}
	b, err := f.read(off, n)
	if err != nil {
		return nil, err
	}
	return &cursor{b: b, off: off}, nil
}

// marked is a block that begins with these four bytes.
func (f *File) marked(address uint64, n int64, mark string) (*cursor, error) {
	c, err := f.block(address, n)
	if err != nil {
		return nil, err
	}
	if got := c.bytes(4); string(got) != mark {
		return nil, f.Damaged(c.off, "found %q instead of %q", got, mark)
	}
	return c, nil
}

// summed is a marked block that ends with the checksum of everything before it.
func (f *File) summed(address uint64, n int64, mark string) (*cursor, error) {
	c, err := f.marked(address, n, mark)
	if err != nil {
		return nil, err
	}
	if err := f.sum(c.b, c.off); err != nil {
		return nil, err
	}
	c.b = c.b[:len(c.b)-4]
	return c, nil
}

// sum checks a block against the checksum at its end.
func (f *File) sum(b []byte, off int64) error {
	n := len(b) - 4
	if n < 0 {
		return f.Damaged(off, "the %d bytes here have no room for their checksum", len(b))
	}
	return f.sameSum(b, off, le.Uint32(b[n:]), checksum(b[:n]))
}

// sameSum says of a block with a wrong checksum how long it is, and both sums.
func (f *File) sameSum(b []byte, off int64, stored, computed uint32) error {
	if stored == computed {
		return nil
	}
	return f.Damaged(off, "the checksum of the %d bytes here is %08x, but should be %08x", len(b), stored, computed)
}

// cursor reads the contents of a block; beyond its end it reads zeros, and is short.
type cursor struct {
	b     []byte
	off   int64 // of b in the file
	at    int
	short bool
}

func (c *cursor) bytes(n int) []byte {
	if n < 0 || n > len(c.b)-c.at {
		c.short, c.at = true, len(c.b)
		return nil
	}
	c.at += n
	return c.b[c.at-n : c.at : c.at]
}

func (c *cursor) skip(n int) { c.bytes(n) }

// uint is an unsigned number of n bytes, eight at most.
func (c *cursor) uint(n int) uint64 {
	v := uint64(0)
	for i, b := range c.bytes(n) {
		v |= uint64(b) << (8 * i)
	}
	return v
}

func (c *cursor) u8() uint8   { return uint8(c.uint(1)) }
func (c *cursor) u16() uint16 { return uint16(c.uint(2)) }
func (c *cursor) u32() uint32 { return uint32(c.uint(4)) }
func (c *cursor) u64() uint64 { return c.uint(8) }

// left is how many bytes have not been read yet.
func (c *cursor) left() int { return len(c.b) - c.at }

// here is the offset in the file of what is read next.
func (c *cursor) here() int64 { return c.off + int64(c.at) }

// text is what precedes the next zero, which is read too.
func (c *cursor) text() string {
	for i, b := range c.b[c.at:] {
		if b == 0 {
			return string(c.bytes(i + 1)[:i])
		}
	}
	c.short = true
	return ""
}
