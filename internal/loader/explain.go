package loader

import (
	"cmp"
	"context"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/jsontext"
	"github.com/stoker-data/stoker/internal/base/rng"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

// Explanation is what one batch contains, and why.
type Explanation struct {
	Epoch    int64          `json:"epoch"`
	Position int64          `json:"position"` // of the epoch, where the step begins
	Rank     int            `json:"rank"`
	World    int            `json:"world_size"`
	Rows     []ExplainedRow `json:"rows"`
}

// ExplainedRow is one sample of a batch, or its run in a packed row.
type ExplainedRow struct {
	Place   int64                         `json:"place"`
	Sample  int64                         `json:"sample"`
	Valid   bool                          `json:"valid"`             // false: padding
	From    int64                         `json:"from,omitempty"`    // packed: first token of the run
	Tokens  int64                         `json:"tokens,omitempty"`  // packed: of the run
	File    jsontext.Name                 `json:"file,omitempty"`    // that has its first field
	Member  jsontext.Name                 `json:"member,omitempty"`  // of a shard
	Choices map[string][]transform.Choice `json:"choices,omitempty"` // by field: boxes, flips
	Error   string                        `json:"error,omitempty"`   // why there are no choices, with the place
	Err     *errs.Error                   `json:"-"`                 // the same
}

// Explain says what is in this rank's batch of the step that begins at a position
// of an epoch. It reads the headers of the samples, and delivers nothing.
func (l *Stream) Explain(epoch, position int64) (*Explanation, error) {
	if epoch < 0 || position < 0 {
		return nil, errs.New(errs.Config, "epoch %d, position %d: neither can be negative", epoch, position)
	}
	e := l.Epoch(epoch)
	slice := l.slice(e, position)
	if slice.Steps() == 0 {
		return nil, errs.New(errs.Config, "no step begins at position %d of epoch %d, which has %d places", position, epoch, e.Len())
	}
	out := &Explanation{Epoch: epoch, Position: position, Rank: l.spec.Rank, World: l.spec.World}
	lane := transform.NewLane()
	defer lane.Close()
	for _, piece := range l.draw(e, slice, 0, nil) {
		if piece.Sample < 0 {
			continue
		}
		row := ExplainedRow{Place: piece.Place, Sample: piece.Sample, Valid: e.Real(piece.Place), From: piece.From, Tokens: piece.Len}
		if err := l.explainRow(&row, lane, e.Key(piece.Place)); err != nil {
			row.Err = l.data.Placed(err, piece.Sample)
			row.Error = row.Err.Error()
			if w := row.Err.Where; row.File == "" {
				row.File, row.Member = jsontext.Name(cmp.Or(w.File, w.Shard)), jsontext.Name(w.Member)
			}
		}
		out.Rows = append(out.Rows, row)
	}
	return out, nil
}

func (l *Stream) explainRow(row *ExplainedRow, lane *transform.Lane, key rng.Key) error {
	part, local := l.data.Of(row.Sample)
	raw, err := l.data.Read(context.Background(), row.Sample)
	if err != nil {
		return err
	}
	var s format.Sample
	if err := part.Samples.Parse(local, part.Wanted, raw, &s); err != nil {
		return err
	}
	for i, prog := range part.Programs {
		f := &s.Fields[part.Value[i]]
		if f.File >= 0 && row.File == "" {
			row.File, row.Member = jsontext.Name(part.Stored.Index().AppendPath(f.File, nil)), jsontext.Name(f.Member)
		}
		if f.IsInt || prog == nil {
			continue
		}
		choices, err := prog.Explain(lane, f.Data, key.With(uint64(i)))
		if err != nil {
			return part.Place(err, &s, part.Value[i], i)
		}
		if len(choices) > 0 {
			if row.Choices == nil {
				row.Choices = map[string][]transform.Choice{}
			}
			row.Choices[part.Fields[i].Name] = choices
		}
	}
	return nil
}
