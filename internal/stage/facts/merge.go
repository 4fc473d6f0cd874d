package facts

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	// maxInputs bounds the memory of one merge.
	maxInputs = 64
	// maxRescued bounds the facts that are taken over from one file: more than any dataset
	// has, in 64 MiB of memory. Of a merged file whose table is damaged, all are.
	maxRescued = 4 << 20
	// stride is how far ahead a merge reads, and after how many bytes it syncs, so that
	// it never keeps much memory waiting for the disk.
	stride = 32 << 20
	// sweepAge is when a merge that did not end is removed: its process has died, or its
	// machine, on file systems whose locks end at the machine.
	sweepAge = time.Hour
)

// class groups files by size: four times as many bytes are the next one.
func class(size int64) int { return bits.Len64(uint64(size)>>16) / 2 }

// plan starts a merge if there are enough files of one class, or something that
// processes left. Smaller files are merged with them: they cost little.
func (w *writer) plan() {
	if w.merging || w.noMerge || w.failed || w.ctx.Err() != nil {
		return
	}
	var count [64]int
	for _, g := range w.files {
		count[class(g.size)]++
	}
	top := -1
	for c, n := range count {
		if n >= w.lim.fan {
			top = c
		}
	}
	squeeze := w.full && (!w.squeezed || w.bytes > w.opt.Limit+w.opt.Limit/16)
	if squeeze {
		top, w.squeezed = len(count), true // facts that were replaced, or hold no more, give back their room
	}
	w.start(top, squeeze)
}

// start merges all files up to a class, and what was left. If there is nothing to merge, it
// removes merges that did not end: they may be as large as all facts. squeeze: facts that hold
// no more are dropped.
func (w *writer) start(top int, squeeze bool) {
	var inputs []*segment
	for _, g := range w.files {
		if class(g.size) <= top && !g.broken.Load() {
			inputs = append(inputs, g)
		}
	}
	slices.SortFunc(inputs, func(a, b *segment) int { return cmp.Compare(a.size, b.size) })
	inputs = inputs[:min(len(inputs), maxInputs)]
	var left []string
	for _, p := range w.parts {
		if p.age >= w.lim.orphan {
			left = append(left, p.name)
		}
	}
	for name, ours := range w.ignored {
		if ours && len(left) < maxInputs {
			left = append(left, name)
		}
	}
	squeeze = squeeze && w.opt.Holds != nil && len(inputs) > 0
	old := slices.ContainsFunc(w.seen.tmps, leftover.sweepable)
	if len(inputs) < 2 && len(left) == 0 && !squeeze && !old {
		return
	}
	m := &merge{Store: w.Store, ctx: w.ctx, squeeze: squeeze, left: left[:min(len(left), 2)], tmps: w.seen.tmps}
	for _, g := range inputs {
		m.inputs = append(m.inputs, g.hold())
	}
	w.merging = true
	go func() { w.merged <- m.run() }()
}

// mergeEnded takes the result into use.
func (w *writer) mergeEnded(r mergeResult) {
	w.merging = false
	for _, name := range r.ignore {
		w.ignored[name] = false
	}
	switch {
	case r.err == nil:
		w.n.merges.Add(1)
		w.look(true)
		w.plan()
	case errors.Is(r.err, errLocked), errors.Is(r.err, errNothing), w.ctx.Err() != nil:
	default:
		w.noMerge = true
		w.report("merge", w.d.dir, r.err)
	}
}

// mergeAll merges everything into one file, and waits for it.
func (w *writer) mergeAll() {
	w.look(true)
	w.plan()
	for w.merging { // with fewer files than all, and perhaps again after it
		w.mergeEnded(<-w.merged)
	}
	if !w.noMerge && !w.failed {
		w.start(64, false)
	}
	for w.merging {
		w.mergeEnded(<-w.merged)
	}
}

// merge is one merge, in a goroutine of its own.
type merge struct {
	*Store
	ctx     context.Context
	inputs  []*segment // held
	squeeze bool
	holds   func(file uint64) bool // facts of it hold; nil: all do
	left    []string               // parts of processes that have died, damaged files
	tmps    []leftover
	open    []*os.File // of the parts: their locks
	gone    []string   // files that the result replaces
	ignore  []string   // of left: those that are not ours to touch
}

type mergeResult struct {
	err    error
	ignore []string
}

// sweepable says whether a merge that did not end is removed.
func (l leftover) sweepable() bool { return l.age > sweepAge }

// errNothing is a merge's that found nothing to do: another process was faster.
var errNothing = errors.New("there is nothing to merge")

func (m *merge) run() mergeResult {
	err := m.locked()
	for _, g := range m.inputs {
		g.release()
	}
	for _, f := range m.open {
		_ = f.Close()
	}
	return mergeResult{err, m.ignore}
}

// locked makes the merge under the lock. The lock's file stays: removing it would let two
// processes hold locks on two files of one name.
func (m *merge) locked() error {
	lock, err := os.OpenFile(m.d.path(m.kind+lockExt), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := m.d.lock(lock); noLocks(err) {
		return errors.New("the file system has no locks")
	} else if err != nil {
		return err
	}
	m.d.sweep(m.tmps)
	m.inputs = slices.DeleteFunc(m.inputs, func(g *segment) bool {
		_, err := os.Stat(m.d.path(g.name))
		if err != nil { // merged by another process since
			g.release()
		}
		return err != nil
	})
	for _, g := range m.inputs {
		m.gone = append(m.gone, g.name)
	}
	rescued := false
	for _, name := range m.left {
		rescued = m.rescue(name) || rescued
	}
	if m.squeeze {
		m.holds = m.opt.Holds()
	}
	if len(m.inputs) < 2 && !rescued && !m.gains() {
		return errNothing
	}
	if err := m.write(); err != nil {
		return err
	}
	for _, name := range m.gone {
		if err := m.d.remove(name); err != nil {
			return err
		}
	}
	return nil
}

// gains says whether a merge of one file would drop a sixteenth of it, at least: it looks at
// some records.
func (m *merge) gains() bool {
	const looks = 256
	seen, gone := 0, 0
	for _, g := range m.inputs {
		guarded(func() {
			for i := 0; i < len(g.table); i += max(1, len(g.table)/looks) {
				if rec := g.record(g.table[i]); g.table[i].hash != 0 && len(rec) >= recordHead {
					seen++
					if m.holds != nil && !m.holds(keyOf(rec).File) {
						gone++
					}
				}
			}
		})
	}
	return gone > 0 && gone >= seen/16
}

// rescue makes an input of what is whole in a file without a table, up to the first
// record that is not. It says whether the file is to be removed.
func (m *merge) rescue(name string) bool {
	f, err := os.OpenFile(m.d.path(name), os.O_RDWR, 0)
	if err != nil {
		return false
	}
	m.open = append(m.open, f)
	if err := m.d.lock(f); err != nil {
		return false
	}
	// Its owner may have sealed it between the two: then it has another name by now.
	data, err := mapped(m.d.path(name))
	if err != nil && !errors.Is(err, errShort) {
		return false
	}
	g := &segment{name: name, size: int64(len(data)), data: data}
	g.refs.Store(1)
	g.populate(0, g.size)
	err = errTruncated
	guarded(func() {
		if err = checkHeader(data[:min(len(data), headerLen)], m.kind); err == nil {
			m.scan(g)
		}
	})
	if torn := filepath.Ext(name) == partExt && !bytes.HasPrefix(data, []byte(magic)); torn {
		err = nil // a power cut left anything there
	}
	if errors.Is(err, errLater) || errors.Is(err, errForeign) || errors.Is(err, errTruncated) {
		m.ignore = append(m.ignore, name)
		m.report("damage", m.d.path(name), err)
		g.release()
		return false
	}
	m.inputs, m.gone = append(m.inputs, g), append(m.gone, name)
	return true
}

func (m *merge) scan(g *segment) {
	off := int64(headerLen)
	for len(g.table) < maxRescued {
		rec := first(g.data[min(off, g.size):], m.seed)
		if rec == nil {
			break
		}
		g.table = append(g.table, slot{hash(rec), placeOf(off, len(rec)-recordHead)})
		off += align8(int64(len(rec)))
	}
	g.end, g.facts = off, int64(len(g.table))
	slices.SortFunc(g.table, func(a, b slot) int { return cmp.Compare(a.hash, b.hash) })
}

// write writes the newest of every fact of the inputs to a file, if there are any. Records
// come in the order of their hashes, so that further merges read and write from front to
// back. The table is collected in an unnamed file, since memory is not for sizes of data.
func (m *merge) write() (err error) {
	out, err := m.d.create(m.kind, mergeExt)
	if err != nil {
		return err
	}
	defer func() {
		_ = out.f.Close()
		if err != nil {
			_ = m.d.remove(out.name)
		}
	}()
	unnamed, err := m.d.create(m.kind, mergeExt)
	if err != nil {
		return err
	}
	side := unnamed.f
	defer side.Close()
	_ = m.d.remove(unnamed.name) // it is found by its name if the process dies before
	most := int64(0)
	for _, g := range m.inputs {
		most += g.facts
	}
	buf := bufio.NewWriterSize(out, 256<<10)
	_, _ = buf.Write(header(m.kind))
	t := newTable(side, most, m.seed)
	off, synced := int64(headerLen), int64(0)
	for rec := range m.newest(m.inputs) {
		if m.holds != nil && !m.holds(keyOf(rec).File) {
			continue
		}
		t.put(slot{hash(rec), placeOf(off, len(rec)-recordHead)})
		var zero [8]byte
		_, _ = buf.Write(rec)
		_, err = buf.Write(zero[:align8(len(rec))-len(rec)])
		off += align8(int64(len(rec)))
		if off-synced >= stride {
			synced = off
			err = errors.Join(err, buf.Flush(), out.sync())
		}
		if err = errors.Join(err, t.err, m.ctx.Err()); err != nil {
			return err
		}
	}
	if t.facts == 0 {
		return m.d.remove(out.name)
	}
	t.table = off
	if err := t.end(); err != nil {
		return err
	}
	if _, err := side.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if _, err := io.Copy(struct{ io.Writer }{buf}, side); err != nil {
		return err
	}
	if _, err := buf.Write(t.footer(m.seed)); err != nil {
		return err
	}
	if err := errors.Join(buf.Flush(), m.ctx.Err()); err != nil {
		return err
	}
	_, err = m.d.publish(out)
	return err
}
