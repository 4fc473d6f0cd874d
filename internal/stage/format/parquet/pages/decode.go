package pages

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format/parquet/meta"
)

// maker makes the block of one page.
type maker struct {
	col  *meta.Column
	h    Header
	lim  int    // bytes that the values may have
	dict Block  // nil: none
	view bool   // values may stay in the page
	buf  []byte // room for the block, then body; nil: body is in the page
	body []byte // what is left of it
	base int    // offset of body in buf, or in the page

	reps, defs []uint32
	n          int   // values that are there
	spot       []int // slot of each; nil: they have the first n
	out        Block
}

var (
	errDictionary = errors.New("its values are numbers in a dictionary that is missing")
	errNumber     = errors.New("a value is a number that its dictionary does not have")
)

// Decode makes the block of a data page. page is the page as it is stored in the
// file; view says that values may stay in it.
func Decode(col *meta.Column, codec int, page []byte, dict Block, view bool) (Block, error) {
	h, stored, err := openPage(page, codec)
	if err != nil {
		return nil, err
	}
	if !h.Holds() {
		return nil, fmt.Errorf("a page of kind %d is where data should be", h.Kind)
	}
	m := &maker{col: col, h: h, lim: maxUnpacked(len(page)), dict: dict, view: view && h.Plain(codec) && !h.Summed}
	return m.make(codec, stored)
}

// DecodeDict makes the block of a dictionary.
func DecodeDict(col *meta.Column, codec int, page []byte) (Block, error) {
	h, stored, err := openPage(page, codec)
	switch {
	case err != nil:
		return nil, err
	case h.Kind != KindDict || h.Encoding != EncPlain && h.Encoding != EncPlainDict:
		return nil, fmt.Errorf("a page of kind %d in encoding %d is where the dictionary should be", h.Kind, h.Encoding)
	}
	h.Encoding = EncPlain
	flat := *col
	flat.Def, flat.Rep = 0, 0
	m := &maker{col: &flat, h: h, lim: maxUnpacked(len(page))}
	return m.make(codec, stored)
}

func (m *maker) make(codec int, stored []byte) (Block, error) {
	m.body, m.base = stored, m.h.Length
	form, _ := m.form()
	if !m.h.Plain(codec) || form == formPairs {
		front := 0
		if form == formPairs && m.h.Encoding == EncPlain {
			front = 4*BlockHead + (9*m.h.Values+16+7)&^7
		}
		var err error
		if m.buf, err = Unpacked(m.h, codec, stored, front); err != nil {
			return nil, err
		}
		m.body, m.base = m.buf[front:], front
	}
	if err := m.levels(); err != nil {
		return nil, err
	}
	if err := m.layout(); err != nil {
		return nil, err
	}
	if err := m.values(); err != nil {
		return nil, fmt.Errorf("encoding %d: %w", m.h.Encoding, err)
	}
	return m.out, nil
}

// layout settles what the block has where, and fills in rows and nulls.
func (m *maker) layout() error {
	rows, slots := m.h.Values, m.h.Values
	var starts []uint32
	var nulls []byte
	switch {
	case m.reps != nil:
		starts, nulls = m.lists()
		rows, slots = len(starts)-1, int(starts[len(starts)-1])
	case m.n < m.h.Values:
		nulls, m.spot = make([]byte, rows), make([]int, 0, m.n)
		for i, d := range m.defs {
			if int(d) == m.col.Def {
				m.spot = append(m.spot, i)
			} else {
				nulls[i] = 1
			}
		}
	}
	form, width := m.form()
	room := slots * 8
	switch form {
	case formFixed:
		if width > 0 && slots > m.lim/width {
			return fmt.Errorf("%d values of %d bytes are more than a page of its size may hold", slots, width)
		}
		room = slots * width
	case formNumber:
		room = slots * 4
	}
	at := 4 * BlockHead
	place := func(n int) uint32 {
		off := at
		at = (at + n + 7) &^ 7
		return uint32(off)
	}
	head := [BlockHead]uint32{BlockRows: uint32(rows), BlockValues: uint32(slots), BlockForm: uint32(form), blockWidth: uint32(width)}
	if starts != nil {
		head[BlockStarts] = place(4 * len(starts))
	}
	if nulls != nil {
		head[blockNulls] = place(len(nulls))
	}
	head[BlockData] = place(room)
	if form == formPairs && m.h.Encoding == EncPlain {
		m.out = m.buf // where room was left in front of the values
	} else {
		m.out = make(Block, at)
	}
	for i, v := range head {
		binary.LittleEndian.PutUint32(m.out[4*i:], v)
	}
	if starts != nil {
		copy(m.out.words(int(head[BlockStarts]), len(starts)), starts)
	}
	copy(m.out[head[blockNulls]:], nulls)
	return nil
}

// lists is where the rows begin, counted in values, and what is missing from them:
// one more entry is for the values before the first row. An item that is null has no
// slot: its row cannot be returned.
func (m *maker) lists() (starts []uint32, nulls []byte) {
	slots, missing := uint32(0), false
	var front byte
	for i, r := range m.reps {
		d := m.col.Def
		if m.defs != nil {
			d = int(m.defs[i])
		}
		if r == 0 {
			starts, nulls = append(starts, slots), append(nulls, 0)
		}
		what := byte(0)
		switch {
		case d == m.col.Def:
			slots++
		case d >= m.col.ListDef:
			what = 2
		case d < m.col.ListDef-1:
			what = 1
		}
		if what != 0 {
			missing = true
			if len(nulls) > 0 {
				nulls[len(nulls)-1] = what
			} else {
				front = what
			}
		}
	}
	starts = append(starts, slots)
	if !missing {
		return starts, nil
	}
	return starts, append(nulls, front)
}

// form is how the values will be stored.
func (m *maker) form() (form, width int) {
	switch {
	case m.col.DType != mem.Object:
		return formFixed, m.col.DType.Size()
	case m.h.Dictionary():
		return formNumber, 0
	case m.col.Physical == meta.PhysFixed:
		return formFixed, m.col.Width
	case m.view && m.h.Encoding == EncPlain:
		return FormViews, 0
	}
	return formPairs, 0
}

// values decodes the values into their slots.
func (m *maker) values() error {
	switch {
	case m.h.Dictionary():
		return m.numbers()
	case m.col.Physical == meta.PhysBytes:
		return m.texts()
	}
	width := m.col.Width
	if width == 0 {
		width = 1
	}
	if m.n > m.lim/width {
		return fmt.Errorf("%d values of %d bytes are more than a page of its size may hold", m.n, width)
	}
	direct := m.spot == nil && (m.col.DType == mem.Object || m.col.DType.Size() == width)
	var wide []byte
	if data := m.out.Get(BlockData); direct {
		wide = m.out[data : data+m.n*width : data+m.n*width]
	} else {
		wide = make([]byte, m.n*width)
	}
	if err := m.fixed(wide, width); err != nil {
		return err
	}
	if direct {
		return nil
	}
	return m.spread(func(i int) []byte { return wide[i*width : (i+1)*width] })
}

// fixed decodes values of one size, stored one after the other.
func (m *maker) fixed(dst []byte, width int) error {
	switch {
	case m.col.Physical == meta.PhysBool && m.h.Encoding == EncPlain:
		return plainBools(dst, m.body)
	case m.col.Physical == meta.PhysBool && m.h.Encoding == encRLE:
		return runBools(dst, m.body)
	case m.h.Encoding == EncPlain:
		if len(m.body) != len(dst) {
			return lengths(len(m.body), len(dst))
		}
		copy(dst, m.body)
		return nil
	case m.h.Encoding == encSplit && m.col.Physical != meta.PhysBool:
		return split(dst, m.body, width)
	case m.h.Encoding == encDelta && (m.col.Physical == meta.PhysInt32 || m.col.Physical == meta.PhysInt64):
		return m.deltas(dst, width)
	case m.h.Encoding == encDeltaBytes && m.col.Physical == meta.PhysFixed:
		return m.prefixed(func(i int, v []byte) error {
			if len(v) != width {
				return lengths(len(v), width)
			}
			copy(dst[i*width:], v)
			return nil
		})
	}
	return errors.New("it does not encode such values")
}

func (m *maker) deltas(dst []byte, width int) error {
	v := make([]int64, m.n)
	if _, err := delta(v, m.body); err != nil {
		return err
	}
	for i, x := range v {
		if width == 8 {
			binary.LittleEndian.PutUint64(dst[8*i:], uint64(x))
		} else { // wraps, as the sums of writers do
			binary.LittleEndian.PutUint32(dst[4*i:], uint32(x))
		}
	}
	return nil
}

// spread puts value i into its slot, narrowed to the field's type.
func (m *maker) spread(value func(i int) []byte) error {
	data, size := m.out.Get(BlockData), m.out.Get(blockWidth)
	for i := range m.n {
		slot := i
		if m.spot != nil {
			slot = m.spot[i]
		}
		v := value(i)
		dst := m.out[data+slot*size : data+(slot+1)*size]
		copy(dst, v)
		if len(v) > size && !fits(v, m.col.DType) {
			return fmt.Errorf("a value of %d in a column of %s", int32(binary.LittleEndian.Uint32(v)), m.col.DType)
		}
	}
	return nil
}

// fits says whether a stored int32 is one of a smaller type.
func fits(v []byte, to mem.DType) bool {
	n := int32(binary.LittleEndian.Uint32(v))
	switch to {
	case mem.Int8:
		return n == int32(int8(n))
	case mem.Int16:
		return n == int32(int16(n))
	case mem.Uint8:
		return n == int32(uint8(n))
	case mem.Uint16:
		return n == int32(uint16(n))
	}
	return true
}

// numbers reads numbers in the dictionary: kept as such for values of different
// sizes, looked up for others.
func (m *maker) numbers() error {
	if m.n == 0 {
		return nil
	}
	if m.dict == nil {
		return errDictionary
	}
	if len(m.body) < 1 {
		return errValues
	}
	form, width := m.form()
	have := m.dict.Get(BlockValues)
	var ids []uint32
	data := m.out.Get(BlockData)
	if form == formNumber && m.spot == nil {
		ids = m.out.words(data, m.n)
	} else {
		ids = make([]uint32, m.n)
	}
	if _, err := hybrid(ids, m.body[1:], int(m.body[0])); err != nil {
		return err
	}
	for _, id := range ids {
		if uint64(id) >= uint64(have) {
			return errNumber
		}
	}
	if form == formNumber {
		if m.spot != nil {
			slots := m.out.words(data, m.h.Values)
			for i, s := range m.spot {
				slots[s] = ids[i]
			}
		}
		return nil
	}
	from := m.dict.Get(BlockData)
	return m.spread(func(i int) []byte {
		at := from + int(ids[i])*width
		return m.dict[at : at+width]
	})
}

// texts finds where values of different sizes are stored.
func (m *maker) texts() error {
	data := m.out.Get(BlockData)
	pairs := m.out.words(data, 2*m.out.Get(BlockValues))
	set := func(i, off, n int) {
		if m.spot != nil {
			i = m.spot[i]
		}
		pairs[2*i], pairs[2*i+1] = uint32(off), uint32(n)
	}
	switch m.h.Encoding {
	case EncPlain:
		at := 0
		for i := range m.n {
			if len(m.body)-at < 4 {
				return errValues
			}
			n := binary.LittleEndian.Uint32(m.body[at:])
			at += 4
			if uint64(n) > uint64(len(m.body)-at) {
				return errValues
			}
			set(i, m.base+at, int(n))
			at += int(n)
		}
		if at != len(m.body) {
			return lengths(len(m.body), at)
		}
		return nil
	case encDeltaLength:
		sizes, at, err := m.sizes(m.body)
		if err != nil {
			return err
		}
		off := len(m.out)
		m.out = append(m.out, m.body[at:]...)
		pairs = m.out.words(data, 2*m.out.Get(BlockValues))
		for i, n := range sizes {
			if n > int64(len(m.out)-off) {
				return errValues
			}
			set(i, off, int(n))
			off += int(n)
		}
		if off != len(m.out) {
			return lengths(len(m.out), off)
		}
		return nil
	case encDeltaBytes:
		return m.prefixed(func(i int, v []byte) error {
			if len(v) > m.lim-len(m.out) || len(m.out) > math.MaxInt32 {
				return errors.New("its values become too long")
			}
			off := len(m.out)
			m.out = append(m.out, v...)
			pairs = m.out.words(data, 2*m.out.Get(BlockValues))
			set(i, off, len(v))
			return nil
		})
	}
	return errors.New("it does not encode such values")
}

// sizes is the lengths of m.n values, and how many bytes they took.
func (m *maker) sizes(p []byte) ([]int64, int, error) {
	v := make([]int64, m.n)
	at, err := delta(v, p)
	if err != nil {
		return nil, 0, err
	}
	for _, n := range v {
		if n < 0 || n > int64(len(p)) {
			return nil, 0, errValues
		}
	}
	return v, at, nil
}

// prefixed decodes values that share their first bytes with the one before them:
// the lengths of what is shared, of the rest, and all the rests.
func (m *maker) prefixed(f func(i int, v []byte) error) error {
	shared := make([]int64, m.n)
	at, err := delta(shared, m.body)
	if err != nil {
		return err
	}
	rest := m.body[at:]
	sizes, at, err := m.sizes(rest)
	if err != nil {
		return err
	}
	rest = rest[at:]
	var value []byte
	for i, n := range sizes {
		if shared[i] < 0 || shared[i] > int64(len(value)) || n > int64(len(rest)) {
			return errValues
		}
		value = append(value[:shared[i]], rest[:n]...)
		rest = rest[n:]
		if err := f(i, value); err != nil {
			return err
		}
	}
	if len(rest) != 0 {
		return lengths(len(m.body), len(m.body)-len(rest))
	}
	return nil
}
