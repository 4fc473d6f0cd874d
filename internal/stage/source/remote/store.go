// Package remote makes sources of stores that are reached over a network. A Store makes
// single attempts; this package makes them a source.Source on which a fault of the network
// is either invisible or an error with its place: it retries until the deadline, goes on
// at the byte where a body broke off, asks a second time when an answer is late, splits
// long ranges, and keeps within what a host accepts.
//
// The limits of a host belong to a Net, which all sources of a process share.
package remote

import (
	"context"

	"github.com/stoker-data/stoker/internal/stage/source"
)

// Store is one kind of storage. Every method makes one attempt: it does not wait, does
// not retry, and returns soon after ctx has ended. An error is a *Fault if another attempt
// may succeed, and otherwise an *errs.Error with the name as its place, or ctx.Err().
// Safe for concurrent use; names are valid in the call only.
type Store interface {
	// Host is the host and port that requests for a name go to, as far as is known
	// without a request. Limits are kept for each.
	Host(name string) string
	// Stat is what there is of that name: an object with size and version, or a folder
	// if there are names below it.
	Stat(ctx context.Context, name string) (source.Info, error)
	// Read reads len(p) bytes at offset off of obj into p, len(p) > 0, and returns how
	// many have arrived when it ends; fewer than len(p) come with an error. An answer
	// that is of another version than obj.Version (where it has one), of another size
	// than obj.Size, or not of this range counts nothing.
	Read(ctx context.Context, obj source.Info, p []byte, off int64) (n int, err error)
	// Page is one page of a listing: what is directly below dir, or, if flat, all
	// objects below it at any depth. dir has no slash at its end, unless the folder has no
	// name: "a/" is where a//x is. token is "" for the first page, and Page.Next of the page before for the others. A dir below which
	// there is nothing has a first page without entries, or is an error: not_found.
	Page(ctx context.Context, dir string, flat bool, token string) (Page, error)
}

// Prefixed is a Store that lists a part of a folder.
type Prefixed interface {
	// Begin is a Page, not flat, of what is directly below dir and begins with letters;
	// what it has besides is left out. Where there is nothing, it has no entries.
	Begin(ctx context.Context, dir, letters, token string) (Page, error)
}

// Origin is a Store whose hosts are set by the user.
type Origin interface {
	// Origin is the setting that the address of a name's host was read from, such as
	// AWS_ENDPOINT_URL; "": none, it is the vendor's.
	Origin(name string) string
}

// Page is a part of a listing, in byte order of names, folders as if they ended in a
// slash. Names of entries have no slash at their end.
type Page struct {
	Entries []source.Info
	Next    string // "": this was the last page
	Folder  bool   // dir is a folder even if it has no entries, in a store that has folders
	// Loose: entries of later pages may sort before these. All pages are then held in
	// memory, of which a store without an order leaves no choice.
	Loose bool
}
