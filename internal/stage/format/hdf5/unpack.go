package hdf5

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/stage/format/hdf5/tree"
)

// unpacker undoes filters; safe for concurrent use.
type unpacker struct {
	inflaters sync.Pool // *kernel.Inflater
}

// unpack undoes the filters of a chunk, the last one first, except those of the mask,
// into its own memory of n bytes.
func (u *unpacker) unpack(filters []tree.Filter, mask int32, raw []byte, n int64) ([]byte, error) {
	sizes := sized(filters, mask, n)
	own := false // raw is a view of what was read
	for i := len(filters) - 1; i >= 0; i-- {
		if uint32(mask)>>i&1 != 0 {
			continue
		}
		var err error
		switch f := filters[i]; f.ID {
		case tree.Fletcher:
			raw, err = fletcher(raw)
		case tree.Shuffle:
			switch {
			case len(f.Values) == 0:
				err = errors.New("its shuffle filter has no valid element size")
			case f.Values[0] > 1:
				raw, own = unshuffle(raw, int(f.Values[0])), true
			}
		case tree.Deflate:
			raw, err = u.inflate(raw, sizes[i])
			own = true
		case tree.LZF:
			raw, err = unlzf(raw, sizes[i])
			own = true
		default:
			err = fmt.Errorf("filter %d", f.ID)
		}
		if err != nil {
			return nil, err
		}
	}
	if int64(len(raw)) != n {
		return nil, fmt.Errorf("it unpacks to %d bytes, not %d", len(raw), n)
	}
	if !own {
		raw = bytes.Clone(raw)
	}
	return raw, nil
}

// inflate unpacks zlib's format, and checks the checksum against the output.
func (u *unpacker) inflate(raw []byte, n int64) ([]byte, error) {
	z, _ := u.inflaters.Get().(*kernel.Inflater)
	if z == nil {
		z = new(kernel.Inflater)
	}
	defer u.inflaters.Put(z)
	out := make([]byte, n+kernel.InflateSlack)
	got, used, err := z.Zlib(out, int(n), raw)
	if err != nil {
		return nil, fmt.Errorf("%w, at its byte %d", err, used)
	}
	if int64(got) != n {
		return nil, fmt.Errorf("it unpacks to %d bytes, not %d", got, n)
	}
	return out[:n:n], nil
}

var errLZF = errors.New("the LZF data is damaged")

// unlzf unpacks Marc Lehmann's LZF: a byte below 32 is followed by one more literal
// than its value; another one is the length of a match, less 2, in its upper three
// bits (7: plus the next byte), and a distance, less 1, in the other five and the
// next byte.
func unlzf(raw []byte, n int64) ([]byte, error) {
	out := make([]byte, n)
	at, to := 0, 0
	for at < len(raw) {
		c := int(raw[at])
		at++
		if c < 32 {
			c++
			if c > len(raw)-at || c > len(out)-to {
				return nil, errLZF
			}
			to += copy(out[to:], raw[at:at+c])
			at += c
			continue
		}
		length := c>>5 + 2
		if length == 9 {
			if at == len(raw) {
				return nil, errLZF
			}
			length += int(raw[at])
			at++
		}
		if at == len(raw) {
			return nil, errLZF
		}
		from := to - (c&31)<<8 - int(raw[at]) - 1
		at++
		if from < 0 || length > len(out)-to {
			return nil, errLZF
		}
		if from+length <= to {
			to += copy(out[to:], out[from:from+length])
			continue
		}
		for range length { // the match repeats itself
			out[to] = out[from]
			to, from = to+1, from+1
		}
	}
	if to != len(out) {
		return nil, fmt.Errorf("%w: it unpacks to %d bytes, not %d", errLZF, to, n)
	}
	return out, nil
}

// unshuffle puts the bytes of each element together again: all first bytes come
// first, then all second ones. A remainder of less than an element stays at the end.
func unshuffle(raw []byte, size int) []byte {
	out := make([]byte, len(raw))
	n := len(raw) / size
	for j := range size {
		plane := raw[j*n : (j+1)*n]
		k := j
		for _, b := range plane {
			out[k] = b
			k += size
		}
	}
	copy(out[n*size:], raw[n*size:])
	return out
}

// fletcher checks and takes off the sum at the end (John Fletcher, 1982, over
// 16-bit words, big-endian). Old versions of HDF5 wrote it with the bytes of its
// halves swapped.
func fletcher(raw []byte) ([]byte, error) {
	n := len(raw) - 4
	if n < 0 {
		return nil, errors.New("it is too short for a checksum")
	}
	var a, b uint32
	body := raw[:n]
	for len(body) >= 2 {
		block := body[:min(len(body)&^1, 720)] // so many that the sums do not overflow
		body = body[len(block):]
		for i := 0; i < len(block); i += 2 {
			a += uint32(block[i])<<8 | uint32(block[i+1])
			b += a
		}
		a, b = a&0xFFFF+a>>16, b&0xFFFF+b>>16
	}
	if len(body) == 1 {
		a += uint32(body[0]) << 8
		b += a
		a, b = a&0xFFFF+a>>16, b&0xFFFF+b>>16
	}
	a, b = a&0xFFFF+a>>16, b&0xFFFF+b>>16
	got := binary.LittleEndian.Uint32(raw[n:])
	if sum := b<<16 | a; got != sum && got != sum>>8&0x00FF00FF|sum<<8&0xFF00FF00 {
		return nil, fmt.Errorf("its checksum is %#08x, and should be %#08x", sum, got)
	}
	return raw[:n:n], nil
}
