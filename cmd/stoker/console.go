package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/wire"
)

// console is where a command's results, errors and progress go. Progress is
// shown on a terminal only, and on the error stream, so that results can be
// piped; without a terminal no control character is written, and with one none
// that comes out of data.
type console struct {
	ctx      context.Context
	out      *plain    // text for people
	raw      io.Writer // bytes as they are, JSON: the same stream
	results  *results  // what both write to
	err      io.Writer
	json     bool            // machines read the results, and the errors
	client   bool            // of Python: it has words of its own
	spec     bool            // the verb takes a Spec, and no flags that say what a dataset is
	flags    map[string]bool // of the verb: names, and whether they take no value
	terminal bool            // the error stream is one

	told bool // of an interruption
}

// results is the standard output. The first write that fails decides how the
// command ends: what reads the results has not got all of them.
type results struct {
	to  io.Writer
	bad error
}

func (r *results) Write(b []byte) (int, error) {
	n, err := r.to.Write(b)
	if err == nil {
		return n, nil
	}
	e := errs.New(errs.Unreadable, "the results cannot be written").Because(err)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		e = errs.New(errs.Space, "the results cannot be written: the disk is full").Because(err).Try("make room, or write them elsewhere")
	}
	if r.bad == nil {
		r.bad = e
	}
	return n, e
}

func newConsole(ctx context.Context, to, errOut io.Writer, asJSON bool) *console {
	out := &results{to: to}
	return &console{ctx: ctx, out: &plain{to: out}, raw: out, results: out, err: errOut, json: asJSON, terminal: isTerminal(errOut)}
}

func isTerminal(w io.Writer) bool {
	if r, ok := w.(*results); ok {
		w = r.to
	}
	f, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// writeJSON writes a result for machines.
func (c *console) writeJSON(v any) error {
	b, err := encode(v, "  ")
	if err == nil {
		_, err = c.raw.Write(b)
	}
	return err
}

// interrupted says after Ctrl-C what was done until then, and how to go on. It is
// not called while report is.
func (c *console) interrupted(how string) {
	c.told = true
	if !c.json {
		fmt.Fprintf(c.err, "stoker: interrupted: %s\n", errs.Plain(how))
		return
	}
	b, _ := encode(map[string]any{"interrupted": how}, "")
	_, _ = c.err.Write(b)
}

// report prints an error, as people or as machines read it, and returns its exit
// status.
func (c *console) report(err error) int {
	if c.ctx.Err() != nil && errors.Is(err, context.Canceled) {
		if !c.told {
			fmt.Fprintln(c.err, "stoker: interrupted")
		}
		return interrupted
	}
	e := c.worded(errs.From(err))
	status := errs.Classes[e.Code].Exit
	if c.json {
		b, _ := encode(map[string]any{"error": wire.FromError(e), "exit": status}, "")
		_, _ = c.err.Write(b)
		return status
	}
	fmt.Fprintf(c.err, "stoker: %s\n", e)
	if e.Hint != "" {
		fmt.Fprintf(c.err, "  try: %s\n", errs.Plain(e.Hint))
	}
	return status
}

// worded is an error in the words of the command line.
func (c *console) worded(err *errs.Error) *errs.Error {
	e := *err
	if c.client {
		return &e
	}
	if !c.spec {
		e.What, e.Hint = asFlags(e.What, c.flags), asFlags(e.Hint, c.flags)
		return &e
	}
	if hint, found := asKeys(e.Hint); found {
		e.Hint = hint + "; this stands in a Spec, below dataset:"
	}
	return &e
}
