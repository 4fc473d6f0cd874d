package kernel

import (
	"fmt"
	"os"
)

// UnfilterRows is how many rows of dst Unfilter may write before it has finished reading
// the first row of src.
const UnfilterRows = 16

// Unfilter undoes PNG's filters: src is rows of n bytes, each after its filter byte, and
// dst gets them without it. A pixel has back bytes (1 if it has less). up is the row
// above the first one, or zeros, followed by 8 bytes that may be read. src and dst may
// be parts of one slice if dst begins at least UnfilterRows rows before src; src is then
// overwritten. An undefined filter is a FormatError.
func Unfilter(dst, src, up []byte, n, back int) error {
	rows := len(src) / (n + 1)
	if n < 1 || back < 1 || back > 8 || rows*(n+1) != len(src) || len(dst) != rows*n || len(up) < n+8 {
		return JobError(fmt.Sprintf("%d bytes of filtered rows of %d into %d", len(src), n, len(dst)))
	}
	if rows == 0 {
		return nil
	}
	run := unfilter
	if os.Getenv(kernelEnv) == names[0] {
		run = unfilterGo
	}
	if done := run(dst, src, up, n, rows, back); done < rows {
		return FormatError(fmt.Sprintf("row filter %d is not defined", src[done*(n+1)]))
	}
	return nil
}

// unfilterGo is the twin: row by row.
func unfilterGo(dst, src, up []byte, n, rows, back int) int {
	for y := range rows {
		row := dst[y*n : (y+1)*n]
		filter := src[y*(n+1)]
		copy(row, src[y*(n+1)+1:(y+1)*(n+1)])
		if !unfilterRow(filter, row, up[:n], back) {
			return y
		}
		up = row
	}
	return rows
}

// unfilterRow undoes a row's filter in place; up is the row above, back the
// distance to the pixel at the left. It reports whether the filter is known.
func unfilterRow(filter byte, row, up []byte, back int) bool {
	up = up[:len(row)]
	switch filter {
	case 0:
	case 1:
		for i := back; i < len(row); i++ {
			row[i] += row[i-back]
		}
	case 2:
		for i, v := range up {
			row[i] += v
		}
	case 3:
		head := min(back, len(row))
		for i := range head {
			row[i] += up[i] / 2
		}
		for i := head; i < len(row); i++ {
			row[i] += byte((int(row[i-back]) + int(up[i])) / 2)
		}
	case 4:
		unfilterPaeth(row, up, back)
	default:
		return false
	}
	return true
}

// unfilterPaeth undoes filter 4. Each byte depends on the one to its left, so the
// channels of the usual pixels are computed side by side.
func unfilterPaeth(row, up []byte, back int) {
	head := min(back, len(row))
	for i := range head {
		row[i] += up[i]
	}
	if back == 3 && len(row) >= 3 {
		a0, a1, a2 := int(row[0]), int(row[1]), int(row[2])
		c0, c1, c2 := int(up[0]), int(up[1]), int(up[2])
		for i := 3; i+3 <= len(row) && i+3 <= len(up); i += 3 {
			r, u := row[i:i+3:i+3], up[i:i+3:i+3]
			b0, b1, b2 := int(u[0]), int(u[1]), int(u[2])
			a0 = (int(r[0]) + paeth(a0, b0, c0)) & 255
			a1 = (int(r[1]) + paeth(a1, b1, c1)) & 255
			a2 = (int(r[2]) + paeth(a2, b2, c2)) & 255
			r[0], r[1], r[2] = byte(a0), byte(a1), byte(a2)
			c0, c1, c2 = b0, b1, b2
		}
		return
	}
	if back == 4 && len(row) >= 4 {
		a0, a1, a2, a3 := int(row[0]), int(row[1]), int(row[2]), int(row[3])
		c0, c1, c2, c3 := int(up[0]), int(up[1]), int(up[2]), int(up[3])
		for i := 4; i+4 <= len(row) && i+4 <= len(up); i += 4 {
			r, u := row[i:i+4:i+4], up[i:i+4:i+4]
			b0, b1, b2, b3 := int(u[0]), int(u[1]), int(u[2]), int(u[3])
			a0 = (int(r[0]) + paeth(a0, b0, c0)) & 255
			a1 = (int(r[1]) + paeth(a1, b1, c1)) & 255
			a2 = (int(r[2]) + paeth(a2, b2, c2)) & 255
			a3 = (int(r[3]) + paeth(a3, b3, c3)) & 255
			r[0], r[1], r[2], r[3] = byte(a0), byte(a1), byte(a2), byte(a3)
			c0, c1, c2, c3 = b0, b1, b2, b3
		}
		return
	}
	for i := head; i < len(row); i++ {
		row[i] += byte(paeth(int(row[i-back]), int(up[i]), int(up[i-back])))
	}
}

// paeth is the one of left (a), above (b) and above left (c) that is nearest to a + b -
// c; in a tie, the first. It is written to compile without jumps.
func paeth(a, b, c int) int {
	pa, pb := b-c, a-c
	pc := pa + pb
	pa, pb, pc = max(pa, -pa), max(pb, -pb), max(pc, -pc)
	if pb <= pc {
		c, pc = b, pb
	}
	if pa <= pc {
		c = a
	}
	return c
}
