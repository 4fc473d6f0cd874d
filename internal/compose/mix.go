package compose

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

// choose is what a batch transform chooses for a batch. It depends on the
// key of the batch's first place alone, so no lane, worker or resume can change it. The
// other rows of a batch do depend on its size and on the number of ranks.
func (b *Batch) choose() transform.Mixed { return b.m.mix.Choose(b.Tasks[0].Key) }

// Mixed is what a batch transform chose for the batch, if the batch is not mixed here: for
// the client to do. nil: there is nothing to do.
func (b *Batch) Mixed() *transform.Mixed {
	if b.m.mix == nil || b.Rows == 0 || b.m.mixes() {
		return nil
	}
	c := b.choose()
	return &c
}

// mixes reports whether batches are mixed here. Where workers or the trainer make
// samples, the client has the batch as the user's code arranged it, and mixes that.
func (m *Maker) mixes() bool { return m.mix != nil && m.mix.Label >= 0 && !m.mix.Left }

// blend mixes the rows of a completed batch, in its slot. Rows that are not valid (padding,
// copies for skipped samples) are left out: they keep their picture, and no other row gets
// any of it.
func (b *Batch) blend() error {
	m, fields := b.m.mix, b.Layout.Fields
	mx, _ := b.m.mixers.Get().(*mixer)
	if mx == nil {
		mx = new(mixer)
	}
	defer b.m.mixers.Put(mx)
	mx.rows = mx.rows[:0]
	for i := range b.Rows {
		if b.Layout.Row(b.Slot.Mem, len(fields)-1, i)[0] != 0 {
			mx.rows = append(mx.rows, int32(i))
		}
	}
	c := b.choose()
	picture := b.Columns[m.Picture]
	dtype := fields[m.Picture].DType
	shape := mem.Shape(picture.Shape)
	size, lambda := shape.Elems()*dtype.Size(), c.Lambda
	data := b.Slot.Mem[picture.Off : picture.Off+int64(b.Rows)*int64(size)]
	var err error
	if c.Cut {
		p := m.Planes(shape, dtype)
		var x1, y1, x2, y2 int
		if x1, y1, x2, y2, lambda = c.Box(p.Width, p.Height); p.Width*p.Height == 0 {
			lambda = 1
		}
		mx.spare, err = kernel.CutMix(data, p, mx.rows, x1, y1, x2, y2, mx.spare)
	} else {
		err = kernel.MixUp(data, size, transform.FloatOf(dtype), mx.rows, lambda)
	}
	if err != nil {
		return err
	}
	return b.blendLabels(mx.rows, lambda)
}

// blendLabels mixes the labels like the pictures.
func (b *Batch) blendLabels(rows []int32, lambda float64) error {
	m, fields := b.m.mix, b.Layout.Fields
	label := &fields[m.Label]
	at, from := b.Columns[m.Label].Off, m.Label
	if m.Soft.Name != "" {
		from = len(fields) - batch.Marks - 1
		at = b.Layout.Off(from)
		for i := range b.Rows {
			if err := b.soften(i, label, b.Layout.Row(b.Slot.Mem, from, i)); err != nil {
				return err
			}
		}
		b.Columns[m.Label] = batch.Column{Name: label.Name, Off: at, Shape: m.Soft.Shape}
		b.Columns = append(b.Columns[:from], b.Columns[from+1:]...)
	}
	size := int64(len(b.Layout.Row(b.Slot.Mem, from, 0)))
	return kernel.MixUp(b.Slot.Mem[at:at+int64(b.Rows)*size], int(size), transform.FloatOf(fields[from].DType), rows, lambda)
}

// soften writes the probabilities of a row's label: 1 for its class, or its own numbers as
// floats.
func (b *Batch) soften(row int, label *batch.Field, dst []byte) error {
	src := b.Layout.Row(b.Slot.Mem, b.m.mix.Label, row)
	if len(label.Seen()) > 0 {
		return decode.Cast(dst, src, label.DType, mem.Float32)
	}
	class, err := b.class(row, label)
	if err != nil {
		return err
	}
	clear(dst)
	binary.LittleEndian.PutUint32(dst[4*class:], math.Float32bits(1))
	return nil
}

// class is the class number in a row of the labels.
func (b *Batch) class(row int, label *batch.Field) (int, error) {
	src := b.Layout.Row(b.Slot.Mem, b.m.mix.Label, row)
	var number [8]byte
	if label.DType == mem.Int64 {
		copy(number[:], src)
	} else if err := decode.Cast(number[:], src, label.DType, mem.Int64); err != nil {
		return 0, err
	}
	return b.m.mix.Class(int64(binary.LittleEndian.Uint64(number[:])), b.Tasks[row].Req.Sample)
}

// checkClasses refuses class numbers that are none, where the client makes probabilities of
// them.
func (b *Batch) checkClasses() error {
	label := &b.Layout.Fields[b.m.mix.Label]
	if len(label.Seen()) > 0 {
		return nil
	}
	for i := range b.Rows {
		if _, err := b.class(i, label); err != nil {
			return err
		}
	}
	return nil
}
