package prepare

import (
	"bytes"
	"encoding/binary"
)

// A camera held upright stores rotated pixels, and the rotation in the Exif data of
// the file. Like Pillow and torchvision, stoker delivers the pixels as stored,
// before and after a picture is encoded again: so the tag stays with them, for
// readers that use it.

// orientation is that tag of a JPEG (CIPA DC-008, 4.6.4 A), 1 to 8; 0 if it has
// none.
func orientation(jpeg []byte) uint16 {
	exif := []byte("Exif\x00\x00")
	for p := jpeg; len(p) >= 4; {
		switch {
		case p[0] != 0xff:
			return 0
		case p[1] == 0xd8 || p[1] == 0xff: // the start marker, or a fill byte
			p = p[1:]
			if p[0] == 0xd8 {
				p = p[1:]
			}
			continue
		case p[1] == 0xda || p[1] == 0xd9: // the picture itself, the end
			return 0
		}
		n := int(binary.BigEndian.Uint16(p[2:]))
		if n < 2 || len(p) < 2+n {
			return 0
		}
		if body := p[4 : 2+n]; p[1] == 0xe1 && bytes.HasPrefix(body, exif) {
			return turnOf(body[len(exif):])
		}
		p = p[2+n:]
	}
	return 0
}

// turnOf is the tag in the first directory of Exif's TIFF.
func turnOf(tiff []byte) uint16 {
	if len(tiff) < 8 {
		return 0
	}
	var order binary.ByteOrder = binary.LittleEndian
	if tiff[0] == 'M' {
		order = binary.BigEndian
	}
	at := uint64(order.Uint32(tiff[4:]))
	if at+2 > uint64(len(tiff)) {
		return 0
	}
	const entry = 12 // tag, type, count, value
	dir := tiff[at+2:]
	for range order.Uint16(tiff[at:]) {
		if len(dir) < entry {
			return 0
		}
		if v := order.Uint16(dir[8:]); order.Uint16(dir) == 0x112 && v >= 1 && v <= 8 {
			return v
		}
		dir = dir[entry:]
	}
	return 0
}

// turned is a JPEG with an orientation: Exif with only this tag after its first
// marker.
func turned(jpeg []byte, orientation uint16) []byte {
	segment := []byte("\xff\xe1\x00\x22Exif\x00\x00MM\x00\x2a\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01")
	segment = binary.BigEndian.AppendUint16(segment, orientation)
	segment = append(segment, 0, 0, 0, 0, 0, 0) // the rest of the value, no more directories
	out := append(make([]byte, 0, len(jpeg)+len(segment)), jpeg[:2]...)
	return append(append(out, segment...), jpeg[2:]...)
}
