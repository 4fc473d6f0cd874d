package transform

import (
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// Several programs may read one picture: the views of a field. Shared decodes what
// they read of it once, into memory of the lane; their Begin and Finish then take the
// pixels from there. Decoding a region is exact, so that the bytes are those of
// programs that decode for themselves.

// shared is a part of a picture that is decoded for several programs.
type shared struct {
	value  []byte // the picture; nil: there is none
	gray   bool
	at     box           // in the picture
	pixels kernel.Pixels // of the region
	buf    []byte        // of JPEGs
	held   int64         // what the lane asked its Room for
}

// Shared prepares the lane for these programs, each with its key, which are begun and
// finished next, in any order, with the same encoded bytes. It decodes the picture for
// them, if that costs less than each of them decoding what it reads, and reports
// whether it did. Unshare ends it. An error is left to the programs: they meet it too,
// unless they do not read the damaged part.
func (l *Lane) Shared(programs []*Program, keys []rng.Key, encoded []byte) bool {
	l.Unshare()
	l.decoded = false
	if len(programs) < 2 || l.Strict || len(encoded) == 0 {
		return false
	}
	first, ok := programs[0].kind.(*picture)
	if !ok {
		return false
	}
	var all box      // what the programs read together
	var costs work   // of decoding for each of them
	var most int64   // memory for the steps of one of them
	var whole extent // the picture
	var enter entered
	for i, p := range programs {
		k, ok := p.kind.(*picture)
		if !ok || k.gray != first.gray || k.stored != (size{}) || p.says != nil {
			return false
		}
		if i == 0 && k.head(p, l, encoded) != nil {
			return false
		}
		if i == 0 && l.jpeg && l.Points != nil {
			enter.at(l.Points.Of(encoded), l.picture, len(encoded))
		}
		k.start(p, l, keys[i])
		if p.through(&l.run) != nil {
			return false
		}
		for _, s := range l.run.chain.Steps() {
			if s.Draft {
				return false // it decodes fewer pixels
			}
		}
		whole = extent{l.picture, k.channels()}
		b := box{}
		b.x, b.y, b.w, b.h = l.run.chain.Reads()
		costs.add(l.picture, b, enter)
		all = all.with(b)
		l.job = kernel.Job{Src: kernel.Pixels{W: whole.w, H: whole.h, C: whole.c}, Steps: l.run.chain.Steps()}
		most = max(most, l.Kernel.Scratch(&l.job, nil))
	}
	l.job = kernel.Job{}
	if !l.jpeg { // other kinds are always decoded as a whole
		return l.shareDecoded(encoded, first.gray, whole, most)
	}
	var once work
	once.add(l.picture, all, enter)
	if once.total()+float64(copying*float64(all.w*all.h)) >= costs.total() {
		return false
	}
	return l.shareJPEG(encoded, first.gray, all, whole.c, most)
}

// shareJPEG decodes a region of the JPEG whose header was read last.
func (l *Lane) shareJPEG(encoded []byte, gray bool, at box, channels int, most int64) bool {
	s := &l.shared
	l.run.chain.Reset(l.picture.w, l.picture.h, channels)
	l.run.chain.Crop(at.x, at.y, at.w, at.h)
	n := at.w * at.h * channels
	l.job = kernel.Job{JPEG: encoded, Gray: gray, Steps: l.run.chain.Steps()}
	l.hold(int64(n) + l.Kernel.Scratch(&l.job, &l.head) + most)
	whole := l.picture.w * l.picture.h * channels
	if whole > Share {
		whole = n
	}
	s.buf = mem.Sized(s.buf, whole)[:n] // the next picture's region is another part of it
	if l.kernel(source{Job: kernel.Job{JPEG: encoded, Gray: gray}}, kernel.Output{}, s.buf) != nil {
		l.Unshare()
		return false
	}
	s.value, s.gray, s.at = encoded, gray, at
	s.pixels = kernel.Pixels{Pix: s.buf, W: at.w, H: at.h, C: channels}
	return true
}

// shareDecoded decodes a picture of another kind.
func (l *Lane) shareDecoded(encoded []byte, gray bool, whole extent, most int64) bool {
	s := &l.shared
	l.hold(l.decodes + most)
	pixels, err := l.Decoder.Pixels(encoded, gray)
	if err != nil || pixels.W != whole.w || pixels.H != whole.h {
		l.Unshare()
		return false
	}
	s.value, s.gray, s.at, s.pixels = encoded, gray, box{0, 0, whole.w, whole.h}, pixels
	return true
}

// hold waits until there is room for n bytes, which the lane has until Unshare.
func (l *Lane) hold(n int64) {
	if n <= Share {
		return
	}
	l.shared.held = n
	if l.Room != nil {
		l.Room.Take(n)
	}
}

// Unshare ends Shared, and frees its memory if it is large.
func (l *Lane) Unshare() {
	s := &l.shared
	if s.value == nil && s.held == 0 {
		return
	}
	s.value, s.pixels = nil, kernel.Pixels{}
	mem.Trim(&s.buf)
	if s.held > 0 {
		n := s.held
		s.held = 0
		l.large(n)
	}
}

// has reports whether the value begun last, for a picture of this kind, was decoded by
// Shared.
func (s *shared) has(value []byte, gray bool) bool {
	return s.value != nil && s.gray == gray && mem.Same(s.value, value)
}

// with is the smallest box that holds both; a box without pixels does not count.
func (b box) with(o box) box {
	if b.w == 0 {
		return o
	}
	x, y := min(b.x, o.x), min(b.y, o.y)
	return box{x, y, max(b.x+b.w, o.x+o.w) - x, max(b.y+b.h, o.y+o.h) - y}
}

// work is the pixels of JPEGs that are to be decoded: those whose entropy-coded data is
// read, which has no columns, and those that are made.
type work struct{ read, made int }

// entered is an estimate of what known entry points of a JPEG save: rows of pixels are read
// whole from the first to the last one needed, but above row known only beside what is
// needed, from over pixels before it on.
type entered struct{ known, over int }

// at counts points as if they were spread evenly over the scan, which is all of the file.
func (e *entered) at(points *kernel.Entries, s size, file int) {
	if points == nil || len(points.Known) == 0 {
		return
	}
	last := int(points.Known[len(points.Known)-1].Byte)
	e.known = min(s.h, int(float64(s.h)*float64(last)/float64(file)))
	e.over = s.w * e.known / len(points.Known) / (2 * unit)
}

// total is the cost of decoding, in units of a pixel's entropy-coded data.
func (w *work) total() float64 { return float64(w.read) + float64(making*float64(w.made)) }

const (
	making  = 1.5 // the transform and the colours of a pixel
	copying = 0.3 // writing a decoded pixel, and reading it again
	unit    = 16  // rows of pixels that a row of MCUs has, in most pictures
)

func (w *work) add(s size, b box, e entered) {
	top := min(b.y+b.h, e.known) // from here on rows are read whole
	if inside := top - b.y; inside > 0 {
		w.read += inside * min(s.w, b.w+e.over)
	}
	w.read += s.w * (b.y + b.h - top)
	w.made += b.w * b.h
}
