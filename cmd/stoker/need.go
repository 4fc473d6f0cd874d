package main

import (
	"math"
	"slices"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/tool/bench"
	"github.com/stoker-data/stoker/internal/tool/doctor/system"
	"github.com/stoker-data/stoker/internal/tool/need"
)

// needFlags say what a training takes; bench then says whether this machine gives it.
type needFlags struct {
	Need *float64 `help:"Compare with GPUs that train N samples (images) per second each: cores, servers, storage, and what would close the gap." placeholder:"N"`
	GPUs *int     `name:"gpus" help:"Number of GPUs of the training, with --need (default 1)." placeholder:"N"`
}

func (f needFlags) given() bool { return f.Need != nil }

func (f needFlags) check(stepMillis float64) error {
	switch {
	case f.Need == nil && f.GPUs != nil:
		return errs.New(errs.Config, "--gpus needs --need").Try("say what one GPU trains per second: --need 2500 --gpus %d", max(*f.GPUs, 1))
	case f.Need == nil:
		return nil
	case !(*f.Need > 0) || math.IsInf(*f.Need, 1): // also rejects NaN
		return errs.New(errs.Config, "--need is %g", *f.Need).Try("give the samples per second that one GPU trains: --need 2500")
	case f.GPUs != nil && *f.GPUs < 1:
		return errs.New(errs.Config, "--gpus is %d", *f.GPUs).Try("give the number of GPUs of the whole training: --gpus 8")
	case stepMillis > 0:
		return errs.New(errs.Config, "--need measures at full speed, and --step-ms slows the loop down").Try("leave out one of them")
	}
	return nil
}

// answer weighs a report against what is needed.
func (f needFlags) answer(con *console, r *bench.Report, asJSON bool) error {
	target := need.Target{PerGPU: *f.Need, GPUs: 1}
	set(&target.GPUs, f.GPUs)
	measured := need.Of(r, spec.Cores())
	measured.Storage, measured.Memory = storageOf(r.Files), float64(mem.Available())
	plan := need.Weigh(target, measured)
	if asJSON {
		return con.writeJSON(struct {
			*bench.Report
			Need need.Plan `json:"need"`
		}{r, plan})
	}
	if err := r.WriteText(con.out); err != nil {
		return err
	}
	return plan.WriteText(con.out)
}

// storageOf is bytes a second that files give to many readers, past the page cache; 0
// if none is large enough to tell.
func storageOf(files []string) float64 {
	files = slices.DeleteFunc(files, func(f string) bool { return !system.OfData(f) })
	if len(files) == 0 {
		return 0
	}
	p := system.Prober{Root: "/"}
	p.Probe(files, nil)
	return p.Found().Rate.Value
}
