package main

import (
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/tool/compare"
	"github.com/stoker-data/stoker/internal/tool/orders"
)

type diffCmd struct {
	A    string `arg:"" help:"A saved state, a receipt, or a list of ids."`
	B    string `arg:"" help:"Another of the same kind."`
	Spec string `help:"Count the samples between two states, using this Spec (YAML or JSON) or dataset." placeholder:"FILE"`
	JSON bool   `help:"Write JSON."`
}

func (diffCmd) Help() string {
	return `Examples:

  stoker diff rank0.json rank1.json                          were both saved at the same place?
  stoker diff old.json new.json --spec train.yaml            how many samples are between them, and which?
  stoker order train.yaml > a.txt; stoker diff a.txt b.txt   the same ids in the same order?

States and receipts are what loader.state_dict() and loader.receipt() return, as JSON. Ids are the output of
stoker order, a JSON list, or numbers. Files may be in stores (s3://, https:// and so on). The exit status is 4 if
anything differs.`
}

func (d diffCmd) Run(con *console) error {
	a, err := compare.Read(con.ctx, con.sources(), d.A)
	if err != nil {
		return err
	}
	b, err := compare.Read(con.ctx, con.sources(), d.B)
	if err != nil {
		return err
	}
	var in *orders.Orders
	if d.Spec != "" {
		con.spec = true
		spec, err := specOf(d.Spec)
		if err != nil {
			return err
		}
		tell, end := con.indexing()
		in, err = orders.Open(con.ctx, spec, dataset.Options{Sources: con.sources(), Progress: tell})
		end()
		if err != nil {
			return err
		}
		defer in.Close()
	}
	report, err := compare.Diff(a, b, in)
	if err != nil {
		return err
	}
	if d.JSON {
		err = con.writeJSON(report)
	} else {
		err = report.WriteText(con.out)
	}
	if err != nil {
		return err
	}
	return report.Err()
}
