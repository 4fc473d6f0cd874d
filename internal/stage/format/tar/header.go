package tar

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// A tar is a row of blocks of 512 bytes. Each member is a header, its body, and
// zeros up to the next block; two blocks of zeros end the archive.
//
//	  0 100  name               257   6  magic: "ustar\0" POSIX, "ustar " GNU
//	100   8  mode               263   2  version
//	108  16  owner, group       265  64  names of owner and group
//	124  12  size               329  16  device
//	136  12  time               345 155  prefix of the name (POSIX)
//	148   8  checksum           500  12  zero
//	156   1  type
//	157 100  target of a link
//
// Numbers are octal digits with spaces or zeros around them; where the first bit
// is set, the field is a big-endian number in two's complement without that bit.
const blockLen = 512

// Types of members.
const (
	typeRegular    = '0'
	typeOld        = 0 // regular, before there were types
	typeContiguous = '7'
	typeHardLink   = '1'
	typeLink       = '2'
	typeChar       = '3'
	typeBlock      = '4'
	typeDir        = '5'
	typeFIFO       = '6'
	typePAX        = 'x'
	typePAXSun     = 'X'
	typePAXGlobal  = 'g'
	typeLongName   = 'L'
	typeLongLink   = 'K'
	typeSparse     = 'S'
	typeMulti      = 'M'
)

// block is a decoded header.
type block struct {
	typ  byte
	name string
	size int64
}

// decode reads one header of blockLen bytes that is not all zeros.
func decode(h []byte) (block, error) {
	// The checksum does not cover itself: nothing but filling may be in it.
	field := bytes.TrimRight(h[148:156], "\x00 ")
	want, err := number(field)
	if err != nil || bytes.IndexByte(field, 0) >= 0 {
		return block{}, fmt.Errorf("the checksum of the header is %q, which is not an octal number", field)
	}
	if unsigned, signed := sums(h); want != unsigned && want != signed {
		return block{}, fmt.Errorf("the checksum of the header is %d, but the header says %d", unsigned, want)
	}
	b := block{typ: h[156], name: text(h[:100])}
	if b.size, err = number(h[124:136]); err != nil {
		return block{}, fmt.Errorf("size: %w", err)
	}
	if b.size < 0 {
		return block{}, fmt.Errorf("the size is %d", b.size)
	}
	if prefix := text(h[345:500]); prefix != "" && string(h[257:263]) == "ustar\x00" {
		b.name = prefix + "/" + b.name
	}
	if b.typ == typeOld && strings.HasSuffix(b.name, "/") {
		b.typ = typeDir
	}
	return b, nil
}

// sums adds up a header with its checksum as spaces; some old writers took bytes
// as signed.
func sums(h []byte) (unsigned, signed int64) {
	for i, c := range h[:blockLen] {
		if 148 <= i && i < 156 {
			c = ' '
		}
		unsigned += int64(c)
		signed += int64(int8(c))
	}
	return unsigned, signed
}

func text(field []byte) string {
	if end := bytes.IndexByte(field, 0); end >= 0 {
		field = field[:end]
	}
	return string(field)
}

func number(field []byte) (int64, error) {
	if len(field) > 0 && field[0]&0x80 != 0 {
		return base256(field)
	}
	s := strings.Trim(text(field), " ")
	if s == "" && len(bytes.Trim(field, " \x00")) == 0 {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 8, 63)
	if err != nil { // or it follows a zero: Python's reader finds nothing, Go's a number
		return 0, fmt.Errorf("%q is not an octal number", field)
	}
	return int64(n), nil
}

func base256(field []byte) (int64, error) {
	negative := field[0]&0x40 != 0
	fill := byte(0)
	if negative {
		fill = 0xff
	}
	var n uint64
	for i, c := range field {
		if i == 0 {
			c = c&0x7f | fill&0x80
		}
		if i < len(field)-8 && c != fill {
			return 0, fmt.Errorf("the number % x is too large", field)
		}
		n = n<<8 | uint64(c)
	}
	if (n > math.MaxInt64) != negative {
		return 0, fmt.Errorf("the number % x is too large", field)
	}
	return int64(n), nil
}

// bodyLen is how many bytes of body follow the header: links and the like have a
// size now and then, and never a body.
func (b block) bodyLen() int64 {
	switch b.typ {
	case typeHardLink, typeLink, typeChar, typeBlock, typeDir, typeFIFO:
		return 0
	}
	return b.size
}

// pax is what extended headers say about the members after them.
type pax struct {
	path    string
	hasPath bool
	size    int64
	hasSize bool
	sparse  bool
}

// read takes in the body of an extended header: lines of "length key=value\n",
// where length counts the line with itself and its end. A later line wins.
func (p *pax) read(body []byte) error {
	for len(body) > 0 {
		digits := bytes.IndexByte(body, ' ')
		if digits < 1 || digits > 9 {
			return fmt.Errorf("a line of an extended header has no length")
		}
		n, err := strconv.Atoi(string(body[:digits]))
		if err != nil || n <= digits+2 || n > len(body) || body[n-1] != '\n' {
			return fmt.Errorf("a line of an extended header is not as long as it says")
		}
		key, value, ok := strings.Cut(string(body[digits+1:n-1]), "=")
		if !ok || key == "" {
			return fmt.Errorf("a line of an extended header has no key")
		}
		if err := p.set(key, value); err != nil {
			return err
		}
		body = body[n:]
	}
	return nil
}

func (p *pax) set(key, value string) error {
	switch {
	case key == "path":
		p.path, p.hasPath = value, value != "" // an empty value takes it back
	case key == "size" && value == "":
		p.hasSize = false
	case key == "size":
		n, err := strconv.ParseUint(value, 10, 63)
		if err != nil {
			return fmt.Errorf("the size in an extended header is %q", value)
		}
		p.size, p.hasSize = int64(n), true
	case strings.HasPrefix(key, "GNU.sparse."):
		p.sparse = true
	}
	return nil
}
