// Package source is where bytes live: read-only namespaces of immutable
// objects. It knows nothing of formats.
package source

import (
	"context"
	"iter"
)

// Info describes one object, or what a caller believes about it.
type Info struct {
	Name  string // path, as the source understands it
	Size  int64  // bytes
	MTime int64  // Unix nanoseconds; 0: unknown, or not watched
	Dir   bool
	// Other is what List found that is neither a file nor a folder ("a named pipe"):
	// no bytes can be read of it at random. "" otherwise.
	Other string
	// ID tells folders apart that have several names, where a source has links
	// (device and inode); zero elsewhere.
	ID [2]uint64
}

// Source is a read-only namespace of immutable objects; safe for concurrent
// use. Errors are *errs.Error: not_found, unreadable or changed; or ctx.Err().
// Names are valid in a call only and are not kept.
type Source interface {
	Stat(ctx context.Context, name string) (Info, error)
	// ReadAt reads all of p at byte offset off of obj, or fails. An object
	// whose size (or time, where obj has one) is not obj's is an error with
	// code changed, and nothing was read.
	ReadAt(ctx context.Context, obj Info, p []byte, off int64) error
	// List yields what lies directly below prefix, in byte order of names.
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]
}

// Hot is a source that knows which bytes are at hand: in the page cache, say.
type Hot interface {
	// ReadHot is ReadAt, and says whether it had to wait for the bytes. Where it would
	// have to and wait is false, p holds nothing of use and there is no error.
	ReadHot(ctx context.Context, obj Info, p []byte, off int64, wait bool) (hot bool, err error)
}

// Runner is a source that can hold several reads of an object against its Info at once.
type Runner interface {
	// Run begins such reads of obj, or says false: then ReadAt is the way.
	Run(obj Info) (Run, bool)
}
