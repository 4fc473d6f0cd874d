package transform

import (
	"errors"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/decode"
)

// Room is what a lane asks before it takes memory for a large picture, and to which
// it gives the memory back, in bytes. Take waits for it; mem.Scratch says by which
// rule.
type Room interface {
	Take(n int64)
	Give(n int64)
}

// Share is the memory, in bytes, up to which a picture is decoded without asking: a
// lane keeps about this much of its buffers from picture to picture, and gives back
// the rest.
const Share = mem.KeepBytes

// Lane is the state that one goroutine needs to run programs: scratch memory that
// grows with pictures, up to a share. Only one goroutine may use it at a time.
type Lane struct {
	Kernel  *kernel.Lane
	Decoder *decode.Decoder
	Strict  bool // JPEGs must be undamaged to their end, see kernel.Job
	Room    Room // nil: large pictures are decoded without asking

	// Beside is the size in bytes of the caller's result of the next Finish; it is
	// counted with the picture's memory.
	Beside int64

	// Then is called by the next Finish of a picture when its result is written,
	// before the room for both is given back; nil: nothing.
	Then func()

	// Points knows where decoding of the next JPEGs can begin; nil: nobody does.
	Points Points

	// The sample begun last.
	program *Program // nil: none
	value   []byte   // without its header
	swapped []byte   // its elements, in the byte order of this machine
	number  uint64   // an int or float, as its bits
	bits    [8]byte
	dims    [3]int
	shape   mem.Shape // of an array with any number of dimensions

	// A picture.
	jpeg    bool
	picture size          // as the header says
	head    kernel.Header // of a JPEG
	decodes int64         // memory in bytes to decode other kinds
	run     run
	job     kernel.Job
	shared  shared
	timed   bool
	garbage bool       // the memory of the last picture is garbage that should be collected
	decoded bool       // the last picture was a JPEG
	way     kernel.Way // how it was decoded
	spent   Spent      // if timed, by the last picture
}

// Points is where the decoding of JPEGs can begin, from earlier decodes of them: see
// kernel.Entries. It does not change what is made of them.
type Points interface {
	// Of is what is known of a JPEG, for one job; nil: nothing is, nor to be learned.
	Of(jpeg []byte) *kernel.Entries
	// Learn takes it back after the job, with its results.
	Learn(e *kernel.Entries)
}

// NewLane returns a lane. Close it.
func NewLane() *Lane {
	return &Lane{Kernel: kernel.NewLane(), Decoder: decode.NewDecoder()}
}

// Close frees the lane's memory. Closing again does nothing.
func (l *Lane) Close() {
	if l.Kernel != nil {
		l.Kernel.Close()
	}
	*l = Lane{}
}

// Way is how the last picture was decoded; false if it was not a JPEG, or failed.
func (l *Lane) Way() (kernel.Way, bool) { return l.way, l.decoded }

// failed is the error of a sample whose bytes cannot be read, by the type of the
// cause.
func failed(what string, cause error) *errs.Error {
	var damaged kernel.FormatError
	var unsupported kernel.UnsupportedError
	var trailing kernel.TrailingError
	switch {
	case errors.As(cause, &trailing): // only from strict lanes
		return errs.New(errs.Damaged, "the picture is complete, but data follows its last block").Because(cause).
			Try("check that its size is right; if so, nothing needs to be done: training decodes it")
	case errors.As(cause, &damaged):
		return errs.New(errs.Damaged, "%s", what).Because(cause).
			Try("restore or remove it, or skip such samples with on_bad=\"skip\"")
	case errors.As(cause, &unsupported):
		return errs.New(errs.Unsupported, "%s", what).Because(cause).
			Try("convert it, or skip such samples with on_bad=\"skip\"")
	}
	if errors.Is(cause, kernel.ErrMemory) {
		return errs.New(errs.Memory, "%s", what).Because(cause).Try("use fewer workers, or smaller pictures")
	}
	return errs.From(cause)
}
