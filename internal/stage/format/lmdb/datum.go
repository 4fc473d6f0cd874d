package lmdb

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// valueKind is what the values of a dataset are; part of the index, never change.
type valueKind int64

const (
	rawBytes     valueKind = 0
	datumEncoded valueKind = 1 // an image file
	datumBytes   valueKind = 2 // uint8, channels first
	datumFloats  valueKind = 3 // float32, channels first
)

func (k valueKind) fields() []string {
	if k == rawBytes {
		return []string{Value, Key}
	}
	return []string{Image, Label, Key}
}

// known says whether an index may say so.
func (k valueKind) known(shape mem.Shape) bool {
	if k == rawBytes || k == datumEncoded {
		return len(shape) == 3
	}
	if k != datumBytes && k != datumFloats || len(shape) != 3 {
		return false
	}
	_, ok := elems(int64(shape[0]), int64(shape[1]), int64(shape[2]))
	return ok
}

type valueInfo struct {
	kind  valueKind
	shape [3]int64
}

// datum is a Datum of Caffe (caffe.proto): 1 channels, 2 height, 3 width, 4 data,
// 5 label, 6 float_data, 7 encoded. The slices are views.
type datum struct {
	shape   [3]int64
	data    []byte
	dataAt  int // of data in the value
	label   int64
	floats  []byte // packed, or put together
	encoded bool
}

var errNoDatum = errors.New("it is not a Datum")

// elems is the product of a shape, if that can be.
func elems(c, h, w int64) (int64, bool) {
	n := int64(1)
	for _, d := range [3]int64{c, h, w} {
		if d < 1 || d > math.MaxInt32 || n > math.MaxInt32/d {
			return 0, false
		}
		n *= d
	}
	return n, true
}

// parseDatum parses a value: it accepts only the fields of a Datum, each of its type,
// and no bytes left over.
func parseDatum(v []byte) (d datum, err error) {
	for at := 0; at < len(v); {
		tag, n := binary.Uvarint(v[at:])
		if n <= 0 {
			return d, errNoDatum
		}
		at += n
		switch tag {
		case 1 << 3, 2 << 3, 3 << 3, 5 << 3, 7 << 3: // numbers
			u, n := binary.Uvarint(v[at:])
			if n <= 0 {
				return d, errNoDatum
			}
			at += n
			d.number(int(tag>>3), u)
		case 4<<3 | 2, 6<<3 | 2: // bytes
			u, n := binary.Uvarint(v[at:])
			if n <= 0 || u > uint64(len(v)-at-n) {
				return d, errNoDatum
			}
			at += n
			if body := v[at : at+int(u) : at+int(u)]; tag>>3 == 4 {
				d.data, d.dataAt = body, at
			} else if d.floats == nil {
				d.floats = body
			} else {
				d.floats = append(d.floats, body...)
			}
			at += int(u)
		case 6<<3 | 5: // four bytes
			if len(v)-at < 4 {
				return d, errNoDatum
			}
			if d.floats == nil {
				d.floats = make([]byte, 0, (len(v)-at)/5*4+4)
			}
			d.floats = append(d.floats, v[at:at+4]...)
			at += 4
		default:
			return d, errNoDatum
		}
	}
	return d, d.fits()
}

func (d *datum) number(field int, u uint64) {
	switch field {
	case 5:
		d.label = int64(int32(u))
	case 7:
		d.encoded = u != 0
	default:
		d.shape[field-1] = int64(min(u, math.MaxInt32+1))
	}
}

// fits says whether there is as much data as the shape needs.
func (d *datum) fits() error {
	if d.encoded {
		if len(d.data) == 0 {
			return errNoDatum
		}
		return nil
	}
	n, ok := elems(d.shape[0], d.shape[1], d.shape[2])
	switch {
	case !ok:
		return fmt.Errorf("a shape of %d x %d x %d", d.shape[0], d.shape[1], d.shape[2])
	case d.data != nil && d.floats == nil && int64(len(d.data)) == n, d.data == nil && int64(len(d.floats)) == 4*n:
		return nil
	}
	return fmt.Errorf("%d x %d x %d and %d bytes of data, %d of floats", d.shape[0], d.shape[1], d.shape[2], len(d.data), len(d.floats))
}

func (d *datum) kind() valueKind {
	switch {
	case d.encoded:
		return datumEncoded
	case d.floats != nil:
		return datumFloats
	}
	return datumBytes
}

// judge determines what the values are, from the first, the middle and the last one.
func judge(ctx context.Context, src source.Source, objs []source.Info, c *columns, want Values) (valueInfo, error) {
	var t valueInfo
	if want == Raw {
		return t, nil
	}
	n := len(c.off)
	for no, i := range []int{0, n / 2, n - 1} {
		obj := objs[c.file[i]]
		if c.size[i] > math.MaxInt32 {
			return valueInfo{}, nil
		}
		v, err := format.Read(ctx, src, obj, c.off[i], c.size[i])
		if err != nil {
			return t, err
		}
		d, err := parseDatum(v)
		if err != nil && want == Auto {
			return valueInfo{}, nil
		}
		if err != nil {
			return t, errs.New(errs.Damaged, "the value of %q is not a Datum", c.keys.At(i)).Because(err).
				At(errs.Where{Shard: obj.Name, Offset: errs.Known(c.off[i]), Sample: errs.Known(int64(i))}).Try("leave values out, or write %q", Raw)
		}
		one := valueInfo{kind: d.kind()}
		if one.kind != datumEncoded {
			one.shape = d.shape
		}
		if no > 0 && one != t {
			return t, errs.New(errs.Unsupported, "the Datum of %q is an array of %v, the first is one of %v", c.keys.At(i), one.shape, t.shape).
				At(errs.Where{Shard: obj.Name, Offset: errs.Known(c.off[i]), Sample: errs.Known(int64(i))}).
				Try("write the environment with encoded images (encoded=True), whose sizes may differ, or with arrays of one shape")
		}
		t = one
	}
	return t, nil
}
