package faults

import (
	"context"
	"encoding/binary"
	"hash"
	"net"

	"github.com/stoker-data/stoker/internal/loader"
	"github.com/stoker-data/stoker/internal/stage/batch"
)

// rows writes what a batch delivers: of each row the id, and the length and bytes of its
// picture.
func rows(h hash.Hash, b *loader.Batch) {
	var ids, images batch.Column
	for _, c := range b.Columns {
		switch c.Name {
		case batch.IDs:
			ids = c
		case "image":
			images = c
		}
	}
	number := func(off int64, i int) int64 { return int64(binary.LittleEndian.Uint64(b.Slot.Mem[off+8*int64(i):])) }
	for i := range b.Rows {
		from, to := number(images.Off, i), number(images.Off, i+1)
		var head [16]byte
		binary.LittleEndian.PutUint64(head[:], uint64(number(ids.Off, i)))
		binary.LittleEndian.PutUint64(head[8:], uint64(to-from))
		_, _ = h.Write(head[:])
		_, _ = h.Write(b.Slot.Mem[images.Data+from : images.Data+to])
	}
}

// says keeps what was shown or stored.
func (r *Run) says(lines ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, lines...)
}

// resolver is the run's own name server; nil: the system's.
func (r *Run) resolver() *net.Resolver {
	if r.Names == nil {
		return nil
	}
	asks := r.Names.Resolver()
	dial := asks.Dial
	// A lookup goes on after nobody waits for it: with the run, it ends.
	asks.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if r.ctx.Err() != nil {
			return nil, r.ctx.Err()
		}
		c, err := dial(ctx, network, addr)
		if err == nil {
			context.AfterFunc(r.ctx, func() { _ = c.Close() })
		}
		return c, err
	}
	return asks
}

// field is the stored name of the pictures.
func (l *Lab) field(data string) string {
	switch data {
	case "tar", "packed":
		return "jpg"
	}
	return "image"
}
