package kernel

// track follows the plain decoder through a scan, for its entry points: entry.c in Go, for a
// decoder that never leaps.
type track struct {
	f     *frame
	grid  grid
	data  int  // a byte of the segment's data, and
	file  int  // its offset in the file
	lost  bool // fill bytes came before a stuffed byte
	given way  // with what is known
	fresh way  // as if nothing were
}

// way is the points that one reader of the scan knows and finds.
type way struct {
	known    []Point
	found    []Point
	compared int
	wrong    bool
}

func newTrack(f *frame) *track {
	t := &track{f: f, grid: f.grid(f.entries.Spacing), given: way{known: f.entries.Known}}
	for i, p := range t.given.known {
		if p.MCU == 0 || int(p.MCU) >= f.mcusAcross()*f.mcusDown() || i > 0 && (p.MCU <= f.entries.Known[i-1].MCU || p.Place() <= f.entries.Known[i-1].Place()) {
			t.given.wrong = true
		}
	}
	return t
}

// segment begins a segment at an offset in the file, where a point is known without a record.
func (t *track) segment(at int) { t.data, t.file = 0, at }

// pass is before MCU m, with i bits of the segment's data read.
func (t *track) pass(m, i int, pred *[3]int32) {
	b := t.f.file
	for ; t.data < i/8; t.data++ {
		for b[t.file] == 0xff && b[t.file+1] == 0xff {
			t.file++
			t.lost = true
		}
		if b[t.file] == 0xff {
			t.file++
		}
		t.file++
	}
	if t.lost || m == 0 {
		return
	}
	p := Point{MCU: uint32(m), Byte: uint32(t.file - t.f.scan), Bit: uint16(i & 7)}
	for c, v := range pred {
		p.Pred[c] = int16(v)
	}
	on := t.grid.has(m) && (t.f.ri == 0 || m%t.f.ri != 0)
	t.given.meet(p, on)
	t.fresh.meet(p, on)
}

func (w *way) meet(p Point, on bool) {
	switch {
	case w.wrong:
	case len(w.known) > 0 && w.known[0].MCU == p.MCU:
		if p != w.known[0] {
			w.wrong = true
			return
		}
		w.known = w.known[1:]
		w.compared++
	case on:
		w.found = append(w.found, p)
	}
}

// end sets the results.
func (t *track) end() {
	e := t.f.entries
	e.Found, e.Compared, e.Wrong = t.given.found, t.given.compared, t.given.wrong
	if e.Wrong {
		e.Found, e.Compared = t.fresh.found, 0
	}
}

// Place is the point's offset in bits of the scan as it is stored.
func (p *Point) Place() uint64 { return uint64(p.Byte)<<3 | uint64(p.Bit) }

// grid is the MCUs before which points are recorded, as stk_grid has it.
type grid struct{ cols, step, left, rows int }

// far is how many times as far from each other points are in the right half of a picture,
// where few crops begin.
const far = 4

// mostSpacing is the largest distance of points, in bytes.
const mostSpacing = 1 << 20

func (f *frame) grid(spacing int) grid {
	cols, mcus, bytes := f.mcusAcross(), f.mcusAcross()*f.mcusDown(), len(f.file)-f.scan
	g := grid{cols: cols, left: cols / 2, rows: 1}
	spacing = min(spacing, mostSpacing)
	if spacing <= 0 || f.ri > 0 && f.ri*bytes <= spacing*mcus {
		return g
	}
	g.step = ceilDiv((far*g.left+cols-g.left)*spacing*mcus, far*cols*bytes)
	if g.step >= cols {
		g.rows = ceilDiv(spacing*mcus, cols*bytes)
	}
	return g
}

func (g grid) has(m int) bool {
	x, y := m%g.cols, m/g.cols
	switch {
	case g.step == 0 || y%g.rows != 0:
		return false
	case x < g.left:
		return x == 0 || g.step < g.cols && x%g.step == 0
	}
	return x == 0 || g.step < g.cols && (x-g.left)%(far*g.step) == 0
}
