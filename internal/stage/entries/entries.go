// Package entries keeps the entry points of JPEGs from one epoch to the next, and for other
// processes: places in a picture's scan where decoding can begin (kernel.Point). The first
// decode of a picture passes some of them and learns them; later ones leap over what they
// do not show.
//
// A record belongs to where the picture's bytes are stored, and holds for as long as the
// version of that file and the picture's fingerprint do. Nothing wrong can come of one:
// package kernel compares the points that it passes. Records are facts of stage/facts, which
// is a cache: none of them has to be there.
package entries

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/stage/facts"
	"github.com/stoker-data/stoker/internal/stage/index"
)

// Spacing is the distance of entry points in bytes of a scan: closer ones save less than a
// percent more, and take more than 1 % of the data (docs/decisions/entry-points.md).
const Spacing = 850

// Least is the size in bytes of a JPEG that is worth a record.
const Least = 8 << 10

// kind names the store's files.
const kind = "entries"

// Store is the records of one dataset; safe for concurrent use.
type Store struct {
	facts  *facts.Store
	beside *facts.Store      // that came with the data; nil: none did
	there  map[uint64]uint64 // Key.File here -> in beside
	all    sync.Once         // AheadAll

	pictures, known, wrong, learned, mcus, leapt atomic.Int64
}

// leastLimit is for data so small that a hundredth of it is not worth counting.
const leastLimit = 1 << 20

// usualLimit is the most that the records of one dataset take, in bytes, unless the user
// says otherwise. A hundredth of the data is another limit.
const usualLimit = 4 << 30

// Folder is where the records of the data of an index are, beside it, and what they may take
// at most, in bytes. limit 0: the usual one. "": the index is not kept, so nothing is.
func Folder(x *index.Index, limit int64) (dir string, most int64) {
	if x.Path() == "" {
		return "", 0
	}
	data := int64(0)
	for i := range x.Files() {
		size, _ := x.Stamp(i)
		data += size
	}
	return strings.TrimSuffix(x.Path(), ".idx") + ".facts", min(cmp.Or(limit, usualLimit), max(data/100, leastLimit))
}

// what is what the facts are, for messages.
const what = "entry points of JPEGs"

// Options are how records are opened.
type Options struct {
	// Limit is what they may take at most, in bytes, unless a hundredth of the data is less;
	// 0: the usual limit.
	Limit int64
	// Beside is where an index that travels with the data is, or would be; "": nowhere. nil:
	// what came with the data is not used.
	Beside func(*index.Index) string
	// Notice and Named are those of facts.Options.
	Notice func(string)
	Named  bool
}

// Open opens the records of the data of an index, in a folder that is made if it is missing,
// and those that came with the data; nil: the index is not kept, so nothing is. Errors: see
// facts.Open.
func Open(x *index.Index, o Options) (*Store, error) {
	dir, limit := Folder(x, o.Limit)
	if dir == "" {
		return nil, nil
	}
	all := facts.Options{
		What: what, Limit: limit, Notice: o.Notice, Named: o.Named,
		Holds: func() func(uint64) bool { return holds(x) },
	}
	f, err := facts.Open(dir, kind, all)
	if err != nil {
		return nil, err
	}
	s := &Store{facts: f}
	if err := s.join(x, o.Beside, all); err != nil && o.Named {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// holds says of which files records hold: those of the index, in the versions that it has. It
// is a Bloom filter of 2 bytes for each file, which keeps one in 400 of the others.
func holds(x *index.Index) func(file uint64) bool {
	words := make([]uint64, x.Files()/4+1)
	each := func(key uint64, do func(word *uint64, bit uint64)) {
		for range 4 {
			key = bits.RotateLeft64(key, 16)
			do(&words[key>>6%uint64(len(words))], 1<<(key&63))
		}
	}
	var path []byte
	for file := range x.Files() {
		var key uint64
		key, path = FileOf(x, file, path)
		each(key, func(word *uint64, bit uint64) { *word |= bit })
	}
	return func(file uint64) bool {
		all := true
		each(file, func(word *uint64, bit uint64) { all = all && *word&bit != 0 })
		return all
	}
}

// Facts is where the records are.
func (s *Store) Facts() *facts.Store { return s.facts }

// Close writes what was learned.
func (s *Store) Close() error {
	if s.beside != nil {
		_ = s.beside.Close()
	}
	return s.facts.Close()
}

// Counts is what was done since it was opened.
func (s *Store) Counts() stats.Entries {
	f := s.facts.Counts()
	c := stats.Entries{
		Pictures: s.pictures.Load(), Known: s.known.Load(), Wrong: s.wrong.Load(), Learned: s.learned.Load(),
		MCUs: s.mcus.Load(), Leapt: s.leapt.Load(), Stored: f.Found, Bytes: f.Bytes,
	}
	if s.beside != nil {
		b := s.beside.Counts()
		c.Stored, c.Bytes = max(c.Stored, b.Found-1), c.Bytes+b.Bytes
	}
	return c
}

// FileKey names a stored file and its version, for At and Ahead.
func FileKey(path []byte, version string) uint64 {
	var d xxhash.Digest
	d.Reset()
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(len(path)))
	_, _ = d.Write(n[:])
	_, _ = d.Write(path)
	_, _ = d.WriteString(version)
	return d.Sum64()
}

// FileOf is FileKey of a file of an index. buf is memory for its path, which is returned.
func FileOf(x *index.Index, file int, buf []byte) (key uint64, _ []byte) {
	buf = x.AppendPath(file, buf[:0])
	_, version := x.Stamp(file)
	return FileKey(buf, version), buf
}

// Offset is where a picture is stored in its file, for At and Record: -1 if it came out of
// packed bytes at off, of which there are others.
func Offset(off int64, unpacked bool) int64 {
	if unpacked {
		return -1
	}
	return off
}

// Ahead brings the record of the n bytes at off of a file into memory.
func (s *Store) Ahead(file uint64, off, n int64) {
	s.facts.Ahead(facts.Key{File: file, Offset: off, Length: n})
	if there, ok := s.there[file]; ok {
		s.beside.Ahead(facts.Key{File: there, Offset: off, Length: n})
	}
}

// AheadAll begins to bring all records into memory, at the first call: for samples of which it
// is not known where their pictures are. It does not wait.
func (s *Store) AheadAll() {
	s.all.Do(func() {
		s.facts.AheadAll()
		if s.beside != nil {
			s.beside.AheadAll()
		}
	})
}

// Lane is how one goroutine uses the records, one sample after the other. It keeps its
// buffers.
type Lane struct {
	store *Store
	file  uint64
	off   int64

	jpeg   []byte // of the record that is loaded; nil: none is
	key    facts.Key
	print  uint64
	raw    []byte
	points []kernel.Point
	given  kernel.Entries
	fresh  int  // points that are not in the store
	wrong  bool // what is in the store is to be replaced

	tally stats.Entries // not yet added to the store's
}

// At says where the next JPEGs come from: off is the offset in bytes of the first; store nil:
// nothing is known or learned of them. It ends the sample before.
func (l *Lane) At(store *Store, file uint64, off int64) {
	if l.store == store && l.file == file && l.off == off {
		return
	}
	l.End()
	if l.store != store {
		l.Flush()
	}
	l.store, l.file, l.off = store, file, off
}

// Of is what is known about a JPEG, for one job; nil: nothing is, nor learned.
func (l *Lane) Of(jpeg []byte) *kernel.Entries {
	if l.store == nil || len(jpeg) < Least {
		return nil
	}
	if !mem.Same(l.jpeg, jpeg) {
		l.keep()
		if !l.load(jpeg) {
			return nil
		}
	}
	l.given = kernel.Entries{Known: l.points, Spacing: Spacing}
	return &l.given
}

func (l *Lane) load(jpeg []byte) bool {
	l.jpeg, l.points, l.fresh, l.wrong = nil, l.points[:0], 0, false
	if l.print = kernel.Fingerprint(jpeg); l.print == 0 {
		return false
	}
	l.jpeg, l.key = jpeg, keyOf(l.file, l.off, jpeg, l.print)
	l.tally.Pictures++
	var ok bool
	if l.raw, ok = l.store.appendRecord(l.raw[:0], l.key); !ok {
		return true
	}
	if l.points, ok = parseRecord(l.points, l.raw, l.print); ok {
		l.tally.Known++
		return true
	}
	l.points, l.wrong = l.points[:0], true
	l.tally.Wrong++
	return true
}

// ErrKnown is Record's of a picture of which the store has all points.
var ErrKnown = errors.New("all its entry points are known")

// Record is the record of a JPEG that is stored at off of a file, with all its points, or with
// those up to where it is damaged, which is an error too; nil: it has none. Errors: ErrKnown,
// and those of kernel.Lane.Points.
func (s *Store) Record(k *kernel.Lane, file uint64, off int64, jpeg []byte) (key facts.Key, record []byte, err error) {
	print := kernel.Fingerprint(jpeg)
	if len(jpeg) < Least || print == 0 {
		return key, nil, nil
	}
	key = keyOf(file, off, jpeg, print)
	if old, known := s.facts.Append(nil, key); known && isAll(old, print) {
		return key, nil, ErrKnown
	}
	points, err := k.Points(jpeg, Spacing)
	if len(points) == 0 {
		return key, nil, err
	}
	record, ok := appendRecord(nil, print, points)
	if !ok {
		return key, nil, err
	}
	if err == nil {
		setAll(record)
	}
	return key, record, err
}

func keyOf(file uint64, off int64, jpeg []byte, print uint64) facts.Key {
	if off < 0 { // its bytes are stored in another form
		off = int64(print | 1<<63)
	}
	return facts.Key{File: file, Offset: off, Length: int64(len(jpeg))}
}

// Learn takes what a job has found, from what Of returned.
func (l *Lane) Learn(e *kernel.Entries) {
	l.tally.Leapt += int64(e.Leapt)
	l.tally.MCUs += int64(e.Reached)
	if e.Wrong {
		l.tally.Wrong++
		l.points, l.fresh, l.wrong = l.points[:0], 0, true
	}
	if len(e.Found) == 0 {
		return
	}
	sorted := len(l.points) == 0 || l.points[len(l.points)-1].MCU < e.Found[0].MCU
	l.points = append(l.points, e.Found...)
	l.fresh += len(e.Found)
	if !sorted {
		slices.SortFunc(l.points, func(a, b kernel.Point) int { return int(int64(a.MCU) - int64(b.MCU)) })
	}
}

// worth is the share of a record's points that must be new for it to be written again.
const worth = 1.0 / 32

// keep stores the record that is loaded, if it has grown.
func (l *Lane) keep() {
	if l.jpeg == nil || !l.wrong && (l.fresh == 0 || float64(l.fresh) < worth*float64(len(l.points))) {
		return
	}
	l.fresh, l.wrong = 0, false
	var ok bool
	if l.raw, ok = appendRecord(l.raw[:0], l.print, l.points); ok {
		l.store.facts.Put(l.key, l.raw)
		l.tally.Learned++
	}
}

// End ends the sample: its memory is not read any more.
func (l *Lane) End() {
	if l.jpeg == nil {
		return
	}
	l.keep()
	l.jpeg = nil
	if l.tally.Pictures >= together {
		l.Flush()
	}
}

// together is how many pictures a lane counts before it adds them to its store, whose counts
// all lanes share.
const together = 16

// Flush adds what the lane has counted to its store's counts.
func (l *Lane) Flush() {
	if l.store == nil || l.tally == (stats.Entries{}) {
		return
	}
	s, t := l.store, &l.tally
	s.pictures.Add(t.Pictures)
	s.known.Add(t.Known)
	s.wrong.Add(t.Wrong)
	s.learned.Add(t.Learned)
	s.mcus.Add(t.MCUs)
	s.leapt.Add(t.Leapt)
	*t = stats.Entries{}
}
