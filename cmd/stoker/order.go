package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"strings"

	stoker "github.com/stoker-data/stoker"
	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/tool/compare"
	"github.com/stoker-data/stoker/internal/tool/orders"
)

type orderCmd struct {
	Spec     string   `arg:"" help:"Spec, YAML or JSON; or a dataset, which is fully shuffled in batches of 64."`
	Receipts []string `arg:"" optional:"" help:"With --verify: receipts of loaders, as JSON."`

	Epoch int64  `help:"Epoch to show (default 0)." default:"0" placeholder:"E"`
	Step  *int64 `help:"Only this step." placeholder:"S"`
	Steps int64  `help:"Only N steps." placeholder:"N"`
	Rank  *int   `help:"Rank whose ids are written (default: the Spec's)." placeholder:"R"`
	World *int   `name:"world-size" help:"Number of ranks (default: the Spec's)." placeholder:"W"`
	How   string `name:"format" help:"Output: text or json (default text)." default:"text" placeholder:"HOW" choices:"text,json"`
	JSON  bool   `help:"Same as --format json; errors are JSON too."`

	Digest  bool `help:"Write the digest of the epoch instead, to compare machines."`
	Quality bool `help:"Show how well the epoch is mixed and how sequentially it reads instead."`
	Explain bool `help:"Show what a step contains and why instead: files, crop boxes, flips."`
	Verify  bool `help:"Add up receipts and compare them with the plan instead."`
}

func (orderCmd) Help() string {
	return `Examples:

  stoker order train.yaml                                    the ids of rank 0, one step per line
  stoker order train.yaml --epoch 3 --step 17 --rank 2 --world-size 8
  stoker order data/train --digest                           the same line on every machine
  stoker order train.yaml --quality                          is this shuffle good enough?
  stoker order train.yaml --step 17 --explain                what was in that batch?
  stoker order train.yaml --verify receipts/*.json           did every sample come once?

No sample is read, except the headers that --explain needs. Padding is in parentheses. The exit status of --verify is 4
if the receipts differ from the plan.`
}

func (o orderCmd) Run(con *console) error {
	if err := o.check(); err != nil {
		return err
	}
	con.spec = true
	spec, err := specOf(o.Spec)
	if err != nil {
		return err
	}
	set(&spec.Rank, o.Rank)
	set(&spec.World, o.World)
	if o.World != nil && o.Rank == nil {
		spec.Rank = 0
	}
	tell, end := con.indexing()
	all, err := orders.Open(con.ctx, spec, dataset.Options{Sources: con.sources(), Progress: tell})
	end()
	if err != nil {
		return err
	}
	defer all.Close()
	switch {
	case o.Digest:
		return o.digest(con, all)
	case o.Quality:
		q, err := all.Quality(o.Epoch)
		if err != nil {
			return err
		}
		return o.write(con, q, func() error { return q.WriteText(con.out) })
	case o.Explain:
		return o.explain(con, all)
	case o.Verify:
		return o.verify(con, all)
	}
	return o.walk(con, all)
}

// check rejects flags that cannot be combined.
func (o *orderCmd) check() error {
	if err := words(word{"--format", o.How, []string{"text", "json"}}); err != nil {
		return err
	}
	o.JSON = o.JSON || o.How == "json"
	var asked []string
	for _, f := range []struct {
		name string
		on   bool
	}{{"--digest", o.Digest}, {"--quality", o.Quality}, {"--explain", o.Explain}, {"--verify", o.Verify}} {
		if f.on {
			asked = append(asked, f.name)
		}
	}
	switch {
	case len(asked) > 1:
		return errs.New(errs.Config, "%s cannot be combined", strings.Join(asked, " and ")).Try("call stoker order once for each")
	case o.Verify && len(o.Receipts) == 0:
		return errs.New(errs.Config, "--verify needs receipts").Try("stoker order %s --verify receipts/*.json; a receipt is what loader.receipt() returns", o.Spec)
	case !o.Verify && len(o.Receipts) > 0:
		return errs.New(errs.Config, "%q: give one Spec, or one dataset", o.Receipts[0]).
			Try("quote a pattern to make it one argument; receipts need --verify")
	case o.Explain && o.Step == nil:
		return errs.New(errs.Config, "--explain needs a step").Try("stoker order %s --explain --step 0", o.Spec)
	case o.Steps < 0 || o.Step != nil && *o.Step < 0 || o.Epoch < 0:
		return errs.New(errs.Config, "an epoch, a step or a number of steps is negative").Try("epochs and steps count from 0")
	}
	return nil
}

// write writes a result as text or JSON.
func (o *orderCmd) write(con *console, v any, text func() error) error {
	if o.JSON {
		return con.writeJSON(v)
	}
	return text()
}

func (o *orderCmd) walk(con *console, all *orders.Orders) error {
	first, count := int64(0), o.Steps
	if o.Step != nil {
		first, count = *o.Step, max(1, o.Steps)
	}
	w := bufio.NewWriter(con.out)
	var line []byte
	lines := json.NewEncoder(w)
	err := all.Walk(con.ctx, o.Epoch, first, count, func(s *orders.Step) error {
		if o.JSON {
			return lines.Encode(s)
		}
		line = s.AppendText(line[:0])
		_, err := w.Write(line)
		return err
	})
	if err != nil {
		return err
	}
	return w.Flush()
}

func (o *orderCmd) digest(con *console, all *orders.Orders) error {
	b := con.progress("adding up")
	d, err := all.Digest(con.ctx, o.Epoch, func(done, total int64) { b.count(done, total, "places") })
	b.end()
	if err != nil {
		return err
	}
	return o.write(con, d, func() error { return d.WriteText(con.out) })
}

func (o *orderCmd) explain(con *console, all *orders.Orders) error {
	e, err := all.Explain(o.Epoch, *o.Step)
	if err != nil {
		return err
	}
	if err := o.write(con, e, func() error { return orders.WriteExplanation(con.out, *o.Step, e) }); err != nil {
		return err
	}
	for _, r := range e.Rows {
		if r.Err != nil {
			return errs.New(errs.Damaged, "a sample of the step cannot be read: %s", r.Err.What).At(r.Err.Where).Because(r.Err.Cause).
				Try("`stoker verify` names all that are damaged")
		}
	}
	return nil
}

func (o *orderCmd) verify(con *console, all *orders.Orders) error {
	var receipts []stoker.Receipt
	for _, path := range o.Receipts {
		found, err := compare.ReadReceipts(con.ctx, con.sources(), path)
		if err != nil {
			return err
		}
		receipts = append(receipts, found...)
	}
	v := all.Verify(receipts)
	if err := o.write(con, v, func() error { return orders.WriteVerdict(con.out, v) }); err != nil || v.OK {
		return err
	}
	return errs.New(errs.Differs, "what was delivered differs from the plan: %s", fmt.Sprint(v.Problems[0])).
		Try("pass the receipts of all ranks, saved at the same step, and of all parts of the run up to the states that it was resumed from")
}
