package gather

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/doctor/system"
)

// line is what one process with the hook wrote: all its counters since it
// started, so that the last line of a file counts and the difference of two is
// what happened between them. Times are seconds of CLOCK_MONOTONIC.
type line struct {
	Version    int               `json:"v"`
	PID        int               `json:"pid"`
	PPID       int               `json:"ppid"`
	Role       string            `json:"role"` // main, worker, child
	T          float64           `json:"t"`
	Started    float64           `json:"started"`
	Argv       []string          `json:"argv"`
	Python     string            `json:"python"`
	Libraries  map[string]string `json:"libraries"`
	Rank       *int              `json:"rank"`
	World      *int              `json:"world"`
	Threads    map[string]any    `json:"threads"`
	CUDABefore bool              `json:"cuda_before_fork"`
	Trouble    []string          `json:"trouble"`
	Exit       *string           `json:"exit"`
	Sources    []string          `json:"sources"` // files of the script's own code, the main one first
	Loaders    []loaderLine      `json:"loaders"`
	Stoker     []ownLine         `json:"stoker"`
	Worker     *workerLine       `json:"worker"`
}

type loaderLine struct {
	ID            int            `json:"id"`
	Class         string         `json:"class"`
	Where         string         `json:"where"`
	Lines         []callLine     `json:"lines"`  // the script's calls that made it, innermost first
	Stores        []string       `json:"stores"` // what its dataset reads from
	Steps         *stepsLine     `json:"steps"`
	Dataset       string         `json:"dataset"`
	Kind          string         `json:"kind"`
	Length        *int64         `json:"length"`
	PerEpoch      *int           `json:"per_epoch"` // batches of one, as the loader says; a rank's own
	BatchSize     *int           `json:"batch_size"`
	Workers       int            `json:"workers"`
	Prefetch      *int           `json:"prefetch"`
	Pin           bool           `json:"pin"`
	Persistent    bool           `json:"persistent"`
	DropLast      bool           `json:"drop_last"`
	Sampler       string         `json:"sampler"`
	Shuffled      *bool          `json:"shuffled"`
	Collate       string         `json:"collate"`
	Context       string         `json:"context"`
	Init          string         `json:"init"`
	DatasetBytes  *float64       `json:"dataset_bytes"`
	Stateful      []string       `json:"stateful"`
	Handles       []string       `json:"handles"`
	OnDevice      []string       `json:"on_device"`
	SetEpoch      *bool          `json:"set_epoch"`
	OrderRepeated *bool          `json:"order_repeated"`
	Transforms    []string       `json:"transforms"`
	Epochs        []epochLine    `json:"epochs"`
	Batches       float64        `json:"batches"`
	Wait          float64        `json:"wait"`
	WaitFirst     float64        `json:"wait_first"`
	Step          float64        `json:"step"`
	LongSteps     [][2]float64   `json:"long_steps"` // seconds, and when they were over; those of some seconds, the longest of them
	WaitHist      *quantiles     `json:"wait_hist"`
	Ready         *float64       `json:"ready"`
	Bytes         *float64       `json:"bytes"`
	SampleBytes   *float64       `json:"sample_bytes"`
	Shape         string         `json:"shape"`
	Pinned        *bool          `json:"pinned"`
	NonBlocking   map[string]int `json:"non_blocking"`
	Pageable      *timed         `json:"pageable"` // copies to the device of what can be paged out
	Padding       *float64       `json:"padding"`
	Inline        *workerLine    `json:"inline"`
	Passes        int            `json:"passes"`
	Made          int            `json:"made"`   // objects, one after the other, made by the same line
	Doing         []any          `json:"doing"`  // wait, step or start; since
	Recent        [][]*float64   `json:"recent"` // asked, got, ready or null
}

// ownLine is where a loader of stoker was made; its figures are in the engine's page.
type ownLine struct {
	Loader int64  `json:"loader"` // its number there
	Where  string `json:"where"`
}

type epochLine struct {
	Begin   float64  `json:"begin"`
	First   *float64 `json:"first"`
	End     *float64 `json:"end"`
	Batches float64  `json:"batches"`
}

type quantiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
	Of  string  `json:"of"` // sample, or batch where samples are made a batch at a time
}

// callLine is [path, line, function].
type callLine struct {
	Path string
	Line int
	Func string
}

func (c *callLine) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&c.Path, &c.Line, &c.Func})
}

// stepsLine is what a loop did between batches.
type stepsLine struct {
	quantiles
	Tail    tailLine    `json:"tail"`
	Numbers []int       `json:"numbers"` // of the last long ones
	Usual   []stackLine `json:"usual"`
	Long    []stackLine `json:"long"`
	Inside  []stackLine `json:"inside"` // of __next__; shares of all looks at a loop that waits
}

// tailLine is what took several times as long as the middle one.
type tailLine struct {
	N    float64 `json:"n"`
	S    float64 `json:"s"`
	AllN float64 `json:"all_n"`
	AllS float64 `json:"all_s"`
}

// tailOf is how few there may be of which a tail can be told.
const tailOf = 32

// tail is what it says as shares; nothing of too few.
func (t tailLine) tail() evidence.Tail {
	if t.AllN < tailOf || t.AllS <= 0 {
		return evidence.Tail{}
	}
	return evidence.Tail{Count: evidence.Measured(t.N/t.AllN, evidence.FromHook), Time: evidence.Measured(t.S/t.AllS, evidence.FromHook)}
}

// targetLine is what calls of one name opened.
type targetLine struct {
	Again   float64  `json:"again"` // share that was opened a moment before
	Targets float64  `json:"targets"`
	Paths   []string `json:"paths"`
}

// slowLine is [seconds, number, name or null] of a sample.
type slowLine struct {
	Seconds float64
	Number  int64
	Name    *string
}

func (s *slowLine) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&s.Seconds, &s.Number, &s.Name})
}

type workerLine struct {
	Loader     int                   `json:"loader"`
	Index      int                   `json:"index"`
	Started    float64               `json:"started"`
	Batches    float64               `json:"batches"`
	Samples    float64               `json:"samples"`
	Timed      *float64              `json:"timed_samples"`
	Fetch      float64               `json:"fetch"`
	Sample     float64               `json:"sample"`
	SampleCPU  float64               `json:"sample_cpu"`
	Hist       *quantiles            `json:"sample_hist"`
	Tail       tailLine              `json:"tail"`
	Collate    float64               `json:"collate"`
	CollateCPU float64               `json:"collate_cpu"`
	Idle       float64               `json:"idle"`
	Blocked    float64               `json:"blocked"`
	Calls      map[string]call       `json:"calls"`
	Targets    map[string]targetLine `json:"targets"`
	Files      []string              `json:"files"`
	Stores     []string              `json:"stores"`
	Slowest    []slowLine            `json:"slowest"`
	Stacks     []stackLine           `json:"stacks"`
	IO         ioLine                `json:"io"`
	Waits      map[string]float64    `json:"waits"` // shares of the looks at its thread in which the kernel held it, by why
	Looks      float64               `json:"looks"`
	Delay      *float64              `json:"delay"`    // ready to run, without a core
	CPU        float64               `json:"cpu"`      // of the whole process
	Fetching   *float64              `json:"fetching"` // the sample in work since
	Stateful   []string              `json:"stateful"`
	Faults     float64               `json:"faults"`
	Threads    map[string]any        `json:"threads"`

	covered float64 // of a sum: samples of the workers that timed calls
}

type call struct {
	N   float64 `json:"n"`
	S   float64 `json:"s"`
	CPU float64 `json:"cpu"`
	At  string  `json:"at"` // the script's line that calls
}

type ioLine struct {
	RChar     float64 `json:"rchar"`
	ReadBytes float64 `json:"read_bytes"`
	Syscalls  float64 `json:"syscr"`
}

// stackLine is [frame, share].
type stackLine struct {
	At    string
	Share float64
}

func (s *stackLine) UnmarshalJSON(b []byte) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(b, &parts); err != nil {
		return err
	}
	if len(parts) < 2 {
		return errors.New("a stack is a frame and a share")
	}
	return errors.Join(json.Unmarshal(parts[0], &s.At), json.Unmarshal(parts[1], &s.Share))
}

// kept is how many lines of a process are kept from its start, for the beginning
// of the stretch that is measured; after them the last one replaces the one before.
const kept = 200

// process is what is known of one process with the hook.
type process struct {
	lines []line
	read  int64 // bytes of its file
}

func (p *process) last() line  { return p.lines[len(p.lines)-1] }
func (p *process) first() line { return p.lines[0] }

// since is the first line at or after a moment; the last one if there is none.
func (p *process) since(t float64) line {
	for _, l := range p.lines {
		if l.T >= t {
			return l
		}
	}
	return p.last()
}

// Folder reads what processes write into a folder. It has one user.
type Folder struct {
	dir       string
	processes map[int]*process
	Strange   string // what a line that cannot be understood looked like
}

func NewFolder(dir string) *Folder { return &Folder{dir: dir, processes: map[int]*process{}} }

// Poll reads what came since the last time, and says whether anything did.
func (f *Folder) Poll() (news bool, err error) {
	files, err := os.ReadDir(f.dir)
	if err != nil {
		return false, err
	}
	for _, file := range files {
		name, is := strings.CutSuffix(file.Name(), ".jsonl")
		pid, err := strconv.Atoi(name)
		if !is || err != nil {
			continue
		}
		p := f.processes[pid]
		if p == nil {
			p = &process{}
		}
		if f.readFile(filepath.Join(f.dir, file.Name()), p) && len(p.lines) > 0 {
			f.processes[pid], news = p, true
		}
	}
	return news, nil
}

// mostRead is the most of a file that is read at once: a process that writes a
// great deal is not to fill our memory.
const mostRead = 8 << 20

// readFile reads whole lines; a torn one at the end is left for the next time.
func (f *Folder) readFile(path string, p *process) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	b, err := io.ReadAll(io.NewSectionReader(file, p.read, mostRead))
	if err != nil && !errors.Is(err, fs.ErrClosed) && len(b) == 0 {
		return false
	}
	end := bytes.LastIndexByte(b, '\n') + 1
	p.read += int64(end)
	sc := bufio.NewScanner(bytes.NewReader(b[:end]))
	sc.Buffer(nil, mostRead)
	for sc.Scan() {
		var l line
		if err := json.Unmarshal(sc.Bytes(), &l); err != nil || l.Version != 1 {
			f.Strange = string(sc.Bytes()[:min(len(sc.Bytes()), 80)])
			continue
		}
		if len(p.lines) > kept {
			p.lines[len(p.lines)-1] = l
		} else {
			p.lines = append(p.lines, l)
		}
	}
	return end > 0
}

type timed struct {
	Batches float64 `json:"batches"`
	Seconds float64 `json:"seconds"`
}

// Empty says that no process has written yet.
func (f *Folder) Empty() bool { return len(f.processes) == 0 }

// FirstBatch is when the first batch of all came.
func (f *Folder) FirstBatch() (t float64, ok bool) {
	for _, p := range f.processes {
		for _, l := range p.last().Loaders {
			if l.Batches < 1 || len(l.Epochs) == 0 {
				continue
			}
			at := p.firstWith(l.ID)
			if !ok || at < t {
				t, ok = at, true
			}
		}
	}
	return t, ok
}

// firstWith is when a loader's first batch came: by its first epoch, as long as
// that is remembered, else by the first line that knows of a batch.
func (p *process) firstWith(id int) float64 {
	for _, line := range p.lines {
		l := loaderOf(line, id)
		if l == nil || l.Batches < 1 {
			continue
		}
		if len(l.Epochs) > 0 && l.Epochs[0].First != nil {
			return l.Epochs[0].Begin + *l.Epochs[0].First
		}
		return line.T
	}
	return p.last().T
}

// Batches is how many came in all, and whether any loop has begun and not ended.
func (f *Folder) Batches() (n float64, begun bool) {
	for _, p := range f.processes {
		for _, l := range p.last().Loaders {
			n += l.Batches
			if k := len(l.Epochs); k > 0 && l.Epochs[k-1].End == nil && p.last().Exit == nil {
				begun = true
			}
		}
	}
	return n, begun
}

// Readers are the processes that make samples, each with files that its timed ones opened.
func (f *Folder) Readers() map[int][]string {
	out := map[int][]string{}
	for pid, p := range f.processes {
		l := p.last()
		makes, files := l.Worker != nil, []string(nil)
		if makes {
			files = l.Worker.Files
		}
		for _, x := range l.Loaders {
			makes = makes || x.Workers == 0
			if x.Inline != nil {
				files = append(slices.Clone(files), x.Inline.Files...)
			}
		}
		if makes {
			out[pid] = files
		}
	}
	return out
}

// Pids are the processes that have written.
func (f *Folder) Pids() []int { return slices.Collect(maps.Keys(f.processes)) }

// Usual is the longest that a batch took so far, of those that are remembered.
func (f *Folder) Usual() (longest float64) {
	for _, p := range f.processes {
		for _, l := range p.last().Loaders {
			for i := 1; i < len(l.Recent); i++ {
				if a, b := l.Recent[i-1], l.Recent[i]; len(a) > 1 && len(b) > 1 && a[1] != nil && b[1] != nil {
					longest = max(longest, *b[1]-*a[1])
				}
			}
		}
	}
	return longest
}

// Locations are what the processes that have written run or wait for.
func (f *Folder) Locations(root string) (out []string) {
	for pid, p := range f.processes {
		at := system.Standing(root, pid)
		if at == "" {
			continue
		}
		l := p.last()
		if l.Worker != nil {
			at = fmt.Sprintf("worker %d: %s", l.Worker.Index, at)
			if len(l.Worker.Stacks) > 0 {
				at += ", last seen mostly at " + l.Worker.Stacks[0].At
			}
		}
		out = append(out, at)
	}
	slices.Sort(out)
	return out
}

// Made is the line of the script that made a loader of stoker in a process; empty where
// that has not told it.
func (f *Folder) Made(pid int, loader int64) string {
	p := f.processes[pid]
	if p == nil {
		return ""
	}
	for _, s := range p.last().Stoker {
		if s.Loader == loader {
			return s.Where
		}
	}
	return ""
}

// Exit is what a process said of its end; empty where it said nothing.
func (f *Folder) Exit(pid int) string {
	p := f.processes[pid]
	if p == nil || p.last().Exit == nil {
		return ""
	}
	return *p.last().Exit
}
