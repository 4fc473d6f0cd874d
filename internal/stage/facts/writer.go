package facts

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// writer is what the store's goroutine owns. It empties the queue into the part of this
// process, has parts sealed and files merged by a goroutine each, one at a time, so that
// a slow disk's syncs do not keep the queue full, and looks for files of others.
type writer struct {
	*Store
	part     *part
	stamp    uint64
	old      []byte // of write
	slots    []slot // for the next part
	full     bool   // the limit was reached: new keys are refused until there is room again
	squeezed bool   // all files were merged since

	sealing *part // by the other goroutine
	sealed  chan sealedPart

	merging bool
	merged  chan mergeResult
	noMerge bool // not in this process any more
	stop    context.CancelFunc
	ctx     context.Context

	files   map[string]*segment
	ignored map[string]bool // files that are not used; true: a merge may take over what is whole in them
	unread  bool            // one could not be opened, for another reason than its bytes: the next look tries again
	parts   []leftover      // of others
	seen    found           // by the last look
	bytes   int64           // of the folder's files
}

// part is a file that is being written.
type part struct {
	file
	slots    []slot // of its records, in their order
	size     int64
	born     time.Time
	replaces bool // a record replaces one that was found: until the part is sealed, nothing is known
}

// newer says whether the part may have a newer version of a fact that is found.
func (p *part) newer() bool { return p != nil && p.replaces }

// toCome is what sealing the part adds to it, in bytes.
func (p *part) toCome() int64 {
	if p == nil {
		return 0
	}
	return int64(len(p.slots))*2*slotLen + footerLen
}

type sealedPart struct {
	g   *segment
	err error
}

func newWriter(s *Store) *writer {
	w := &writer{
		Store: s, files: make(map[string]*segment), ignored: make(map[string]bool),
		sealed: make(chan sealedPart, 1), merged: make(chan mergeResult, 1),
	}
	w.ctx, w.stop = context.WithCancel(context.Background())
	return w
}

func (w *writer) run() {
	tick, look := time.NewTicker(w.lim.tick), time.NewTicker(w.lim.look)
	defer tick.Stop()
	defer look.Stop()
	defer w.end()
	w.plan()
	for {
		select {
		case <-w.wake:
			w.drain()
		case <-tick.C:
			w.drain()
			if w.part != nil && time.Since(w.part.born) >= w.lim.age {
				w.seal()
			}
		case <-look.C:
			w.look(false)
			w.plan()
		case p := <-w.sealed:
			w.use(p)
		case m := <-w.merged:
			w.mergeEnded(m)
		case a := <-w.asks:
			w.flush()
			if a.merge {
				w.mergeAll()
			}
			a.reply <- w.problem()
		case <-w.quit:
			w.stop()
			w.flush()
			return
		}
	}
}

// end is the last thing that a writer does.
func (w *writer) end() {
	w.stop()
	if w.merging {
		<-w.merged
	}
	w.publish(nil)
	for _, g := range w.files {
		g.release()
	}
	w.mu.Lock() // no put takes a buffer any more
	for _, buf := range w.spare {
		_ = unix.Munmap(buf)
	}
	w.spare, w.closed = nil, true
	w.mu.Unlock()
	close(w.done)
}

func (w *writer) flush() {
	w.drain()
	w.seal()
	w.settle()
}

// drain writes what is queued to the part.
func (w *writer) drain() {
	w.mu.Lock()
	buf := w.queue
	w.queue = nil
	w.mu.Unlock()
	if len(buf) > 0 {
		w.write(buf)
	}
	w.mu.Lock()
	if buf != nil {
		w.spare = append(w.spare, buf[:cap(buf)])
	}
	w.mu.Unlock()
	signal(w.room)
}

// write moves the records that are to be kept to the front of buf, and writes them.
func (w *writer) write(buf []byte) {
	kept, facts := int64(0), 0
	for off := int64(0); off < int64(len(buf)); {
		n := int64(le.Uint32(buf[off+4:]))
		rec, room := buf[off:off+recordHead+n], recordHead+align8(n)
		off += room
		var known bool
		w.old, known = w.Append(w.old[:0], keyOf(rec))
		switch {
		case known && bytes.Equal(w.old, rec[recordHead:]) && !w.part.newer() && !w.sealing.newer():
			w.n.known.Add(1)
		case !w.fits(room+2*slotLen, known):
			w.n.refused.Add(1)
			if !w.squeezed || w.merging { // what was replaced may give room
				break
			}
			w.tell("limit", errs.New(errs.Space, "%s fill their limit of %d bytes: those of other samples are not kept", w.opt.What, w.opt.Limit).At(errs.Where{File: w.d.dir}))
		case !w.begin():
			w.n.dropped.Add(1)
		default:
			w.part.replaces = w.part.replaces || known
			w.stamp = max(uint64(time.Now().UnixNano()), w.stamp+1)
			finish(rec, w.stamp, w.seed)
			w.part.slots = append(w.part.slots, slot{hash(rec), placeOf(w.part.size+kept, int(n))})
			copy(buf[kept:], buf[off-room:off])
			kept, facts = kept+room, facts+1
			w.bytes += room + 2*slotLen
		}
	}
	if kept == 0 {
		return
	}
	if _, err := w.part.Write(buf[:kept]); err != nil {
		w.fail(err, facts)
		return
	}
	w.n.put.Add(int64(facts))
	w.n.bytes.Store(w.bytes)
	if w.part.size += kept; w.part.size >= w.lim.bytes || len(w.part.slots) >= w.lim.facts {
		w.seal()
	}
}

// fits says whether the limit leaves room for so many bytes. One that replaces another
// may exceed it by an eighth: a merge gives that back.
func (w *writer) fits(n int64, replaces bool) bool {
	if w.part == nil {
		n += headerLen + footerLen
	}
	limit := w.opt.Limit
	w.full = w.full || w.bytes+n > limit
	if replaces {
		return w.bytes+n <= limit+limit/8
	}
	return !w.full
}

// begin makes a part if there is none; false: nothing can be written.
func (w *writer) begin() bool {
	if w.failed || w.part != nil {
		return !w.failed
	}
	err := errLocked
	for try := 0; errors.Is(err, errLocked) && try < 100; try++ { // taken over before it was locked
		var f file
		if f, err = w.d.create(w.kind, partExt); err == nil {
			if err = w.d.own(f); err != nil {
				_ = f.f.Close()
				continue
			}
			w.part = &part{file: f, born: time.Now(), size: headerLen, slots: w.slots}
			w.slots = nil
			w.bytes += headerLen + footerLen
			_, err = w.part.Write(header(w.kind))
		}
	}
	if err != nil {
		w.fail(err, 0)
	}
	return err == nil
}

// lose counts facts that were put and are not kept; written of them were counted as put.
func (w *writer) lose(n, written int) {
	w.n.dropped.Add(int64(n))
	w.n.put.Add(-int64(written))
}

// fail ends writing in this process: a disk that is full or fails gets no more to do. The
// last unwritten facts of the part were not counted yet.
func (w *writer) fail(err error, unwritten int) {
	if w.part != nil {
		w.lose(len(w.part.slots), len(w.part.slots)-unwritten)
		_ = w.part.f.Close()
		_ = w.d.remove(w.part.name)
		w.part = nil
	}
	w.mu.Lock()
	w.failed = true
	w.mu.Unlock()
	w.report("write", w.d.dir, err)
}

// seal has the part sealed by another goroutine. If that is still at the last one, it
// waits: the queue fills then, and what does not fit is dropped.
func (w *writer) seal() {
	w.settle()
	p := w.part
	if p == nil {
		return
	}
	w.part, w.sealing = nil, p
	go func() {
		g, err := w.sealPart(p)
		w.sealed <- sealedPart{g, err}
	}()
}

// settle waits until the part that is being sealed is.
func (w *writer) settle() {
	if w.sealing != nil {
		w.use(<-w.sealed)
	}
}

// use makes the facts of a sealed part found.
func (w *writer) use(p sealedPart) {
	lost := len(w.sealing.slots)
	w.slots = w.sealing.slots[:0]
	name := w.sealing.name
	w.sealing = nil
	switch {
	case errors.Is(p.err, errMerged):
		w.look(true)
	case errors.Is(p.err, fs.ErrNotExist):
		w.lose(lost, lost) // somebody removed the part, or took it over
	case p.err != nil:
		w.lose(lost, lost)
		_ = w.d.remove(name)
		w.fail(p.err, 0)
	default:
		if w.files[p.g.name] != nil { // the last look found it
			p.g.release()
			return
		}
		w.files[p.g.name] = p.g
		w.republish()
		w.plan()
	}
}

// sealPart writes the table of a part and gives it its final name.
func (w *writer) sealPart(p *part) (*segment, error) {
	defer p.f.Close()
	if err := p.end(w.seed); err != nil {
		return nil, err
	}
	name, err := w.d.publish(p.file)
	if err != nil {
		return nil, err
	}
	g, err := openSegment(w.d, name, w.kind, w.seed)
	if errors.Is(err, fs.ErrNotExist) {
		err = errMerged
	}
	return g, err
}

// end writes the table and the footer of a part.
func (p *part) end(seed uint32) error {
	buf := bufio.NewWriterSize(p, 4<<10)
	t := newTable(buf, int64(len(p.slots)), seed)
	slots, err := p.sorted()
	if err != nil {
		return err
	}
	for _, s := range slots {
		t.put(s)
	}
	if err := t.end(); err != nil {
		return err
	}
	t.table = p.size
	_, _ = buf.Write(t.footer(seed))
	return buf.Flush()
}

// errMerged is sealPart's if another process has merged the file already.
var errMerged = errors.New("merged")

// sorted sorts the slots of a part, and drops those of records that a later one replaces.
func (p *part) sorted() ([]slot, error) {
	slots := p.slots
	slices.SortFunc(slots, func(a, b slot) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), -cmp.Compare(a.place, b.place)) // the newest first
	})
	kept := slots[:0]
	var same []Key // of the hash, in kept
	for i, s := range slots {
		if i == 0 || s.hash != slots[i-1].hash {
			same = same[:0]
		}
		if i+1 < len(slots) && slots[i+1].hash == s.hash || len(same) > 0 {
			var head [recordHead]byte
			off, _ := s.record()
			if _, err := p.f.ReadAt(head[:], off); err != nil {
				return nil, err
			}
			if slices.Contains(same, keyOf(head[:])) {
				continue
			}
			same = append(same, keyOf(head[:]))
		}
		kept = append(kept, s)
	}
	return kept, nil
}

// republish makes the files that are known the ones in which facts are looked up.
func (w *writer) republish() {
	segs := slices.SortedFunc(maps.Values(w.files), func(a, b *segment) int {
		return cmp.Or(-cmp.Compare(a.facts, b.facts), cmp.Compare(a.name, b.name)) // where most are first
	})
	w.publish(segs)
	w.n.files.Store(int64(len(segs)))
}

// look finds files of other processes, if the folder has changed. One that changed in
// the last seconds may change again without another time.
func (w *writer) look(always bool) {
	if !always && !w.unread && len(w.parts) == 0 && time.Since(time.Unix(0, w.seen.mtime)).Abs() > 5*time.Second {
		if mtime, err := w.d.mtime(); err != nil || mtime == w.seen.mtime {
			return
		}
	}
	var l found
	changed, vanished := false, true
	for try := 0; vanished && try < 5; try++ { // what vanishes was merged, into another one
		var err error
		w.unread = false
		if l, err = w.d.list(w.kind); err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				w.report("write", w.d.dir, err)
			}
			return
		}
		vanished = false
		for _, name := range l.files {
			if _, ignored := w.ignored[name]; w.files[name] == nil && !ignored {
				added := w.add(name)
				_, ignored = w.ignored[name]
				changed, vanished = changed || added, vanished || !added && !ignored && !w.unread
			}
		}
	}
	there := make(map[string]bool)
	for _, p := range l.parts {
		there[p.name] = true
	}
	for _, name := range l.files {
		there[name] = true
	}
	for name, g := range w.files {
		if !there[name] || g.broken.Load() {
			delete(w.files, name)
			w.ignored[name] = false
			g.release()
			changed = true
		}
	}
	for name := range w.ignored {
		if !there[name] {
			delete(w.ignored, name)
		}
	}
	w.seen, w.bytes = l, l.bytes+w.part.toCome()+w.sealing.toCome()
	if w.bytes < w.opt.Limit-w.opt.Limit/16 {
		w.full, w.squeezed = false, false
	}
	w.n.bytes.Store(w.bytes)
	w.parts = slices.DeleteFunc(l.parts, func(p leftover) bool {
		_, ignored := w.ignored[p.name]
		return ignored || w.part != nil && p.name == w.part.name || w.sealing != nil && p.name == w.sealing.name
	})
	if changed || always {
		w.republish()
	}
}

// add maps a file, if it is whole.
func (w *writer) add(name string) bool {
	g, err := openSegment(w.d, name, w.kind, w.seed)
	switch {
	case err == nil:
		w.files[name] = g
		return true
	case errors.Is(err, fs.ErrNotExist):
		return false // merged since it was listed
	}
	if isDamage(err) {
		w.ignored[name] = !errors.Is(err, errLater) && !errors.Is(err, errForeign)
		w.n.damaged.Add(1)
	} else {
		w.unread = true
	}
	w.report("damage", w.d.path(name), err)
	return false
}
