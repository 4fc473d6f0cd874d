package tar

import (
	"bytes"
	"context"
	"errors"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// maxExtended bounds the body of an extended header: no allocation follows an
// unchecked number.
const maxExtended = 1 << 20

// shard is what indexing one shard found. Members lie in the order of the file;
// sample i has the members first[i] to first[i+1]-1.
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
	skipped int64 // members that are no data
}

// scanner reads the headers of one shard, and of the bodies only what lies in
// the same read.
type scanner struct {
	ctx context.Context
	win window
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
func scan(ctx context.Context, src source.Source, obj source.Info, progress func(off int64)) (*shard, error) {
	s := &scanner{
		ctx: ctx, win: window{ctx: ctx, src: src, obj: obj}, out: &shard{obj: obj},
		fieldNo: make(map[string]int32), progress: progress,
	}
	for {
		done, err := s.next()
		if err != nil {
			return nil, err
		}
		if done {
			s.out.first = append(s.out.first, int64(len(s.out.off)))
			return s.out, s.out.unique()
		}
	}
}

// damaged is an error at an offset of the shard.
func (s *scanner) damaged(off int64, member, format string, a ...any) *errs.Error {
	return errs.New(errs.Damaged, "the shard is damaged: "+format, a...).
		At(errs.Where{Shard: s.win.obj.Name, Member: member, Offset: off, Sample: -1}).
		Try("fetch or write the shard again, or leave it out")
}

// next takes in one header and steps over its body. done: the archive ended as
// it should.
func (s *scanner) next() (done bool, err error) {
	left := s.win.obj.Size - s.off
	switch {
	case left == 0 && s.off == 0:
		return false, s.damaged(0, "", "the file is empty")
	case left == 0:
		return false, s.damaged(s.off, "", "the end of the archive is missing; it was cut behind a member, and nobody knows how many are gone")
	case left < blockLen && s.off == 0:
		h, err := s.win.read(0, int(left))
		if err != nil {
			return false, err
		}
		return false, s.notTar(h, errors.New("it ends inside a header"))
	case left < blockLen:
		return false, s.damaged(s.off, "", "it ends inside a header")
	}
	h, err := s.win.read(s.off, blockLen)
	if err != nil {
		return false, err
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

// step goes on behind the body of b.
func (s *scanner) step(b block, body int64) error {
	n := b.bodyLen()
	if n > s.win.obj.Size-body {
		return s.damaged(body, b.name, "it ends inside this member, which has %d bytes; %d are there", n, s.win.obj.Size-body)
	}
	// A cut in the zeros that fill the last block is seen as a missing end.
	s.off = min(body+n+(-n&(blockLen-1)), s.win.obj.Size)
	s.progress(s.off)
	return s.ctx.Err()
}

// end checks that the archive ends here: two blocks of zeros, and nothing but
// zeros behind them.
func (s *scanner) end() error {
	if s.pending {
		return s.damaged(s.off, "", "it ends where the member of an extended header should be")
	}
	if s.win.obj.Size-s.off < 2*blockLen {
		return s.damaged(s.off, "", "the end of the archive is missing; of its two blocks of zeros %d bytes are there", s.win.obj.Size-s.off)
	}
	for s.off < s.win.obj.Size {
		n := min(s.win.obj.Size-s.off, maxWindow)
		p, err := s.win.read(s.off, int(n))
		if err != nil {
			return err
		}
		if i := bytes.IndexFunc(p, func(r rune) bool { return r != 0 }); i >= 0 {
			return s.damaged(s.off+int64(i), "", "there is something behind its end; if archives were put together with cat, write them with tar --concatenate")
		}
		s.off += n
		s.progress(s.off)
	}
	return s.ctx.Err()
}

// extended takes in the body of a header that speaks of the next member.
func (s *scanner) extended(b block, body int64) error {
	if b.size > maxExtended {
		return s.damaged(s.off, b.name, "an extended header of %d bytes", b.size)
	}
	if b.size > s.win.obj.Size-body {
		return s.damaged(body, b.name, "it ends inside an extended header")
	}
	p, err := s.win.read(body, int(b.size))
	if err != nil {
		return err
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
		return nil
	}
	if sparse {
		return errs.New(errs.Unsupported, "the shard has a sparse or divided member, which is not read").
			At(errs.Where{Shard: s.win.obj.Name, Member: b.name, Offset: s.off, Sample: -1}).Try("write the shard without --sparse and --multi-volume")
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
			Try("field names are what follows the first dot of a member's name, without regard to case; give every sample a name of its own")
	}
	s.lastUse[no], s.lastOff[no] = sample, s.off
	o.name.AppendString(b.name)
	o.field = append(o.field, no)
	o.off = append(o.off, body)
	o.size = append(o.size, b.size)
	o.head = append(o.head, sum)
	return nil
}

// split is WebDataset's rule: the key is the name up to the first dot of its last
// part, the field is what follows that dot, in lower case. Members without a dot,
// hidden ones and those called __like_this__ are no data.
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

// hostile says what is wrong with a name that could be meant to leave a folder.
// No name is ever used as a path here; but whoever made it meant no good, or made
// a mistake.
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

// notTar is the error of a header that can not be read.
func (s *scanner) notTar(h []byte, err error) error {
	if s.off != 0 {
		return s.damaged(s.off, "", "a header can not be read: %v", err)
	}
	for _, m := range []struct{ magic, name, program string }{
		{"\x1f\x8b", "gzip", "gunzip"},
		{"\x28\xb5\x2f\xfd", "zstd", "unzstd"},
		{"\xfd7zXZ\x00", "xz", "unxz"},
		{"BZh", "bzip2", "bunzip2"},
	} {
		if strings.HasPrefix(string(h), m.magic) {
			return errs.New(errs.Unsupported, "the shard is compressed with %s; samples in it can not be reached without reading all before them", m.name).
				At(errs.Where{Shard: s.win.obj.Name, Offset: 0, Sample: -1}).Try("unpack it once with %s; pictures do not get smaller by it anyway", m.program)
		}
	}
	return s.damaged(0, "", "its first header can not be read: %v", err).Try("check that this is a tar file, and whole")
}

func zero(p []byte) bool {
	for _, c := range p {
		if c != 0 {
			return false
		}
	}
	return true
}

const (
	minWindow = 4 << 10
	maxWindow = 1 << 20
)

// window is the part of a shard that was read last. Small members lie many to a
// read; large ones are stepped over: reads grow as long as the next header is
// near, and shrink where it is far.
type window struct {
	ctx  context.Context
	src  source.Source
	obj  source.Info
	buf  []byte
	off  int64
	want int
}

// read is n bytes at off, which lie within the file; a view until the next read.
func (w *window) read(off int64, n int) ([]byte, error) {
	end := w.off + int64(len(w.buf))
	if off >= w.off && off+int64(n) <= end {
		return w.buf[off-w.off:][:n], nil
	}
	if off-end < 64<<10 {
		w.want = min(max(2*w.want, minWindow), maxWindow)
	} else {
		w.want = minWindow
	}
	size := int(min(int64(max(w.want, n)), w.obj.Size-off))
	if cap(w.buf) < size {
		w.buf = make([]byte, size)
	}
	w.buf, w.off = w.buf[:size], off
	if err := w.src.ReadAt(w.ctx, w.obj, w.buf, off); err != nil {
		w.buf = w.buf[:0]
		return nil, inShard(err)
	}
	return w.buf[:n], nil
}

// inShard calls the file of a source's error a shard.
func inShard(err error) error {
	e, ok := err.(*errs.Error)
	if ok && e.Where.Shard == "" {
		e.Where.Shard, e.Where.File = e.Where.File, ""
	}
	return err
}
