// Package source is where bytes live: read-only namespaces of immutable
// objects. It knows nothing of formats.
package source

import (
	"context"
	"iter"
)

// Info describes one object, or what a caller believes about it.
type Info struct {
	Name string // path, as the source understands it
	Size int64  // bytes
	// Version tells apart what an object held at different times, together with its
	// size: a time for files, an ETag or a generation elsewhere. Only the source knows
	// what is in it; others compare, and keep it in an index. "": unknown, or not watched.
	Version string
	// Time is when the object was written, in Unix nanoseconds, where Version is made of
	// nothing else (see Settle); 0 elsewhere. No read looks at it.
	Time int64
	Dir  bool
	// Other is what List found that is neither a file nor a folder ("a named pipe"):
	// its bytes cannot be read at random. "" otherwise.
	Other string
	// ID tells folders apart that have several names, where a source has links
	// (device and inode); zero elsewhere.
	ID [2]uint64
}

// Source is a read-only namespace of immutable objects; safe for concurrent
// use. Errors are *errs.Error with the name as location and what to try: not_found,
// unreadable or changed; or ctx.Err().
//
// Names and versions that are passed in are valid in the call only and are not kept.
//
// Any call may take long. A source that can give up does so when ctx ends, and returns
// its error at once. If it cannot (a read hangs in the kernel), its callers do not wait for
// it. p belongs to the call until it returns. A retry or a cache is a Source around a
// Source.
type Source interface {
	// Stat is what there is of that name, as it is now.
	Stat(ctx context.Context, name string) (Info, error)
	// ReadAt reads all of p at byte offset off of obj, or fails. An object
	// whose size (or version, where obj has one) is not obj's is an error with
	// code changed, and nothing was read.
	ReadAt(ctx context.Context, obj Info, p []byte, off int64) error
	// List yields what is directly below prefix, with or without a slash at its end, in
	// byte order of names: objects, and folders, which a store without folders makes of
	// the slashes in its names. A prefix that names nothing
	// is an error: not_found.
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]
}

// Hot is a source that knows which bytes are in memory: in the page cache, for example.
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
