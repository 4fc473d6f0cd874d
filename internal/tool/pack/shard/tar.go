package shard

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
)

// Tar is shards as WebDataset reads them: a member for each field, named by the
// sample's key, a dot and the field, with an extension that WebDataset decodes by
// default: encoded bytes by their contents, classes as text in .cls, other numbers
// and arrays in .npy.
type Tar struct{}

// blockLen is the size of headers, to which bodies are padded, in bytes.
const blockLen = 512

// Files implements Output. After the last member come two blocks of zeros.
func (Tar) Files() []File {
	return []File{{End: ".tar", Tail: func(w io.Writer, _ io.ReaderAt, _, _ int64) error {
		_, err := w.Write(make([]byte, 2*blockLen))
		return err
	}}}
}

// Encode implements Output.
func (Tar) Encode(s *Sample, parts [][]byte) error {
	var number [24]byte
	names, err := Members(s)
	if err != nil {
		return err
	}
	out := parts[0]
	for i := range s.Fields {
		f, name := &s.Fields[i], names[i]
		switch {
		case f.DType == mem.Object:
			out = member(out, s.Key, name, f.Data)
		case strings.HasSuffix(name, "cls"):
			n, _ := f.Int()
			out = member(out, s.Key, name, strconv.AppendInt(number[:0], n, 10))
		default:
			head := format.NPY(f.DType, f.Shape, nil)
			out = header(out, s.Key, name, int64(len(head)+len(f.Data)))
			out = append(append(out, head...), f.Data...)
			out = fill(out, len(head)+len(f.Data))
		}
	}
	parts[0] = out
	return nil
}

// Members are the parts after the dot of the names of a sample's members: "jpg",
// "cls", "left.jpg", "depth.npy". A picture named image, a field named like its
// extension, and a field without a name need only the extension; if two fields
// would get the same one, the second keeps its name.
func Members(s *Sample) (names []string, err error) {
	names = make([]string, len(s.Fields))
	for i := range s.Fields {
		own := member1(&s.Fields[i])
		names[i] = own
		for j := range i {
			if member1(&s.Fields[j]) == own {
				names[i] = lower(&s.Fields[i]) + "." + own
				break
			}
		}
		for j := range i {
			if names[j] == names[i] || lower(&s.Fields[j]) == lower(&s.Fields[i]) {
				return nil, twice(&s.Fields[j], &s.Fields[i], names[i])
			}
		}
	}
	return names, nil
}

// twice is the error of two fields that would have the same name.
func twice(a, b *Field, name string) error {
	return misfit(b.Name, "the fields %q and %q would both be called %q", a.Name, b.Name, name).
		Try("keep one of them, with --fields")
}

// SafeName is the name of a field as part of a file name: characters with another
// meaning there become underscores.
func SafeName(name string) string {
	first := true // only dots so far
	return strings.Map(func(c rune) rune {
		if c < 0x20 || c == 0x7f || c == '/' || c == '\\' || c == utf8.RuneError || first && c == '.' {
			return '_'
		}
		first = false
		return c
	}, cmp.Or(name, "_"))
}

func lower(f *Field) string { return strings.ToLower(SafeName(f.Name)) }

func member1(f *Field) string {
	name := lower(f)
	if f.DType == mem.Object {
		switch {
		case name == f.Ext || strings.HasSuffix(name, "."+f.Ext), f.Ext == "":
			return name
		case name == "image" || f.Unnamed || f.Ext == "cls":
			return f.Ext
		}
		return name + "." + f.Ext
	}
	switch _, whole := f.Int(); {
	case whole && (name == "label" || name == "labels" || name == "cls" || name == "class"):
		return "cls"
	case whole && strings.HasSuffix(name, ".cls"):
		return name
	case strings.HasSuffix(name, ".npy"):
		return name
	case name == "npy":
		return name
	}
	return name + ".npy"
}

func member(dst, key []byte, name string, body []byte) []byte {
	dst = header(dst, key, name, int64(len(body)))
	dst = append(dst, body...)
	return fill(dst, len(body))
}

// fill is the zeros after a body of n bytes.
func fill(dst []byte, n int) []byte {
	var zeros [blockLen]byte
	return append(dst, zeros[:-n&(blockLen-1)]...)
}

// The fields of a ustar header (POSIX.1-1988) that are written here.
const (
	maxOctal   = 1<<33 - 1
	nameLen    = 100
	modeAt     = 100
	uidAt      = 108
	gidAt      = 116
	sizeAt     = 124
	mtimeAt    = 136
	sumAt      = 148
	typeAt     = 156
	magicAt    = 257
	typeReg    = '0'
	typeExtend = 'x' // pax: for the next member
)

// header is the header of a regular file. Values that do not fit into ustar are in
// a pax header before it: names of more than 100 bytes or with other characters
// than ASCII, and sizes from 8 GiB on.
func header(dst, key []byte, name string, size int64) []byte {
	long := len(key)+1+len(name) > nameLen || size > maxOctal || !ascii(key) || !ascii([]byte(name))
	if long {
		var p []byte
		p = paxLine(p, "path", string(key)+"."+name)
		if size > maxOctal {
			p = paxLine(p, "size", strconv.FormatInt(size, 10))
		}
		dst = block(dst, []byte("./PaxHeaders/x"), int64(len(p)), typeExtend)
		dst = append(dst, p...)
		dst = fill(dst, len(p))
	}
	var room [nameLen]byte
	full := append(append(append(room[:0], key...), '.'), name...)
	if len(full) > nameLen {
		full = full[len(full)-nameLen:]
	}
	return block(dst, full, size, typeReg)
}

func ascii(s []byte) bool {
	for _, c := range s {
		if c >= 0x80 {
			return false
		}
	}
	return true
}

// paxLine is "length key=value
// ", where the length includes its own digits.
func paxLine(dst []byte, key, value string) []byte {
	n := len(key) + len(value) + 3
	length := n + len(strconv.Itoa(n))
	if n+len(strconv.Itoa(length)) != length {
		length++
	}
	return fmt.Appendf(dst, "%d %s=%s\n", length, key, value)
}

// block is one header: mode 0644, no owner, no time.
func block(dst, name []byte, size int64, kind byte) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, blockLen)...)
	h := dst[at:]
	copy(h[:nameLen], name)
	octal(h[modeAt:uidAt], 0o644)
	octal(h[uidAt:gidAt], 0)
	octal(h[gidAt:sizeAt], 0)
	octal(h[sizeAt:mtimeAt], min(size, maxOctal))
	octal(h[mtimeAt:sumAt], 0)
	h[typeAt] = kind
	copy(h[magicAt:], "ustar\x0000")
	copy(h[sumAt:typeAt], "        ")
	sum := int64(0)
	for _, c := range h {
		sum += int64(c)
	}
	octal(h[sumAt:sumAt+7], sum)
	return dst
}

// octal fills p with the digits of n and a zero byte.
func octal(p []byte, n int64) {
	p[len(p)-1] = 0
	for i := len(p) - 2; i >= 0; i-- {
		p[i] = '0' + byte(n&7)
		n >>= 3
	}
}
