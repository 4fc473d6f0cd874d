// Package report writes a judged report for people.
package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/doctor/judge"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// Shown is a report that is written for people.
type Shown judge.Report

// WriteText writes the report as people read it, without colour.
func (r Shown) WriteText(w io.Writer) error {
	p := &page{w: w}
	p.line("%s", r.title())
	p.line("")
	r.verdict(p)
	if r.Evidence.Subject.Kind == evidence.OfMachine {
		p.line("")
		rows(r.Evidence.Machine, p)
	}
	r.others(p)
	for _, f := range r.Findings {
		p.line("")
		p.wrap("found     ", f.Name+location(f.Loader))
		p.wrap(indent, fmt.Sprintf("%s [%s]", f.What, f.Source))
		p.code(indent, f.Fix)
	}
	if notes := r.notes(); len(notes) > 0 {
		p.line("")
		for _, n := range notes {
			p.wrap("note      ", n)
		}
	}
	return p.err
}

const indent = "          "

func location(where string) string {
	if where == "" {
		return ""
	}
	return "  (" + where + ")"
}

func (r Shown) title() string {
	s := r.Evidence.Subject
	switch s.Kind {
	case evidence.OfScript:
		return show.OneLine("stoker doctor: " + strings.Join(s.Command, " "))
	case evidence.OfSpec:
		return show.OneLine("stoker doctor: " + strings.Join(s.Command, " ") + ", loaded by stoker")
	case evidence.OfLoader:
		return show.OneLine("stoker doctor: " + strings.Join(s.Command, " "))
	case evidence.OfProcess:
		return show.OneLine(fmt.Sprintf("stoker doctor: process %d, %s", s.PID, strings.Join(s.Command, " ")))
	}
	return "stoker doctor: this machine"
}

// gain is what the predicted speed-up is that of: a setting can be changed as
// the report says, a part of the cost can at best be taken away.
func gain(v judge.Verdict) string {
	switch v.Name {
	case judge.TooFew, judge.TooMany, judge.Shallow, judge.EpochStart, judge.CPULimit, judge.Misset, judge.Paged, judge.Repeated:
		return "With the change below"
	}
	if slices.Contains([]string{judge.SmallFiles, judge.Latency, judge.PythonCode}, v.Name) && len(v.Changes) > 0 && strings.Contains(v.Changes[0].Code, "num_workers=") {
		return "With the change below"
	}
	return "Without that"
}

func (r Shown) verdict(p *page) {
	v := r.Verdict
	title := v.Title()
	if v.Name == judge.Misset && v.Of != "" {
		title = v.Name + ": " + v.Of
	}
	p.wrap("verdict   ", title+location(cmp.Or(v.Line, v.Loader)))
	p.wrap(indent, v.Sentence)
	switch {
	case v.LoopSpeedup >= 1.05:
		p.wrap(indent, fmt.Sprintf("%s, the script is about %.2f x as fast, and the loop over %s %.1f x: %s per batch instead of %s [model].", gain(v), v.Speedup, cmp.Or(v.Over, "this loader"), v.LoopSpeedup, show.Seconds(v.Then), show.Seconds(v.Now)))
	case v.Speedup >= 1.05:
		p.wrap(indent, fmt.Sprintf("%s, about %.1f x as fast: %s per batch instead of %s [model].", gain(v), v.Speedup, show.Seconds(v.Then), show.Seconds(v.Now)))
	}
	if v.Preliminary != "" {
		p.wrap(indent, "Preliminary: "+v.Preliminary)
	}
	if v.Thin != "" {
		p.wrap(indent, v.Thin)
	}
	if len(v.Lines) > 0 {
		p.line("")
	}
	label := 0
	for _, l := range v.Lines {
		label = max(label, min(utf8.RuneCountInString(l.What), 24))
	}
	for i, l := range v.Lines {
		head := indent
		if i == 0 {
			head = "evidence  "
		}
		p.wrap(head+fmt.Sprintf("%-*s  ", label, l.What), fmt.Sprintf("%s [%s]", l.Text, l.Source))
	}
	for _, m := range v.Missing {
		p.wrap("missing   ", m)
	}
	for i, c := range v.Changes {
		head := "or        "
		if i == 0 {
			p.line("")
			head = "change    "
		}
		p.code(head, c)
	}
}

// others are the loops that the verdict is not about, a line each.
func (r Shown) others(p *page) {
	if len(r.Evidence.Loops) < 2 {
		return
	}
	p.line("")
	for i, l := range r.Evidence.Loops[1:] {
		if i == 8 {
			p.line("%sand %d more", indent, len(r.Evidence.Loops)-1-i)
			break
		}
		name := l.Settings.Where
		if l.World > 1 {
			name = fmt.Sprintf("rank %d %s", l.Rank, name)
		}
		text := "too few batches to say"
		if l.Wait.Known() {
			text = fmt.Sprintf("waits %s, steps %s per batch, %s", show.Seconds(l.Wait.Value), show.Seconds(l.Step.Value), show.Things(l.Settings.Workers, "worker"))
		}
		p.wrap("other     ", fmt.Sprintf("%s: %s [%s]", name, text, cmp.Or(l.Wait.Source, evidence.FromHook)))
	}
}

// notes are the Evidence's, and what was seen of the GPU: standing in __next__ and
// a GPU that idles are two things, and only one of them may have been measured.
func (r Shown) notes() []string {
	out := append([]string(nil), r.Evidence.Notes...)
	if e := r.Evidence.Run.Ended; e != "" && e != "exit status 0" {
		out = append(out, "The script ended: "+e+".")
	}
	if len(r.Evidence.Loops) == 0 {
		return out
	}
	if !judge.Measure(r.Evidence).Alone {
		out = append(out, fmt.Sprintf("Other processes used %.1f cores of this machine meanwhile [%s]; on an idle one costs are lower.", r.Evidence.Run.Others.Value, r.Evidence.Run.Others.Source))
	}
	seen := "Waiting in __next__ was measured; whether a GPU idled then was not (there is no nvidia-smi here)."
	if g := r.Evidence.Machine.GPUs; len(g) > 0 && g[0].Busy.Known() {
		seen = fmt.Sprintf("Waiting in __next__ was measured; beside it, %s was busy %s of the time by nvidia-smi, which counts any kernel at all. The two are not the same: kernels that were started before may run while the loop waits.", g[0].Name, show.Percent(g[0].Busy.Value))
	}
	return append(out, seen)
}

// rows is the machine.
func rows(m evidence.Machine, p *page) {
	row := func(name string, f evidence.Figure, text string) {
		if f.Known() {
			p.wrap(fmt.Sprintf("%-16s", name), fmt.Sprintf("%s [%s]", text, f.Source))
		}
	}
	row("cores", m.Cores, fmt.Sprintf("%.3g usable, of %.0f", m.Cores.Value, m.Online.Value))
	row("quota", m.Quota, fmt.Sprintf("%s (cgroup v%d)", show.Cores(m.Quota.Value), m.Cgroup))
	row("load", m.Load, fmt.Sprintf("%.2f", m.Load.Value))
	row("memory", m.Memory, fmt.Sprintf("%s, %s available", show.Bytes(m.Memory.Value), show.Bytes(m.Available.Value)))
	row("memory limit", m.Limit, fmt.Sprintf("%s (cgroup v%d), %s used", show.Bytes(m.Limit.Value), m.Cgroup, show.Bytes(m.Used.Value)))
	row("swap", m.Swap, show.Bytes(m.Swap.Value))
	row("/dev/shm", m.Shm, fmt.Sprintf("%s, %s free", show.Bytes(m.Shm.Value), show.Bytes(m.ShmFree.Value)))
	if m.Lock.Known() {
		row("locked memory", m.Lock, show.Bytes(m.Lock.Value)+" at most")
	} else {
		p.line("%-16sno limit", "locked memory")
	}
	row("open files", m.Files, show.Number(m.Files.Value)+" at most")
	if d := m.Disk; !d.IsZero() {
		spin := ""
		if d.Spins != nil && *d.Spins {
			spin = ", reported as rotating"
		}
		row("disk", d.Free, fmt.Sprintf("%s on %s%s, %s free", d.Kind, d.Device, spin, show.Bytes(d.Free.Value)))
	}
	for _, name := range evidence.ThreadSettings {
		if v, ok := m.Threads[name]; ok {
			p.wrap(fmt.Sprintf("%-16s", "threads"), name+"="+v)
		}
	}
	for _, g := range m.GPUs {
		row("GPU", g.Memory, fmt.Sprintf("%s, %s, %s used", g.Name, show.Bytes(g.Memory.Value), show.Bytes(g.Used.Value)))
	}
	if len(m.GPUs) == 0 {
		p.line("%-16s%s", "GPU", "none that nvidia-smi tells of")
	}
}

// page writes lines of a width; the first error stays.
type page struct {
	w   io.Writer
	err error
}

// line writes one line, cut where it is wider than the page.
func (p *page) line(format string, a ...any) {
	text := fmt.Sprintf(format, a...)
	if utf8.RuneCountInString(text) > show.Width {
		text = string([]rune(text)[:show.Width-4]) + " ..."
	}
	p.put(text)
}

func (p *page) put(text string) {
	if p.err == nil {
		_, p.err = fmt.Fprintln(p.w, strings.TrimRight(visible(text), " "))
	}
}

// visible is text without what moves a terminal's cursor or colours it: names in it are
// those of other people's files.
func visible(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// wrap writes words after a head, and further lines below them. A word that is wider
// than what is left of a line is broken.
func (p *page) wrap(head, words string) {
	pad := strings.Repeat(" ", utf8.RuneCountInString(head))
	if len(pad) > show.Width/2 {
		p.line("%s", head)
		head, pad = indent+"  ", indent+"  "
	}
	text := head
	for _, word := range parted(words, show.Width-len(pad)) {
		switch {
		case text == head || text == pad:
			text += word
		case utf8.RuneCountInString(text)+1+utf8.RuneCountInString(word) > show.Width:
			p.line("%s", text)
			text = pad + word
		default:
			text += " " + word
		}
	}
	p.line("%s", text)
}

// parted is the words of a text, none longer than most runes.
func parted(text string, most int) (out []string) {
	for _, word := range strings.Fields(text) {
		for runes := []rune(word); ; runes = runes[most:] {
			if len(runes) <= most {
				out = append(out, string(runes))
				break
			}
			out = append(out, string(runes[:most]))
		}
	}
	return out
}

// code writes a change: of what is there to paste no line is broken.
func (p *page) code(head string, c judge.Change) {
	for line := range strings.SplitSeq(c.Code, "\n") {
		p.put(head + line)
		head = indent
	}
	p.wrap(indent, c.Why)
}
