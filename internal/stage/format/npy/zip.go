package npy

import (
	"cmp"
	"context"
	"encoding/binary"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// The parts of a zip file (PKWARE, APPNOTE.TXT 6.3). NumPy writes every member
// with the 64-bit extension in its local header.
//
//	of every member: local header, name, extra, body
//	directory: of every member header, name, extra, comment
//	64-bit only: end of directory, 56 bytes; where that is, 20 bytes
//	end of directory, 22 bytes, comment
const (
	localMagic   = 0x04034b50
	entryMagic   = 0x02014b50
	endMagic     = 0x06054b50
	end64Magic   = 0x06064b50
	locatorMagic = 0x07064b50

	localLen   = 30
	entryLen   = 46
	endLen     = 22
	end64Len   = 56
	locatorLen = 20

	maxComment   = 1<<16 - 1
	maxDirectory = 4 << 20
)

// The methods of packing that are read.
const (
	stored   = 0
	deflated = 8
)

// zipMagic is what a zip file with a member begins with.
const zipMagic = "PK\x03\x04"

// deflateRatio is the most bytes that one byte of a deflate stream can stand for:
// a match of 258 bytes takes two bits.
const deflateRatio = 1032

// member is one member of a zip file, on which directory and local header agree.
type member struct {
	name       string
	method     uint16
	flags      uint16
	crc        uint32
	size       int64 // bytes, unpacked
	head       int64 // where its local header is
	body       int64 // where its data is
	compressed int64 // bytes of the data as stored
}

// zipFile reads the structure of a zip file while it is indexed.
type zipFile struct {
	ctx context.Context
	src source.Source
	obj source.Info
}

func (z *zipFile) read(off, n int64) ([]byte, error) {
	return format.Read(z.ctx, z.src, z.obj, off, n)
}

func (z *zipFile) damaged(off int64, what string, a ...any) *errs.Error {
	return errs.New(errs.Damaged, "the zip file is damaged: "+what, a...).
		At(errs.Where{Shard: z.obj.Name, Offset: errs.Known(off)}).Try("fetch or write the file again")
}

// members returns all members in the order of the directory. No member overlaps another
// or the directory, and no name occurs twice.
func (z *zipFile) members() ([]member, error) {
	at, n, count, err := z.directory()
	if err != nil {
		return nil, err
	}
	dir, err := z.read(at, n)
	if err != nil {
		return nil, err
	}
	var out []member
	names := make(map[string]bool)
	for p := dir; len(p) > 0; {
		off := at + n - int64(len(p))
		m, taken, err := z.entry(p, off)
		if err != nil {
			return nil, err
		}
		if names[m.name] {
			return nil, z.damaged(off, "there are two members %s", clip(m.name))
		}
		names[m.name] = true
		if err := z.local(&m, at); err != nil {
			return nil, err
		}
		out, p = append(out, m), p[taken:]
	}
	if int64(len(out)) != count {
		return nil, z.damaged(at, "its directory should have %d members, but has %d", count, len(out))
	}
	return out, z.apart(out)
}

// directory is where the directory is, its length and its number of members.
func (z *zipFile) directory() (at, n, count int64, err error) {
	look := min(z.obj.Size, endLen+maxComment)
	tail, err := z.read(z.obj.Size-look, look)
	if err != nil {
		return 0, 0, 0, err
	}
	i := len(tail) - endLen
	for ; i >= 0; i-- {
		if binary.LittleEndian.Uint32(tail[i:]) == endMagic && int(binary.LittleEndian.Uint16(tail[i+20:])) == len(tail)-i-endLen {
			break
		}
	}
	if i < 0 {
		return 0, 0, 0, z.damaged(z.obj.Size, "the directory at its end is missing: the file was cut off, or its writer never closed it")
	}
	end, p := z.obj.Size-look+int64(i), tail[i:]
	count = int64(binary.LittleEndian.Uint16(p[10:]))
	n, at = int64(binary.LittleEndian.Uint32(p[12:])), int64(binary.LittleEndian.Uint32(p[16:]))
	disks := binary.LittleEndian.Uint32(p[4:]) != 0
	if count == 0xffff || n == 0xffffffff || at == 0xffffffff {
		if at, n, count, end, err = z.directory64(end); err != nil {
			return 0, 0, 0, err
		}
	}
	switch {
	case disks:
		return 0, 0, 0, errs.New(errs.Unsupported, "the zip file is divided over several").At(errs.Where{Shard: z.obj.Name, Offset: errs.Known(end)}).Try("write it as one with numpy.savez")
	case at < 0 || n < 0 || count < 0 || at > end || n != end-at:
		return 0, 0, 0, z.damaged(end, "its directory should have %d bytes at %d, but what follows it is at %d", n, at, end)
	case count > n/entryLen:
		return 0, 0, 0, z.damaged(end, "a directory of %d members in %d bytes", count, n)
	case n > maxDirectory:
		return 0, 0, 0, errs.New(errs.Unsupported, "the zip file has %d members, in a directory of %d bytes; the limit is %d bytes", count, n, maxDirectory).
			At(errs.Where{Shard: z.obj.Name, Offset: errs.Known(at)}).Try("keep many samples as the rows of one array, not as an array each: numpy.stack")
	}
	return at, n, count, nil
}

// directory64 is directory by the 64-bit records, which end where the others begin.
func (z *zipFile) directory64(end int64) (at, n, count, begin int64, err error) {
	loc, err := z.read(end-locatorLen, locatorLen)
	if err != nil {
		return 0, 0, 0, 0, err
	}
	if binary.LittleEndian.Uint32(loc) != locatorMagic {
		return 0, 0, 0, 0, z.damaged(end-locatorLen, "the 64-bit end of its directory is missing")
	}
	begin = int64(binary.LittleEndian.Uint64(loc[8:]))
	p, err := z.read(begin, end64Len)
	if err != nil {
		return 0, 0, 0, 0, err
	}
	if binary.LittleEndian.Uint32(p) != end64Magic || begin > end-locatorLen-end64Len {
		return 0, 0, 0, 0, z.damaged(begin, "the 64-bit end of its directory is not where it should be")
	}
	le := binary.LittleEndian
	return int64(le.Uint64(p[48:])), int64(le.Uint64(p[40:])), int64(le.Uint64(p[32:])), begin, nil
}

// entry reads the entry of the directory that p begins with.
func (z *zipFile) entry(p []byte, off int64) (m member, taken int, err error) {
	if len(p) < entryLen || binary.LittleEndian.Uint32(p) != entryMagic {
		return m, 0, z.damaged(off, "an entry of its directory should be here")
	}
	le := binary.LittleEndian
	name, extra, comment := int(le.Uint16(p[28:])), int(le.Uint16(p[30:])), int(le.Uint16(p[32:]))
	if taken = entryLen + name + extra + comment; taken > len(p) {
		return m, 0, z.damaged(off, "an entry of its directory is cut off")
	}
	m = member{
		name: string(p[entryLen : entryLen+name]), flags: le.Uint16(p[8:]), method: le.Uint16(p[10:]), crc: le.Uint32(p[16:]),
		compressed: int64(le.Uint32(p[20:])), size: int64(le.Uint32(p[24:])), head: int64(le.Uint32(p[42:])),
	}
	if !utf8.ValidString(m.name) || strings.ContainsRune(m.name, 0) {
		return m, 0, z.damaged(off, "the name %s of a member is not UTF-8", clip(m.name))
	}
	if !wide(p[entryLen+name:][:extra], &m.size, &m.compressed, &m.head) {
		return m, 0, z.damaged(off, "the 64-bit numbers of the member %s are missing", clip(m.name))
	}
	return m, taken, nil
}

// wide replaces the numbers that did not fit into 32 bits by those of the 64-bit
// extra field, which has them in this order; false: it has not.
func wide(extra []byte, numbers ...*int64) bool {
	var field []byte
	for len(extra) >= 4 {
		n := int(binary.LittleEndian.Uint16(extra[2:]))
		if 4+n > len(extra) {
			break
		}
		if binary.LittleEndian.Uint16(extra) == 1 {
			field = extra[4 : 4+n]
			break
		}
		extra = extra[4+n:]
	}
	for _, v := range numbers {
		if *v != 0xffffffff {
			continue
		}
		if len(field) < 8 {
			return false
		}
		*v, field = int64(binary.LittleEndian.Uint64(field)), field[8:]
	}
	return true
}

// local reads a member's local header and holds it against the directory, which
// begins at dir.
func (z *zipFile) local(m *member, dir int64) error {
	if m.head < 0 || m.head > dir-localLen {
		return z.damaged(max(m.head, 0), "the member %s should begin here, but the directory begins at %d", clip(m.name), dir)
	}
	p, err := z.read(m.head, localLen)
	if err != nil {
		return err
	}
	le := binary.LittleEndian
	name, extra := int64(le.Uint16(p[26:])), int64(le.Uint16(p[28:]))
	m.body = m.head + localLen + name + extra
	if le.Uint32(p) != localMagic || m.body > dir || m.compressed < 0 || m.compressed > dir-m.body || m.size < 0 {
		return z.damaged(m.head, "the member %s should begin here and have %d bytes", clip(m.name), m.compressed)
	}
	rest, err := z.read(m.head+localLen, name+extra)
	if err != nil {
		return err
	}
	size, compressed := int64(le.Uint32(p[22:])), int64(le.Uint32(p[18:]))
	ok := le.Uint16(p[8:]) == m.method && string(rest[:name]) == m.name
	// A writer that could not seek back leaves zeros here and the numbers after the
	// body.
	if m.flags&8 == 0 {
		ok = ok && wide(rest[name:], &size, &compressed) && size == m.size && compressed == m.compressed && le.Uint32(p[14:]) == m.crc
	}
	if !ok {
		return z.damaged(m.head, "the header of the member %s does not match the directory", clip(m.name))
	}
	return nil
}

// apart detects members that overlap one another.
func (z *zipFile) apart(list []member) error {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b member) int { return cmp.Compare(a.head, b.head) })
	for i := 1; i < len(list); i++ {
		if a, b := list[i-1], list[i]; b.head < a.body+a.compressed {
			return z.damaged(b.head, "the members %s and %s overlap", clip(a.name), clip(b.name))
		}
	}
	return nil
}

// readable says what is wrong with a member whose bytes are wanted.
func (z *zipFile) readable(m member, limit int64) error {
	at := errs.Where{Shard: z.obj.Name, Member: m.name, Offset: errs.Known(m.head)}
	switch {
	case m.flags&1 != 0:
		return errs.New(errs.Unsupported, "the array is encrypted").At(at).Try("write it with numpy.savez")
	case m.method == stored && m.size == m.compressed:
		return nil
	case m.method == stored:
		return z.damaged(m.head, "the member %s has %d bytes, but should have %d", clip(m.name), m.compressed, m.size)
	case m.method != deflated:
		return errs.New(errs.Unsupported, "the array is compressed with method %d of zip; deflate can be read", m.method).At(at).Try("write it with numpy.savez_compressed, or numpy.savez")
	case m.size > m.compressed*deflateRatio:
		return z.damaged(m.head, "the member %s claims %d bytes, more than its %d can expand to", clip(m.name), m.size, m.compressed)
	case m.size > limit:
		return errs.New(errs.Unsupported, "the array has %d bytes and is compressed as one piece, which must be decompressed whole; the limit is %d", m.size, limit).At(at).
			Try("save it with numpy.savez or numpy.save, which do not compress it; or raise the limit")
	}
	return nil
}
