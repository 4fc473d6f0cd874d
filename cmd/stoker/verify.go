package main

import (
	"bufio"
	"fmt"
	"strconv"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/tool/learn"
	"github.com/stoker-data/stoker/internal/tool/show"
	"github.com/stoker-data/stoker/internal/tool/verify"
)

// writeLine writes one JSON object on its own line.
func writeLine(w *bufio.Writer, v any) error {
	b, err := encode(v, "")
	if err == nil {
		_, err = w.Write(b)
	}
	return err
}

type indexCmd struct {
	Path    []string  `arg:"" help:"Dataset; braces, globs and several paths are allowed."`
	Beside  bool      `help:"Also put the index beside the data, for other machines and copies; with --entries, entry points too."`
	Digests bool      `help:"Read every sample, and write its digest beside the data, for stoker verify."`
	Entries bool      `help:"Read every JPEG, and keep entry points, from which crops of it are decoded faster: training learns them too, in its first epochs."`
	JSON    bool      `help:"Write JSON."`
	Data    dataFlags `embed:""`
}

func (indexCmd) Help() string {
	return `The data are read in place and never changed. Without --beside, the index is kept in
the cache (STOKER_CACHE), where training finds it. Examples:

  stoker index 'shards/train-{000..099}.tar' --beside
  stoker index data/train --digests
  stoker index data/train --entries
  stoker index 'shards/train-{000..099}.tar' --entries --beside`
}

func (i indexCmd) Run(con *console) error {
	data, err := i.Data.dataset(i.Path...)
	if err != nil {
		return err
	}
	d, err := con.open(data)
	if err != nil {
		return err
	}
	defer d.Close()
	x := d.Stored().Index()
	done := struct {
		Format  string        `json:"format"`
		Samples int64         `json:"samples"`
		Files   int           `json:"files"`
		Digest  string        `json:"digest"`
		Kept    string        `json:"kept"`              // "": nowhere
		Beside  string        `json:"beside,omitempty"`  // path of the index beside the data
		Digests string        `json:"digests,omitempty"` // path of the digests
		Entries *learn.Report `json:"entries,omitempty"`
	}{d.Format(), x.Len(), x.Files(), x.Digest(), x.Path(), "", "", nil}
	if i.Beside {
		if d.Files() {
			return errs.New(errs.Config, "the index of a dataset of single files (%s) cannot be used elsewhere: looking at each file is all the work there is", d.Format()).
				Try("leave --beside out; pack the files into shards if that takes too long")
		}
		if done.Beside, err = format.WriteBeside(con.ctx, d.Source(), x); err != nil {
			return err
		}
	}
	if i.Digests {
		shown := con.progress("reading")
		path, report, err := verify.Write(con.ctx, verify.Config{
			Dataset: data, Sources: con.sources(), Progress: func(n, total int64) { shown.count(n, total, "samples") },
		})
		shown.end()
		if err != nil {
			return err
		}
		if err := report.Err(); err != nil {
			return err
		}
		done.Digests = path
	}
	if i.Entries {
		shown := con.progress("reading")
		report, err := learn.Run(con.ctx, learn.Config{Data: d.Stored(), Source: d.Source(), Beside: done.Beside, Progress: func(n, total int64) { shown.count(n, total, "samples") }})
		shown.end()
		if err != nil {
			return err
		}
		done.Entries = &report
	}
	if i.JSON {
		return con.writeJSON(done)
	}
	fmt.Fprintf(con.out, "%s: %s samples in %s, digest %s\n", done.Format, show.Number(float64(done.Samples)), show.Count(int64(done.Files), "file", "files"), done.Digest)
	for _, line := range [][2]string{{"index", done.Kept}, {"beside the data", done.Beside}, {"digests", done.Digests}} {
		if line[1] != "" {
			fmt.Fprintf(con.out, "  %s: %s\n", line[0], errs.Name(line[1]))
		}
	}
	if e := done.Entries; e != nil {
		fmt.Fprintf(con.out, "  entry points: of %s of %s, %s, in %s\n", show.Number(float64(e.Learned)), show.Count(e.Pictures, "JPEG", "JPEGs"), show.Bytes(float64(e.Bytes)), errs.Name(e.Folder))
		if e.Beside != "" {
			fmt.Fprintf(con.out, "  entry points beside the data: %s\n", errs.Name(e.Beside))
		}
		if e.Known > 0 {
			fmt.Fprintf(con.out, "  known before: of %s\n", show.Number(float64(e.Known)))
		}
		if e.Damaged > 0 {
			fmt.Fprintf(con.out, "  damaged: %s, of which stoker inspect --all says more\n", show.Count(e.Damaged, "JPEG", "JPEGs"))
		}
		if e.Bad > 0 {
			fmt.Fprintf(con.out, "  %s could not be read: see stoker verify\n", show.Count(e.Bad, "sample", "samples"))
		}
	}
	return nil
}

type verifyCmd struct {
	Path       []string  `arg:"" help:"Dataset; braces, globs and several paths are allowed."`
	Quick      bool      `help:"Check only counts, sizes and structure; read no sample."`
	Sample     string    `help:"Read only this share of the samples, the same ones every time: 5% or 0.05." placeholder:"SHARE"`
	Quarantine string    `help:"Copy damaged files there, with a list of the sound samples." placeholder:"DIR"`
	JSON       bool      `help:"Write JSON."`
	Data       dataFlags `embed:""`
}

func (verifyCmd) Help() string {
	return `Every sample is read, checked by its format, decoded, and compared with its digest
if digests were written (stoker index --digests, stoker pack).
The exit status is 3 if anything is damaged. Examples:

  stoker verify 'shards/train-{000..099}.tar'
  stoker verify packed/ --quick
  stoker verify data/train --sample 5% --quarantine damaged/`
}

func (v verifyCmd) Run(con *console) error {
	share, err := shareOf(v.Sample)
	if err != nil {
		return err
	}
	if v.Quick && share > 0 {
		return errs.New(errs.Config, "--quick reads no sample, but --sample %s does", v.Sample).Try("give only one")
	}
	if _, err := source.ToWrite(v.Quarantine, "a quarantine"); err != nil {
		return err // before everything is read
	}
	data, err := v.Data.dataset(v.Path...)
	if err != nil {
		return err
	}
	shown := con.steps("verifying")
	report, err := verify.Run(con.ctx, verify.Config{
		Dataset: data, Sources: con.sources(), Quick: v.Quick, Share: share, Indexing: shown.indexing.count,
		Progress: func(done, total int64) { shown.work().count(done, total, "samples") },
	})
	shown.end()
	if err != nil {
		return err
	}
	if v.Quarantine != "" {
		if err := v.quarantine(con, report); err != nil {
			return err
		}
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

func (v verifyCmd) quarantine(con *console, report *verify.Report) error {
	if report.Checked < report.Samples {
		return errs.New(errs.Config, "only %d of %d samples were checked, so the sound ones are unknown", report.Checked, report.Samples).
			Try("leave --quick and --sample out")
	}
	if !report.Opened {
		return verify.Quarantine(con.ctx, nil, nil, report, v.Quarantine)
	}
	d, err := con.open(report.Dataset)
	if err != nil {
		return err
	}
	defer d.Close()
	return verify.Quarantine(con.ctx, d.Stored(), d.Source(), report, v.Quarantine)
}

// shareOf reads "5%" or "0.05"; "" is 0.
func shareOf(text string) (float64, error) {
	if text == "" {
		return 0, nil
	}
	number, percent := strings.CutSuffix(text, "%")
	n, err := strconv.ParseFloat(number, 64)
	if percent {
		n /= 100
	}
	if err != nil || !(n > 0 && n <= 1) {
		return 0, errs.New(errs.Config, "--sample %s is not a share of a dataset", text).Try("write 5%% or 0.05")
	}
	return n, nil
}
