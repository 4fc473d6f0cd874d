// Package suffix is the convention of WebDataset: the last part of a field's name, as
// of a file's, says what the field holds.
package suffix

import "strings"

// Kind is what WebDataset takes a member for, by the suffix of its field.
type Kind string

// The kinds of members.
const (
	Image   Kind = "image"
	Number  Kind = "number" // a whole number, as text
	Text    Kind = "text"
	JSON    Kind = "json"
	Array   Kind = "npy"
	Pickle  Kind = "pickle"  // refused unless its bytes are asked for: reading a pickle runs code
	Unbuilt Kind = "unbuilt" // WebDataset decodes it, and stoker does not
	Bytes   Kind = "bytes"   // everything else
)

// Of is the kind of a field that a decoder sees: the part after its last dot
// decides, in lower or upper case. python/src/stoker/_suffixes.py is the same rule;
// testdata/suffixes.json holds the two together.
func Of(field string) Kind {
	switch of(field) {
	case "jpg", "jpeg", "jpe", "jfif", "png", "ppm", "pgm", "pbm", "pnm", "webp", "gif", "bmp", "tif", "tiff":
		return Image
	case "cls", "cls2", "index", "inx", "id":
		return Number
	case "txt", "text", "transcript":
		return Text
	case "json", "jsn":
		return JSON
	case "npy":
		return Array
	case "pyd", "pkl", "pickle", "pth", "pt":
		return Pickle
	case "npz", "ten", "tb", "tenbin", "mp", "msg", "cbor":
		return Unbuilt
	}
	return Bytes
}

// WritesNumber says whether WebDataset writes a field as a whole number. These are two
// more than it reads as one.
func WritesNumber(field string) bool {
	switch of(field) {
	case "class", "count":
		return true
	}
	return Of(field) == Number
}

func of(field string) string {
	return strings.ToLower(field[strings.LastIndexByte(field, '.')+1:])
}
