package mds

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/stoker-data/stoker/internal/base/jsontext"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// readTable reads the offsets and columns at the beginning of a shard of raw bytes from
// r and checks them: the offset of every sample, and the end. If something is wrong, at
// is the byte where it is.
func readTable(r io.Reader, s *shardInfo, raw int64) (offsets []int64, at int64, wrong error) {
	var n [4]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return nil, 0, early(err, nil)
	}
	count := int64(binary.LittleEndian.Uint32(n[:]))
	if count != s.Samples {
		return nil, 0, fmt.Errorf("it holds %d samples, but %s says %d", count, IndexName, s.Samples)
	}
	head := 8 + 4*count
	last := int64(0)
	buf := make([]byte, min(64<<10, head))
	for at = 4; at < head; {
		part := buf[:min(int64(len(buf)), head-at)]
		if _, err := io.ReadFull(r, part); err != nil {
			return nil, at, early(err, nil)
		}
		for i := 0; i < len(part); i += 4 {
			o := int64(binary.LittleEndian.Uint32(part[i:]))
			if o < max(last, head) || o > raw {
				return nil, at + int64(i), fmt.Errorf("offset %d of its samples is %d, which is not between %d and its end at %d", len(offsets), o, max(last, head), raw)
			}
			last = o
			offsets = append(offsets, o)
		}
		at += int64(len(part))
	}
	if last != raw {
		return nil, head - 4, fmt.Errorf("its samples end at byte %d of %d", last, raw)
	}
	return offsets, head, readConfig(r, s, offsets[0]-head)
}

// maxConfig bounds the text between the offsets and the first sample.
const maxConfig = 1 << 20

// readConfig holds the columns that the shard itself names against those of
// index.json. Writers other than Streaming's may leave them out.
func readConfig(r io.Reader, s *shardInfo, n int64) error {
	if n == 0 {
		return nil
	}
	if n > maxConfig {
		return fmt.Errorf("there are %d bytes between its offsets and its first sample", n)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return early(err, nil)
	}
	var cols columnInfo
	if err := jsontext.Unmarshal(text, &cols); err != nil {
		return fmt.Errorf("the description of its columns is damaged: %w", err)
	}
	if !cols.equal(s.columnInfo) {
		return fmt.Errorf("it has the columns %.200q, but %s says %.200q, or other types for them", cols.Names, IndexName, s.Names)
	}
	return nil
}

// window reads ranges of a shard that are close to each other, ahead bytes at a time.
type window struct {
	ctx   context.Context
	src   source.Source
	obj   source.Info
	data  []byte
	at    int64
	whole bool // data is all of it, unpacked
	ahead int64
}

// bytes is n bytes at off, which are there, valid until the next call.
func (w *window) bytes(off, n int64) ([]byte, error) {
	if w.whole {
		return w.data[off : off+n], nil
	}
	if off < w.at || off+n > w.at+int64(len(w.data)) {
		data, err := format.Read(w.ctx, w.src, w.obj, off, min(max(n, w.ahead), w.obj.Size-off))
		if err != nil {
			return nil, err
		}
		w.data, w.at = data, off
	}
	return w.data[off-w.at : off-w.at+n], nil
}
