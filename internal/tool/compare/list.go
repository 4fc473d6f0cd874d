package compare

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"sort"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// Lists is what two lists of ids have in common. Padding is left out of both.
type Lists struct {
	A       Listed `json:"a"`
	B       Listed `json:"b"`
	First   *First `json:"first,omitempty"` // difference; absent where there is none
	SameSet bool   `json:"same_ids"`        // in whatever order
}

// Listed is one of the lists.
type Listed struct {
	Samples int64    `json:"samples"`
	Padding int64    `json:"padding"`
	Twice   int64    `json:"twice"`       // ids that come more than once
	FirstOf []string `json:"twice_first"` // some of them
	Only    int64    `json:"only"`        // samples that the other list has not, or less often
	OnlyOf  []string `json:"only_first"`
}

// First is the first difference.
type First struct {
	Index int64  `json:"index"` // among the samples
	A     string `json:"a"`     // id; "" where the list has ended
	B     string `json:"b"`
	LineA int64  `json:"line_a"` // or step, from 0
	LineB int64  `json:"line_b"`
}

func (r *Report) lists(a, b *list) {
	out := &Lists{A: Listed{Samples: int64(len(a.ids)), Padding: a.padding}, B: Listed{Samples: int64(len(b.ids)), Padding: b.padding}}
	r.Lists = out
	n := min(len(a.ids), len(b.ids))
	at := 0
	for at < n && a.ids[at] == b.ids[at] {
		at++
	}
	if at < max(len(a.ids), len(b.ids)) {
		f := &First{Index: int64(at), LineA: a.line(at), LineB: b.line(at)}
		if at < len(a.ids) {
			f.A = a.ids[at].String()
		}
		if at < len(b.ids) {
			f.B = b.ids[at].String()
		}
		out.First = f
		r.differ("%s", f.text())
	}
	sortedA, sortedB := a.sorted(), b.sorted()
	out.A.twice(sortedA)
	out.B.twice(sortedB)
	out.A.only(sortedA, sortedB)
	out.B.only(sortedB, sortedA)
	out.SameSet = out.A.Only == 0 && out.B.Only == 0
	r.SameStream = out.First == nil
}

// line is the line, or step, that a sample is in.
func (l *list) line(at int) int64 {
	return int64(sort.Search(len(l.ends), func(i int) bool { return l.ends[i] > at }))
}

func (i id) compare(j id) int {
	return cmp.Or(cmp.Compare(i.sample, j.sample), cmp.Compare(i.from, j.from))
}

func (l *list) sorted() []id {
	out := slices.Clone(l.ids)
	slices.SortFunc(out, id.compare)
	return out
}

// twice counts ids that come more than once.
func (l *Listed) twice(sorted []id) {
	for i := 1; i < len(sorted); i++ {
		if sorted[i] == sorted[i-1] && (i < 2 || sorted[i] != sorted[i-2]) {
			l.Twice++
			l.FirstOf = l.keep(l.FirstOf, sorted[i])
		}
	}
}

// only counts what other does not have, each as often as it is missing.
func (l *Listed) only(mine, other []id) {
	at := 0
	for _, i := range mine {
		for at < len(other) && other[at].compare(i) < 0 {
			at++
		}
		if at < len(other) && other[at] == i {
			at++
			continue
		}
		l.Only++
		l.OnlyOf = l.keep(l.OnlyOf, i)
	}
}

func (l *Listed) keep(to []string, i id) []string {
	if len(to) < shown {
		to = append(to, i.String())
	}
	return to
}

func (f *First) text() string {
	switch {
	case f.A == "":
		return fmt.Sprintf("A ends after %s, and B continues with %s (line %d)", errs.Many(f.Index, "sample"), f.B, f.LineB+1)
	case f.B == "":
		return fmt.Sprintf("B ends after %s, and A continues with %s (line %d)", errs.Many(f.Index, "sample"), f.A, f.LineA+1)
	}
	return fmt.Sprintf("the first difference is sample %d of the lists: %s in A (line %d), %s in B (line %d)", f.Index, f.A, f.LineA+1, f.B, f.LineB+1)
}

func (l *Lists) write(w io.Writer) {
	for _, side := range []struct {
		name, other string
		l           *Listed
	}{{"A", "B", &l.A}, {"B", "A", &l.B}} {
		fmt.Fprintf(w, "  %s has %s", side.name, errs.Many(side.l.Samples, "sample"))
		if side.l.Padding > 0 {
			fmt.Fprintf(w, " and %d of padding, left out", side.l.Padding)
		}
		fmt.Fprintln(w)
		if side.l.Only > 0 {
			fmt.Fprintf(w, "    %d that %s does not have: %s\n", side.l.Only, side.other, some(side.l.OnlyOf, side.l.Only))
		}
		if side.l.Twice > 0 {
			fmt.Fprintf(w, "    %d more than once: %s\n", side.l.Twice, some(side.l.FirstOf, side.l.Twice))
		}
	}
}
