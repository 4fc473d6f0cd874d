package compose

import (
	"encoding/json"

	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/stage/batch"
)

// input is a column of samples that workers get. Shapes are those of the rows, for
// pictures that differ in size.
type input struct {
	wire.Column
	Shapes []mem.Shape `json:"shapes,omitempty"`
	Feed   int         `json:"feed,omitempty"` // which one has made it
}

// Begun describes, as JSON, what samples have that workers go on with.
func (m *Maker) Begun() []byte {
	all := m.data.Columns()
	fields := make([]wire.Field, len(all))
	for i, c := range all {
		fields[i] = c.Told()
	}
	b, err := json.Marshal(fields)
	if err != nil {
		panic(err) // names and numbers
	}
	return b
}

// Inputs is Complete for a batch that Python workers get in place of the consumer: it lays
// out the rows that differ in size, and says where everything is, as JSON. feed is the number
// of what made the samples.
func (b *Batch) Inputs(grow Grow, feed int) ([]byte, error) {
	if err := b.makeRoom(grow); err != nil {
		return nil, err
	}
	columns := make([]input, 0, len(b.Loose))
	at := b.Layout.Bytes()
	for i := range b.Loose {
		c := &b.Layout.Fields[i]
		col := input{Column: wire.Column{Name: c.Name, Off: b.Layout.Off(i), Shape: c.Seen()}, Feed: feed}
		if c.Loose {
			col.Data = at
			end := b.Layout.Pack(b.Slot.Mem, i, &b.Loose[i], at)
			at = (end + 63) / 64 * 64
			switch {
			case c.Form == batch.Ragged:
				col.Kind = "ragged"
			case b.m.data.Parts[0].Kind(i) == "image":
				col.Shapes = b.Loose[i].Shapes
			}
		}
		columns = append(columns, col)
	}
	return json.Marshal(columns)
}
