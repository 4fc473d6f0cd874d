package transform

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math"
	"runtime/debug"
	"time"
	"unicode/utf8"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/rng"
	"github.com/stoker-data/stoker/internal/stage/decode"
)

// Room is what a lane asks before it takes memory for a large picture, and gives it
// back to, in bytes; Take waits for it. mem.Scratch says by which rule.
type Room interface {
	Take(n int64)
	Give(n int64)
}

// Share is the memory, in bytes, up to which a picture is decoded without asking: a
// lane keeps about as much of its buffers from picture to picture, and gives back what
// a larger one needs.
const Share = mem.KeepBytes

// Lane is what one goroutine needs to run programs: scratch memory that grows with
// pictures, up to a share. One goroutine at a time.
type Lane struct {
	Kernel  *kernel.Lane
	Decoder *decode.Decoder
	Strict  bool // JPEGs must be sound to their end: kernel.Job says what that means
	Room    Room // nil: large pictures are decoded without asking

	// Beside is bytes that the caller takes for the result of the next Finish, and that
	// are counted with the picture's.
	Beside int64

	// Then is called by the next Finish of a picture once its result is written, before
	// the room for both is given back; nil: nothing.
	Then func()

	// The sample begun last.
	program *Program // nil: none
	encoded []byte
	jpeg    bool
	picture size          // as the header says
	head    kernel.Header // of a JPEG
	decodes int64         // bytes that decoding another kind takes
	run     run
	job     kernel.Job
	number  uint64 // an int or float, as its bits
	dims    [3]int
	timed   bool
	garbage bool       // the collector has to find what the picture finished last took
	decoded bool       // the picture finished last was a JPEG
	way     kernel.Way // that it took
	spent   Spent      // while timed, by the picture finished last
	shape   mem.Shape  // of a ragged array
}

// NewLane returns a lane. Close it.
func NewLane() *Lane {
	return &Lane{Kernel: kernel.NewLane(), Decoder: decode.NewDecoder()}
}

// Close frees the lane's memory; again it does nothing.
func (l *Lane) Close() {
	if l.Kernel != nil {
		l.Kernel.Close()
	}
	*l = Lane{}
}

// Way is the decoder that took the picture finished last; false: what was finished last
// is no JPEG, or failed.
func (l *Lane) Way() (kernel.Way, bool) { return l.way, l.decoded }

// Begin reads what must be known before there is room for the sample: it makes
// all random choices (key is rng.Sample of its place) and gives the shape of
// the result as it lies in memory. bytes, text and json have one dimension,
// their length, and are valid when this returns.
//
// The shape is valid until the next Begin; encoded must stay as it is until
// Finish has returned. Errors are *errs.Error, without a place: damaged or
// unsupported.
func (p *Program) Begin(l *Lane, encoded []byte, key rng.Key) (mem.Shape, error) {
	l.program, l.encoded = nil, encoded
	if p.codec == codecArray {
		shape, err := p.beginArray(l, encoded)
		if err != nil {
			return nil, err
		}
		l.program = p
		return shape, nil
	}
	var n int
	var err *errs.Error
	switch p.kind {
	case "image":
		n, err = p.beginImage(l, encoded, key)
	case "number":
		err = p.readNumber(l, encoded)
	default:
		l.dims[0], n = len(encoded), 1
		err = p.validate(encoded)
	}
	if err != nil {
		return nil, err
	}
	l.program = p
	return l.dims[:n:n], nil
}

// beginImage gives the number of dimensions.
func (p *Program) beginImage(l *Lane, encoded []byte, key rng.Key) (int, *errs.Error) {
	l.jpeg = p.stored == (size{}) && decode.Sniff(encoded) == decode.KindJPEG
	if p.stored != (size{}) {
		if want := p.stored.w * p.stored.h * p.channels(); len(encoded) != want {
			return 0, errs.New(errs.Damaged, "a picture of %d bytes, not %d", len(encoded), want)
		}
		l.picture = p.stored
	} else if l.jpeg {
		h, err := kernel.ReadAnyHeader(encoded)
		if err != nil {
			return 0, failed("the picture can not be read", err)
		}
		l.picture, l.head = size{h.W, h.H}, h
	} else {
		h, err := decode.ReadAnyHeader(encoded)
		if err != nil {
			return 0, notPicture(encoded, err)
		}
		l.picture, l.decodes = size{h.W, h.H}, h.Scratch(p.codec == codecGray)
	}
	if err := p.within(l.picture); err != nil {
		return 0, err
	}
	l.run.reset(l.picture.w, l.picture.h, p.channels())
	l.run.tone = plain()
	for _, op := range p.ops {
		if err := op.resolve(&l.run, key); err != nil {
			return 0, err
		}
	}
	l.dims = p.dims(l.run.w, l.run.h, l.run.c)
	return 3, nil
}

// notPicture is the error of bytes in which no picture's size can be found.
func notPicture(encoded []byte, cause error) *errs.Error {
	if other := decode.Foreign(encoded); other != "" {
		return errs.New(errs.Unsupported, "the field is decoded as a picture, but this is %s", other).
			Try("deliver the field as bytes (stoker.Field(name, decode=\"bytes\")), or skip such samples with on_bad=\"skip\"")
	}
	return failed("the picture cannot be read", cause)
}

// within refuses pictures of more pixels than the program may decode.
func (p *Program) within(s size) *errs.Error {
	limit := cmp.Or(p.maxPixels, kernel.MaxPixels)
	if p.stored != (size{}) || int64(s.w)*int64(s.h) <= limit {
		return nil
	}
	return errs.New(errs.Damaged, "the header declares %d x %d pixels, more than the limit of %d (max_pixels)", s.w, s.h, limit).
		Try("if the picture is sound, pass max_pixels=%d or more; otherwise remove it, or skip such samples with on_bad=\"skip\"", int64(s.w)*int64(s.h))
}

// channels is how many a decoded picture has.
func (p *Program) channels() int {
	if p.codec == codecGray {
		return 1
	}
	return 3
}

func (p *Program) readNumber(l *Lane, encoded []byte) *errs.Error {
	if p.codec == codecInt {
		n, err := decode.Int(encoded)
		if err != nil {
			return failed("the number can not be read", err)
		}
		l.number = uint64(n)
		return nil
	}
	f, err := decode.Float(encoded)
	if err != nil {
		return failed("the number can not be read", err)
	}
	l.number = math.Float64bits(f)
	return nil
}

func (p *Program) validate(encoded []byte) *errs.Error {
	switch {
	case p.codec == codecText && !utf8.Valid(encoded): // without the copy that Text makes
		_, err := decode.Text(encoded)
		return failed("the text can not be read", err)
	case p.codec == codecJSON:
		if err := decode.JSON(encoded); err != nil {
			return failed("the JSON can not be read", err)
		}
	}
	return nil
}

// Finish writes the sample begun last into dst, which has exactly the bytes of
// its shape and type. After an error dst holds anything.
func (p *Program) Finish(l *Lane, dst []byte) error {
	if l.program != p {
		return errs.New(errs.Bug, "transform: Finish without a Begin of the same program")
	}
	l.program, l.decoded = nil, false
	if p.codec == codecArray {
		return p.Elements(dst, l.encoded)
	}
	need := max(1, p.dtype.Size())
	switch p.kind {
	case "image":
		need *= l.dims[0] * l.dims[1] * l.dims[2]
	case "bytes", "text", "json":
		need = len(l.encoded)
	}
	if len(dst) != need {
		return errs.New(errs.Bug, "transform: a sample of %d bytes is to be written to %d", need, len(dst))
	}
	switch p.kind {
	case "image":
		if err := p.finishImage(l, dst); err != nil {
			return err
		}
	case "number":
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], l.number)
		if p.array.To == mem.Object {
			copy(dst, b[:])
			break
		}
		return p.Elements(dst, b[:])
	default:
		copy(dst, l.encoded)
	}
	return nil
}

func (p *Program) finishImage(l *Lane, dst []byte) *errs.Error {
	gray := p.codec == codecGray
	var decoded time.Duration
	l.job = kernel.Job{Steps: l.run.steps, Out: l.run.tone.output(p.chw), Dst: dst, Strict: l.Strict, Timed: l.timed}
	defer l.large(l.reserve(p))
	switch {
	case p.stored != (size{}):
		l.job.Src = kernel.Pixels{W: p.stored.w, H: p.stored.h, C: p.channels(), Pix: l.encoded}
	case l.jpeg:
		l.job.JPEG, l.job.Gray = l.encoded, gray
	default:
		var begin time.Time
		if l.timed {
			begin = time.Now()
		}
		pixels, err := l.Decoder.Pixels(l.encoded, gray)
		if l.timed {
			decoded = time.Since(begin)
		}
		if err != nil {
			return failed("the picture can not be decoded", err)
		}
		if pixels.W != l.picture.w || pixels.H != l.picture.h {
			return failed("the picture can not be decoded", kernel.FormatError("its size is not what its header says"))
		}
		l.job.Src = pixels
	}
	err := l.Kernel.Run(&l.job)
	l.garbage = l.garbage || l.Kernel.Garbage(&l.job)
	if s := l.job.Spent; l.timed {
		l.spent = Spent{Decode: decoded + s.Decode, Pixels: s.All - s.Decode - s.Write, Write: s.Write}
	}
	l.decoded, l.way = err == nil && l.job.JPEG != nil, l.job.Way
	l.job = kernel.Job{} // holds nothing of others
	if err != nil {
		return failed("the picture can not be decoded", err)
	}
	if l.Then != nil {
		l.Then()
	}
	return nil
}

// reserve waits until there is room for what decoding the sample begun last will take,
// and says how much that is; 0: no more than a lane's share.
func (l *Lane) reserve(p *Program) (n int64) {
	l.garbage = false
	switch {
	case p.stored != (size{}):
		l.job.Src = kernel.Pixels{W: p.stored.w, H: p.stored.h, C: p.channels()}
		n = l.Kernel.Scratch(&l.job, nil)
	case l.jpeg:
		l.job.JPEG = l.encoded
		n = l.Kernel.Scratch(&l.job, &l.head)
	default:
		l.job.Src = kernel.Pixels{W: l.picture.w, H: l.picture.h, C: p.channels()}
		n = l.decodes + l.Kernel.Scratch(&l.job, nil)
		l.garbage = !kernel.HasLibwebp && decode.Sniff(l.encoded) == decode.KindWebP
	}
	if n += l.Beside; n <= Share {
		return 0
	}
	if l.Room != nil {
		l.Room.Take(n)
	}
	return n
}

// large gives back what a large picture took.
func (l *Lane) large(n int64) {
	if n == 0 {
		return
	}
	l.Decoder.Free()
	if l.garbage {
		debug.FreeOSMemory() // or the next picture's would come on top of it
	}
	if l.Room != nil {
		l.Room.Give(n)
	}
}

// failed is the error of a sample whose bytes could not be read, by the type of
// the cause.
func failed(what string, cause error) *errs.Error {
	var damaged kernel.FormatError
	var unsupported kernel.UnsupportedError
	var trailing kernel.TrailingError
	switch {
	case errors.As(cause, &trailing): // of strict lanes
		return errs.New(errs.Damaged, "the picture is complete, but data follows its last block").Because(cause).
			Try("check that its size is right; if so, nothing has to be done: training decodes it")
	case errors.As(cause, &damaged):
		return errs.New(errs.Damaged, "%s", what).Because(cause).
			Try("restore or remove it, or go past such samples with on_bad=\"skip\"")
	case errors.As(cause, &unsupported):
		return errs.New(errs.Unsupported, "%s", what).Because(cause).
			Try("convert it, or go past such samples with on_bad=\"skip\"")
	}
	if errors.Is(cause, kernel.ErrMemory) {
		return errs.New(errs.Memory, "%s", what).Because(cause).Try("use fewer workers, or smaller pictures")
	}
	return errs.From(cause)
}
