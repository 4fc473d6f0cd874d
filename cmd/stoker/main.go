// Command stoker shows, measures and inspects the loading of training data, and
// is the engine behind the Python package.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/alecthomas/kong"

	"github.com/stoker-data/stoker/internal/base/errs"
)

const help = `stoker keeps GPUs fed: it loads training data, and says what limits the loading.

  stoker demo                          a small dataset of real photographs, made, loaded and measured
  stoker bench data/train              how fast this machine loads it
  stoker inspect data/train            what is in it, what is damaged, and the Python lines to paste
  stoker inspect 'shards/{000..099}.tar' --json`

// cli is the verbs, one file each.
type cli struct {
	Engine  engineCmd  `cmd:"" hidden:"" help:"Serve a Python client (started by it)."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run carries out one command line and returns its exit status: the only place
// where an error becomes one.
func run(args []string, out, errOut io.Writer) (status int) {
	var c cli
	exit := -1
	parser, err := kong.New(&c, kong.Name("stoker"), kong.Description(help), kong.Writers(out, errOut),
		kong.Exit(func(code int) { exit = code }), kong.BindTo(out, (*io.Writer)(nil)), kong.UsageOnError())
	if err != nil {
		return report(errOut, errs.New(errs.Bug, "the command line's own description is wrong").Because(err))
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	ctx, err := parser.Parse(args)
	if exit >= 0 {
		return exit
	}
	if err != nil {
		return report(errOut, errs.New(errs.Config, "%s", err).Try("see `stoker --help`"))
	}
	if err := ctx.Run(); err != nil {
		return report(errOut, err)
	}
	return 0
}

// report prints an error as people read it, and returns its exit status.
func report(w io.Writer, err error) int {
	e := errs.From(err)
	fmt.Fprintf(w, "stoker: %s\n", e)
	if e.Hint != "" {
		fmt.Fprintf(w, "  try: %s\n", e.Hint)
	}
	return errs.Classes[e.Code].Exit
}
