// Package photos is the photographs of this folder, embedded: what tests read
// and what `stoker demo` makes its dataset from. It is not part of the API.
package photos

import "embed"

// Files holds the JPEG files of this folder.
//
//go:embed *.jpg
var Files embed.FS

// Small holds the smaller ones. A program that uses only these does not carry the others,
// which have 0.8 MB.
//
//go:embed astronaut.jpg chelsea.jpg coffee.jpg rocket.jpg
var Small embed.FS
