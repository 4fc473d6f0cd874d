package resume

import (
	"cmp"
	"fmt"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/order"
)

// Difference is the first place where a run differs from the undisturbed one.
type Difference struct {
	During string `json:"during"` // which run
	Epoch  int64  `json:"epoch"`
	Step   int64  `json:"step"` // -1: the runs count steps differently
	Rank   int    `json:"rank"`
	What   string `json:"what"`
}

func (d *Difference) String() string {
	at := fmt.Sprintf("%s: epoch %d", d.During, d.Epoch)
	if d.Step >= 0 {
		at += fmt.Sprintf(", step %d", d.Step)
	}
	if d.Rank > 0 {
		at += fmt.Sprintf(", rank %d", d.Rank)
	}
	return at + ": " + d.What
}

// Trace is the steps that an undisturbed run received.
type Trace struct {
	steps []*Step
	at    map[[2]int64]int // epoch and position after a step -> its number
}

// NewTrace takes the steps in their order.
func NewTrace(steps []*Step) *Trace {
	t := &Trace{steps: steps, at: map[[2]int64]int{}}
	for i, s := range steps {
		t.at[[2]int64{s.Epoch, s.Position}] = i
	}
	return t
}

// Compare compares a step of another run with step number want of the trace; nil if
// they are equal to the byte.
func (t *Trace) Compare(s *Step, want int) *Difference {
	d := &Difference{Epoch: s.Epoch, Step: s.Step}
	if want >= len(t.steps) {
		d.What = "the run continues, and the undisturbed one had ended"
		return d
	}
	ref := t.steps[want]
	row := 0
	for row < min(len(s.IDs), len(ref.IDs)) && s.IDs[row] == ref.IDs[row] && s.Valid[row] == ref.Valid[row] && s.Rows[row] == ref.Rows[row] {
		row++
	}
	switch {
	case s.Epoch != ref.Epoch || s.Position != ref.Position:
		d.What = fmt.Sprintf("the step ends at place %d, and in the undisturbed run the next one ends at epoch %d, place %d", s.Position, ref.Epoch, ref.Position)
	case row < min(len(s.IDs), len(ref.IDs)):
		d.What = fmt.Sprintf("row %d: %s", row, rowDifference(s.row(row), ref.row(row)))
	case len(s.IDs) != len(ref.IDs):
		d.What = fmt.Sprintf("%s, but %d in the undisturbed run", errs.Many(len(s.IDs), "sample"), len(ref.IDs))
	case s.All != ref.All:
		d.What = "the bytes between the rows differ"
	case s.Step != ref.Step:
		d.What = fmt.Sprintf("the step has number %d in the undisturbed run", ref.Step)
	default:
		return nil
	}
	return d
}

// row is one sample as it was delivered.
type row struct {
	id    int64
	valid bool
	bytes uint64 // digest
}

func (s *Step) row(i int) row { return row{s.IDs[i], s.Valid[i], s.Rows[i]} }

// rowDifference says how two rows differ; "" if they do not.
func rowDifference(got, ref row) string {
	switch {
	case got.id != ref.id:
		return fmt.Sprintf("sample %d, but sample %d in the undisturbed run", got.id, ref.id)
	case got.valid != ref.valid:
		return fmt.Sprintf("sample %d has valid %v, but %v in the undisturbed run", got.id, got.valid, ref.valid)
	case got.bytes != ref.bytes:
		return fmt.Sprintf("sample %d has other pixels (or other values) than in the undisturbed run", got.id)
	}
	return ""
}

// label identifies a row in every world: a place of an epoch, and the first token
// of the run in a row of runs.
type label struct{ epoch, place, from int64 }

// Union is what the ranks of one world, or of several in sequence, received, by
// place.
type Union struct {
	epoch func(int64) order.Epoch
	rows  map[label]row
}

// NewUnion returns an empty Union. epoch is the order that says which place a row
// is in.
func NewUnion(epoch func(int64) order.Epoch) *Union {
	return &Union{epoch: epoch, rows: map[label]row{}}
}

// Add adds the steps that all ranks received from a place on, one list per rank. It
// returns how they are not one stream: different steps on another rank, a place
// that came twice, or not at all.
func (u *Union) Add(epoch, position int64, ranks [][]*Step) *Difference {
	for t := range ranks[0] {
		first := ranks[0][t]
		if first.Epoch != epoch {
			epoch, position = first.Epoch, 0
		}
		d := &Difference{Epoch: first.Epoch, Step: first.Step}
		for r, steps := range ranks {
			d.Rank = r
			if t >= len(steps) || steps[t].Epoch != epoch || steps[t].Position != first.Position {
				d.What = "this rank and rank 0 are at different places"
				return d
			}
			if d.What = u.share(steps[t], position+int64(r), int64(len(ranks))); d.What != "" {
				return d
			}
		}
		if d.Rank, d.What = 0, u.missing(epoch, position, first.Position); d.What != "" {
			return d
		}
		position = first.Position
	}
	return nil
}

// missing says what part of the items [from, to) no rank got.
func (u *Union) missing(epoch, from, to int64) string {
	e := u.epoch(epoch)
	var of []order.Piece
	for i := from; i < to; i++ {
		of = e.Item(i, of[:0])
		for _, p := range of {
			if _, there := u.rows[label{epoch, p.Place, p.From}]; !there {
				return fmt.Sprintf("no rank got place %d, sample %d", p.Place, p.Sample)
			}
		}
	}
	return ""
}

// share adds one rank's rows of a step, whose items are item, item+world, ...
func (u *Union) share(s *Step, item, world int64) string {
	e := u.epoch(s.Epoch)
	var of []order.Piece
	for at := 0; at < len(s.IDs); item += world {
		of = e.Item(item, of[:0])
		for _, p := range of {
			if at == len(s.IDs) {
				return fmt.Sprintf("it ends before sample %d of item %d", p.Sample, item)
			}
			if e.Real(p.Place) {
				l := label{s.Epoch, p.Place, p.From}
				if _, twice := u.rows[l]; twice {
					return fmt.Sprintf("place %d, sample %d, came twice", p.Place, p.Sample)
				}
				u.rows[l] = s.row(at)
			}
			at++
		}
		if e.Rows() && at < len(s.IDs) && s.IDs[at] < 0 { // the unused end of the row
			at++
		}
	}
	return ""
}

// Compare compares every place that both have with the reference: it returns their
// number, and the first difference.
func (u *Union) Compare(ref *Union) (places int64, first *Difference) {
	var at label
	for l, got := range u.rows {
		want, known := ref.rows[l]
		if !known {
			continue
		}
		places++
		if !want.valid { // its contents depend on the batch
			got.bytes = want.bytes
		}
		if what := rowDifference(got, want); what != "" && (first == nil || l.before(at)) {
			at = l
			first = &Difference{Epoch: l.epoch, Step: -1, What: fmt.Sprintf("place %d: %s", l.place, what)}
		}
	}
	return places, first
}

func (l label) before(m label) bool {
	return cmp.Or(cmp.Compare(l.epoch, m.epoch), cmp.Compare(l.place, m.place), cmp.Compare(l.from, m.from)) < 0
}
