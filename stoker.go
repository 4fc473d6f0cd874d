// Package stoker loads training data: it reads images in place, decodes and
// transforms them, and delivers finished batches in an exactly reproducible order.
// This is the Go API; Python users have the package of the same name, and the
// command stoker measures and inspects.
//
// [Open] takes a [Spec] and returns a [Loader]; [Loader.Batches] walks an epoch:
//
//	loader, err := stoker.Open(ctx, stoker.Spec{
//		Dataset: stoker.Dataset{Path: stoker.Paths{"data/train"}},
//		Fields: []stoker.Field{
//			{Name: "image", Decode: "rgb", Transform: []stoker.Op{
//				stoker.Transform("RandomResizedCrop", stoker.Args{"size": 224}),
//				stoker.Transform("RandomHorizontalFlip", nil),
//			}},
//			{Name: "label", Decode: "int"},
//		},
//		Order: stoker.Order{Shuffle: stoker.ShuffleFull},
//		Batch: stoker.BatchSpec{Size: 64},
//	})
//	...
//	for batch, err := range loader.Batches(ctx) {
//		...
//		images, err := batch.Uint8("image") // images.Shape is [64 224 224 3]
//	}
//
// # Which sample, which pixels
//
// Which sample is in which place of which epoch, and every random choice of its
// transforms, is a function of the Spec, the epoch and the place. It does not
// depend on anything that happens at run time, or on the number of workers.
//
// # Errors
//
// Every error is an [*Error]: a code, what happened, where (file, shard, member,
// offset, sample), the cause, and what to try. The one exception is the error of a
// context that ended, which is returned unchanged.
package stoker

import (
	_ "embed"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/stats"
)

//go:embed VERSION
var version string

// Version is the version of this module, "0.1.0".
func Version() string { return strings.TrimSpace(version) }

// Error is the only error type of this package; errors.As finds it.
type Error = errs.Error

// Where is the location of an Error. Zero fields are unknown; for Offset and
// Sample, Get reports whether they are known.
type Where = errs.Where

// Code names one kind of failure. It is stable: match on it.
type Code = errs.Code

// The codes that programs act on; the text of an Error says the rest.
const (
	Config       = errs.Config       // the request cannot be carried out as written
	NotFound     = errs.NotFound     // a path that does not exist
	Empty        = errs.Empty        // a dataset without samples
	Damaged      = errs.Damaged      // bytes that are not what their format says
	Unsupported  = errs.Unsupported  // valid bytes of a kind that is not supported
	Changed      = errs.Changed      // a file differs from its index, or is gone
	Forbidden    = errs.Forbidden    // a file that may not be read
	MissingField = errs.MissingField // a sample without a field that was asked for
	BadLimit     = errs.BadLimit     // more bad samples than OnBad allows
	Unreadable   = errs.Unreadable   // the source refused or failed
	Unreachable  = errs.Unreachable  // a server could not be reached until the deadline
	Denied       = errs.Denied       // a store refused the credentials, or there are none
	Throttled    = errs.Throttled    // a store refused more requests until the deadline
	Memory       = errs.Memory       // a limit on memory
	Held         = errs.Held         // too many batches are retained
	BadState     = errs.State        // a State of another stream
	Stalled      = errs.Stalled      // nothing moved before the deadline
)

// CodeOf is the code of err, or "bug" if it is not an error of this package.
func CodeOf(err error) Code { return errs.CodeOf(err) }

// Stats is a Loader's statistics since it was opened: for every stage what it did
// and what it was blocked on, its CPU, items, bytes, percentiles and queue; and how
// many JPEGs each decoder decoded. Its Since gives rates, the share of time that
// the consumer waited, and the bottleneck.
type Stats = stats.Snapshot
