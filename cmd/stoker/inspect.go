package main

import (
	"github.com/stoker-data/stoker/internal/loader"
	"github.com/stoker-data/stoker/internal/tool/inspect"
)

type inspectCmd struct {
	Path       []string `arg:"" help:"Folder of class folders, or tar shards; braces, globs and several are fine."`
	Format     string   `help:"folder or tar; found out if left out." placeholder:"NAME"`
	Check      int64    `help:"Read the headers and end marks of so many samples." default:"1000" placeholder:"N"`
	AllowEmpty bool     `help:"Accept classes without a sample."`
	All        bool     `help:"Decode every sample."`
	JSON       bool     `help:"Write JSON."`
}

func (inspectCmd) Help() string {
	return `Examples:

  stoker inspect data/train
  stoker inspect 'shards/train-{000..099}.tar' --all
  stoker inspect data/train --check 0 --json        only what the index knows

The exit status is 3 if a sample is damaged.`
}

func (i inspectCmd) Run(con *console) error {
	if err := words(word{"--format", i.Format, []string{"", "auto", "folder", "tar"}}); err != nil {
		return err
	}
	tell, end := con.indexing()
	var shown *bar
	verb := "checking"
	if i.All {
		verb = "decoding"
	}
	check := i.Check
	if check == 0 {
		check = -1
	}
	report, err := inspect.Run(con.ctx, inspect.Config{
		Dataset: loader.Dataset{Path: i.Path, Format: i.Format, AllowEmpty: i.AllowEmpty},
		Check:   check, All: i.All, Indexing: tell,
		Progress: func(done, total int64) {
			if shown == nil {
				end()
				shown = con.progress(verb)
			}
			shown.count(done, total, "samples")
		},
	})
	end()
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
