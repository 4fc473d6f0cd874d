package loader

import (
	"encoding/binary"
	"math"

	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/decode"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

// mixer is what mixing a batch needs besides the batch; one at a time uses it.
type mixer struct {
	rows  []int32
	spare []byte
}

// mixing is what a batch transform chooses for a batch; nil without one. It depends on the
// key of the batch's first place alone, so no lane, worker or resume can change it. The
// other rows of a batch do depend on its size and on the number of ranks.
func (l *Loader) mixing(ob *openBatch) *transform.Mixed {
	if l.mix == nil || ob.rows == 0 {
		return nil
	}
	c := l.mix.Choose(ob.Tasks[0].Key)
	return &c
}

// mixes reports whether the engine mixes batches itself. Where workers or the trainer make
// samples, the client has the batch as the user's code arranged it, and mixes that.
func (l *Loader) mixes() bool {
	return l.mix != nil && l.mix.Label >= 0 && !l.mix.Left && l.feeds == nil
}

// blend mixes the rows of a completed batch, in its slot. Rows that are not valid (padding,
// copies for skipped samples) are left out: they keep their picture, and no other row gets
// any of it.
func (l *Loader) blend(ob *openBatch) error {
	m, fields := l.mix, ob.Layout.Fields
	mx, _ := l.mixers.Get().(*mixer)
	if mx == nil {
		mx = new(mixer)
	}
	defer l.mixers.Put(mx)
	mx.rows = mx.rows[:0]
	for i := range ob.rows {
		if ob.Layout.Row(ob.Slot.Mem, len(fields)-1, i)[0] != 0 {
			mx.rows = append(mx.rows, int32(i))
		}
	}
	c := l.mixing(ob)
	picture := ob.columns[m.Picture]
	dtype := fields[m.Picture].DType
	shape := mem.Shape(picture.Shape)
	size, lambda := shape.Elems()*dtype.Size(), c.Lambda
	data := ob.Slot.Mem[picture.Off : picture.Off+int64(ob.rows)*int64(size)]
	var err error
	if c.Cut {
		p := m.Planes(shape, dtype)
		var x1, y1, x2, y2 int
		if x1, y1, x2, y2, lambda = c.Box(p.Width, p.Height); p.Width*p.Height == 0 {
			lambda = 1
		}
		mx.spare, err = kernel.CutMix(data, p, mx.rows, x1, y1, x2, y2, mx.spare)
	} else {
		err = kernel.MixUp(data, size, dtype.Size(), mx.rows, lambda)
	}
	if err != nil {
		return err
	}
	return l.blendLabels(ob, mx.rows, lambda)
}

// blendLabels mixes the labels like the pictures.
func (l *Loader) blendLabels(ob *openBatch, rows []int32, lambda float64) error {
	m, fields := l.mix, ob.Layout.Fields
	label := &fields[m.Label]
	at, from := ob.columns[m.Label].Off, m.Label
	if m.Soft.Name != "" {
		from = len(fields) - batch.Marks - 1
		at = ob.Layout.Off(from)
		for i := range ob.rows {
			if err := l.soften(ob, i, label, ob.Layout.Row(ob.Slot.Mem, from, i)); err != nil {
				return err
			}
		}
		ob.columns[m.Label] = batch.Column{Name: label.Name, Off: at, Shape: m.Soft.Shape}
		ob.columns = append(ob.columns[:from], ob.columns[from+1:]...)
	}
	size := int64(len(ob.Layout.Row(ob.Slot.Mem, from, 0)))
	return kernel.MixUp(ob.Slot.Mem[at:at+int64(ob.rows)*size], int(size), fields[from].DType.Size(), rows, lambda)
}

// soften writes the probabilities of a row's label: 1 for its class, or its own numbers as
// floats.
func (l *Loader) soften(ob *openBatch, row int, label *batch.Field, dst []byte) error {
	src := ob.Layout.Row(ob.Slot.Mem, l.mix.Label, row)
	if len(label.Seen()) > 0 {
		return decode.Cast(dst, src, label.DType, mem.Float32)
	}
	class, err := l.class(ob, row, label)
	if err != nil {
		return err
	}
	clear(dst)
	binary.LittleEndian.PutUint32(dst[4*class:], math.Float32bits(1))
	return nil
}

// class is the class number in a row of the labels.
func (l *Loader) class(ob *openBatch, row int, label *batch.Field) (int, error) {
	src := ob.Layout.Row(ob.Slot.Mem, l.mix.Label, row)
	var number [8]byte
	if label.DType == mem.Int64 {
		copy(number[:], src)
	} else if err := decode.Cast(number[:], src, label.DType, mem.Int64); err != nil {
		return 0, err
	}
	return l.mix.Class(int64(binary.LittleEndian.Uint64(number[:])), ob.Tasks[row].Req.Sample)
}

// checkClasses refuses class numbers that are none, where the client makes probabilities of
// them.
func (l *Loader) checkClasses(ob *openBatch) error {
	label := &ob.Layout.Fields[l.mix.Label]
	if len(label.Seen()) > 0 {
		return nil
	}
	for i := range ob.rows {
		if _, err := l.class(ob, i, label); err != nil {
			return err
		}
	}
	return nil
}
