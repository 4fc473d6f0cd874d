// Command stoker shows, measures and inspects how training data is loaded, and
// is the engine of the Python package.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/spec"
)

const help = `stoker loads training data so that GPUs do not wait for it, and finds what limits a training run.

  stoker demo                          a small dataset of real photographs, made, loaded and measured
  stoker bench data/train              how fast this machine loads it
  stoker doctor -- python train.py     what limits this training run, by how much, and what to change
  stoker inspect data/train            what is in it, what is damaged, and the Python lines to paste
  stoker inspect 'shards/{000..099}.tar' --json
  stoker stats data/train              mean and deviation for Normalize, weights of classes, sizes
  stoker tune data/train               the fewest workers and the least prefetch that are fast enough
  stoker pack data/train packed        the same samples as tar shards, which slow disks read faster
  stoker verify 'shards/{000..099}.tar'    is it unchanged? what exactly is damaged?
  stoker cat data.parquet 17           one sample; stoker ls lists them
  stoker order train.yaml --quality    which sample comes when, and how well the order is mixed
  stoker diff old.json new.json        do two states, receipts or lists of ids agree?
  stoker verify-resume train.yaml      kill it, resume it, and compare ids and pixels`

// cli lists the verbs, one file each.
type cli struct {
	Demo         demoCmd         `cmd:"" help:"Make a small dataset of real photographs, load it, and report how fast that was."`
	Bench        benchCmd        `cmd:"" help:"Measure how fast this machine loads a dataset."`
	Doctor       doctorCmd       `cmd:"" help:"Find what limits a training run, by how much, and what to change."`
	Inspect      inspectCmd      `cmd:"" help:"Show what is in a dataset, and what is damaged."`
	Stats        statsCmd        `cmd:"" help:"Compute mean and deviation, weights of classes, sizes and lengths."`
	Tune         tuneCmd         `cmd:"" help:"Find the fewest lanes and the least prefetch that are fast enough."`
	Pack         packCmd         `cmd:"" help:"Write a dataset as new shards: tar, TFRecord, NumPy or tokens."`
	Index        indexCmd        `cmd:"" help:"Index a dataset in place, for this machine or to be copied with it."`
	Verify       verifyCmd       `cmd:"" help:"Check whether a dataset is unchanged, and list what is damaged."`
	Ls           lsCmd           `cmd:"" help:"List the samples of a dataset."`
	Cat          catCmd          `cmd:"" help:"Show one sample, or write one of its fields."`
	Order        orderCmd        `cmd:"" help:"Show which sample comes when, how well the order is mixed, and whether receipts agree."`
	Diff         diffCmd         `cmd:"" help:"Compare two states, receipts or lists of ids."`
	VerifyResume verifyResumeCmd `cmd:"" name:"verify-resume" help:"Kill a stream at random steps, resume it, and compare it with an undisturbed one."`
	Version      versionCmd      `cmd:"" help:"Print the version."`
	Completion   completionCmd   `cmd:"" help:"Print a script with which a shell completes command lines."`
	Complete     completeCmd     `cmd:"" hidden:"" help:"List what a word may become (run by that script)."`
	Stream       streamCmd       `cmd:"" hidden:"" help:"Load for verify-resume (started by it)."`
	Engine       engineCmd       `cmd:"" hidden:"" help:"Serve a Python client (started by it)."`
}

// grace is how long a command may take to end after Ctrl-C before the process exits:
// a hanging read cannot be cancelled.
const grace = 800 * time.Millisecond

func main() {
	// Only net/http writes there: what a server sends beside its answers, which the reads
	// themselves notice or never see.
	log.SetOutput(io.Discard)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	verb := signalRelay{to: make(chan os.Signal, 8), on: make(chan bool)}
	status := make(chan int, 1)
	go func() { status <- run(context.WithValue(ctx, signalsKey{}, verb), os.Args[1:], os.Stdout, os.Stderr) }()
	var stopped syscall.Signal
	var late <-chan time.Time
	taken := false
	for {
		select {
		case taken = <-verb.on:
			if taken {
				signal.Notify(signals, syscall.SIGHUP)
			}
		case s := <-status:
			if stopped != 0 {
				s = 128 + int(stopped)
			}
			os.Exit(s)
		case s := <-signals:
			if taken {
				select {
				case verb.to <- s:
				default: // eight are already queued
				}
				continue
			}
			if stopped != 0 { // asked twice
				os.Exit(128 + int(stopped))
			}
			stopped, _ = s.(syscall.Signal)
			late = time.After(grace)
			cancel()
		case <-late:
			os.Exit(128 + int(stopped))
		}
	}
}

// interrupted is the exit status after Ctrl-C.
const interrupted = 128 + int(syscall.SIGINT)

// run executes one command line and returns its exit status. It is the only place
// where an error becomes an exit status.
func run(ctx context.Context, args []string, out, errOut io.Writer) (status int) {
	args, after := beforeDashes(args)
	con := newConsole(ctx, out, errOut, slices.Contains(args, "--json"))
	exit := -1
	parser, err := kong.New(verbs(args), kong.Name("stoker"), kong.Description(help), kong.Writers(out, errOut),
		kong.KindMapper(reflect.String, kong.MapperFunc(asGiven)),
		kong.Exit(func(code int) { exit = code }), kong.Bind(con), kong.Bind(after), kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 110}))
	if err != nil {
		return con.report(errs.New(errs.Bug, "the description of the command line is wrong").Because(err))
	}
	switch {
	case len(args) == 0: // a script whose verb is empty did not do what it should
		parser.Stdout = errOut
		_, _ = parser.Parse([]string{"--help"})
		return errs.Classes[errs.Config].Exit
	case args[0] == "help":
		args = append(slices.Clone(args[1:]), "--help")
	}
	parsed, err := parser.Parse(inOrder(parser.Model, signed(args)))
	if exit >= 0 {
		return exit
	}
	if err != nil {
		return con.report(usage(err, args))
	}
	con.flags = map[string]bool{}
	for _, f := range parsed.Selected().Flags {
		con.flags[f.Name] = f.IsBool()
	}
	if err := kernel.CheckTarget(); err != nil {
		return con.report(errs.New(errs.Config, "invalid environment").Because(err).Try("unset STOKER_KERNEL"))
	}
	err = parsed.Run()
	if con.quiet != nil {
		con.quiet()
	}
	if e := con.out.flush(); err == nil {
		err = e
	}
	if con.results.bad != nil {
		err = con.results.bad
	}
	var ended exitStatus
	switch {
	case errors.As(err, &ended):
		return int(ended)
	case err != nil:
		return con.report(err)
	}
	return 0
}

// verbs returns what describes a command line to the parser: of cli, the verb that args
// names, or all of it where they name none. To describe all verbs took the parser 3 ms, a
// third of the start of an engine, and its garbage brought a collection into every start.
func verbs(args []string) any {
	all := reflect.TypeFor[cli]()
	if len(args) > 0 && args[0] != "complete" { // which lists the others
		for verb := range all.Fields() {
			name := cmp.Or(verb.Tag.Get("name"), strings.ToLower(verb.Name))
			if name == args[0] {
				return reflect.New(reflect.StructOf([]reflect.StructField{verb})).Interface()
			}
		}
	}
	return new(cli)
}

// another is the arguments after -- in the command line of a verb that runs
// another command.
type another []string

// beforeDashes splits a command line that runs another command: the other command's
// arguments are not our flags.
func beforeDashes(args []string) (ours []string, theirs another) {
	if i := slices.Index(args, "--"); i > 0 && args[0] == "doctor" {
		return args[:i], another(args[i+1:])
	}
	return args, nil
}

// signed returns a command line in which a negative number belongs to the flag before it:
// the parser would take it for a flag, and the verb, which checks the flag's value,
// would never see it.
func signed(args []string) (out []string) {
	for i, word := range args {
		last := len(out) - 1
		_, err := strconv.ParseFloat(word, 64)
		if err == nil && word[0] == '-' && last >= 0 && strings.HasPrefix(out[last], "--") && len(out[last]) > 2 && !strings.Contains(out[last], "=") {
			out[last] += "=" + word
			continue
		}
		if word == "--" {
			return append(out, args[i:]...)
		}
		out = append(out, word)
	}
	return out
}

// asGiven takes an argument byte for byte: paths need not be UTF-8, and
// kong's conversion through JSON would replace other bytes.
func asGiven(ctx *kong.DecodeContext, target reflect.Value) error {
	word, err := ctx.Scan.PopValue("string")
	if err != nil {
		return err
	}
	text, ok := word.Value.(string)
	if !ok {
		text = fmt.Sprint(word.Value)
	}
	target.SetString(text)
	return nil
}

// inOrder returns a command line with the flags of its verb before the paths, if the
// verb takes several paths: for the parser, a flag ends a list of paths. Arguments
// after "--" stay there.
func inOrder(app *kong.Application, args []string) []string {
	i := slices.IndexFunc(app.Children, func(n *kong.Node) bool { return len(args) > 0 && n.Name == args[0] })
	if i < 0 || !slices.ContainsFunc(app.Children[i].Positional, func(p *kong.Positional) bool { return p.IsCumulative() }) {
		return args
	}
	known := append(slices.Clone(app.Flags), app.Children[i].Flags...)
	flags, paths := []string{args[0]}, []string(nil)
	for rest := args[1:]; len(rest) > 0; rest = rest[1:] {
		word := rest[0]
		if word == "--" {
			return slices.Concat(flags, paths, rest)
		}
		if word == "-" || !strings.HasPrefix(word, "-") {
			paths = append(paths, word)
			continue
		}
		flags = append(flags, word)
		at := slices.IndexFunc(known, func(f *kong.Flag) bool {
			return word == "--"+f.Name || f.Short != 0 && word == "-"+string(f.Short)
		})
		if at >= 0 && !known[at].IsBool() && !known[at].IsCounter() && len(rest) > 1 {
			flags, rest = append(flags, rest[1]), rest[1:]
		}
	}
	return append(flags, paths...)
}

// usage turns a parser's error into an Error.
func usage(err error, args []string) error {
	what, near, found := strings.Cut(err.Error(), ", did you mean ")
	if flag, unknown := strings.CutPrefix(what, "unknown flag "); unknown {
		name, _, _ := strings.Cut(flag, "=") // the value may be a secret
		what = "unknown flag " + name
		if do, is := spec.Secret(name, args...); is {
			return errs.New(errs.Config, "%s: stoker takes no keys, tokens or passwords as flags, because everybody on the machine can see command lines", what).
				Try("%s where the command runs", do)
		}
	}
	e := errs.New(errs.Config, "%s", what)
	switch {
	case found:
		return e.Try("did you mean %s", strings.TrimSuffix(near, "?")+"?")
	case strings.HasPrefix(what, "unexpected argument") && len(args) == 1 && exists(args[0]):
		return e.Try("stoker inspect %s", args[0])
	}
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil && parse.Context.Selected() != nil {
		return e.Try("see `stoker %s --help`", parse.Context.Selected().Name)
	}
	return e.Try("see `stoker --help`")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
