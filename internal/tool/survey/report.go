package survey

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/decode"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/tool/inspect"
	"github.com/stoker-data/stoker/internal/tool/show"
)

func numberOf(f *format.Field) (int64, error) {
	if f.IsInt {
		return f.Int, nil
	}
	v, err := decode.Int(f.Data)
	if err != nil {
		return 0, err
	}
	return v, nil
}

// field is the figures of a field, as the report has them.
func (f *figures) field(known inspect.Field) Field {
	out := Field{
		Name: known.Name, Kind: known.Kind, Present: known.Present, DType: known.DType, Shape: known.Shape,
		Width: spread(f.width), Height: spread(f.height), Length: spread(f.length),
	}
	sizes := map[int64]int64{}
	for _, n := range f.bytes {
		sizes[n]++
	}
	out.Bytes = spread(sizes)
	for length, n := range f.length {
		out.Total += length * n
	}
	if s, q, scale := f.sums(); s != nil {
		c := &Channels{Values: f.values, Scale: scale, NotFinite: f.notFinite}
		for i := range s {
			n := f.values
			if f.notFinite > 0 {
				n = f.numbers[i].count
			}
			mean, std := meanStd(s[i], q[i], n, scale)
			c.Mean, c.Std = append(c.Mean, mean), append(c.Std, std)
		}
		out.Channels = c
	}
	return out
}

// spread is the distribution of values with these counts.
func spread(counts map[int64]int64) *Spread {
	if len(counts) == 0 {
		return nil
	}
	values := slices.Sorted(maps.Keys(counts))
	var n int64
	var total float64
	for _, v := range values {
		n += counts[v]
		total += float64(v) * float64(counts[v])
	}
	// at is the value of the sample that has so many before it, in sorted order.
	at := func(before int64) int64 {
		for _, v := range values {
			if before -= counts[v]; before < 0 {
				return v
			}
		}
		return values[len(values)-1]
	}
	return &Spread{Min: values[0], Median: at(n / 2), P99: at(n * 99 / 100), Max: values[len(values)-1], Mean: total / float64(n)}
}

// classes fills in the classes: from the index, or from a field of whole numbers.
func (r *Report) classes(looked *inspect.Report, found map[string]*figures) {
	for _, c := range looked.Classes {
		r.Classes = append(r.Classes, Class{Name: c.Name, Samples: c.Samples})
	}
	if r.Classes == nil {
		r.ClassesOf = labelOf(r.Fields, found)
		counts := map[int64]int64{}
		if r.ClassesOf != "" {
			counts = found[r.ClassesOf].counts
		}
		for _, v := range slices.Sorted(maps.Keys(counts)) {
			r.Classes = append(r.Classes, Class{Name: strconv.FormatInt(v, 10), Samples: counts[v]})
		}
	}
	var all, used int64
	for _, c := range r.Classes {
		all += c.Samples
		if c.Samples > 0 {
			used++
		}
	}
	for i := range r.Classes {
		if n := r.Classes[i].Samples; n > 0 {
			r.Classes[i].Weight = float64(all) / (float64(used) * float64(n))
		}
	}
}

// labelOf is the field whose numbers are classes: one with a label's name, or the only
// one; "" if it has too many different numbers to be classes.
func labelOf(fields []Field, found map[string]*figures) string {
	var numbers []Field
	for _, f := range fields {
		if found[f.Name].numeric {
			numbers = append(numbers, f)
		}
	}
	name := func(f Field) int {
		last := f.Name[strings.LastIndexByte(f.Name, '.')+1:]
		if i := slices.Index([]string{"label", "labels", "cls", "class", "target", "targets", "y"}, strings.ToLower(last)); i >= 0 {
			return i
		}
		return 100
	}
	slices.SortStableFunc(numbers, func(a, b Field) int { return cmp.Compare(name(a), name(b)) })
	if len(numbers) == 0 || len(numbers) > 1 && name(numbers[0]) == 100 {
		return ""
	}
	const few = 1000
	counts := int64(len(found[numbers[0].Name].counts))
	if counts == 0 || counts > few && counts > numbers[0].Present/2 {
		return ""
	}
	return numbers[0].Name
}

// shownClasses is how many classes are listed for people.
const shownClasses = 20

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, %s", strings.Join(r.Path, " "), r.Format, show.Count(r.Samples, "sample", "samples"))
	if r.Read != r.Samples {
		fmt.Fprintf(&b, "; figures of %s of them", show.Number(float64(r.Read)))
	}
	b.WriteString("\n")
	for _, f := range r.Fields {
		f.write(&b)
	}
	if r.Normalize != "" {
		fmt.Fprintf(&b, "\n  %s\n", r.Normalize)
	}
	r.writeClasses(&b)
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	for i, d := range r.Damage {
		if i == 0 {
			fmt.Fprintf(&b, "\n%s damaged, and left out of the figures:\n", show.Count(r.Damaged, "sample is", "samples are"))
		}
		fmt.Fprintf(&b, "  %s\n", d.Line())
	}
	if int64(len(r.Damage)) < r.Damaged {
		fmt.Fprintf(&b, "  and %s more (stoker verify lists them)\n", show.Number(float64(r.Damaged-int64(len(r.Damage)))))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (f *Field) write(b *strings.Builder) {
	fmt.Fprintf(b, "\n%s: %s", errs.Name(f.Name), f.Kind)
	if f.DType != "" {
		fmt.Fprintf(b, " of %s %v", f.DType, f.Shape)
	}
	fmt.Fprintf(b, " in %s\n", show.Count(f.Present, "sample", "samples"))
	head := false
	line := func(name string, s *Spread, one func(int64) string) {
		if s == nil {
			return
		}
		if !head {
			head = true
			fmt.Fprintf(b, "  %-8s %11s %11s %11s %11s %11s\n", "", "min", "median", "p99", "max", "mean")
		}
		fmt.Fprintf(b, "  %-8s %11s %11s %11s %11s %11s\n", name, one(s.Min), one(s.Median), one(s.P99), one(s.Max), one(int64(s.Mean+0.5)))
	}
	number := func(n int64) string { return show.Number(float64(n)) }
	line("width", f.Width, number)
	line("height", f.Height, number)
	line("length", f.Length, number)
	line("stored", f.Bytes, show.Size)
	if f.Total > 0 {
		fmt.Fprintf(b, "  %s in all\n", number(f.Total))
	}
	if c := f.Channels; c != nil {
		unit := ""
		if c.Scale != 1 {
			unit = fmt.Sprintf(", divided by %g", c.Scale)
		}
		fmt.Fprintf(b, "  mean %s, std %s of %s values%s\n", digits(c.Mean), digits(c.Std), show.Number(float64(c.Values)), unit)
		if c.NotFinite > 0 {
			fmt.Fprintf(b, "  %s NaN or infinite, and left out\n", show.Count(c.NotFinite, "value is", "values are"))
		}
	}
}

func digits(v []float64) string {
	out := make([]string, len(v))
	for i, x := range v {
		out[i] = strconv.FormatFloat(x, 'g', 6, 64)
	}
	return strings.Join(out, " ")
}

func (r *Report) writeClasses(b *strings.Builder) {
	if len(r.Classes) == 0 {
		return
	}
	least, most := r.Classes[0].Samples, r.Classes[0].Samples
	for _, c := range r.Classes {
		least, most = min(least, c.Samples), max(most, c.Samples)
	}
	fmt.Fprintf(b, "\n%s", show.Count(int64(len(r.Classes)), "class", "classes"))
	if r.ClassesOf != "" {
		fmt.Fprintf(b, " of %s", errs.Name(r.ClassesOf))
	}
	fmt.Fprintf(b, ", of %s to %s samples\n", show.Number(float64(least)), show.Number(float64(most)))
	for i, c := range r.Classes {
		if i == shownClasses {
			fmt.Fprintf(b, "  and %s more (--json has all)\n", show.Number(float64(len(r.Classes)-i)))
			break
		}
		fmt.Fprintf(b, "  %-24s %9s  weight %.4f\n", errs.Name(c.Name), show.Number(float64(c.Samples)), c.Weight)
	}
}
