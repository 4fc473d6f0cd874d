package tune

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// File is the name of a playbook.
const File = "stoker.playbook.yaml"

const playbookVersion = 1

// Playbook is the results of tuning, by machine and dataset.
type Playbook struct {
	Version int     `yaml:"version"`
	Entries []Entry `yaml:"entries"`
}

// Entry is one machine, dataset, kind of loader and device that decodes.
type Entry struct {
	Machine  string   `json:"machine" yaml:"machine"`                     // Hardware.Digest
	Dataset  string   `json:"dataset" yaml:"dataset"`                     // its digest
	Name     string   `json:"name" yaml:"name"`                           // its name, for people
	Samples  int64    `json:"samples,omitempty" yaml:"samples,omitempty"` // of the dataset; 0: unknown
	Loader   string   `json:"loader" yaml:"loader"`
	Device   string   `json:"decode_device,omitempty" yaml:"decode_device,omitempty"`
	Date     string   `json:"date" yaml:"date"` // RFC 3339, UTC
	Step     float64  `json:"step_s" yaml:"step_s"`
	Settings Settings `json:"settings" yaml:"settings"`
	Figures  Figures  `json:"figures" yaml:"figures"`
	Hardware Hardware `json:"hardware" yaml:"hardware"`
}

const heading = `# Settings that stoker tune measured: an entry a machine and dataset. Written anew by it; read by
# stoker.DataLoader(..., tune="playbook"). prefetch is batches: of the loader for stoker, a worker for torch.
`

// Read reads a playbook; one that does not exist has no entries, and found is false.
func Read(path string) (p *Playbook, found bool, err error) {
	text, err := source.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return &Playbook{Version: playbookVersion}, false, nil
	}
	if err != nil {
		return nil, false, errs.New(errs.Unreadable, "cannot read the playbook").Because(err)
	}
	p, err = parse(text)
	if err != nil {
		e := errs.New(errs.Config, "%s is not a playbook", errs.Name(path)).Because(err)
		return nil, true, e.Try("repair it, or move it away and run stoker tune again")
	}
	return p, true, nil
}

// parse reads only the form that Write writes: an unknown or duplicate key is an
// error.
func parse(written []byte) (*Playbook, error) {
	if !utf8.Valid(written) {
		return nil, errors.New("it is not UTF-8")
	}
	body, err := tree(written)
	if err != nil {
		return nil, err
	}
	p := &Playbook{}
	if err := yaml.NodeToValue(body, p, yaml.Strict()); err != nil {
		return nil, notYAML(err, written)
	}
	if p.Version != playbookVersion {
		return nil, fmt.Errorf("its version is %d, but this release reads %d", p.Version, playbookVersion)
	}
	for i, e := range p.Entries {
		s := e.Settings
		if e.Machine == "" || e.Dataset == "" || e.Loader == "" {
			return nil, fmt.Errorf("entry %d: machine, dataset or loader is empty", i+1)
		}
		if e.Loader == Own && s.Workers > spec.MaxLanes {
			return nil, fmt.Errorf("entry %d has num_workers %d: a loader has at most %d lanes", i+1, s.Workers, spec.MaxLanes)
		}
		if s.Share > Sixteenths {
			return nil, fmt.Errorf("entry %d has decode_sixteenths %d: give 0 to %d", i+1, s.Share, Sixteenths)
		}
		if s.Share > 0 && e.Device == "" {
			return nil, fmt.Errorf("entry %d has decode_sixteenths, but no decode_device", i+1)
		}
		if _, err := time.Parse(time.RFC3339, e.Date); err != nil {
			return nil, fmt.Errorf("entry %d has the date %q, which is not RFC 3339, such as 2026-11-21T18:00:00Z", i+1, e.Date)
		}
	}
	return p, nil
}

// Write writes a playbook completely or not at all.
func (p *Playbook) Write(path string) error {
	return write(path, p.text())
}

// text is the playbook as YAML. Every text is quoted: the rules for plain texts are
// complicated, and names of data are arbitrary.
func (p *Playbook) text() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%sversion: %d\nentries:\n", heading, p.Version)
	for _, e := range p.Entries {
		fmt.Fprintf(&b, "  - machine: %s\n", quoted(e.Machine))
		put := func(indent int, key string, value any) {
			fmt.Fprintf(&b, "%*s%s: %v\n", indent, "", key, value)
		}
		put(4, "dataset", quoted(e.Dataset))
		put(4, "name", quoted(e.Name))
		if e.Samples > 0 {
			put(4, "samples", e.Samples)
		}
		put(4, "loader", quoted(e.Loader))
		if e.Device != "" {
			put(4, "decode_device", quoted(e.Device))
		}
		put(4, "date", quoted(e.Date))
		put(4, "step_s", e.Step)
		b.WriteString("    settings:\n")
		put(6, "num_workers", e.Settings.Workers)
		put(6, "prefetch", e.Settings.Prefetch)
		put(6, "pin_memory", e.Settings.Pin)
		put(6, "batch_size", e.Settings.Batch)
		if e.Device != "" {
			put(6, "decode_sixteenths", e.Settings.Share)
		}
		b.WriteString("    figures:\n")
		put(6, "samples_per_second", e.Figures.Samples)
		put(6, "batches_per_second", e.Figures.Batches)
		put(6, "cores_busy", e.Figures.Cores)
		put(6, "first_batch_s", e.Figures.First)
		put(6, "spread", e.Figures.Spread)
		b.WriteString("    hardware:\n")
		put(6, "cpu", quoted(e.Hardware.CPU))
		put(6, "cores", e.Hardware.Online)
		put(6, "usable_cores", e.Hardware.Cores)
		if e.Hardware.Quota > 0 {
			put(6, "cgroup_cores", e.Hardware.Quota)
		}
		put(6, "memory_gib", e.Hardware.Memory)
		if len(e.Hardware.GPUs) > 0 {
			b.WriteString("      gpus:\n")
		}
		for _, g := range e.Hardware.GPUs {
			fmt.Fprintf(&b, "        - %s\n", quoted(g))
		}
	}
	return b.Bytes()
}

// quoted is a text in YAML's double quotes; characters that cannot be printed are
// escaped.
func quoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case strconv.IsPrint(r):
			b.WriteRune(r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// write writes a file through a temporary file beside it.
func write(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err == nil {
		defer os.Remove(f.Name())
		_, err = f.Write(text)
		err = errors.Join(err, f.Chmod(0o644), f.Close())
		if err == nil {
			err = os.Rename(f.Name(), path)
		}
	}
	if err != nil {
		return errs.New(errs.Unreadable, "cannot write %s", errs.Name(path)).Because(err).Try("run it in a writable folder, or set --playbook and --plot")
	}
	return nil
}

// Put adds an entry, or replaces the one for the same machine, dataset, kind of loader
// and device that decodes.
func (p *Playbook) Put(e Entry) {
	if i := p.at(e); i >= 0 {
		p.Entries[i] = e
		return
	}
	p.Entries = append(p.Entries, e)
}

func (p *Playbook) at(e Entry) int {
	return slices.IndexFunc(p.Entries, func(o Entry) bool {
		return o.Machine == e.Machine && o.Dataset == e.Dataset && o.Loader == e.Loader && o.Device == e.Device
	})
}

// Find returns the entry for a machine, dataset, kind of loader and device that
// decodes, of e.
func (p *Playbook) Find(e Entry) (Entry, bool) {
	if i := p.at(e); i >= 0 {
		return p.Entries[i], true
	}
	return Entry{}, false
}

// Previous is the entry to compare e with: its own, or the newest of the same
// dataset on another machine, or of a dataset with the same path, or name.
func (p *Playbook) Previous(e Entry) (Entry, bool) {
	if i := p.at(e); i >= 0 {
		return p.Entries[i], true
	}
	return p.youngest(e.Loader,
		func(o Entry) bool { return o.Device == e.Device && o.Dataset == e.Dataset },
		func(o Entry) bool { return o.Device == e.Device && samePath(o.Name, e.Name) && o.Machine == e.Machine },
		func(o Entry) bool { return o.Device == e.Device && samePath(o.Name, e.Name) },
	)
}

// Nearest is Previous, or the newest entry with another device that decodes, or that
// of a dataset whose path has the same end: it may be stored elsewhere on another
// machine.
func (p *Playbook) Nearest(e Entry) (Entry, bool) {
	if o, ok := p.Previous(e); ok {
		return o, true
	}
	return p.youngest(e.Loader,
		func(o Entry) bool { return o.Dataset == e.Dataset },
		func(o Entry) bool {
			return o.Name != "" && e.Name != "" && filepath.Base(o.Name) == filepath.Base(e.Name)
		},
	)
}

// youngest is the newest entry that satisfies the first of these conditions that
// any entry satisfies.
func (p *Playbook) youngest(loader string, fits ...func(o Entry) bool) (Entry, bool) {
	for _, fit := range fits {
		var youngest Entry
		for _, o := range p.Entries {
			if o.Loader == loader && fit(o) && o.Date >= youngest.Date {
				youngest = o
			}
		}
		if youngest.Date != "" {
			return youngest, true
		}
	}
	return Entry{}, false
}

// samePath reports whether two names are of one dataset: as they are written, or as
// paths relative to here.
func samePath(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := filepath.Abs(a)
	y, errY := filepath.Abs(b)
	return a != "" && b != "" && errX == nil && errY == nil && x == y
}

// Names are the names of the datasets in a loader's entries, each once.
func (p *Playbook) Names(loader string) (names []string) {
	for _, e := range p.Entries {
		if e.Loader == loader && !slices.Contains(names, e.Name) {
			names = append(names, e.Name)
		}
	}
	return names
}

// Change is a property that has changed.
type Change struct {
	Term   string `json:"term"` // hardware, dataset, settings or figures
	What   string `json:"what"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// noise is the smallest change of figures that counts; it is larger if windows
// differed by more.
const noise = 0.05

// Changes are the differences between two entries: figures only if they differ by
// more than their noise.
func Changes(before, after Entry) (all []Change) {
	add := func(term, what string, a, b any) {
		if x, y := fmt.Sprint(a), fmt.Sprint(b); x != y {
			all = append(all, Change{term, what, x, y})
		}
	}
	a, b := before.Hardware, after.Hardware
	add("hardware", "cpu", a.CPU, b.CPU)
	add("hardware", "cores", a.Online, b.Online)
	add("hardware", "usable cores", a.Cores, b.Cores)
	add("hardware", "cgroup limit in cores", none(a.Quota), none(b.Quota))
	add("hardware", "memory in GiB", a.Memory, b.Memory)
	add("hardware", "gpus", list(a.GPUs), list(b.GPUs))
	add("dataset", "digest", before.Dataset, after.Dataset)
	if before.Samples > 0 && after.Samples > 0 {
		add("dataset", "samples", before.Samples, after.Samples)
	}
	if !samePath(before.Name, after.Name) {
		add("dataset", "name", before.Name, after.Name)
	}
	s, t := before.Settings, after.Settings
	add("settings", "num_workers", s.Workers, t.Workers)
	add("settings", Keyword(after.Loader), dash(s.Prefetch), dash(t.Prefetch))
	add("settings", "pin_memory", s.Pin, t.Pin)
	add("settings", "batch_size", s.Batch, t.Batch)
	add("settings", "decode_device", cmp.Or(before.Device, "none"), cmp.Or(after.Device, "none"))
	add("settings", "decode_sixteenths", s.Share, t.Share)
	add("settings", "step in seconds", before.Step, after.Step)
	f, g := before.Figures, after.Figures
	limit := max(noise, f.Spread, g.Spread)
	if f.Samples > 0 && math.Abs(g.Samples/f.Samples-1) > limit {
		add("figures", "samples a second", rounded(f.Samples), rounded(g.Samples))
	}
	if f.Samples > 0 && g.Samples > 0 && f.Cores > 0 {
		x, y := f.Cores/f.Samples*1000, g.Cores/g.Samples*1000
		if math.Abs(y/x-1) > 2*limit {
			add("figures", "CPU seconds per 1,000 samples", rounded(x), rounded(y))
		}
	}
	return all
}

func none(cores float64) string {
	if cores == 0 {
		return "none"
	}
	return fmt.Sprint(cores)
}

func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// rounded is a number with three digits.
func rounded(x float64) string {
	if math.Abs(x) >= 100 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}
