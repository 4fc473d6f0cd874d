package main

import (
	"fmt"
	"strings"
	"time"

	stoker "github.com/stoker-data/stoker"
	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/stage/order"
	"github.com/stoker-data/stoker/internal/tool/bench"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// benchCmd's flags are the Spec's keys; nil means not given, so that the Spec's file
// or the default decides.
type benchCmd struct {
	Path []string `arg:"" optional:"" help:"Dataset of any format; braces, globs and several paths are allowed."`
	Spec string   `help:"Spec to load, YAML or JSON; flags override it." placeholder:"FILE"`

	BatchSize  *int    `help:"Samples per batch (default 64)." placeholder:"N"`
	Workers    *int    `help:"Number of lanes; 0: all cores that this process may use." placeholder:"N"`
	Shuffle    *string `help:"Order: full or none (default full)." placeholder:"HOW" choices:"full,none"`
	Seed       *uint64 `help:"Seed of order and transforms (default 0)." placeholder:"N"`
	Tail       *string `help:"End of an epoch: pad, fill or drop (default pad)." placeholder:"HOW" choices:"pad,fill,drop"`
	Prefetch   *int    `help:"Batches made ahead (default 4)." placeholder:"N"`
	Memory     *string `help:"Memory for batches, such as 2GiB (default auto)." placeholder:"SIZE"`
	OnBad      *string `help:"Samples that cannot be read: fail, skip or replace (default fail)." placeholder:"HOW" choices:"fail,skip,replace"`
	Entries    *string `help:"Entry points of JPEGs: auto, learned and kept beside the index; off; or the most disk that they may take, such as 1GiB (default auto)." placeholder:"HOW" choices:"auto,off"`
	ImageSize  int     `help:"Size of the pictures after RandomResizedCrop (default 224)." default:"224" placeholder:"PIXELS"`
	OutputFlt  bool    `name:"output-float" help:"Normalised float32 instead of uint8."`
	Epochs     int64   `help:"Stop after N epochs." placeholder:"N"`
	Samples    int64   `help:"Stop after N samples." placeholder:"N"`
	Seconds    float64 `help:"Stop after S seconds (default 10, if no other limit is given)." placeholder:"S"`
	StepMillis float64 `name:"step-ms" help:"Simulate a training step of MS milliseconds per batch." placeholder:"MS"`
	JSON       bool    `help:"Write JSON."`

	Need  needFlags  `embed:""`
	Data  dataFlags  `embed:""`
	Fetch fetchFlags `embed:""`
}

func (benchCmd) Help() string {
	return `Examples:

  stoker bench data/train
  stoker bench 'shards/train-{000..099}.tar' --batch-size 256 --seconds 30
  stoker bench data/train --output-float --step-ms 80      a training loop that needs 80 ms per batch
  stoker bench --spec train.yaml --epochs 1 --json
  stoker bench data/train --need 2500 --gpus 8             enough for 8 GPUs that train 2,500 samples/s each?

Pictures go through RandomResizedCrop and RandomHorizontalFlip unless a Spec says otherwise. Processor time is that of
the whole process. Indexing is not measured.`
}

func (b benchCmd) Run(con *console) error {
	con.spec = b.Spec != "" // what is wrong is in the file, by its own keys
	spec, err := b.spec("bench")
	if err != nil {
		return err
	}
	if b.Epochs < 0 || b.Samples < 0 || b.Seconds < 0 || b.StepMillis < 0 || b.ImageSize < 1 {
		return errs.New(errs.Config, "a limit, a step or a size is negative").Try("see `stoker bench --help`")
	}
	if err := b.Need.check(b.StepMillis); err != nil {
		return err
	}
	report, err := measure(con, bench.Config{
		Spec: spec, Chain: bench.Chain{Size: b.ImageSize, Float: b.OutputFlt}, Files: b.Need.given(),
		Epochs: b.Epochs, Samples: b.Samples, Time: seconds(b.Seconds), StepTime: seconds(b.StepMillis / 1000),
	}, "loading")
	if err != nil {
		return err
	}
	if b.Need.given() {
		return b.Need.answer(con, report, b.JSON)
	}
	if b.JSON {
		return con.writeJSON(report)
	}
	return report.WriteText(con.out)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// measure runs a measurement and shows its progress.
func measure(con *console, c bench.Config, what string) (*bench.Report, error) {
	shown := con.steps(what)
	defer shown.end()
	c.Sources, c.Indexing = con.sources(), shown.indexing.count
	c.Network = con.net
	c.Progress = func(samples int64, share float64) {
		shown.work().set(int64(share*1e6), 1e6, show.Number(float64(samples))+" samples")
	}
	return bench.Run(con.ctx, c)
}

// spec returns the Spec of a file, overridden by the flags; verb is the command that asks.
func (b benchCmd) spec(verb string) (stoker.Spec, error) {
	s := usualSpec()
	if b.Spec != "" {
		var err error
		if s, err = readSpec(b.Spec); err != nil {
			return s, err
		}
	}
	// In a Spec, 0 is the default. Who writes it here has not asked for that.
	for _, count := range []struct {
		flag  string
		given *int
	}{{"--batch-size", b.BatchSize}, {"--prefetch", b.Prefetch}} {
		if count.given != nil && *count.given == 0 {
			return s, errs.New(errs.Config, "%s is 0: it can be 1 or more", count.flag).Try("leave it out for the default")
		}
	}
	set(&s.Batch.Size, b.BatchSize)
	set(&s.Workers, b.Workers)
	set((*string)(&s.Order.Shuffle), b.Shuffle)
	set(&s.Order.Seed, b.Seed)
	set((*string)(&s.Order.Tail), b.Tail)
	set(&s.Deliver.Prefetch, b.Prefetch)
	set(&s.OnBad.Policy, b.OnBad)
	if b.Entries != nil {
		if err := setEntries(&s.Entries, *b.Entries); err != nil {
			return s, err
		}
	}
	if len(b.Path) > 0 {
		s.Dataset.Path = b.Path
	}
	if err := b.Data.set(&s.Dataset); err != nil {
		return s, err
	}
	if err := b.Fetch.set(&s.Fetch); err != nil {
		return s, err
	}
	if b.Memory != nil {
		if err := s.Deliver.Memory.UnmarshalJSON([]byte(*b.Memory)); err != nil {
			return s, errs.New(errs.Config, "--memory: %s", err)
		}
	}
	if len(s.Dataset.Path) == 0 && s.Dataset.Manifest == "" && !dataset.Made(s.Dataset.Format) {
		return s, errs.New(errs.Config, "no dataset was given").Try("stoker %s data/train, or stoker demo, which makes a dataset", verb)
	}
	return s, words(
		word{"--shuffle", string(s.Order.Shuffle), []string{"", string(order.None), string(order.Full)}},
		word{"--tail", string(s.Order.Tail), []string{"", string(order.Pad), string(order.Fill), string(order.Drop)}},
		word{"--on-bad", s.OnBad.Policy, []string{"", stoker.Fail, stoker.Skip, stoker.Replace}},
	)
}

// setEntries reads --entries.
func setEntries(to *stoker.Entries, given string) error {
	*to = stoker.Entries{Off: given == "off"}
	if given == "off" || given == "auto" {
		return nil
	}
	if err := to.Limit.UnmarshalJSON([]byte(given)); err != nil || to.Limit <= 0 {
		return errs.New(errs.Config, "--entries is %q: it is auto, off, or the most disk that they may take", given).Try("--entries off, or --entries 1GiB")
	}
	return nil
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// word is the value of a flag with a fixed set of values.
type word struct {
	flag, value string
	possible    []string // "" is not shown
}

// words returns one error for all values that are not possible.
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
		wrong = append(wrong, fmt.Sprintf("%s cannot be %q", w.flag, w.value))
		if near := errs.Nearest(w.value, shown); near != "" {
			hints = append(hints, fmt.Sprintf("did you mean %s %s?", w.flag, near))
		} else {
			hints = append(hints, fmt.Sprintf("%s must be one of %s", w.flag, strings.Join(shown, ", ")))
		}
	}
	if wrong == nil {
		return nil
	}
	return errs.New(errs.Config, "%s", strings.Join(wrong, "; ")).Try("%s", strings.Join(hints, " "))
}
