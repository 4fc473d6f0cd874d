package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
)

// console writes a command's results, errors and progress. Progress is
// shown only on a terminal, and on the error stream, so that results can be
// piped. Without a terminal no control character is written; with one, none
// that comes from data.
type console struct {
	ctx      context.Context
	out      *plain    // text for people
	raw      io.Writer // unchanged bytes and JSON, on the same stream
	results  *results  // what both write to
	err      io.Writer
	json     bool            // machines read the results, and the errors
	client   bool            // Python's: it uses Python's names
	spec     bool            // the verb takes a Spec, and no flags that describe a dataset
	flags    map[string]bool // the verb's flags: names, and whether they take no value
	terminal bool            // the error stream is a terminal

	told bool // an interruption was reported

	net   *remote.Net // nil: no dataset was opened
	quiet func()      // ends the lines about what requests wait for
	shown atomic.Pointer[bar]
}

// results is the standard output. The first failed write decides how the
// command ends: the reader did not get all results.
type results struct {
	to  io.Writer
	bad error
}

func (r *results) Write(b []byte) (int, error) {
	n, err := r.to.Write(b)
	if err == nil {
		return n, nil
	}
	e := errs.New(errs.Unreadable, "cannot write the results").Because(err)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		e = errs.New(errs.Space, "cannot write the results: the disk is full").Because(err).Try("free some space, or write them elsewhere")
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

// sources are all schemes of names, of one network for the whole command. From the first
// call on, the error stream says what requests to servers wait for. For one goroutine.
func (c *console) sources() []source.Scheme {
	if c.net == nil {
		c.net = remote.NewNet(remote.Options{})
		ctx, cancel := context.WithCancel(c.ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.net.Watch(ctx, c.waiting)
		}()
		c.quiet = func() { cancel(); <-ended }
	}
	return dataset.Sources(c.net)
}

// waiting writes what the command waits for.
func (c *console) waiting(line string) {
	if c.json || c.client {
		b, _ := encode(map[string]any{"waiting": line}, "")
		_, _ = c.err.Write(b)
		return
	}
	line = "stoker: " + errs.Plain(line) + "\n"
	if b := c.shown.Load(); b != nil {
		if _, err := b.all.Write([]byte(line)); err == nil { // above the bar
			return
		}
	}
	_, _ = io.WriteString(c.err, line)
}

// writeJSON writes a result as JSON.
func (c *console) writeJSON(v any) error {
	b, err := encode(v, "  ")
	if err == nil {
		_, err = c.raw.Write(b)
	}
	return err
}

// interrupted reports after Ctrl-C what has been done, and how to continue. It is
// not called concurrently with report.
func (c *console) interrupted(how string) {
	c.told = true
	if !c.json {
		fmt.Fprintf(c.err, "stoker: interrupted: %s\n", errs.Plain(how))
		return
	}
	b, _ := encode(map[string]any{"interrupted": how}, "")
	_, _ = c.err.Write(b)
}

// report prints an error, as text or JSON, and returns its exit
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
		fmt.Fprintf(c.err, "  try: %s\n", errs.Plain(errs.Shown(e.Hint)))
	}
	return status
}

// worded returns an error in the words of the command line.
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
		e.Hint = hint + "; write this in a Spec, under dataset:"
	}
	return &e
}
