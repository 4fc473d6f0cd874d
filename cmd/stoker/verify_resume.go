package main

import (
	"context"
	"os"
	"os/exec"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/tool/resume"
)

type verifyResumeCmd struct {
	Spec  string `arg:"" help:"Spec, YAML or JSON; or a dataset, which is fully shuffled in batches of 64."`
	Kills int    `help:"Number of kills (default 5)." default:"5" placeholder:"N"`
	Steps int64  `help:"Steps of the undisturbed run (default 20 to 200, about 20,000 samples)." placeholder:"M"`
	Seed  uint64 `help:"Seed of the steps at which it is killed (default 0)." default:"0" placeholder:"S"`
	JSON  bool   `help:"Write JSON."`
}

func (verifyResumeCmd) Help() string {
	return `Examples:

  stoker verify-resume train.yaml
  stoker verify-resume data/train --kills 20 --steps 500 --seed 7

Loads the stream once undisturbed, once in processes that are killed with SIGKILL at random steps and resume from the
last saved state, and once on 1, then 2, then 3 ranks, and compares ids and pixels byte by byte. The run crosses the end
of an epoch. The exit status is 4 if anything differs.`
}

func (v verifyResumeCmd) Run(con *console) error {
	con.spec = true
	spec, err := specOf(v.Spec)
	if err != nil {
		return err
	}
	if v.Kills < 1 || v.Steps < 0 || v.Steps == 1 {
		return errs.New(errs.Config, "%s, %s: at least 1 kill and 2 steps are needed", errs.Many(v.Kills, "kill"), errs.Many(v.Steps, "step")).Try("leave both out")
	}
	self, err := os.Executable()
	if err != nil {
		return errs.New(errs.Unreadable, "cannot find this program's executable").Because(err)
	}
	shown := con.steps("running and killing")
	report, err := resume.Run(con.ctx, resume.Config{
		Spec: spec, Sources: con.sources(), Kills: v.Kills, Steps: v.Steps, Seed: v.Seed, Indexing: shown.indexing.count,
		Command:  func(ctx context.Context) *exec.Cmd { return exec.CommandContext(ctx, self, "stream", "--json") },
		Progress: func(done, total int64) { shown.work().count(done, total, "steps") },
	})
	shown.end()
	if err != nil {
		return err
	}
	if v.JSON {
		err = con.writeJSON(report)
	} else {
		err = report.WriteText(con.out)
	}
	if err != nil {
		return err
	}
	return report.Err()
}

// streamCmd is the process that verify-resume starts and kills.
type streamCmd struct {
	JSON bool `help:"Write errors as JSON."`
}

func (streamCmd) Run(con *console) error { return resume.Stream(con.ctx, os.Stdin, con.raw) }
