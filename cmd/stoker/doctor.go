package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"time"

	stoker "github.com/stoker-data/stoker"
	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/doctor/judge"
	"github.com/stoker-data/stoker/internal/tool/doctor/report"
	"github.com/stoker-data/stoker/internal/tool/doctor/tiers"
	"github.com/stoker-data/stoker/internal/tool/doctor/watch"
)

type doctorCmd struct {
	Path []string `arg:"" optional:"" help:"A dataset to load. To watch a script, write its command after --."`
	Spec string   `help:"A Spec to load, YAML or JSON." placeholder:"FILE"`

	Attach     *int     `help:"Inspect a running process." placeholder:"PID"`
	From       string   `help:"Judge recorded evidence: the output of --json." placeholder:"FILE"`
	Stop       bool     `help:"End the script once there is a verdict."`
	Check      bool     `help:"Exit with status 4 if the loop is data-bound."`
	Checklist  bool     `help:"Also print the readiness list, with measured values."`
	Timeline   bool     `help:"Also draw the last ten steps."`
	GPUCost    *float64 `name:"gpu-cost" help:"Show what the waiting costs per month, at this price per GPU hour." placeholder:"PRICE"`
	StepMillis *float64 `name:"step-ms" help:"Simulate a training step of MS milliseconds per batch (with PATH or --spec)." placeholder:"MS"`
	Quick      bool     `help:"Only the verdict, without the tiers that are measured after it (with PATH or --spec)."`
	OnBad      string   `help:"Samples that cannot be read: skip, replace or fail (with PATH or --spec; default skip)." placeholder:"HOW" choices:"skip,replace,fail"`
	JSON       bool     `help:"Write JSON; the script's output goes to standard error."`

	Seconds float64 `hidden:"" default:"8" help:"Seconds of the loop over PATH; the tiers take at most two and a half times as long."`
	Beside  int     `hidden:"" help:"Watch the process at the other end of standard input and output, which runs a loop (Python)."`

	Data dataFlags `embed:""`
}

func (doctorCmd) Help() string {
	return `Examples:

  stoker doctor                                    this machine: cores, limits, memory, disk, GPU
  stoker doctor -- python train.py                 what limits this training run
  stoker doctor --stop --check --json -- torchrun train.py > report.json
  stoker doctor data/train --step-ms 120           what limits stoker itself on a dataset, with tiers
  stoker doctor data/train --quick                 without the tiers: ten seconds, not thirty
  stoker doctor --attach 4711
  stoker doctor --from report.json --checklist     the same report again

The script runs unchanged and continues after the verdict; its exit status is kept. The report goes to standard error.`
}

func (d doctorCmd) Run(con *console, script another) error {
	dataset := len(d.Path) > 0 || d.Spec != ""
	asked := 0
	for _, is := range []bool{script != nil, d.Attach != nil, d.From != "", d.Beside != 0, dataset} {
		if is {
			asked++
		}
	}
	if asked > 1 {
		return errs.New(errs.Config, "a command after --, a dataset, --attach and --from exclude each other").Try("see `stoker doctor --help`")
	}
	if err := d.sensible(script != nil, dataset); err != nil {
		return err
	}
	if len(d.Path) > 0 && !exists(d.Path[0]) {
		if _, err := exec.LookPath(d.Path[0]); err == nil {
			return errs.New(errs.Config, "%s is a command, not a dataset", d.Path[0]).Try("stoker doctor -- %s", strings.Join(d.Path, " "))
		}
	}
	var r judge.Report
	var err error
	switch {
	case script != nil:
		return d.watch(con, script)
	case d.Beside != 0:
		return d.beside(con)
	case dataset:
		return d.load(con)
	case d.Attach != nil:
		r, err = watch.Attach(con.ctx, *d.Attach, stoker.Version())
	case d.From != "":
		r, err = readEvidence(d.From)
	default:
		r = judge.Judge(watch.Alone(con.ctx, stoker.Version()))
	}
	if err != nil {
		return err
	}
	return d.finish(con, con.out, r)
}

// sensible checks flags: numbers must be in range, and a flag for
// a script or a loop needs one.
func (d doctorCmd) sensible(script, dataset bool) error {
	const day = 24 * 3600
	number := func(flag, unit string, v *float64, least, most float64) error {
		if v == nil || *v >= least && *v <= most { // NaN is in no range
			return nil
		}
		return errs.New(errs.Config, "%s is %g: give %s between %g and %.0f", flag, *v, unit, least, most).Try("see `stoker doctor --help`")
	}
	if d.Attach != nil && *d.Attach <= 0 {
		return errs.New(errs.Config, "--attach is %d: give the PID of a running process, a number above 0", *d.Attach).Try("ps -ef | grep python")
	}
	if err := cmp.Or(
		number("--gpu-cost", "the price of an hour", d.GPUCost, 0.0001, 1e6), number("--step-ms", "milliseconds", d.StepMillis, 0, day*1e3),
		number("--seconds", "seconds", &d.Seconds, 0.001, day),
	); err != nil {
		return err
	}
	judged := script || dataset || d.From != "" // there may be steps
	const run, load = "-- python train.py", "data/train"
	for _, f := range []struct {
		flag, wants, try string
		asked, ok        bool
	}{
		{"--stop", "ends a script, but no script is given", run, d.Stop, script},
		{"--timeline", "draws the steps of a loop, so it needs a script after --, a dataset, --attach or --from", run, d.Timeline, judged || d.Attach != nil},
		{"--gpu-cost", "puts a price on the waiting of a loop, so it needs a script after --, a dataset, --attach or --from", "2.50 " + run, d.GPUCost != nil, judged || d.Attach != nil},
		{"--check", "asks whether a loop is data-bound, so it needs a script after --, a dataset, --attach or --from", run, d.Check, judged || d.Attach != nil},
		{"--step-ms", "simulates the steps of a loop over a dataset, but no dataset is given", "20 " + load, d.StepMillis != nil, dataset},
		{"--quick", "leaves out the tiers of a dataset, but no dataset is given", load, d.Quick, dataset},
		{"--on-bad", "says how to treat samples of a dataset, but no dataset is given", "skip " + load, d.OnBad != "", dataset},
	} {
		if f.asked && !f.ok {
			return errs.New(errs.Config, "%s %s", f.flag, f.wants).Try("stoker doctor %s %s", f.flag, f.try)
		}
	}
	return nil
}

// beside watches a loop that stoker.doctor runs in its own process.
func (d doctorCmd) beside(con *console) error {
	con.json, con.client = true, true
	r, err := watch.Beside{PID: d.Beside, In: os.Stdin, Out: con.raw, Version: stoker.Version()}.Watch(con.ctx)
	if err != nil {
		return err
	}
	var text strings.Builder
	to := &plain{to: &text}
	if err := report.Shown(r).WriteText(to); err != nil {
		return err
	}
	if err := d.tiers(to, r); err != nil {
		return err
	}
	return json.NewEncoder(con.raw).Encode(map[string]any{"report": r, "text": text.String()})
}

// load examines a dataset by loading it. The verdict is printed as soon as it is known, and the
// tiers below it when they have been measured.
func (d doctorCmd) load(con *console) error {
	name := d.Spec
	spec := usualSpec()
	if d.Spec != "" {
		var err error
		if spec, err = readSpec(d.Spec); err != nil {
			return err
		}
	}
	if len(d.Path) > 0 {
		spec.Dataset.Path = d.Path
	}
	if err := d.Data.set(&spec.Dataset); err != nil {
		return err
	}
	if len(d.Path) > 0 {
		name = strings.Join(spec.Dataset.Path, " ")
	}
	if over(&spec.OnBad.Policy, d.OnBad); spec.OnBad.Policy == "" {
		spec.OnBad.Policy = stoker.Skip // a diagnosis continues
	}
	shown := con.steps("measuring")
	defer shown.end()
	var told error
	r, err := tiers.LoadIt(con.ctx, tiers.Load{
		Spec: spec, Sources: con.sources(), Name: name, Step: seconds(value(d.StepMillis) / 1000), Time: seconds(d.Seconds), Quick: d.Quick, Tiers: seconds(2.5 * d.Seconds), Version: stoker.Version(), Indexing: shown.indexing.count,
		Verdict: func(r judge.Report) {
			shown.indexing.end()
			if d.JSON {
				fmt.Fprintf(con.err, "stoker doctor: %s\n", r.Verdict.Title())
			} else {
				told = d.text(con.out, r)
			}
			if !d.Quick {
				shown.work()
			}
		},
		Measuring: func(done, of int64, what string) { shown.work().set(done, of, what) },
	})
	shown.end()
	switch {
	case err == nil && d.JSON:
		err = con.writeJSON(r)
	case err == nil && told == nil:
		err = d.tiers(con.out, r)
	case err == nil:
		err = told
	}
	if err != nil {
		return err
	}
	return d.checked(r)
}

// watch runs a script. Without --json its output is left alone, and reports go to
// standard error; with it standard output has the report and nothing else.
func (d doctorCmd) watch(con *console, command []string) error {
	signals, giveBack := takeSignals(con.ctx)
	defer giveBack()
	said := &plain{to: con.err}
	var early *judge.Report
	// The streams themselves, not the writers that count errors: a script behaves
	// differently on a terminal and on a pipe.
	s := watch.Script{
		Command: command, Stop: d.Stop, In: os.Stdin, Out: con.results.to, Err: con.err, Signals: signals, Version: stoker.Version(),
		Verdict: func(r judge.Report) {
			early = &r
			if d.JSON {
				fmt.Fprintf(said, "stoker doctor: %s\n", r.Verdict.Title())
			} else if !d.Stop {
				_ = d.text(said, r)
			}
		},
		Tell: func(text string) { fmt.Fprintf(said, "stoker doctor: %s\n", text) },
	}
	if d.JSON {
		s.Out = con.err
	}
	out, err := watch.Watch(con.ctx, s)
	if err != nil {
		return err
	}
	switch {
	case d.JSON:
		err = con.writeJSON(out.Report)
	case early == nil || d.Stop || early.Verdict.Title() != out.Report.Verdict.Title():
		if early != nil && !d.Stop && early.Verdict.Title() != out.Report.Verdict.Title() {
			fmt.Fprintf(said, "\nstoker doctor: after longer observation this verdict replaces %q.\n", early.Verdict.Title())
		}
		err = d.text(said, out.Report)
	default:
		err = report.Shown(out.Report).WriteSince(said, *early)
	}
	if err != nil {
		return err
	}
	if !out.Stopped && out.Status != 0 {
		return exitStatus(out.Status)
	}
	return d.checked(out.Report)
}

// finish writes a report and returns the result of --check.
func (d doctorCmd) finish(con *console, w io.Writer, r judge.Report) error {
	var err error
	if d.JSON {
		err = con.writeJSON(r)
	} else {
		err = d.text(w, r)
	}
	if err != nil {
		return err
	}
	return d.checked(r)
}

func (d doctorCmd) checked(r judge.Report) error {
	if d.Check && r.Verdict.DataBound {
		return exitStatus(errs.Classes[errs.Differs].Exit)
	}
	return nil
}

// text formats a report as text, with the extras that were asked for.
func (d doctorCmd) text(w io.Writer, r judge.Report) error {
	fmt.Fprintln(w)
	if err := report.Shown(r).WriteText(w); err != nil {
		return err
	}
	for _, part := range []struct {
		asked bool
		write func(io.Writer) error
	}{
		{d.Timeline, report.Shown(r).WriteTimeline},
		{d.Checklist, report.Shown(r).WriteChecklist},
		{d.GPUCost != nil, func(w io.Writer) error { return report.Shown(r).WriteCost(w, *d.GPUCost) }},
	} {
		if part.asked {
			fmt.Fprintln(w)
			if err := part.write(w); err != nil {
				return err
			}
		}
	}
	return d.tiers(w, r)
}

// tiers returns what was measured of a dataset after the verdict, if anything.
func (d doctorCmd) tiers(w io.Writer, r judge.Report) error {
	if len(r.Evidence.Tiers) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	return report.Shown(r).WriteTiers(w)
}

// readEvidence judges the Evidence of a report, or an Evidence alone.
func readEvidence(path string) (judge.Report, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return judge.Report{}, errs.New(errs.NotFound, "cannot read the evidence").Because(err)
	}
	var r judge.Report
	if err = json.Unmarshal(b, &r); err == nil && r.Evidence.Schema == 0 {
		err = json.Unmarshal(b, &r.Evidence)
	}
	where := errs.Where{File: path}
	if err != nil {
		return r, errs.New(errs.Damaged, "this is not a report or evidence").At(where).Because(inWords(err)).Try("stoker doctor --json -- python train.py > report.json")
	}
	if r.Evidence.Schema != evidence.Schema {
		return r, errs.New(errs.Incompatible, "the evidence has schema %d, but this stoker reads %d", r.Evidence.Schema, evidence.Schema).At(where).Try("record it again")
	}
	return judge.Judge(r.Evidence), nil
}

// inWords describes a JSON value of the wrong type by the file's keys, not by our types.
func inWords(err error) error {
	var e *json.UnmarshalTypeError
	if !errors.As(err, &e) {
		return err
	}
	wants := map[reflect.Kind]string{
		reflect.String: "text", reflect.Bool: "true or false", reflect.Struct: "an object", reflect.Map: "an object", reflect.Slice: "a list", reflect.Array: "a list",
	}
	return fmt.Errorf("%s, at byte %d, is %s but should be %s", cmp.Or(e.Field, "the whole"), e.Offset, article(e.Value), cmp.Or(wants[e.Type.Kind()], "a number that fits"))
}

// article returns a kind of JSON value with its article.
func article(kind string) string {
	switch {
	case kind == "bool":
		return "true or false"
	case kind == "array":
		return "a list"
	case kind == "object":
		return "an object"
	case kind == "string":
		return "text"
	case strings.HasPrefix(kind, "number"):
		return "a " + kind
	}
	return kind
}

// value returns a number that was given, or 0.
func value(v *float64) float64 {
	if v == nil {
		return 0
	}
	return *v
}

// exitStatus ends the command with a status and prints nothing: everything
// was written already.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// signalsKey is the context key of the signals that a verb may take over.
type signalsKey struct{}

// signalRelay passes the signals of this process to one verb.
type signalRelay struct {
	to chan os.Signal
	on chan bool // whether the verb takes them
}

// takeSignals gives a verb that runs another command the signals that are sent to
// us, instead of ending it soon after the first; nil outside main.
func takeSignals(ctx context.Context) (<-chan os.Signal, func()) {
	h, ok := ctx.Value(signalsKey{}).(signalRelay)
	if !ok {
		return nil, func() {}
	}
	h.on <- true
	return h.to, func() {
		select {
		case h.on <- false:
		case <-time.After(time.Second): // main is about to end
		}
	}
}
