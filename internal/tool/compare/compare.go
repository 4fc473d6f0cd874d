package compare

import (
	"fmt"
	"io"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/tool/orders"
)

// Report is what two things have in common, and what differs.
type Report struct {
	A    string `json:"a"`
	B    string `json:"b"`
	Kind Kind   `json:"kind"`
	Same bool   `json:"same"` // nothing differs
	// SameStream says that states or receipts are of one stream, at any position.
	SameStream  bool     `json:"same_stream"`
	Differences []string `json:"differences,omitempty"`

	Ahead   *Ahead   `json:"ahead,omitempty"`   // of states at different places
	Between *Between `json:"between,omitempty"` // likewise, with a Spec
	Lists   *Lists   `json:"lists,omitempty"`
}

// shown is how many ids, or parts, are listed; all are counted.
const shown = 8

// Diff compares two things of one kind. Given the order of a Spec, it also says what is
// between two states; the order may be nil.
func Diff(a, b *Thing, in *orders.Orders) (*Report, error) {
	if a.Kind != b.Kind {
		return nil, errs.New(errs.Config, "%q is a %s and %q is a %s: only two of the same kind can be compared", a.Name, a.Kind, b.Name, b.Kind)
	}
	if in != nil && a.Kind != State {
		return nil, errs.New(errs.Config, "--spec is for two states, and these are not states").Try("leave --spec out")
	}
	r := &Report{A: a.Name, B: b.Name, Kind: a.Kind}
	switch a.Kind {
	case State:
		if err := r.states(&a.state, &b.state, in); err != nil {
			return nil, err
		}
	case Receipt:
		if err := r.receipts(a, b); err != nil {
			return nil, err
		}
	default:
		r.lists(&a.list, &b.list)
	}
	r.Same = len(r.Differences) == 0
	return r, nil
}

func (r *Report) differ(format string, a ...any) {
	r.Differences = append(r.Differences, fmt.Sprintf(format, a...))
}

// Err is nil for things that are the same.
func (r *Report) Err() error {
	if r.Same {
		return nil
	}
	e := errs.New(errs.Differs, "%q and %q differ: %s", r.A, r.B, r.Differences[0])
	if r.SameStream && r.Ahead != nil {
		return e.Try("they are of one stream: either can be resumed from with the same Spec")
	}
	return e
}

// WriteText writes the report as people read it.
func (r *Report) WriteText(w io.Writer) error {
	fmt.Fprintf(w, "A  %s\nB  %s\n", r.A, r.B)
	for _, d := range r.Differences {
		fmt.Fprintf(w, "  %s\n", d)
	}
	if r.Between != nil {
		r.Between.write(w)
	}
	if r.Lists != nil {
		r.Lists.write(w)
	}
	end := "not the same stream"
	switch {
	case r.Same && r.Kind == State:
		end = "the same stream, at the same place"
	case r.Same && r.Kind == Receipt:
		end = "the same stream, and the same samples were received"
	case r.Same:
		end = "the same ids in the same order"
	case r.Kind == IDs && r.Lists.SameSet:
		end = "the same ids in another order"
	case r.Kind == IDs:
		end = "not the same ids"
	case r.SameStream && r.Kind == Receipt:
		end = "the same stream, but other samples were received"
	case r.SameStream:
		end = "the same stream, at another place"
	}
	_, err := fmt.Fprintln(w, end)
	return err
}

// some lists the first few texts, and how many more there are.
func some[T any](all []T, total int64) string {
	var out []string
	for _, v := range all[:min(len(all), shown)] {
		out = append(out, fmt.Sprint(v))
	}
	if more := total - int64(len(out)); more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(out, ", ")
}
