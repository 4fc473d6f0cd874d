package compressed

import (
	"context"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
)

const (
	readBytes = 1 << 20 // of one read of a stored file
	padBytes  = 16      // zeros after the last byte, so that 8 can be loaded at any
)

// feed is compressed bytes from front to back: of a stored file, read as they are
// needed, or a part of one that is there already.
type feed struct {
	ctx context.Context
	src source.Source // nil: all there is to read is in in
	obj source.Info

	in   []byte // in[p:end] is unread
	p    int
	end  int
	base int64 // of in[0] in the file
	tail bool  // what follows end are padBytes zeros
}

// feedOf reads raw, which is at off of a stored file.
func feedOf(name string, raw []byte, off int64) feed {
	return feed{obj: source.Info{Name: name, Size: off + int64(len(raw))}, in: raw, end: len(raw), base: off}
}

// pos is the offset in the file of the next byte.
func (f *feed) pos() int64 { return f.base + int64(f.p) }

// more reads on; false: there is nothing more.
func (f *feed) more() (bool, error) {
	at := f.base + int64(f.end)
	n := min(readBytes, f.obj.Size-at)
	if f.src == nil || n == 0 {
		return false, nil
	}
	// What was loaded as bits and is given back stays where it is.
	from := max(f.p-8, 0)
	left := f.end - from
	if cap(f.in) < left+int(n) {
		grown := make([]byte, left+int(n), max(left+int(n), 2*readBytes))
		copy(grown, f.in[from:f.end])
		f.in = grown
	} else {
		copy(f.in, f.in[from:f.end])
		f.in = f.in[:left+int(n)]
	}
	f.base, f.p, f.end = f.base+int64(from), f.p-from, left+int(n)
	if err := f.src.ReadAt(f.ctx, f.obj, f.in[left:], at); err != nil {
		return false, format.InShard(err)
	}
	return true, nil
}

// peek is the next n bytes, fewer where the file ends: a view until anything
// else is called.
func (f *feed) peek(n int) ([]byte, error) {
	for f.end-f.p < n {
		if more, err := f.more(); err != nil {
			return nil, err
		} else if !more {
			break
		}
	}
	return f.in[f.p:min(f.p+n, f.end)], nil
}

// loadable makes sure that 8 bytes can be loaded at in[p:], with zeros after the last
// byte of the input.
func (f *feed) loadable() error {
	if f.p+8 <= len(f.in) {
		return nil
	}
	if !f.tail {
		more, err := f.more()
		if err != nil {
			return err
		}
		if !more {
			from := max(f.p-8, 0)
			left := f.end - from
			f.in = append(append(make([]byte, 0, left+padBytes), f.in[from:f.end]...), make([]byte, padBytes)...)
			f.base, f.p, f.end, f.tail = f.base+int64(from), f.p-from, left, true
		}
	}
	if f.p+8 <= len(f.in) {
		return nil
	}
	return f.cut()
}

// damaged is an error at an offset of the stored file.
func (f *feed) damaged(off int64, format string, a ...any) *errs.Error {
	return damaged(f.obj.Name, off, format, a...)
}

func damaged(name string, off int64, format string, a ...any) *errs.Error {
	return errs.New(errs.Damaged, format, a...).At(errs.Where{Shard: name, Offset: errs.Known(off)}).
		Try("fetch or write the file again, or leave it out")
}

// cut is the error of a stream that ends too early.
func (f *feed) cut() error {
	return f.damaged(f.base+int64(f.end), "the compressed stream is cut off: more should follow here")
}
