package need

import (
	"fmt"
	"io"
	"strings"

	"github.com/stoker-data/stoker/internal/tool/show"
)

// thin is the headroom below which another run may say the opposite.
const thin = 0.1

// WriteText writes the plan as people read it.
func (p Plan) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\nwhat the GPUs need: %s %s samples/s\n  %s\n\n", trains(p.GPUs), rate(p.PerGPU), p.verdict())
	p.table(&b)
	p.changes(&b)
	b.WriteString("\n  assumed\n")
	for _, a := range p.Assumed {
		wrapped(&b, "    ", a)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func trains(gpus int) string {
	if gpus == 1 {
		return "1 GPU that trains"
	}
	return show.Things(gpus, "GPU") + ", each of which trains"
}

func (p Plan) verdict() string {
	switch {
	case p.Enough() && p.StorageTooSlow:
		return "This run kept up, from the page cache; the storage does not."
	case p.Enough() && p.Share < 1+thin:
		return fmt.Sprintf("This machine just keeps up: %s to spare, less than two runs may differ by.", show.Percent(p.Share-1))
	case p.Enough():
		return fmt.Sprintf("This machine keeps up, with %s to spare.", show.Percent(p.Share-1))
	}
	return fmt.Sprintf("This machine gives %s of that: %s of the GPU time is wasted.", share(p.Share), share(p.Wasted))
}

func (p Plan) table(b *strings.Builder) {
	fmt.Fprintf(b, "  %-12s  %12s  %12s\n", "samples/s", "all GPUs", "per GPU")
	fmt.Fprintf(b, "  %-12s  %12s  %12s\n", "needed", rate(p.Total), rate(p.PerGPU))
	fmt.Fprintf(b, "  %-12s  %12s  %12s\n", "given here", rate(p.Gives), rate(p.GivesPerGPU))
	line := func(name, format string, a ...any) {
		hanging(b, fmt.Sprintf("  %-12s  ", name), strings.Repeat(" ", 16), fmt.Sprintf(format, a...))
	}
	b.WriteString("\n")
	line("limited by", "%s", p.limit())
	if p.Samples > 0 {
		epoch := "an epoch of " + show.Count(p.Samples, "sample", "samples") + ": " + show.Took(p.EpochNeeded)
		if !p.Enough() {
			epoch += " as needed, " + show.Took(p.EpochLoaded) + " as given"
		}
		line("time", "%s", epoch)
	}
	if p.CPU > 0 {
		line("cores", "%s", p.cores())
	}
	if p.GPUs > 1 || !p.Enough() {
		line("servers", "%s", p.servers())
	}
	if p.ReadPerSample > 0 {
		line("storage", "%s", p.reads())
	}
	each := ""
	if p.GPUs > 1 {
		each = fmt.Sprintf("; %s/s to each", show.Bytes(p.EachGPUPerSec))
	}
	line("host to GPU", "%s/s needed, at %s a sample%s", show.Bytes(p.GPUPerSecond), show.Bytes(p.GPUPerSample), each)
}

func (p Plan) limit() string {
	m := p.from
	switch p.Bound {
	case Lanes:
		s := fmt.Sprintf("decoding and transforming, on %s", show.Things(m.Lanes, "lane"))
		if m.disturbed() {
			s += fmt.Sprintf(", which were off their cores for %s of their time", show.Percent(1-m.OnCore))
		}
		return s
	case Reads:
		return "reading: readers wait for the storage, and the cores wait for them"
	case Cores:
		return fmt.Sprintf("the cores: %.2f of %d were busy", m.Busy, m.Cores)
	}
	return "planning and handing over batches, one after another"
}

func (p Plan) cores() string {
	s := fmt.Sprintf("%s needed, at %s a sample; the loader has %d here", digits(p.CoresNeeded), show.Took(p.CPU), p.Cores)
	switch p.CoresMissing {
	case 0:
		return s
	case 1:
		return s + ": 1 is missing"
	}
	return s + fmt.Sprintf(": %s are missing", show.Number(float64(p.CoresMissing)))
}

func (p Plan) servers() string {
	like := ""
	if p.from.Lanes < p.from.Cores && p.computes() {
		like = " with " + show.Things(p.from.Lanes, "lane")
	}
	switch {
	case p.Servers == 1:
		return "1: this one"
	case p.Servers > 1:
		return fmt.Sprintf("%d like this one%s, each with %s", p.Servers, like, atMost(p.GPUsPerServer))
	}
	return fmt.Sprintf("one like this%s cannot feed a single GPU, so more of them do not help", like)
}

func atMost(gpus int) string {
	if gpus == 1 {
		return "1 GPU"
	}
	return fmt.Sprintf("at most %d GPUs", gpus)
}

func (p Plan) reads() string {
	s := fmt.Sprintf("%s/s needed, at %s a sample", show.Bytes(p.ReadPerSecond), show.Bytes(p.ReadPerSample))
	if p.Storage > 0 {
		s += fmt.Sprintf("; it gave %s/s to many readers at once, past the page cache", show.Bytes(p.Storage))
	} else {
		s += "; how much it gives was not measured: no file is large enough"
	}
	switch {
	case p.StorageTooSlow && p.Bound == Reads:
		s += ": too slow"
	case p.StorageTooSlow:
		s += fmt.Sprintf("; that is too slow, and the %s of an epoch do not stay in memory (%s free)", show.Bytes(p.DatasetBytes), show.Bytes(p.Memory))
	case p.Storage > 0 && p.ReadPerSecond > p.Storage:
		s += fmt.Sprintf("; that is too slow for the first epoch; later ones find its %s in memory (%s free)", show.Bytes(p.DatasetBytes), show.Bytes(p.Memory))
	}
	return s
}

func (p Plan) changes(b *strings.Builder) {
	if p.Enough() && len(p.Changes) == 0 {
		return
	}
	b.WriteString("\n  what would close the gap")
	if !p.Enough() && (len(p.Changes) == 0 || !p.Changes[0].Enough) {
		b.WriteString(" (nothing does alone, by these figures)")
	}
	b.WriteString("\n")
	for i, c := range p.Changes {
		fmt.Fprintf(b, "    %d. %s\n", i+1, c.Name)
		wrapped(b, "       ", c.Why+c.effect())
		if c.Try != "" {
			fmt.Fprintf(b, "       try: %s\n", c.Try)
		}
	}
}

func (c Change) effect() string {
	switch {
	case c.Rate <= 0:
		return ""
	case c.Most && c.Enough:
		return fmt.Sprintf(" At most %s samples/s, which may be enough.", rate(c.Rate))
	case c.Most:
		return fmt.Sprintf(" At most %s samples/s, which is not enough.", rate(c.Rate))
	case c.Enough:
		return fmt.Sprintf(" Enough: %s samples/s.", rate(c.Rate))
	}
	return fmt.Sprintf(" Not enough: %s samples/s.", rate(c.Rate))
}

// cores is a number of cores.
func cores(n float64) string {
	if n == 1 {
		return "1 core"
	}
	return digits(n) + " cores"
}

// rate is samples a second, with a digit more where there are few.
func rate(n float64) string {
	if n < 100 {
		return fmt.Sprintf("%.3g", n)
	}
	return show.Number(n)
}

// share is a percentage that is neither 0 nor 100 if the share is not.
func share(s float64) string {
	if s > 0 && s < 0.01 {
		return "less than 1 %"
	}
	if s < 1 {
		s = min(s, 0.99)
	}
	return show.Percent(s)
}

// digits are three of a number, without an exponent.
func digits(n float64) string {
	if n < 0.01 {
		return "under 0.01"
	}
	if n < 100 {
		return fmt.Sprintf("%.3g", n)
	}
	return show.Number(n)
}

// wrapped writes text in lines of at most show.Width.
func wrapped(b *strings.Builder, indent, text string) { hanging(b, indent, indent, text) }

// hanging is wrapped with a first line that begins otherwise.
func hanging(b *strings.Builder, first, indent, text string) {
	line, begin := first, len(first)
	for word := range strings.FieldsSeq(text) {
		if len(line) > begin && len(line)+1+len(word) > show.Width {
			b.WriteString(line + "\n")
			line, begin = indent, len(indent)
		}
		if len(line) > begin {
			line += " "
		}
		line += word
	}
	b.WriteString(line + "\n")
}
