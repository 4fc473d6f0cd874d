package main

import (
	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/tool/survey"
)

type statsCmd struct {
	Path    []string `arg:"" optional:"" help:"Dataset of any format; braces, globs and several paths are allowed."`
	Sample  string   `help:"Read only this share of the samples, the same ones every time." placeholder:"5%"`
	Headers bool     `help:"Read only the headers of pictures: sizes and classes, no mean and deviation."`
	OnBad   string   `help:"Samples that cannot be read: fail (at the end) or skip." default:"fail" placeholder:"HOW" choices:"fail,skip"`
	JSON    bool     `help:"Write JSON."`

	Data     dataFlags `embed:""`
	Dataset  string    `hidden:"" help:"The dataset in the form of a Spec, as JSON, instead of its paths."`
	Progress bool      `hidden:"" help:"Write progress to standard error as lines of JSON."`
}

func (statsCmd) Help() string {
	return `Examples:

  stoker stats data/train                    Normalize(mean=..., std=...), the classes and their weights
  stoker stats data/train --sample 5%
  stoker stats 'shards/{000..099}.tar' --headers --json
  stoker stats train.bin --documents --eos 50256 --dtype uint16      lengths of documents

Mean and deviation are those of all pixels of all pictures as stored, before any transform. The weight of a class is
samples / (classes * its samples). Samples that cannot be read are left out, and the exit status is then 3.`
}

func (s statsCmd) Run(con *console) error {
	con.client = s.Progress
	c, err := s.config()
	if err != nil {
		return err
	}
	shown := con.steps("reading")
	machines := con.lines(s.Progress)
	c.Sources, c.Indexing = con.sources(), shown.indexing.count
	c.Progress = func(done, total int64) {
		machines(done, total, 0)
		shown.work().count(done, total, "samples")
	}
	report, err := survey.Run(con.ctx, c)
	shown.end()
	if err != nil {
		return err
	}
	if s.JSON {
		err = con.writeJSON(report)
	} else {
		err = report.WriteText(con.out)
	}
	if err != nil || s.OnBad == "skip" {
		return err
	}
	return report.Err()
}

func (s statsCmd) config() (c survey.Config, err error) {
	c.Headers = s.Headers
	if c.Share, err = shareOf(s.Sample); err != nil {
		return c, err
	}
	if err := words(word{"--on-bad", s.OnBad, []string{"fail", "skip"}}); err != nil {
		return c, err
	}
	if s.Dataset != "" {
		if c.Dataset, err = datasetOf(s.Dataset); err == nil {
			err = s.Data.set(&c.Dataset)
		}
		return c, err
	}
	if len(s.Path) == 0 {
		return c, errs.New(errs.Config, "no dataset was given").Try("stoker stats data/train")
	}
	c.Dataset, err = s.Data.dataset(s.Path...)
	return c, err
}
