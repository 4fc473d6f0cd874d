package transform

import (
	"slices"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
)

// A program with an operation that measures the picture is run in parts: the pixels
// before it are made, measured, and passed to the next part. Because choices follow
// from key and size, the parts choose what Begin chose.

// reduces reports whether steps are run in parts.
func reduces(steps []step) bool {
	return slices.ContainsFunc(steps, func(s step) bool { return s.reduces })
}

// finishParts is finish for such programs. src reads the first part.
func (k *picture) finishParts(p *Program, l *Lane, src source, dst []byte) *errs.Error {
	r := &l.run
	k.reset(l)
	for from, part := 0, 0; ; part++ {
		next, err := p.through(r, from, true)
		if err != nil {
			return err
		}
		if next == len(r.way) {
			return l.kernel(src, p.output(r), dst)
		}
		at, buf := r.at(), &l.between[part%2]
		*buf = slices.Grow((*buf)[:0], at.bytes())[:at.bytes()]
		if err := l.kernel(src, kernel.Output{}, *buf); err != nil {
			return err
		}
		src = source{Job: kernel.Job{Src: kernel.Pixels{Pix: *buf, W: at.w, H: at.h, C: at.c}}}
		l.part = src.Src // src itself would be allocated for every picture
		r.measured, r.by = p.steps[r.way[next]].op.(measurer).measure(&l.part), next
		r.chain.Reset(at.w, at.h, at.c)
		from = next
	}
}

func (e extent) bytes() int { return e.w * e.h * e.c }

// partsScratch is the most memory that a part takes, with the pictures between
// parts. The lane's job reads the picture.
func (k *picture) partsScratch(p *Program, l *Lane, head *kernel.Header) (most int64) {
	r := &l.run
	k.reset(l)
	for from := 0; from < len(r.way); {
		next, err := p.through(r, from, true)
		if err != nil {
			break // Begin has reported it
		}
		at := r.at()
		l.job.Steps = r.chain.Steps()
		most = max(most, l.Kernel.Scratch(&l.job, head)+2*int64(at.bytes()))
		l.job, head = kernel.Job{Src: kernel.Pixels{W: at.w, H: at.h, C: at.c}}, nil
		r.chain.Reset(at.w, at.h, at.c)
		from, r.by = next, next
	}
	return most
}

// freeBetween frees large pictures between parts.
func (l *Lane) freeBetween() {
	for i := range l.between {
		mem.Trim(&l.between[i])
	}
}
