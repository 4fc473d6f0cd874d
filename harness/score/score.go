// Package score compares the doctor with the truth. A scenario is a training job with one
// deliberate fault, and the same job without it; the doctor sees only the first. Its
// verdict is compared with the label, and the speed-up that it predicts with the one
// between the two jobs, both of which are run and measured here.
//
// Data flow:
//
//	scenario, seed ─► sick and well Job ─► run each ─► the truth: how many times faster
//	                        │
//	                        └─► stoker doctor --json ─► verdict, prediction ─► Outcome ─► Result
//
// The truth is ablation. An injection that does not make the job at least [Least]
// times slower is not an injection: the scenario is drawn again, stronger, and is void
// when that does not help; a void scenario counts against the aims, since what is
// not shown is not shown.
//
// Everything runs one after the other on the same [Cores] cores, whatever the
// machine has: labels say what is scarce there. What a scenario needs and the
// machine refuses (a mount, a cgroup) is an error of that scenario, never a
// scenario less.
package score

import (
	"fmt"
	"time"

	"github.com/stoker-data/stoker/harness/slowfs"
	"github.com/stoker-data/stoker/harness/slownet"
)

const (
	// Least is how many times faster a job has to be without its injection.
	Least = 1.3
	// Cores is what every job may run on.
	Cores = 2
)

// The labels: the doctor's verdicts, by the words it is asked to use. They are
// written down here and not imported, so that a verdict that is renamed by
// accident is noticed.
const (
	notDataBound = "not data-bound"
	epochStart   = "epoch start"
	latency      = "storage latency (few large reads)"
	smallFiles   = "many small files"
	bandwidth    = "storage bandwidth"
	throttled    = "throttled storage"
	cpuLimit     = "CPU limit (cgroup)"
	decode       = "decode"
	transform    = "transform"
	pythonCode   = "Python code"
	tooFew       = "too few workers"
	tooMany      = "too many workers"
	assembly     = "batch assembly"
	prefetch     = "prefetch too small"
	memory       = "memory pressure"
	imbalance    = "imbalance of ranks on this machine"
	pageable     = "pageable transfer"
	misset       = "misconfigured"
	insufficient = "insufficient evidence"
)

// Labels are the verdicts on scripts and Specs that name something that is wrong.
func Labels() []string {
	return []string{
		epochStart, latency, smallFiles, bandwidth, throttled, cpuLimit, decode, transform, pythonCode, tooFew, tooMany,
		assembly, prefetch, memory, imbalance, pageable, misset, insufficient,
	}
}

// Kind is what a scenario's job is made of.
type Kind string

// The kinds: an unchanged script over torch's DataLoader, or a Spec of ours.
const (
	Torch Kind = "torch"
	Spec  Kind = "spec"
)

// Scenario is one thing that can be wrong, or nothing.
type Scenario struct {
	Name  string
	Label string // the verdict that is right
	Of    string // what it is about, where the verdict names something; "": anything
	Kind  Kind
	Finds string // the known mistake that is made in it, by its name; "": none
	Short bool   // one of those that are quick enough for every test run

	// Sick makes the job with the injection; strength is in [0, 1]. Well makes
	// the same job without it; nil: the scenario is healthy, or has a mistake in it
	// that costs nothing there, and no label.
	Sick func(strength float64) Job
	Well func(strength float64) Job
}

// Healthy says that nothing is wrong.
func (s Scenario) Healthy() bool { return s.Well == nil && s.Finds == "" }

// Planted says that there is a mistake to be found, and no verdict to be right.
func (s Scenario) Planted() bool { return s.Well == nil && s.Finds != "" }

// Job is something that can be run: a script or a Spec, and where it runs.
type Job struct {
	Script *Script
	Loader *Loader

	Data    Data          // the dataset that it reads
	Storage slowfs.Delays // of the disk that it is on
	Link    *slownet.Link // to the web server that has it in place of a disk; nil: none does
	Cache   slowfs.Cache
	Quota   float64 // cores that its cgroup gives; 0: no limit
	Shm     int64   // bytes of its /dev/shm; 0: the machine's
	Memory  int64   // bytes that its cgroup gives; 0: no limit
	Ranks   int     // processes that train together; 0: one, not distributed
	Device  bool    // batches go to a CUDA device: a simulated one, where there is none
	Alone   bool    // Python runs isolated (-I): no hook loads
}

// Loader is a job over stoker itself, as a Spec and the step of its consumer.
type Loader struct {
	Spec string // YAML; DATA stands for the dataset's folder
	Step time.Duration
}

func (j Job) check() error {
	if (j.Script == nil) == (j.Loader == nil) {
		return fmt.Errorf("score: a job is a script or a Spec")
	}
	return nil
}
