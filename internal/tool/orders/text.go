package orders

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/transform"
	"github.com/stoker-data/stoker/internal/stream"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// AppendText appends the step as one line: ids separated by blanks, padding in
// parentheses, and 7@120 for a run that begins at token 120 of sample 7, which was
// split.
func (s *Step) AppendText(dst []byte) []byte {
	for i, id := range s.IDs {
		if i > 0 {
			dst = append(dst, ' ')
		}
		padding := s.Valid != nil && !s.Valid[i]
		if padding {
			dst = append(dst, '(')
		}
		dst = strconv.AppendInt(dst, id, 10)
		if s.From != nil && s.From[i] > 0 {
			dst = append(dst, '@')
			dst = strconv.AppendInt(dst, s.From[i], 10)
		}
		if padding {
			dst = append(dst, ')')
		}
	}
	return append(dst, '\n')
}

// WriteText writes the digest as one line that can be compared with another
// machine's.
func (d *Digest) WriteText(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%s  epoch %d, %s\n", d.Sum, d.Epoch, show.Count(d.Samples, "sample", "samples"))
	return err
}

// WriteText writes the table, what its columns mean, and advice.
func (q *Quality) WriteText(w io.Writer) error {
	stored := "one file per sample"
	if q.Shards > 0 {
		stored = "in " + show.Count(int64(q.Shards), "shard", "shards")
	}
	fmt.Fprintf(w, "epoch %d of %s, %s; a global batch is %s, %s are in flight\n\n",
		q.Epoch, show.Count(q.Samples, "sample", "samples"), stored, show.Number(float64(q.Batch)), show.Number(float64(q.Ahead)))
	columns := mixing
	if q.Shards > 0 {
		columns = append(columns[:len(columns):len(columns)], sharded...)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, c := range columns {
		fmt.Fprintf(t, "\t%s", c.name)
	}
	fmt.Fprintln(t, "\t")
	for i := range q.Orders {
		j := &q.Orders[i]
		fmt.Fprint(t, j.Order)
		for _, c := range columns {
			fmt.Fprintf(t, "\t"+c.format, c.of(j))
		}
		if j.Mine {
			fmt.Fprint(t, "\t(yours)")
		}
		fmt.Fprintln(t, "\t")
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for _, c := range columns {
		if c.means != "" {
			fmt.Fprintf(w, "%-12s  %s\n", c.name, c.means)
		}
	}
	_, err := fmt.Fprintf(w, "\n- %s\n", strings.Join(q.Advice, "\n- "))
	return err
}

// column is one measure of the table, and its explanation.
type column struct {
	name, format string
	of           func(*Judgement) float64
	means        string
}

var mixing = []column{
	{"displacement", "%.3f", func(j *Judgement) float64 { return j.Displacement }, "how far samples are moved from where they are stored, in epochs: 0 as stored, 0.333 a perfect shuffle"},
	{"chi-squared", "%+.1f", func(j *Judgement) float64 { return j.ChiSquared }, "of place x sample, in standard deviations: -3 to 3 is chance; above that the place predicts the sample"},
	{"neighbours", "%.4f", func(j *Judgement) float64 { return j.Neighbours }, "share of places followed by a sample that is stored beside theirs: 1 as stored"},
	{"run", "%.1f", func(j *Judgement) float64 { return j.Run }, "mean length of runs of samples stored side by side, among those in flight: long runs are sequential reads"},
}

// sharded are columns that mean nothing if every file is a sample.
var sharded = []column{
	{"shards", "%.2f", func(j *Judgement) float64 { return j.Entropy }, "entropy of the shards in a global batch, as a share of an even distribution: 0 one shard, near 1 mixed"},
	{"open", "%.1f", func(j *Judgement) float64 { return j.Open }, "mean number of shards that the batches in flight are in"},
	{"1 node", "%.2f", func(j *Judgement) float64 { return j.times(1) }, "what this many nodes read per epoch if each reads its shards whole, as a multiple of the data"},
	{"2", "%.2f", func(j *Judgement) float64 { return j.times(2) }, ""},
	{"4", "%.2f", func(j *Judgement) float64 { return j.times(4) }, ""},
	{"8 nodes", "%.2f", func(j *Judgement) float64 { return j.times(8) }, ""},
}

// WriteExplanation writes what a step contains, with one line per sample.
func WriteExplanation(w io.Writer, step int64, e *stream.Explanation) error {
	fmt.Fprintf(w, "epoch %d, step %d, rank %d of %d: from position %d\n", e.Epoch, step, e.Rank, e.World, e.Position)
	if e.Mixed != nil {
		fmt.Fprintf(w, "each row mixed with the one before it: %s\n", chosen(e.Mixed))
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "place\tsample\tfile\tchoices\n")
	for i := range e.Rows {
		r := &e.Rows[i]
		sample := strconv.FormatInt(r.Sample, 10)
		if r.Tokens > 0 {
			sample += fmt.Sprintf(" tokens %d to %d", r.From, r.From+r.Tokens)
		}
		if !r.Valid {
			sample += " (padding)"
		}
		file := errs.Name(string(r.File))
		if r.Member != "" {
			file += " " + errs.Name(string(r.Member))
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\n", r.Place, sample, file, choices(r))
	}
	return t.Flush()
}

// choices is what was chosen for a row, or why it is unknown.
func choices(r *stream.ExplainedRow) string {
	if r.Error != "" {
		return r.Error
	}
	var fields []string
	for _, name := range slices.Sorted(maps.Keys(r.Choices)) {
		fields = append(fields, name+": "+chosen(r.Choices[name]))
	}
	return strings.Join(fields, "; ")
}

// chosen leaves the box in the stored picture to JSON.
func chosen(all []transform.Choice) string {
	var ops []string
	for _, c := range all {
		op := c.Op
		for _, v := range c.Values {
			if !strings.HasPrefix(v.Name, "stored_") {
				op += fmt.Sprintf(" %s=%v", v.Name, v.Of)
			}
		}
		ops = append(ops, op)
	}
	return strings.Join(ops, ", ")
}

// WriteVerdict writes the result of comparing receipts.
func WriteVerdict(w io.Writer, v stream.Verdict) error {
	for _, e := range v.Epochs {
		var runs []string
		for _, c := range e.Covered {
			runs = append(runs, fmt.Sprintf("%d to %d", c[0], c[1]))
		}
		fmt.Fprintf(w, "epoch %d: items %s of %d; %s", e.Epoch, strings.Join(runs, ", "), e.Items,
			show.Count(e.Samples, "sample was received", "samples were received"))
		if e.Planned > 0 { // otherwise missing and duplicate ranks come before any count
			fmt.Fprintf(w, ", and the plan has %s", show.Number(float64(e.Planned)))
		}
		if e.Skipped > 0 || e.Replaced > 0 {
			fmt.Fprintf(w, "; %d skipped, %d replaced", e.Skipped, e.Replaced)
		}
		fmt.Fprintln(w)
	}
	for _, p := range v.Problems {
		fmt.Fprintf(w, "wrong: %s\n", p)
	}
	text := "these receipts differ from the plan"
	switch {
	case v.Complete && len(v.Epochs) > 0:
		text = "all that was received matches the plan: every sample once, in its place, on one rank"
	case v.OK && len(v.Epochs) > 0:
		text = "what was received matches the plan; an epoch before the last is not covered completely"
	case v.OK:
		text = "nothing was received"
	}
	_, err := fmt.Fprintln(w, text)
	return err
}
