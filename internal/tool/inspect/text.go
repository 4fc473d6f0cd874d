package inspect

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// How many entries of long lists the text shows.
const (
	shownClasses = 5
	shownDamage  = 10
	shownPaths   = 3
)

// WriteText writes the report as people read it.
func (r *Report) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, a ...any) { fmt.Fprintf(t, "  %s\t%s\n", name, fmt.Sprintf(format, a...)) }
	fmt.Fprintln(t, few(r.Path, shownPaths))
	line("format", "%s", r.Format)
	line("samples", "%s in %s, %s", show.Number(float64(r.Samples)), show.Count(r.Files, "file", "files"), show.Size(r.Bytes))
	if r.Skipped > 0 {
		line("no data", "%s", show.Count(r.Skipped, "member", "members"))
	}
	if len(r.Classes) > 0 {
		r.classLines(line)
	}
	line("digest", "%s", r.Digest)
	if e := r.Entries; e != nil {
		line("entry points", "%s of JPEGs, %s; those that were replaced count until their files are merged", show.Count(e.Pictures, "record", "records"), show.Bytes(float64(e.Bytes)))
	}
	for _, note := range r.Notes {
		line("note", "%s", note)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := r.writeObjects(w); err != nil {
		return err
	}
	if err := r.writeFields(w); err != nil {
		return err
	}
	if err := r.writeDecoders(w); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%s\n", r.verdict())
	for _, e := range r.Damage[:min(len(r.Damage), shownDamage)] {
		fmt.Fprintf(w, "  %s\n", e.Line())
	}
	if more := r.Damaged - shownDamage; more > 0 {
		fmt.Fprintf(w, "  and %s more (--json lists them)\n", show.Number(float64(more)))
	}
	r.WriteTrailing(w)
	_, err := fmt.Fprintf(w, "\nIn Python:\n\n%s", indent(r.Python))
	return err
}

func (r *Report) classLines(line func(name, format string, a ...any)) {
	by := slices.Clone(r.Classes)
	slices.SortStableFunc(by, func(a, b Class) int { return cmp.Compare(b.Samples, a.Samples) })
	list := func(c []Class) string {
		var out []string
		for _, c := range c {
			out = append(out, fmt.Sprintf("%s %s", errs.Name(c.Name), show.Number(float64(c.Samples))))
		}
		return strings.Join(out, ", ")
	}
	if len(by) <= 2*shownClasses {
		line("classes", "%d: %s", len(by), list(by))
		return
	}
	line("classes", "%s; most: %s", show.Number(float64(len(by))), list(by[:shownClasses]))
	line("", "least: %s", list(by[len(by)-shownClasses:]))
}

// writeFields writes one line per field, for the samples that were read.
func (r *Report) writeFields(w io.Writer) error {
	if r.Checked == 0 {
		return nil
	}
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\n  field\tin\tis\tbytes, min / median / max\twidth x height, min / median / max\n")
	for _, f := range r.Fields {
		is := f.Kind
		if f.Kind == "array" {
			is = f.DType + " " + strings.ReplaceAll(fmt.Sprint(f.Shape), "-1", "?")
		}
		if len(f.Formats) > 0 {
			is = formats(f.Formats)
		}
		share := fmt.Sprintf("%.0f %%", 100*float64(f.Present)/float64(r.Checked))
		switch {
		case f.Values != nil:
			fmt.Fprintf(t, "  %s\t%s\t%s\t%d to %d\n", errs.Name(f.Name), share, is, f.Values.Min, f.Values.Max)
		case f.Width != nil:
			fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%d x %d / %d x %d / %d x %d; %.2f megapixels\n", errs.Name(f.Name), share, is, sizes(f.Bytes),
				f.Width.Min, f.Height.Min, f.Width.Median, f.Height.Median, f.Width.Max, f.Height.Max, float64(f.Pixels.Median)/1e6)
		default:
			fmt.Fprintf(t, "  %s\t%s\t%s\t%s\n", errs.Name(f.Name), share, is, sizes(f.Bytes))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(b.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// writeDecoders reports, for fields with JPEGs, how many stoker's own decoder does not
// decode.
func (r *Report) writeDecoders(w io.Writer) error {
	for _, f := range r.Fields {
		others := f.Decoders[kernel.WayLibjpeg.String()] + f.Decoders[kernel.WayGo.String()]
		if others == 0 {
			continue
		}
		by := "libjpeg-turbo"
		if f.Decoders[kernel.WayGo.String()] > 0 {
			by = "Go's standard library"
		}
		if _, err := fmt.Fprintf(w, "\n%s: %s of %s JPEGs are progressive, CMYK or otherwise unusual: %s decodes them, more slowly\n",
			errs.Name(f.Name), show.Number(float64(others)), show.Number(float64(others+f.Decoders[kernel.WayOwn.String()])), by); err != nil {
			return err
		}
	}
	return nil
}

func formats(m map[string]int64) string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(m[b], m[a]), cmp.Compare(a, b)) })
	if len(names) == 1 {
		return names[0]
	}
	for i, n := range names {
		names[i] = n + " " + show.Number(float64(m[n]))
	}
	return strings.Join(names, ", ")
}

func sizes(r *Range) string {
	return show.Size(r.Min) + " / " + show.Size(r.Median) + " / " + show.Size(r.Max)
}

// WriteTrailing reports pictures whose data continue after their last block.
func (r *Report) WriteTrailing(w io.Writer) {
	if r.Trailing == 0 {
		return
	}
	fmt.Fprintf(w, "%s complete, with data after the last block of the JPEG (training decodes it; a header that\nunderstates the size looks the same):\n",
		show.Count(r.Trailing, "sample is", "samples are"))
	for _, e := range r.GoOn[:min(len(r.GoOn), shownDamage)] {
		fmt.Fprintf(w, "  %s: %s\n", e.Where, e.Cause)
	}
	if more := r.Trailing - shownDamage; more > 0 {
		fmt.Fprintf(w, "  and %s more (--json lists them)\n", show.Number(float64(more)))
	}
}

// verdict says what was checked, and the result.
func (r *Report) verdict() string {
	if r.Checked == 0 {
		return "No sample was read: --check N reads some, --all decodes everything."
	}
	of := "all " + show.Count(r.Samples, "sample", "samples")
	if r.Checked < r.Samples {
		of = fmt.Sprintf("%s of %s samples", show.Number(float64(r.Checked)), show.Number(float64(r.Samples)))
	}
	how := "headers and end marks of " + of + " checked"
	if r.Decoded {
		how = of + " decoded"
	}
	result := "no damage found"
	if r.Damaged > 0 {
		result = show.Count(r.Damaged, "sample is", "samples are") + " damaged:"
	} else if !r.Decoded {
		result += " (--all decodes everything)"
	}
	return strings.ToUpper(how[:1]) + how[1:] + ": " + result
}

func few(paths []string, n int) string {
	var names []string
	for _, p := range paths[:min(n, len(paths))] {
		names = append(names, errs.Name(p))
	}
	text := strings.Join(names, " ")
	if more := len(paths) - n; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func indent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line != "\n" {
			b.WriteString("    ")
		}
		b.WriteString(line)
	}
	return b.String()
}
