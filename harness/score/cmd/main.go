// Command score holds stoker doctor against jobs of which it is known what is
// wrong; see package score. make doctor-score runs it. It also mounts the slow
// file system alone, for whoever wants to look at it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/stoker-data/stoker/harness/score"
	"github.com/stoker-data/stoker/harness/slowfs"
)

type runCmd struct {
	Python  string  `default:".venv/bin/python" help:"A Python with torch and torchvision."`
	Stoker  string  `default:"build/stoker" help:"The command that is scored."`
	Seeds   int     `default:"1" help:"How many seeds; the medians of their counts are compared with the aims."`
	Seed    uint64  `default:"1" help:"The first of them."`
	Rounds  int     `default:"1" help:"How often both jobs of a scenario are measured."`
	Seconds float64 `default:"6" help:"How long each of them trains."`
	Short   bool    `help:"Only the quick scenarios."`
	Match   string  `help:"Only scenarios whose name, label or kind has this."`
	Trusted bool    `help:"Do not measure the truth, only ask the doctor."`
	Truth   bool    `help:"Do not ask the doctor, only measure the truth."`
	Keep    string  `help:"A folder for the doctor's answers." type:"path"`
	Out     string  `help:"A file for the result, as JSON." type:"path"`
}

func (r runCmd) Run(ctx context.Context) error {
	work, err := os.MkdirTemp("", "stoker-score-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	var all []score.Outcome
	for seed := r.Seed; seed < r.Seed+uint64(r.Seeds) && err == nil; seed++ {
		o := score.Options{
			Work: filepath.Join(work, fmt.Sprint(seed)), Data: filepath.Join(work, "datasets"), Seed: seed, Rounds: r.Rounds, Seconds: r.Seconds,
			Trusted: r.Trusted, Truth: r.Truth, Keep: r.Keep, Only: r.picks, Told: func(o score.Outcome) { fmt.Print(o.Line()) },
		}
		if o.Python, err = filepath.Abs(r.Python); err != nil {
			return err
		}
		if o.Stoker, err = filepath.Abs(r.Stoker); err != nil {
			return err
		}
		fmt.Printf("seed %d\n", seed)
		var some []score.Outcome
		some, err = score.Run(ctx, o)
		all = append(all, some...)
	}
	result := score.Sum(all) // of what was run, also when that was interrupted
	fmt.Println()
	if err := errors.Join(err, result.WriteSums(os.Stdout), r.write(result)); err != nil {
		return err
	}
	if len(result.Missed) > 0 {
		return fmt.Errorf("%d aims were missed", len(result.Missed))
	}
	return nil
}

// write keeps the result, an outcome a scenario, for people and for comparing.
func (r runCmd) write(result score.Result) error {
	if r.Out == "" {
		return nil
	}
	b, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(r.Out, append(b, '\n'), 0o644)
}

func (r runCmd) picks(s score.Scenario) bool {
	return (!r.Short || s.Short) && (strings.Contains(s.Name, r.Match) || strings.Contains(s.Label, r.Match) || string(s.Kind) == r.Match)
}

type mountCmd struct {
	Of    string        `arg:"" help:"The folder that is shown." type:"existingdir"`
	At    string        `arg:"" help:"An empty folder that it is shown at." type:"existingdir"`
	Open  time.Duration `help:"How long an open takes."`
	Read  time.Duration `help:"How long a read takes, before its bytes."`
	Rate  int64         `help:"Bytes a second, over all readers."`
	Small time.Duration `help:"How much longer a small read takes."`
	Below int           `default:"4096" help:"What a small read is, in bytes."`
	Cache string        `default:"direct" enum:"direct,reopen,keep" help:"What the kernel keeps: direct (nothing), reopen (until a file is opened again), keep (all)."`
}

func (m mountCmd) Run(ctx context.Context) error {
	cache := map[string]slowfs.Cache{"direct": slowfs.Direct, "reopen": slowfs.Reopen, "keep": slowfs.Keep}[m.Cache]
	f, err := slowfs.Mount(m.Of, m.At, slowfs.Options{Cache: cache, Delays: slowfs.Delays{
		Open: m.Open, Read: m.Read, BytesPerSecond: m.Rate, Small: m.Small, SmallBytes: m.Below,
	}})
	if err != nil {
		return err
	}
	<-ctx.Done()
	err = f.Close()
	return errors.Join(err, json.NewEncoder(os.Stdout).Encode(f.Served()))
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var cli struct {
		Run   runCmd   `cmd:"" help:"Score the doctor."`
		Mount mountCmd `cmd:"" help:"Show a folder as slowly as asked, until interrupted; then say what was served."`
	}
	k := kong.Parse(&cli, kong.Name("score"), kong.BindTo(ctx, (*context.Context)(nil)))
	k.FatalIfErrorf(k.Run())
}
