package main

import (
	"os"
	"strings"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/tool/bench"
	"github.com/stoker-data/stoker/internal/tool/show"
	"github.com/stoker-data/stoker/internal/tool/tune"
)

type tuneCmd struct {
	Path []string `arg:"" optional:"" help:"Dataset of any format; braces, globs and several paths are allowed."`
	Spec string   `help:"Spec to load, YAML or JSON." placeholder:"FILE"`

	Workers    []int   `help:"Numbers of lanes to try (default: by the cores)." placeholder:"N"`
	Prefetch   []int   `help:"Numbers of batches made ahead to try (default 2,4,8)." placeholder:"N"`
	BatchSize  []int   `help:"Samples per batch; several are compared (default: the Spec's, or 64)." placeholder:"N"`
	ImageSize  int     `help:"Size of the pictures after RandomResizedCrop (default 224)." default:"224" placeholder:"PIXELS"`
	OutputFlt  bool    `name:"output-float" help:"Normalised float32 instead of uint8."`
	StepMillis float64 `name:"step-ms" help:"Simulate a training step of MS milliseconds per batch." placeholder:"MS"`
	Budget     float64 `help:"Most seconds to spend (default 300)." default:"300" placeholder:"S"`
	All        bool    `help:"Measure every combination, not only those that may be chosen."`
	Playbook   string  `help:"File to which the choice is written; empty: none (default stoker.playbook.yaml)." default:"stoker.playbook.yaml" placeholder:"FILE"`
	Plot       string  `help:"Path of the plot, without .svg and .png; empty: none (default stoker.tune)." default:"stoker.tune" placeholder:"PATH"`
	JSON       bool    `help:"Write JSON."`

	Data  dataFlags  `embed:""`
	Fetch fetchFlags `embed:""`

	Line bool   `hidden:"" help:"Let the process at the other end of standard input and output measure (Python)."`
	Find string `hidden:"" help:"Print what the playbook says about the dataset with this digest on this machine."`

	FindName    string `hidden:"" help:"Name of that dataset."`
	FindSamples int64  `hidden:"" help:"Number of its samples."`
	FindDevice  string `hidden:"" help:"Kind of device that decodes a share of the rows."`
}

func (tuneCmd) Help() string {
	return `Examples:

  stoker tune data/train
  stoker tune --spec train.yaml --step-ms 80     a training loop that needs 80 ms per batch
  stoker tune 'shards/{000..099}.tar' --budget 60 --playbook playbooks/a100.yaml

Chooses the fewest lanes, then the least prefetch, within 5 % of the best throughput, and writes that to
stoker.playbook.yaml, where stoker.DataLoader(..., tune="playbook") finds it. When run again, it shows what changed. For
torch's DataLoader, and for the share of JPEGs that a GPU decodes, use stoker.tune in Python.`
}

func (t tuneCmd) Run(con *console) error {
	switch {
	case t.Find != "":
		return t.find(con)
	case t.Line:
		return t.line(con)
	}
	own, space, err := t.own()
	if err != nil {
		return err
	}
	tell, end := con.indexing()
	own.Sources, own.Indexing = con.sources(), tell
	subject, err := own.Subject(con.ctx)
	end()
	if err != nil {
		return err
	}
	own.Indexing = nil
	shown := con.progress("tuning")
	report, err := t.run(con, tune.Config{
		Subject: subject, Space: space, Budget: seconds(t.Budget),
		Progress: func(now tune.Settings, spent, budget time.Duration) {
			shown.set(int64(spent), int64(budget), now.Words(subject.Loader)+", at most "+show.Time(budget)+" in all")
		},
	}, own, t.Playbook, t.Plot)
	shown.end()
	if err != nil {
		return err
	}
	if t.JSON {
		return con.writeJSON(report)
	}
	return report.WriteText(con.out)
}

// run tunes on this machine, and records the result.
func (t tuneCmd) run(con *console, c tune.Config, meter tune.Meter, playbook, plot string) (*tune.Report, error) {
	var err error // before minutes are spent
	if playbook, err = source.ToWrite(playbook, "a playbook"); err == nil {
		plot, err = source.ToWrite(plot, "a plot")
	}
	if err != nil {
		return nil, err
	}
	if playbook != "" {
		if _, _, err := tune.Read(playbook); err != nil {
			return nil, err
		}
	}
	machine := tune.Look(con.ctx)
	pid := os.Getpid()
	if t.Line { // the process that asks also measures
		pid = os.Getppid()
	}
	c.Watch = tune.Beside{PID: pid, Cores: machine.Cores}.Begin
	c.Space = c.Space.Complete(c.Loader, machine.Cores, len(machine.GPUs) > 0)
	report, err := tune.Run(con.ctx, c, meter)
	if err != nil {
		return nil, err
	}
	report.Hardware = machine
	return report, report.Keep(playbook, plot, time.Now())
}

// own is stoker's loader as the flags describe it.
func (t tuneCmd) own() (own tune.OwnLoader, space tune.Space, err error) {
	switch {
	case !(t.Budget > 0): // also rejects NaN
		return own, space, errs.New(errs.Config, "--budget is %g", t.Budget).Try("give seconds, more than 0: --budget 60")
	case !(t.StepMillis >= 0):
		return own, space, errs.New(errs.Config, "--step-ms is %g", t.StepMillis).Try("give milliseconds per batch, or leave it out")
	case t.ImageSize < 1:
		return own, space, errs.New(errs.Config, "--image-size is %d", t.ImageSize).Try("give at least 1 pixel: --image-size 224")
	}
	b := benchCmd{Path: t.Path, Spec: t.Spec, Data: t.Data, Fetch: t.Fetch}
	if len(t.BatchSize) > 0 {
		b.BatchSize = &t.BatchSize[0]
	}
	spec, err := b.spec("tune")
	if err != nil {
		return own, space, err
	}
	if spec.DecodeDevice.By != "" {
		return own, space, errs.New(errs.Config, "the Spec has decode_device, and this command has no device that decodes").
			Try("use stoker.tune(..., decode_device=\"cuda\") in Python, or leave decode_device out")
	}
	space = tune.Space{Workers: t.Workers, Prefetch: t.Prefetch, Batch: t.BatchSize, All: t.All}
	if len(space.Batch) == 0 {
		space.Batch = []int{max(spec.Batch.Size, spec.Batch.GlobalSize, 1)}
	}
	for _, w := range space.Workers {
		if w < 1 {
			return own, space, errs.New(errs.Config, "--workers is %d, but at least one lane is needed", w)
		}
	}
	return tune.OwnLoader{Spec: spec, Chain: bench.Chain{Size: t.ImageSize, Float: t.OutputFlt}, Step: seconds(t.StepMillis / 1000)}, space, nil
}

// line tunes a loader that another process measures.
func (t tuneCmd) line(con *console) error {
	con.json, con.client = true, true
	l, ask, err := tune.Listen(os.Stdin, con.raw)
	if err != nil {
		return err
	}
	report, err := t.run(con, tune.Config{Subject: ask.Subject, Space: ask.Space, Budget: seconds(ask.Budget)}, l, ask.Playbook, ask.Plot)
	if err != nil {
		return err
	}
	var text strings.Builder
	if err := report.WriteText(&plain{to: &text}); err != nil {
		return err
	}
	return l.Say(map[string]any{"report": report, "text": text.String()})
}

// find prints the entry for a dataset on this machine, or the nearest one.
func (t tuneCmd) find(con *console) error {
	con.json, con.client = true, true
	p, exists, err := tune.Read(t.Playbook)
	if err != nil {
		return err
	}
	if !exists {
		return errs.New(errs.NotFound, "the playbook %s does not exist", errs.Name(t.Playbook)).
			Try("make it: stoker tune PATH --playbook %s, or stoker.tune(...) in Python", errs.Name(t.Playbook))
	}
	machine := tune.Look(con.ctx)
	answer := map[string]any{}
	about := tune.Entry{Dataset: t.Find, Name: t.FindName, Loader: tune.Own, Machine: machine.Digest(), Device: t.FindDevice}
	if e, ok := p.Find(about); ok {
		answer["entry"] = e
	} else if e, ok := p.Nearest(about); ok {
		now := e
		now.Hardware, now.Dataset, now.Name, now.Samples, now.Device = machine, t.Find, t.FindName, t.FindSamples, t.FindDevice
		if e.Dataset == t.Find { // whatever its name is
			now.Name = e.Name
		}
		answer["near"], answer["changes"] = e, tune.Changes(e, now)
	} else {
		answer["names"] = p.Names(tune.Own)
	}
	return con.writeJSON(answer)
}
