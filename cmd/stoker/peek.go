package main

import (
	"bufio"
	"fmt"
	"text/tabwriter"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/tool/peek"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// open opens a dataset for a command, and shows how far indexing is.
func (c *console) open(d spec.Dataset) (*peek.Dataset, error) {
	tell, end := c.indexing()
	defer end()
	return peek.Open(c.ctx, d, dataset.Options{Sources: c.sources(), Progress: tell})
}

type lsCmd struct {
	Path   []string  `arg:"" help:"Dataset; braces, globs and several paths are allowed."`
	From   int64     `help:"First sample to list." placeholder:"ID"`
	Limit  int64     `short:"n" help:"Maximum number of samples; 0: all." default:"0" placeholder:"N"`
	Fields bool      `help:"Read the samples, and list their fields."`
	JSON   bool      `help:"Write one JSON object per line."`
	Data   dataFlags `embed:""`
}

func (lsCmd) Help() string {
	return `Examples:

  stoker ls 'shards/train-{000..099}.tar' -n 5
  stoker ls data.parquet --fields -n 1 --json`
}

func (l lsCmd) Run(con *console) error {
	data, err := l.Data.dataset(l.Path...)
	if err != nil {
		return err
	}
	d, err := con.open(data)
	if err != nil {
		return err
	}
	defer d.Close()
	if l.From < 0 || l.From >= d.Len() {
		return errs.New(errs.Config, "--from %d: the dataset has samples 0 to %d", l.From, d.Len()-1)
	}
	end := d.Len()
	if l.Limit > 0 {
		end = min(end, l.From+l.Limit)
	}
	out := bufio.NewWriter(con.out)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if !l.JSON {
		fmt.Fprintln(table, "id\tkey\tbytes\tfile")
	}
	look := d.Line
	if l.Fields {
		look = d.Describe
	}
	for id := l.From; id < end; id++ {
		line, err := look(con.ctx, id)
		if err != nil {
			return err
		}
		if l.JSON {
			if err := writeLine(out, line); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(table, "%d\t%s\t%d\t%s\n", id, errs.Name(line.Key), line.Bytes, errs.Name(line.File))
		for _, f := range line.Fields {
			fmt.Fprintf(table, "\t  %s\t%d\t%s\n", errs.Name(f.Name), f.Bytes, describe(f))
		}
		if id%1000 == 999 {
			_ = table.Flush()
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return out.Flush()
}

// describe formats a value as text.
func describe(v peek.Value) string {
	const shown = 60
	switch {
	case v.Int != nil:
		return fmt.Sprint(*v.Int)
	case v.DType != "":
		return fmt.Sprintf("%s %v", v.DType, v.Shape)
	case v.Text != nil && len(*v.Text) > shown:
		return fmt.Sprintf("%.*q...", shown, *v.Text)
	case v.Text != nil:
		return fmt.Sprintf("%q", *v.Text)
	}
	return show.Size(v.Bytes)
}

type catCmd struct {
	Path   string    `arg:"" help:"Dataset; braces and globs are allowed."`
	Sample string    `arg:"" help:"Number of the sample, or its key."`
	Field  string    `help:"Write only the stored bytes of this field." placeholder:"NAME"`
	Text   bool      `help:"Write text instead of JSON, with the values of arrays; the default for a field on a terminal."`
	All    bool      `help:"Do not shorten long values (implies --text)."`
	Data   dataFlags `embed:""`
}

func (catCmd) Help() string {
	return `Without --field it describes the sample as JSON. Examples:

  stoker cat 'shards/train-{000..099}.tar' 17
  stoker cat 'shards/train-{000..099}.tar' n01440764/0017 --field jpg > picture.jpg
  stoker cat features.h5 17 --columns embedding --text`
}

func (c catCmd) Run(con *console) error {
	data, err := c.Data.dataset(c.Path)
	if err != nil {
		return err
	}
	d, err := con.open(data)
	if err != nil {
		return err
	}
	defer d.Close()
	id, err := d.Find(con.ctx, c.Sample)
	if err != nil {
		return err
	}
	if c.Text || c.All || c.Field != "" && isTerminal(con.raw) {
		return d.WriteText(con.ctx, con.out, id, c.Field, c.All)
	}
	if c.Field != "" {
		return d.Write(con.ctx, con.raw, id, c.Field)
	}
	line, err := d.Describe(con.ctx, id)
	if err != nil {
		return err
	}
	return con.writeJSON(line)
}
