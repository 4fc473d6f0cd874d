package main

import (
	"fmt"
	"strings"
	"time"

	stoker "github.com/stoker-data/stoker"
	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/order"
	"github.com/stoker-data/stoker/internal/tool/bench"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// benchCmd's flags are the Spec's keys; nil: not given, so that the Spec's file
// or the default decides.
type benchCmd struct {
	Path []string `arg:"" optional:"" help:"Dataset of any format; braces, globs and several are fine."`
	Spec string   `help:"Spec to load, YAML or JSON; flags win over it." placeholder:"FILE"`

	BatchSize  *int    `help:"Samples a batch (64)." placeholder:"N"`
	Workers    *int    `help:"Lanes; 0: all cores this process may use." placeholder:"N"`
	Shuffle    *string `help:"full or none (full)." placeholder:"HOW"`
	Seed       *uint64 `help:"Seed of order and transforms (0)." placeholder:"N"`
	Tail       *string `help:"pad, fill or drop (pad)." placeholder:"HOW"`
	Prefetch   *int    `help:"Batches ready ahead (4)." placeholder:"N"`
	Memory     *string `help:"Memory for batches, such as 2GiB (auto)." placeholder:"SIZE"`
	OnBad      *string `help:"fail, skip or replace (fail)." placeholder:"HOW"`
	ImageSize  int     `help:"Side of the pictures after RandomResizedCrop." default:"224" placeholder:"PIXELS"`
	OutputFlt  bool    `name:"output-float" help:"Normalised float32 instead of uint8."`
	Epochs     int64   `help:"Stop after so many epochs." placeholder:"N"`
	Samples    int64   `help:"Stop after so many samples." placeholder:"N"`
	Seconds    float64 `help:"Stop after so many seconds (10, if nothing else is given)." placeholder:"S"`
	StepMillis float64 `name:"step-ms" help:"Pretend that a training step takes so many milliseconds a batch." placeholder:"MS"`
	JSON       bool    `help:"Write JSON."`

	Data dataFlags `embed:""`
}

func (benchCmd) Help() string {
	return `Examples:

  stoker bench data/train
  stoker bench 'shards/train-{000..099}.tar' --batch-size 256 --seconds 30
  stoker bench data/train --output-float --step-ms 80      a training loop that needs 80 ms a batch
  stoker bench --spec train.yaml --epochs 1 --json

Pictures go through RandomResizedCrop and RandomHorizontalFlip unless a Spec says otherwise. Processor time is that of
the whole process. Indexing is not part of what is measured.`
}

func (b benchCmd) Run(con *console) error {
	spec, err := b.spec()
	if err != nil {
		return err
	}
	if b.Epochs < 0 || b.Samples < 0 || b.Seconds < 0 || b.StepMillis < 0 || b.ImageSize < 1 {
		return errs.New(errs.Config, "a limit, a step or a size is negative").Try("see `stoker bench --help`")
	}
	report, err := measure(con, bench.Config{
		Spec: spec, Chain: bench.Chain{Size: b.ImageSize, Float: b.OutputFlt},
		Epochs: b.Epochs, Samples: b.Samples, Time: seconds(b.Seconds), StepTime: seconds(b.StepMillis / 1000),
	}, "loading")
	if err != nil {
		return err
	}
	if b.JSON {
		return con.writeJSON(report)
	}
	return report.WriteText(con.out)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// measure runs a measurement with its progress shown.
func measure(con *console, c bench.Config, what string) (*bench.Report, error) {
	shown := con.steps(what)
	defer shown.end()
	c.Indexing = shown.indexing.count
	c.Progress = func(samples int64, share float64) {
		shown.work().set(int64(share*1e6), 1e6, show.Number(float64(samples))+" samples")
	}
	return bench.Run(con.ctx, c)
}

// spec is the Spec of a file, with what the flags say.
func (b benchCmd) spec() (stoker.Spec, error) {
	s := usualSpec()
	if b.Spec != "" {
		var err error
		if s, err = readSpec(b.Spec); err != nil {
			return s, err
		}
	}
	set(&s.Batch.Size, b.BatchSize)
	set(&s.Workers, b.Workers)
	set((*string)(&s.Order.Shuffle), b.Shuffle)
	set(&s.Order.Seed, b.Seed)
	set((*string)(&s.Order.Tail), b.Tail)
	set(&s.Deliver.Prefetch, b.Prefetch)
	set(&s.OnBad.Policy, b.OnBad)
	if len(b.Path) > 0 {
		s.Dataset.Path = b.Path
	}
	if err := b.Data.set(&s.Dataset); err != nil {
		return s, err
	}
	if b.Memory != nil {
		if err := s.Deliver.Memory.UnmarshalJSON([]byte(*b.Memory)); err != nil {
			return s, errs.New(errs.Config, "--memory: %s", err)
		}
	}
	if len(s.Dataset.Path) == 0 && s.Dataset.Manifest == "" && s.Dataset.Format != "synthetic" {
		return s, errs.New(errs.Config, "there is no path to a dataset").Try("stoker bench data/train, or stoker demo, which brings its own")
	}
	return s, words(
		word{"--shuffle", string(s.Order.Shuffle), []string{"", string(order.None), string(order.Full)}},
		word{"--tail", string(s.Order.Tail), []string{"", string(order.Pad), string(order.Fill), string(order.Drop)}},
		word{"--on-bad", s.OnBad.Policy, []string{"", stoker.Fail, stoker.Skip, stoker.Replace}},
	)
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// word is the value of a flag that takes one of a few.
type word struct {
	flag, value string
	possible    []string // "" is not shown
}

// words is one error for all values that are none of those that are possible.
func words(all ...word) error {
	var wrong, hints []string
	for _, w := range all {
		var shown []string
		found := false
		for _, p := range w.possible {
			found = found || p == w.value
			if p != "" {
				shown = append(shown, p)
			}
		}
		if found {
			continue
		}
		wrong = append(wrong, fmt.Sprintf("%s can not be %q", w.flag, w.value))
		if near := errs.Nearest(w.value, shown); near != "" {
			hints = append(hints, fmt.Sprintf("did you mean %s %s?", w.flag, near))
		} else {
			hints = append(hints, fmt.Sprintf("%s is one of %s", w.flag, strings.Join(shown, ", ")))
		}
	}
	if wrong == nil {
		return nil
	}
	return errs.New(errs.Config, "%s", strings.Join(wrong, "; ")).Try("%s", strings.Join(hints, " "))
}
