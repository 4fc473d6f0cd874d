package stream

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
	// Mixed is what the batch transform chooses. Each valid row is mixed with the valid row
	// before it, the first with the last.
	Mixed []transform.Choice `json:"batch_transform,omitempty"`
}

// ExplainedRow is one sample of a batch, or its run, in a row of runs.
type ExplainedRow struct {
	Place   int64                         `json:"place"`
	Sample  int64                         `json:"sample"`
	Valid   bool                          `json:"valid"`             // false: padding
	From    int64                         `json:"from,omitempty"`    // first token of the run, in a row of runs
	Tokens  int64                         `json:"tokens,omitempty"`  // of the run
	File    jsontext.Name                 `json:"file,omitempty"`    // that has its first field
	Member  jsontext.Name                 `json:"member,omitempty"`  // of a shard
	Choices map[string][]transform.Choice `json:"choices,omitempty"` // by field: boxes, flips
	Error   string                        `json:"error,omitempty"`   // why there are no choices, with the location
	Err     *errs.Error                   `json:"-"`                 // the same
}

// Explain says what is in this rank's batch of the step that begins at a position
// of an epoch. It reads the samples, but decodes only their headers.
func (l *Stream) Explain(epoch, position int64) (*Explanation, error) {
	if epoch < 0 || position < 0 {
		return nil, errs.New(errs.Config, "epoch %d, position %d: neither can be negative", epoch, position)
	}
	e := l.Epoch(epoch)
	slice := l.Slice(e, position)
	if slice.Steps() == 0 {
		return nil, errs.New(errs.Config, "no step begins at position %d of epoch %d, which has %d places", position, epoch, e.Len())
	}
	out := &Explanation{Epoch: epoch, Position: position, Rank: l.spec.Rank, World: l.spec.World}
	lane := transform.NewLane()
	defer lane.Close()
	for _, piece := range l.Draw(e, slice, 0, nil) {
		if piece.Sample < 0 {
			continue
		}
		if m := l.data.Mix(); m != nil && out.Mixed == nil {
			w, h := l.data.Size()
			out.Mixed = m.Explain(m.Choose(e.Key(piece.Place)), w, h)
		}
		row := ExplainedRow{Place: piece.Place, Sample: piece.Sample, Valid: e.Real(piece.Place), From: piece.From, Tokens: piece.Len}
		l.explainRow(&row, piece.Sample, lane, e.Key(piece.Place))
		out.Rows = append(out.Rows, row)
	}
	return out, nil
}

// ExplainSample adds to a row what is known of a sample of this stream, which the row's own
// stream knows by another number, and of what its transforms choose.
func (l *Stream) ExplainSample(row *ExplainedRow, sample int64, key rng.Key) {
	lane := transform.NewLane()
	defer lane.Close()
	l.explainRow(row, sample, lane, key)
}

func (l *Stream) explainRow(row *ExplainedRow, sample int64, lane *transform.Lane, key rng.Key) {
	err := l.choices(row, sample, lane, key)
	if err == nil {
		return
	}
	row.Err = l.data.Located(err, sample)
	row.Err.Where.Sample = errs.Known(row.Sample)
	row.Error = row.Err.Error()
	if w := row.Err.Where; row.File == "" {
		row.File, row.Member = jsontext.Name(cmp.Or(w.File, w.Shard)), jsontext.Name(w.Member)
	}
}

// choose is what a program chooses for field i of a sample with this key.
func (l *Stream) choose(prog *transform.Program, lane *transform.Lane, encoded []byte, key rng.Key, i int) ([]transform.Choice, error) {
	own := key.With(uint64(i))
	if d := l.spec.DecodeDevice; d.Takes(key) {
		return prog.ExplainSent(lane, encoded, own, d.Repeats)
	}
	return prog.Explain(lane, encoded, own)
}

func (l *Stream) choices(row *ExplainedRow, sample int64, lane *transform.Lane, key rng.Key) error {
	part, local := l.data.Of(sample)
	if part.Samples == nil { // the user's own code makes it, from what it likes
		return nil
	}
	raw, err := l.data.Read(context.Background(), sample)
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
		choices, err := l.choose(prog, lane, f.Data, key, i)
		if err != nil {
			return part.Locate(err, &s, part.Value[i], i)
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
