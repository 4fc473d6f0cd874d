package decode

import "encoding/binary"

// jpegHeader walks the markers to the frame header. Decoding is the kernel's.
func jpegHeader(b []byte) (w, h, components int, err error) {
	for at := 2; ; {
		for at < len(b) && b[at] == 0xff {
			at++ // fill bytes before a marker, and its own first byte
		}
		if at+3 > len(b) {
			return 0, 0, 0, malformed(KindJPEG, "the file ends before its frame header")
		}
		marker := b[at]
		at++
		switch {
		case marker == 0x01 || 0xd0 <= marker && marker <= 0xd7: // no segment behind it
			continue
		case marker == 0xd9 || marker == 0xda:
			return 0, 0, 0, malformed(KindJPEG, "no frame header before marker 0xff%02x", marker)
		}
		n := int(binary.BigEndian.Uint16(b[at:]))
		if n < 2 || at+n > len(b) {
			return 0, 0, 0, malformed(KindJPEG, "the file ends inside the segment of marker 0xff%02x", marker)
		}
		// C4, C8 and CC in the range of frame headers are tables and reserved.
		if 0xc0 <= marker && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc {
			if n < 8 {
				return 0, 0, 0, malformed(KindJPEG, "a frame header of %d bytes", n)
			}
			s := b[at+2:]
			h, w = int(binary.BigEndian.Uint16(s[1:])), int(binary.BigEndian.Uint16(s[3:]))
			return w, h, int(s[5]), checkSize(KindJPEG, int64(w), int64(h))
		}
		if at += n; at < len(b) && b[at] != 0xff {
			return 0, 0, 0, malformed(KindJPEG, "found 0x%02x at byte %d instead of a marker", b[at], at)
		}
	}
}
