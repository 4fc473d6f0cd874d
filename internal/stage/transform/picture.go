package transform

import (
	"cmp"
	"runtime/debug"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/rng"
	"github.com/stoker-data/stoker/internal/stage/decode"
)

// picture is the kind of program that has steps.
type picture struct {
	gray   bool // decoded to one channel, not three
	stored size // of pictures that are stored decoded; zero if they are encoded
}

// channels is the number of channels of a decoded picture.
func (k *picture) channels() int {
	if k.gray {
		return 1
	}
	return 3
}

func (k *picture) begin(p *Program, l *Lane, encoded []byte, key rng.Key) (mem.Shape, *errs.Error) {
	if err := k.head(p, l, encoded); err != nil {
		return nil, err
	}
	k.start(p, l, key)
	if err := p.through(&l.run); err != nil {
		return nil, err
	}
	l.dims = p.dims(l.run.at())
	return l.dims[:3:3], nil
}

// head reads the size of the picture.
func (k *picture) head(p *Program, l *Lane, encoded []byte) *errs.Error {
	l.jpeg = k.stored == (size{}) && decode.Sniff(encoded) == decode.KindJPEG
	switch {
	case k.stored != (size{}):
		if want := k.stored.w * k.stored.h * k.channels(); len(encoded) != want {
			return errs.New(errs.Damaged, "a picture of %d bytes, not %d", len(encoded), want)
		}
		l.picture = k.stored
		return nil
	case l.jpeg:
		h, err := kernel.ReadAnyHeader(encoded)
		if err != nil {
			return failed("cannot read the picture", err)
		}
		l.picture, l.head = size{h.W, h.H}, h
	default:
		h, err := decode.ReadAnyHeader(encoded)
		if err != nil {
			return notPicture(encoded, err)
		}
		l.picture, l.decodes = size{h.W, h.H}, h.Scratch(k.gray)
	}
	return p.within(l.picture)
}

// start begins the run of a sample.
func (k *picture) start(p *Program, l *Lane, key rng.Key) {
	k.reset(l)
	l.run.key, l.run.way = key, l.run.way[:0]
	p.follow(&l.run, 0, len(p.steps))
}

// reset sets the run back to the picture as decoded.
func (k *picture) reset(l *Lane) {
	l.run.chain.Reset(l.picture.w, l.picture.h, k.channels())
	l.run.tone, l.run.exacts.used = plain(), 0
	l.run.erased = l.run.erased[:0]
}

// notPicture is the error of bytes that are not a picture with a readable size.
func notPicture(encoded []byte, cause error) *errs.Error {
	if other := decode.Foreign(encoded); other != "" {
		return errs.New(errs.Unsupported, "the field is decoded as a picture, but this is %s", other).
			Try("deliver the field as bytes (stoker.Field(name, decode=\"bytes\")), or skip such samples with on_bad=\"skip\"")
	}
	return failed("cannot read the picture", cause)
}

// within rejects pictures with more pixels than the program may decode.
func (p *Program) within(s size) *errs.Error {
	limit := cmp.Or(p.maxPixels, kernel.MaxPixels)
	if int64(s.w)*int64(s.h) <= limit {
		return nil
	}
	return errs.New(errs.Damaged, "the header declares %d x %d pixels, more than the limit of %d (max_pixels)", s.w, s.h, limit).
		Try("if the picture is undamaged, pass max_pixels=%d or more; otherwise remove it, or skip such samples with on_bad=\"skip\"", int64(s.w)*int64(s.h))
}

func (k *picture) size(p *Program, l *Lane) int {
	return p.dtype.Size() * l.dims[0] * l.dims[1] * l.dims[2]
}

func (k *picture) finish(p *Program, l *Lane, dst []byte) *errs.Error {
	defer l.large(k.reserve(p, l))
	src, decoded, err := k.source(l)
	if err != nil {
		return err
	}
	if l.timed {
		l.spent = Spent{Decode: decoded}
	}
	err = l.kernel(src, p.output(&l.run), dst)
	if err == nil && l.Then != nil {
		l.Then()
	}
	return err
}

// source is a job that reads a picture, or the region at of it.
type source struct {
	kernel.Job
	at box // no width: all of it
}

// source is the job that reads the picture begun last, and, if timed, the time that
// was spent on decoding it before.
func (k *picture) source(l *Lane) (src source, decoded time.Duration, _ *errs.Error) {
	switch {
	case l.shared.has(l.value, k.gray):
		src.Src, src.at = l.shared.pixels, l.shared.at
		return src, 0, nil
	case k.stored != (size{}):
		src.Src = kernel.Pixels{W: k.stored.w, H: k.stored.h, C: k.channels(), Pix: l.value}
		return src, 0, nil
	case l.jpeg:
		src.JPEG, src.Gray = l.value, k.gray
		return src, 0, nil
	}
	var begin time.Time
	if l.timed {
		begin = time.Now()
	}
	pixels, err := l.Decoder.Pixels(l.value, k.gray)
	if l.timed {
		decoded = time.Since(begin)
	}
	if err != nil {
		return src, 0, failed("cannot decode the picture", err)
	}
	if pixels.W != l.picture.w || pixels.H != l.picture.h {
		return src, 0, failed("cannot decode the picture", kernel.FormatError("its size is not what its header says"))
	}
	src.Src = pixels
	return src, decoded, nil
}

// kernel runs the steps of the run on what src reads.
func (l *Lane) kernel(src source, out kernel.Output, dst []byte) *errs.Error {
	l.job = src.Job
	if at := src.at; at.w > 0 {
		l.run.chain.Within(at.x, at.y, at.w, at.h)
	}
	l.job.Steps, l.job.Out, l.job.Dst, l.job.Strict, l.job.Timed = l.run.chain.Steps(), out, dst, l.Strict, l.timed
	if l.Points != nil && l.job.JPEG != nil && !l.Strict {
		l.job.Entries = l.Points.Of(l.job.JPEG)
	}
	err := l.Kernel.Run(&l.job)
	if l.job.Entries != nil {
		l.Points.Learn(l.job.Entries)
	}
	l.garbage = l.garbage || l.Kernel.Garbage(&l.job)
	if s := l.job.Spent; l.timed {
		l.spent.Decode += s.Decode
		l.spent.Pixels += s.All - s.Decode - s.Write
		l.spent.Write += s.Write
		for i, own := range s.Own {
			l.spent.Own[i] += own
			l.spent.Pixels -= own
		}
		l.spent.Pixels = max(0, l.spent.Pixels) // Own is measured by another clock
	}
	if l.job.JPEG != nil {
		l.decoded, l.way = err == nil, l.job.Way
	}
	l.job = kernel.Job{} // keeps no reference to the caller's memory
	if err != nil {
		return failed("cannot decode the picture", err)
	}
	return nil
}

// reserve waits until there is room for the memory that decoding takes, and returns
// its size in bytes; 0 if it is within a lane's share.
func (k *picture) reserve(p *Program, l *Lane) (n int64) {
	if l.shared.has(l.value, k.gray) {
		return 0 // Shared has asked for it
	}
	l.garbage = false
	l.job = kernel.Job{Src: kernel.Pixels{W: l.picture.w, H: l.picture.h, C: k.channels()}}
	var head *kernel.Header
	if l.jpeg {
		l.job, head = kernel.Job{JPEG: l.value}, &l.head
	}
	l.job.Steps = l.run.chain.Steps()
	n = l.Kernel.Scratch(&l.job, head)
	if k.stored == (size{}) && !l.jpeg {
		n += l.decodes
		l.garbage = !kernel.HasLibwebp && decode.Sniff(l.value) == decode.KindWebP
	}
	if n += l.Beside; n <= Share {
		return 0
	}
	if l.Room != nil {
		l.Room.Take(n)
	}
	return n
}

// large gives back the memory of a large picture.
func (l *Lane) large(n int64) {
	if n == 0 {
		return
	}
	l.Decoder.Free()
	if l.garbage {
		debug.FreeOSMemory() // otherwise the next picture's memory would be added to it
	}
	if l.Room != nil {
		l.Room.Give(n)
	}
}
