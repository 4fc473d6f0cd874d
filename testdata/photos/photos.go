// Package photos is the photographs of this folder, embedded: what tests read
// and what `stoker demo` makes its dataset from. It is no part of the API.
package photos

import "embed"

// Files holds the JPEG files of this folder.
//
//go:embed *.jpg
var Files embed.FS
