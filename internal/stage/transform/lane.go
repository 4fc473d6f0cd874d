package transform

import (
	"errors"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
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
	value   []byte   // without what it says of itself
	swapped []byte   // those elements, in the order of this machine
	number  uint64   // an int or float, as its bits
	bits    [8]byte
	dims    [3]int
	shape   mem.Shape // of an array of any length

	// A picture.
	jpeg    bool
	picture size          // as the header says
	head    kernel.Header // of a JPEG
	decodes int64         // bytes that decoding another kind takes
	run     run
	job     kernel.Job
	between [2][]byte // pictures in front of operations that measure them
	timed   bool
	garbage bool       // the collector has to find what the picture finished last took
	decoded bool       // the picture finished last was a JPEG
	way     kernel.Way // that it took
	spent   Spent      // while timed, by the picture finished last
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
