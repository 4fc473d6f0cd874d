// Package evidence is all that a doctor may have measured of a training run: plain data,
// which is recorded as JSON and judged again. Every figure says where it was measured.
package evidence

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"
)

// Schema is the version of Evidence and of a Report's JSON. A key is never given
// another meaning; new ones may come.
const Schema = 1

// Evidence is all that was measured, and of what.
type Evidence struct {
	Schema  int       `json:"schema"`
	Stoker  string    `json:"stoker"` // the version that measured
	When    time.Time `json:"when"`
	Subject Subject   `json:"subject"`
	Machine Machine   `json:"machine"`
	Run     Run       `json:"run,omitzero"`    // how the processes fared; nothing where none was looked at
	Loops   []Loop    `json:"loops,omitempty"` // a loader in a training process each
	Storage Storage   `json:"storage,omitzero"`
	Tiers   []Tier    `json:"tiers,omitempty"` // of a loader or a dataset
	Notes   []string  `json:"notes,omitempty"` // what a reader should know, in sentences
}

// Figure is a measured number and where it was measured. The zero value is one
// that was not measured: no rule may read it.
type Figure struct {
	Value  float64 `json:"value"`
	Source string  `json:"source"`
}

// Known says whether it was measured.
func (f Figure) Known() bool { return f.Source != "" }

// IsZero is for omitzero: what was not measured is not written.
func (f Figure) IsZero() bool { return f.Source == "" }

// UnmarshalJSON reads a figure of evidence that was recorded, and perhaps edited since.
func (f *Figure) UnmarshalJSON(b []byte) error {
	type plain Figure
	if json.Unmarshal(b, (*plain)(f)) != nil {
		return fmt.Errorf(`a figure is {"value": a number, "source": text}, and not %s`, b[:min(len(b), 60)])
	}
	*f = Measured(f.Value, f.Source)
	return nil
}

// Measured is a number that was measured at source. What is not a number was not
// measured: sums of what a process wrote may be anything.
func Measured(v float64, source string) Figure {
	if math.IsNaN(v) || math.Abs(v) > Most {
		return Figure{}
	}
	return Figure{v, source}
}

// Most is more than any second, byte or count of a run.
const Most = 1e18

// Ratio is a by b, not measured where b is nothing.
func Ratio(a, b float64, source string) Figure {
	if b <= 0 {
		return Figure{}
	}
	return Measured(a/b, source)
}

// The kinds of a Subject.
const (
	OfMachine = "machine"
	OfScript  = "script"
	OfProcess = "pid"
	OfSpec    = "spec"
	OfLoader  = "loader"
)

// Subject is what was looked at.
type Subject struct {
	Kind    string   `json:"kind"`
	Command []string `json:"command,omitempty"`
	PID     int      `json:"pid,omitempty"`
	Step    Figure   `json:"pretended_step_s,omitzero"`
}

// Run is how the processes of a script or a PID fared as a whole.
type Run struct {
	Seconds   Figure `json:"seconds,omitzero"` // that were looked at
	Processes int    `json:"processes,omitempty"`
	Hooked    int    `json:"hooked"` // of these, Python processes that the hook is in

	// Ended is how the script ended; empty while it runs.
	Ended string `json:"ended,omitempty"`
	// Python is the version of the first process with the hook.
	Python    string            `json:"python,omitempty"`
	Libraries map[string]string `json:"libraries,omitempty"`

	CPU       Figure `json:"cpu_cores,omitzero"`       // cores that its processes used
	Others    Figure `json:"others_cores,omitzero"`    // cores that other processes of the machine used
	Throttled Figure `json:"throttled_share,omitzero"` // of the cgroup's periods in which it was stopped
	Stopped   Figure `json:"stopped_share,omitzero"`   // of the time, stopped by the quota, summed over cores
	Faults    Figure `json:"major_faults_per_second,omitzero"`
	Swapped   Figure `json:"swapped_in_bytes_per_second,omitzero"`
	Refaults  Figure `json:"refaulted_bytes_per_second,omitzero"` // dropped from memory and read again, below a limit
	ReadRate  Figure `json:"read_bytes_per_second,omitzero"`
	Pressure  Figure `json:"memory_pressure_share,omitzero"` // of the time, some process waited for memory
	Used      Figure `json:"memory_used_share,omitzero"`     // of the tightest limit, page cache that can go aside
	Limit     Figure `json:"memory_limit_bytes,omitzero"`

	Quiet Figure   `json:"quiet_seconds,omitzero"` // since the last batch, where that is long
	At    []string `json:"quiet_at,omitempty"`     // where it waits, as frames or as what the kernel says

	// Denied is whose process it is, where the kernel does not let us look into it.
	Denied string `json:"denied,omitempty"`
}

// Loop is one loader in one training process: its settings, and how the loop
// over it went. Times are seconds, and means over the stretch that was measured,
// which begins when every worker has delivered once.
type Loop struct {
	PID      int      `json:"pid"`
	Rank     int      `json:"rank"`
	World    int      `json:"world"`
	Settings Settings `json:"settings"`

	Seconds Figure `json:"seconds,omitzero"` // of the stretch, without the starts of epochs
	Batches Figure `json:"batches,omitzero"` // in it
	Wait    Figure `json:"wait_s,omitzero"`  // a batch, in __next__
	Step    Figure `json:"step_s,omitzero"`  // a batch, between __next__ and the next
	Hung    Figure `json:"hung_s,omitzero"`  // steps that took many times as long as others, all together: not in Step
	Hangs   int    `json:"hangs,omitempty"`  // how many
	Take    Figure `json:"hand_s,omitzero"`  // __next__ when a batch is ready
	WaitP99 Figure `json:"wait_p99_s,omitzero"`
	Ready   Figure `json:"ready,omitzero"` // batches waiting when __next__ is called

	// Elapsed is the script's time since the first batch of any of its loops, and Spent
	// what of it went into this loop, its steps and starts included.
	Elapsed Figure `json:"elapsed_s,omitzero"`
	Spent   Figure `json:"spent_s,omitzero"`
	Steps   Steps  `json:"steps,omitzero"`

	Epochs   int    `json:"epochs"` // begun
	First    Figure `json:"first_s,omitzero"`
	PerEpoch Figure `json:"batches_per_epoch,omitzero"`

	Trainer      Figure `json:"trainer_cores,omitzero"` // that the training process itself used
	TrainerQueue Figure `json:"trainer_queue_share,omitzero"`

	// Pageable is what a batch's copies to the device take, out of memory that can be
	// paged out; the step has them in it.
	Pageable Figure `json:"pageable_copy_s,omitzero"`

	Device Device `json:"device,omitzero"`

	BatchBytes  Figure `json:"batch_bytes,omitzero"`
	SampleBytes Figure `json:"sample_bytes,omitzero"`
	Padding     Figure `json:"padding_share,omitzero"`
	Cost        Cost   `json:"cost,omitzero"`

	// Recent are the last steps: asked and got, in seconds from the first of them,
	// and the batches that were ready (-1: not known).
	Recent [][3]float64 `json:"recent,omitempty"`
}

// Device is what a loader of stoker has a device do: seconds a batch by the device's own
// events, as the page of its client has them.
type Device struct {
	Copies     Figure `json:"copies_s,omitzero"`
	Transforms Figure `json:"transforms_s,omitzero"`
	Decoding   Figure `json:"decoding_s,omitzero"`
	Waited     Figure `json:"waited_s,omitzero"` // the loop's stream waited until that was done
	Bytes      Figure `json:"bytes,omitzero"`    // copied, a batch
	Rate       Figure `json:"bytes_per_second,omitzero"`
}

// Busy is the seconds of a batch that all of it takes.
func (d Device) Busy() float64 { return d.Copies.Value + d.Transforms.Value + d.Decoding.Value }

// IsZero says that it has none, or none that was seen.
func (d Device) IsZero() bool { return !d.Copies.Known() }

// Settings are a loader's own words, as the script wrote them.
type Settings struct {
	ID         int      `json:"id"`
	Class      string   `json:"class"`
	Where      string   `json:"where,omitempty"` // file:line that made it
	Name       string   `json:"name,omitempty"`  // that it is assigned to there
	Made       int      `json:"made,omitempty"`  // loaders that this line made, one after the other
	Dataset    string   `json:"dataset,omitempty"`
	Kind       string   `json:"kind,omitempty"` // map or iterable
	Length     *int64   `json:"length,omitempty"`
	BatchSize  int      `json:"batch_size,omitempty"`
	Workers    int      `json:"workers"`
	Prefetch   int      `json:"prefetch,omitempty"` // batches a worker
	Pin        bool     `json:"pin,omitempty"`
	Persistent bool     `json:"persistent,omitempty"`
	DropLast   bool     `json:"drop_last,omitempty"`
	Sampler    string   `json:"sampler,omitempty"`
	Shuffled   *bool    `json:"shuffled,omitempty"`
	Shuffle    string   `json:"shuffle,omitempty"` // of stoker: full, block, window
	Collate    string   `json:"collate,omitempty"` // default, or whose
	Context    string   `json:"context,omitempty"` // fork, spawn, forkserver
	Init       string   `json:"init,omitempty"`    // the script's own worker_init_fn
	Shape      string   `json:"shape,omitempty"`
	Transforms []string `json:"transforms,omitempty"` // in order

	// Lines are where the script says what a setting is, by the setting's name.
	Lines  map[string]string `json:"lines,omitempty"`
	Stores []string          `json:"stores,omitempty"` // what the dataset reads from: h5py, npz, sqlite, lmdb, datasets, ...
	Files  []string          `json:"files,omitempty"`  // some of those that samples opened

	Pickled       Figure   `json:"pickled_bytes,omitzero"` // the dataset, as it goes to a worker
	Stateful      []string `json:"stateful,omitempty"`
	Handles       []string `json:"handles,omitempty"`
	SetEpoch      *bool    `json:"set_epoch,omitempty"`
	OrderRepeated *bool    `json:"order_repeated,omitempty"`
	Pinned        *bool    `json:"pinned,omitempty"`
	NonBlocking   int      `json:"non_blocking,omitempty"`      // copies to a device with it
	Blocking      int      `json:"blocking,omitempty"`          // and without
	CUDAFirst     bool     `json:"cuda_before_fork,omitempty"`  // and the workers would use it
	OnDevice      []string `json:"dataset_on_device,omitempty"` // what of the dataset is on a device
}

// Cost is what making batches takes, a mean over the workers that made them, or
// over the trainer where there are none.
type Cost struct {
	Workers   int     `json:"workers,omitempty"` // seen at the end of the stretch
	Samples   Figure  `json:"samples,omitzero"`  // that were timed
	Batch     Figure  `json:"batch_s,omitzero"`  // wall time of one batch in its worker
	CPU       Figure  `json:"batch_cpu_s,omitzero"`
	Process   Figure  `json:"batch_process_cpu_s,omitzero"` // processor time of the whole worker, its threads with it
	Sample    Figure  `json:"sample_s,omitzero"`            // wall time of one __getitem__
	SampleCPU Figure  `json:"sample_cpu_s,omitzero"`
	Spread    string  `json:"spread_of,omitempty"` // what the next three are of: sample, or batch
	P50       Figure  `json:"p50_s,omitzero"`
	P99       Figure  `json:"p99_s,omitzero"`
	Most      Figure  `json:"max_s,omitzero"`
	Tail      Tail    `json:"tail,omitzero"`
	Slowest   []Slow  `json:"slowest,omitempty"`
	Collate   Figure  `json:"collate_s,omitzero"` // a batch
	Idle      Figure  `json:"idle_share,omitzero"`
	Queue     Figure  `json:"queue_share,omitzero"`         // of what it could have run, waiting for a core
	System    Figure  `json:"system_share,omitzero"`        // of its processor time, in the kernel
	Threads   Figure  `json:"threads,omitzero"`             // that a worker computes with
	Switches  Figure  `json:"switches_per_second,omitzero"` // taken off a core, a worker
	Faults    Figure  `json:"major_faults_per_sample,omitzero"`
	Opens     Figure  `json:"opens_per_sample,omitzero"`
	Reads     Figure  `json:"reads_per_sample,omitzero"`
	Read      Figure  `json:"read_bytes_per_sample,omitzero"`
	Held      Figure  `json:"held_share,omitzero"`    // of the looks at it, in which the kernel held it: reading, sleeping
	Reading   Figure  `json:"reading_share,omitzero"` // of the moments it did not run, and did not sleep, those in an open, a read or a page fault
	Stages    []Stage `json:"stages,omitempty"`       // costliest first
	Frames    []Frame `json:"frames,omitempty"`       // where the workers were, by samples of their stacks
}

// IsZero says that nothing is known.
func (c Cost) IsZero() bool { return !c.Batch.Known() && c.Workers == 0 }

// Stage is a named part of making a sample. Wall and CPU are seconds a sample,
// without the stages inside it.
type Stage struct {
	Name  string `json:"name"`
	Kind  string `json:"kind"`
	Wall  Figure `json:"wall_s"`
	CPU   Figure `json:"cpu_s,omitzero"`
	Calls Figure `json:"calls,omitzero"` // a sample

	At   string `json:"at,omitempty"`   // the script's line: FILE:FUNCTION:LINE, or FILE:LINE where a transform is made
	Text string `json:"text,omitempty"` // as it is written

	// Of what opens something: the share of calls that opened what was opened a moment
	// before, and how many different things were opened.
	Again   Figure `json:"again_share,omitzero"`
	Targets Figure `json:"targets,omitzero"`
}

// Tail is what takes four times as long as the middle one, and longer.
type Tail struct {
	Count Figure `json:"count_share,omitzero"` // of all
	Time  Figure `json:"time_share,omitzero"`  // of their time
}

// IsZero says that nothing is known.
func (t Tail) IsZero() bool { return !t.Count.Known() }

// Slow is one sample that took long, by the number that the sampler gives it.
type Slow struct {
	Seconds float64 `json:"seconds"`
	Sample  int64   `json:"sample"`
	Name    string  `json:"name,omitempty"` // in a list of the dataset
}

// Steps are what a loop does between batches.
type Steps struct {
	P50   Figure  `json:"p50_s,omitzero"`
	Most  Figure  `json:"max_s,omitzero"`
	Tail  Tail    `json:"tail,omitzero"`
	Every Figure  `json:"every,omitzero"` // steps from one long one to the next, where that is regular
	Usual []Frame `json:"usual,omitempty"`
	Long  []Frame `json:"long,omitempty"` // where the script was in the long ones

	// Inside is the script's own code that the trainer runs in __next__, beside workers: its
	// sampler. Shares are of the time in __next__.
	Inside []Frame `json:"inside,omitempty"`
}

// IsZero says that nothing is known.
func (s Steps) IsZero() bool { return !s.P50.Known() }

// The kinds of a Stage.
const (
	Read      = "read"
	Decode    = "decode"
	Lock      = "lock"
	Transform = "transform"
	Tokenize  = "tokenize"
	Python    = "python"
	Collate   = "collate"
)

// Frame is a line of code, and the share of the time that a worker was there.
type Frame struct {
	At    string  `json:"at"`
	Share float64 `json:"share"`
	Text  string  `json:"text,omitempty"` // the line as it is written
	Loop  bool    `json:"loop,omitempty"` // it is in a loop of its function
}

// Storage is what reading costs where the dataset is stored, measured by reading,
// beside the script that goes on reading: rates are of both together.
type Storage struct {
	File    string `json:"file,omitempty"`
	Open    Figure `json:"open_s,omitzero"`
	Latency Figure `json:"small_read_s,omitzero"`
	Quiet   bool   `json:"quiet,omitempty"` // nothing else read beside the probe
	Alone   Figure `json:"one_stream_bytes_per_second,omitzero"`
	Streams int    `json:"streams,omitempty"`
	Rate    Figure `json:"streams_bytes_per_second,omitzero"`

	// Remote is the server of data that come over a network: streams are connections to
	// it then, and a small read is a request. Refused is the share of requests that it
	// refused as too many while the loop ran.
	Remote     string `json:"remote,omitempty"`
	Refused    Figure `json:"refused_share,omitzero"`
	Rotational bool   `json:"rotational,omitempty"` // a disk that seeks
}

// IsZero says that nothing was measured.
func (s Storage) IsZero() bool {
	return !s.Latency.Known() && !s.Rate.Known() && !s.Open.Known() && s.Remote == "" && !s.Rotational
}

// IsZero says that no process was looked at.
func (r Run) IsZero() bool { return !r.Seconds.Known() && r.Ended == "" }

// Worst is the loop that the verdict is about: the one that lost the most time.
// Loops come in that order.
func (ev Evidence) Worst() Loop {
	if len(ev.Loops) == 0 {
		return Loop{}
	}
	return ev.Loops[0]
}

// Where figures come from. A report prints these words after each figure.
const (
	FromHook   = "hook"
	FromProc   = "/proc"
	FromCgroup = "cgroup"
)

// FromPage is where their figures come from.
const FromPage = "statistics page"

// FromLoop is where the figures of a loop come from that its own process timed.
const FromLoop = "loop"

// OwnClass is the class of stoker's loaders: their stages are counted by the engine,
// and their lanes never wait for a core's sake in a stage that computes.
const OwnClass = "stoker.DataLoader"

// Recent is the steps that a timeline draws, and the one whose beginning ends the last.
const Recent = 11

// Sleeping is the stage of time.sleep.
const Sleeping = "sleep"

// Micros rounds to microseconds: Python's clock is not finer.
func Micros(s float64) float64 { return math.Round(s*1e6) / 1e6 }

// Short is a transform's name as its user writes it.
func Short(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

// Line is one figure of the evidence, and where it was measured.
type Line struct {
	What   string `json:"what"`
	Text   string `json:"text"`
	Source string `json:"source"`
}
