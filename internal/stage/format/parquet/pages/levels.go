package pages

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/stoker-data/stoker/internal/stage/format/parquet/meta"
)

// Levels are the levels of one page, which say where its values belong.
type Levels struct {
	Reps, Defs []uint32 // one a value, nulls included; nil: the column has none
	Values     int      // that are there
	Front      int      // bytes before the first value
}

// ReadLevels reads the levels of a data page of col out of body, which is what the page
// unpacks to or the front of that.
func ReadLevels(col *meta.Column, h *Header, body []byte) (*Levels, error) {
	m := &maker{col: col, h: *h, body: body}
	if err := m.levels(); err != nil {
		return nil, err
	}
	return &Levels{Reps: m.reps, Defs: m.defs, Values: m.n, Front: m.base}, nil
}

// levels reads the levels, and leaves the values as body.
func (m *maker) levels() error {
	m.n = m.h.Values
	if m.col.Rep > 0 {
		m.reps = make([]uint32, m.h.Values)
		if err := m.level(m.reps, m.col.Rep, m.h.RepLen); err != nil {
			return fmt.Errorf("its repetition levels: %w", err)
		}
	} else if m.h.Kind == KindDataV2 {
		m.take(m.h.RepLen)
	}
	if m.col.Def > 0 {
		m.defs = make([]uint32, m.h.Values)
		if err := m.level(m.defs, m.col.Def, m.h.DefLen); err != nil {
			return fmt.Errorf("its definition levels: %w", err)
		}
		m.n = 0
		for _, d := range m.defs {
			if int(d) == m.col.Def {
				m.n++
			}
		}
	} else if m.h.Kind == KindDataV2 {
		m.take(m.h.DefLen)
	}
	return nil
}

func (m *maker) take(n int) []byte {
	p := m.body[:n]
	m.body, m.base = m.body[n:], m.base+n
	return p
}

// level reads levels of up to highest: in v1 pages they come after their length, in
// v2 pages the header says how long they are.
func (m *maker) level(dst []uint32, highest, length int) error {
	if m.h.Kind == kindData {
		switch {
		case m.h.levels == encBitPacked:
			return errors.New("they are bit-packed, which Parquet deprecated in 2013")
		case len(m.body) < 4 || uint64(binary.LittleEndian.Uint32(m.body)) > uint64(len(m.body)-4):
			return errValues
		}
		length = int(binary.LittleEndian.Uint32(m.take(4)))
	}
	if _, err := hybrid(dst, m.take(length), levelWidth(highest)); err != nil {
		return err
	}
	for _, v := range dst {
		if int(v) > highest {
			return fmt.Errorf("a level of %d, above %d", v, highest)
		}
	}
	return nil
}
