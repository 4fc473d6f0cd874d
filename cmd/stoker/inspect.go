package main

import (
	"github.com/stoker-data/stoker/internal/tool/inspect"
)

type inspectCmd struct {
	Path  []string  `arg:"" help:"Dataset of any format; braces, globs and several paths are allowed."`
	Check int64     `help:"Read the headers and end marks of N samples (default 1000); 0: none." default:"1000" placeholder:"N"`
	All   bool      `help:"Decode every sample."`
	JSON  bool      `help:"Write JSON."`
	Data  dataFlags `embed:""`
}

func (inspectCmd) Help() string {
	return `Examples:

  stoker inspect data/train
  stoker inspect 'shards/train-{000..099}.tar' --all
  stoker inspect data/train --check 0 --json        only what the index knows
  stoker inspect features.h5 --columns train/images,train/labels
  stoker inspect train.bin --window 1024 --dtype uint16

The exit status is 3 if a sample is damaged.`
}

func (i inspectCmd) Run(con *console) error {
	data, err := i.Data.dataset(i.Path...)
	if err != nil {
		return err
	}
	verb := "checking"
	if i.All {
		verb = "decoding"
	}
	check := i.Check
	if check == 0 {
		check = -1
	}
	shown := con.steps(verb)
	report, err := inspect.Run(con.ctx, inspect.Config{
		Dataset: data, Sources: con.sources(), Check: check, All: i.All, Indexing: shown.indexing.count,
		Progress: func(done, total int64) { shown.work().count(done, total, "samples") },
	})
	shown.end()
	if err != nil {
		return err
	}
	if i.JSON {
		err = con.writeJSON(report)
	} else {
		err = report.WriteText(con.out)
	}
	if err != nil {
		return err
	}
	return report.Err()
}
