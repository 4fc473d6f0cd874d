package tar

import (
	"context"
	"errors"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format/compressed"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// endRead is how many bytes after the end are checked at a time.
const endRead = 1 << 20

// maxExtended bounds the body of an extended header: no allocation follows an
// unchecked number.
const maxExtended = 1 << 20

// shard is what indexing one shard found. Members are in the order of the file; sample
// i has the members first[i] to first[i+1]-1.
type shard struct {
	obj source.Info

	name  index.Texts // of members: as in the archive
	field []int32     // of members: number in fields
	off   []int64     // of members: of the body in the file, bytes
	size  []int64     // of members: of the body, bytes
	head  []int64     // of members: XXH64 of the header before the body

	first  []int64 // of samples, and one more
	keyLen []int32 // of samples: the key is that much of the first member's name

	fields  []string
	skipped int64 // members that are not data
	links   int64 // of them: hard links with the name of a field of a sample
	points  *compressed.Points
}

// scanner reads the headers of one shard, and of the bodies only what is in the same
// read.
type scanner struct {
	ctx context.Context
	obj source.Info
	win *compressed.Window
	out *shard
	off int64 // of the header that is looked at

	once, always pax    // of the next member; of all that follow
	long         string // GNU name of the next member
	pending      bool   // an extended header waits for its member

	key      string
	fieldNo  map[string]int32
	lastUse  []int64 // of fields: sample that had it last
	lastOff  []int64 // of fields: where
	progress func(off int64)
}

// scan indexes one shard, or says what is wrong with it.
func scan(ctx context.Context, src source.Source, obj source.Info, progress func(read int64)) (*shard, error) {
	win, err := compressed.NewWindow(ctx, src, obj)
	if err != nil {
		return nil, err
	}
	s := &scanner{
		ctx: ctx, obj: obj, win: win, out: &shard{obj: obj},
		fieldNo: make(map[string]int32), progress: progress,
	}
	for {
		done, err := s.next()
		if err != nil {
			return nil, err
		}
		if done {
			s.out.first = append(s.out.first, int64(len(s.out.off)))
			if s.out.points, err = win.Finish(); err != nil {
				return nil, err
			}
			return s.out, s.unique()
		}
	}
}

// unique says whether a key comes again, and where in the stored file.
func (s *scanner) unique() error {
	err := s.out.unique()
	if err == nil || !s.win.Compressed() {
		return err
	}
	e := *errs.From(err)
	at, note := s.win.Where(e.Where.Offset.Or(-1))
	e.Where.Offset, e.What = errs.Known(at), e.What+note
	return &e
}

// damaged is an error at an offset of the shard.
func (s *scanner) damaged(off int64, member, format string, a ...any) *errs.Error {
	at, note := s.win.Where(off)
	return errs.New(errs.Damaged, "the shard is damaged: "+format+"%s", append(a, note)...).
		At(errs.Where{Shard: s.obj.Name, Member: member, Offset: errs.Known(at)}).
		Try("fetch or write the shard again, or leave it out")
}

// next takes in one header and steps over its body. done: the archive ended as
// it should.
func (s *scanner) next() (done bool, err error) {
	h, err := s.win.Bytes(s.off, blockLen)
	if err != nil {
		return false, err
	}
	switch left := len(h); {
	case left == 0 && s.off == 0:
		return false, s.damaged(0, "", "the file is empty")
	case left == 0:
		return false, s.damaged(s.off, "", "the end of the archive is missing; it was cut after a member, and the number of missing members is unknown")
	case left < blockLen && s.off == 0:
		return false, s.notTar(h, errors.New("it ends inside a header"))
	case left < blockLen:
		return false, s.damaged(s.off, "", "it ends inside a header")
	}
	if zero(h) {
		return true, s.end()
	}
	b, err := decode(h)
	if err != nil {
		return false, s.notTar(h, err)
	}
	sum := int64(xxhash.Sum64(h))
	body := s.off + blockLen
	switch b.typ {
	case typePAX, typePAXSun, typePAXGlobal, typeLongName, typeLongLink:
		err = s.extended(b, body)
	default:
		err = s.member(&b, body, sum)
	}
	if err != nil {
		return false, err
	}
	return false, s.step(b, body)
}

// step continues after the body of b.
func (s *scanner) step(b block, body int64) error {
	n := b.bodyLen()
	have, err := s.win.Left(body, n)
	if err != nil {
		return err
	}
	if have < n {
		return s.damaged(body, b.name, "it ends inside this member, which has %d bytes; %d are there", n, have)
	}
	// A cut in the zeros that fill the last block is seen as a missing end.
	fill, err := s.win.Left(body+n, -n&(blockLen-1))
	if err != nil {
		return err
	}
	s.off = body + n + fill
	s.progress(s.win.At(s.off))
	return s.ctx.Err()
}

// end checks that the archive ends here: two blocks of zeros, and nothing but zeros
// after them.
func (s *scanner) end() error {
	if s.pending {
		return s.damaged(s.off, "", "it ends where the member of an extended header should be")
	}
	p, err := s.win.Bytes(s.off, 2*blockLen)
	if err != nil {
		return err
	}
	if len(p) < 2*blockLen {
		return s.damaged(s.off, "", "the end of the archive is missing; of its two blocks of zeros %d bytes are there", len(p))
	}
	for {
		p, err := s.win.Bytes(s.off, endRead)
		if err != nil {
			return err
		}
		for i, c := range p {
			if c != 0 {
				return s.damaged(s.off+int64(i), "", "there is something after its end; if archives were joined with cat, write them with tar --concatenate")
			}
		}
		s.off += int64(len(p))
		s.progress(s.win.At(s.off))
		if len(p) < endRead || s.ctx.Err() != nil {
			return s.ctx.Err()
		}
	}
}

// extended takes in the body of a header that speaks of the next member.
func (s *scanner) extended(b block, body int64) error {
	if b.size > maxExtended {
		return s.damaged(s.off, b.name, "an extended header of %d bytes", b.size)
	}
	p, err := s.win.Bytes(body, int(b.size))
	if err != nil {
		return err
	}
	if int64(len(p)) < b.size {
		return s.damaged(body, b.name, "it ends inside an extended header")
	}
	switch b.typ {
	case typeLongName:
		s.long, s.pending = text(p), true
	case typeLongLink:
		s.pending = true
	case typePAXGlobal:
		err = s.always.read(p)
	default:
		err, s.pending = s.once.read(p), true
	}
	if err != nil {
		return s.damaged(body, b.name, "%v", err)
	}
	return nil
}

// member takes in a member; b gets the name and size that count.
func (s *scanner) member(b *block, body, sum int64) error {
	for _, p := range []pax{s.always, s.once} {
		if p.hasPath {
			b.name = p.path
		}
		if p.hasSize {
			b.size = p.size
		}
	}
	if s.long != "" && !s.once.hasPath {
		b.name = s.long
	}
	sparse := s.once.sparse || s.always.sparse
	s.once, s.long, s.pending = pax{}, "", false
	switch b.typ {
	case typeSparse, typeMulti:
		sparse = true
	case typeRegular, typeOld, typeContiguous:
	default:
		s.out.skipped++
		if _, _, named := split(b.name); named && b.typ == typeHardLink {
			s.out.links++
		}
		return nil
	}
	if sparse {
		return errs.New(errs.Unsupported, "the shard has a sparse or divided member, which is not read").
			At(errs.Where{Shard: s.obj.Name, Member: b.name, Offset: errs.Known(s.off)}).Try("write the shard without --sparse and --multi-volume")
	}
	if why := hostile(b.name); why != "" {
		return s.damaged(s.off, b.name, "the name of a member %s", why)
	}
	key, field, ok := split(b.name)
	if !ok {
		s.out.skipped++
		return nil
	}
	return s.add(b, key, field, body, sum)
}

// add puts a member into the sample of its key, which is the one before it or a
// new one.
func (s *scanner) add(b *block, key, field string, body, sum int64) error {
	o := s.out
	if len(o.keyLen) == 0 || key != s.key {
		o.first = append(o.first, int64(len(o.off)))
		o.keyLen = append(o.keyLen, int32(len(key)))
		s.key = key
	}
	sample := int64(len(o.keyLen)) - 1
	no, known := s.fieldNo[field]
	if !known {
		no = int32(len(o.fields))
		s.fieldNo[field] = no
		o.fields = append(o.fields, field)
		s.lastUse, s.lastOff = append(s.lastUse, -1), append(s.lastOff, 0)
	}
	if s.lastUse[no] == sample {
		return s.damaged(s.off, b.name, "sample %q has the field %q twice, at offset %d and here", key, field, s.lastOff[no]).
			Try("the field name is what follows the first dot of a member's name, ignoring case; give every sample a unique name")
	}
	s.lastUse[no], s.lastOff[no] = sample, s.off
	o.name.AppendString(b.name)
	o.field = append(o.field, no)
	o.off = append(o.off, body)
	o.size = append(o.size, b.size)
	o.head = append(o.head, sum)
	return nil
}

// split applies WebDataset's rule: the key is the name up to the first dot of its last
// part, and the field is what follows that dot, in lower case. Members without a dot,
// hidden ones and those called __like_this__ are not data.
func split(name string) (key, field string, ok bool) {
	top, _, _ := strings.Cut(name, "/")
	if len(top) >= 4 && strings.HasPrefix(top, "__") && strings.HasSuffix(top, "__") {
		return "", "", false
	}
	base := strings.LastIndexByte(name, '/') + 1
	dot := strings.IndexByte(name[base:], '.')
	if dot <= 0 {
		return "", "", false
	}
	return name[:base+dot], strings.ToLower(name[base+dot+1:]), true
}

// hostile says what is wrong with a name that could be meant to escape from a folder.
// No name is ever used as a path here, but such a name is an attack or a mistake.
func hostile(name string) string {
	switch {
	case strings.HasPrefix(name, "/"):
		return "begins with /"
	case strings.IndexByte(name, 0) >= 0:
		return "has a zero byte in it"
	case strings.Contains("/"+name+"/", "/../"):
		return "has .. in it"
	}
	return ""
}

// notTar is the error for a header that cannot be read.
func (s *scanner) notTar(h []byte, err error) error {
	if s.off != 0 {
		return s.damaged(s.off, "", "cannot read a header: %v", err)
	}
	for _, m := range []struct{ magic, name, program string }{
		{"\xfd7zXZ\x00", "xz", "unxz"},
		{"BZh", "bzip2", "bunzip2"},
	} {
		if strings.HasPrefix(string(h), m.magic) {
			return errs.New(errs.Unsupported, "the shard is compressed with %s; samples in it cannot be reached without reading all before them", m.name).
				At(errs.Where{Shard: s.obj.Name, Offset: errs.Known(0)}).Try("decompress it once with %s, or compress it with gzip, zstd or lz4", m.program)
		}
	}
	return s.damaged(0, "", "cannot read its first header: %v", err).Try("check that this is a tar file, and whole")
}

func zero(p []byte) bool {
	for _, c := range p {
		if c != 0 {
			return false
		}
	}
	return true
}
