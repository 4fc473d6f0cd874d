package loader

import (
	"context"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/jsontext"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

// Explanation is what stands in one batch, and why.
type Explanation struct {
	Epoch    int64          `json:"epoch"`
	Position int64          `json:"position"` // of the epoch, where the step begins
	Rank     int            `json:"rank"`
	World    int            `json:"world_size"`
	Rows     []ExplainedRow `json:"rows"`
}

// ExplainedRow is one sample of a batch, or the run of it that a packed row holds.
type ExplainedRow struct {
	Place   int64                         `json:"place"`
	Sample  int64                         `json:"sample"`
	Valid   bool                          `json:"valid"`             // false: padding
	From    int64                         `json:"from,omitempty"`    // packed: first token of the run
	Tokens  int64                         `json:"tokens,omitempty"`  // packed: of the run
	File    jsontext.Name                 `json:"file,omitempty"`    // where its first field lies
	Member  jsontext.Name                 `json:"member,omitempty"`  // of a shard
	Choices map[string][]transform.Choice `json:"choices,omitempty"` // by field: boxes, flips
	Error   string                        `json:"error,omitempty"`   // why there are no choices
}

// Explain says what stands in this rank's batch of the step that begins at a
// position of an epoch. It reads the samples' headers, and delivers nothing.
func (l *Loader) Explain(epoch, position int64) (*Explanation, error) {
	if !l.hold() {
		return nil, errs.New(errs.Config, "the loader is closed")
	}
	defer l.letGo()
	if epoch < 0 || position < 0 {
		return nil, errs.New(errs.Config, "epoch %d, position %d: none is negative", epoch, position)
	}
	e := l.Epoch(epoch)
	slice := l.slice(e, position)
	if slice.Steps() == 0 {
		return nil, errs.New(errs.Config, "no step begins at position %d of epoch %d, which has %d", position, epoch, e.Len())
	}
	p := &Pass{l: l, epoch: epoch, order: e, slice: slice}
	p.prepare(0, 1)
	out := &Explanation{Epoch: epoch, Position: position, Rank: l.spec.Rank, World: l.spec.World}
	lane := transform.NewLane()
	defer lane.Close()
	for _, piece := range p.draft.pieces {
		if piece.Sample < 0 {
			continue
		}
		row := ExplainedRow{Place: piece.Place, Sample: piece.Sample, Valid: e.Real(piece.Place), From: piece.From, Tokens: piece.Len}
		if err := l.explainRow(&row, lane, p); err != nil {
			row.Error = errs.From(err).Error()
		}
		out.Rows = append(out.Rows, row)
	}
	return out, nil
}

func (l *Loader) explainRow(row *ExplainedRow, lane *transform.Lane, p *Pass) error {
	part, local := l.data.of(row.Sample)
	if part.ds == nil {
		return nil
	}
	raw, err := l.read(row.Sample)
	if err != nil {
		return err
	}
	var s format.Sample
	if err := part.ds.Parse(local, part.wanted, raw, &s); err != nil {
		return err
	}
	for i, prog := range part.programs {
		f := &s.Fields[part.value[i]]
		if f.File >= 0 && row.File == "" {
			row.File, row.Member = jsontext.Name(part.ds.Index().AppendPath(f.File, nil)), jsontext.Name(f.Member)
		}
		if f.IsInt {
			continue
		}
		choices, err := prog.Explain(lane, f.Data, p.order.Key(row.Place).With(uint64(i)))
		if err != nil {
			return l.place(err, &s, part.value[i], i, part)
		}
		if len(choices) > 0 {
			if row.Choices == nil {
				row.Choices = map[string][]transform.Choice{}
			}
			row.Choices[part.fields[i].Name] = choices
		}
	}
	return nil
}

// read is the stored bytes of one sample, beside all read-ahead.
func (l *Loader) read(sample int64) (raw [][]byte, err error) {
	for _, e := range l.data.extents(sample, nil) {
		size, mtime := l.data.Stamp(e.File)
		obj := source.Info{Name: string(l.data.AppendPath(e.File, nil)), Size: size, MTime: mtime}
		buf := make([]byte, e.Len)
		if err := l.data.src.ReadAt(context.Background(), obj, buf, e.Off); err != nil {
			return nil, err
		}
		raw = append(raw, buf)
	}
	return raw, nil
}
