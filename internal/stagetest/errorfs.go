package stagetest

import (
	"context"
	"fmt"
	"iter"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Faulty is a source that fails on request. Every rule is one line:
//
//	operation pattern [#n | #n+] fault
//
//	operation  read, head, stat, list, or any
//	pattern    matches the base name, or the whole name if it has a slash
//	#n, #n+    only the nth call that matches, or the nth and all later ones
//	fault      a code of package errs (not_found, unreadable, changed, ...)
//	           hang          nothing happens until the context ends
//	           delay=50ms    it happens later
//	           flip=100      one bit of the byte at offset 100 of the file is wrong
//
// "read *.tar #3 unreadable" fails the third read of any tar file. The first rule
// that matches a call takes it, and later rules do not count it. Safe for
// concurrent use; calls are numbered as they arrive.
type Faulty struct {
	src   source.Source
	mu    sync.Mutex
	rules []rule
	reads int
}

type rule struct {
	op, pattern string
	nth         int
	later       bool
	fault       string
	arg         string
	seen        int
}

// WithFaults wraps src. It panics if a rule is invalid.
func WithFaults(src source.Source, rules ...string) *Faulty {
	f := &Faulty{src: src}
	for _, line := range rules {
		f.rules = append(f.rules, parseRule(line))
	}
	return f
}

func parseRule(line string) rule {
	w := strings.Fields(line)
	if len(w) < 3 || len(w) > 4 {
		panic(fmt.Sprintf("stagetest: rule %q", line))
	}
	r := rule{op: w[0], pattern: w[1]}
	if len(w) == 4 {
		n, later := strings.CutSuffix(strings.TrimPrefix(w[2], "#"), "+")
		nth, err := strconv.Atoi(n)
		if err != nil || nth < 1 {
			panic(fmt.Sprintf("stagetest: rule %q: %q is not the number of a call", line, w[2]))
		}
		r.nth, r.later = nth, later
	}
	r.fault, r.arg, _ = strings.Cut(w[len(w)-1], "=")
	if _, err := path.Match(r.pattern, ""); err != nil {
		panic(fmt.Sprintf("stagetest: rule %q: %v", line, err))
	}
	return r
}

// Reads is the number of reads so far.
func (f *Faulty) Reads() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reads
}

// match counts the call and returns the rule that applies to it.
func (f *Faulty) match(op, name string) *rule {
	f.mu.Lock()
	defer f.mu.Unlock()
	if op == "read" {
		f.reads++
	}
	for i := range f.rules {
		r := &f.rules[i]
		of := name
		if !strings.Contains(r.pattern, "/") {
			of = path.Base(name)
		}
		if ok, _ := path.Match(r.pattern, of); !ok || r.op != op && r.op != "any" {
			continue
		}
		r.seen++
		if r.nth == 0 || r.seen == r.nth || r.later && r.seen > r.nth {
			return r
		}
	}
	return nil
}

// before does what the rule says before the call itself.
func (f *Faulty) before(ctx context.Context, op, name string) (*rule, error) {
	r := f.match(op, name)
	if r == nil {
		return nil, nil
	}
	switch r.fault {
	case "hang":
		<-ctx.Done()
		return r, ctx.Err()
	case "delay":
		d, err := time.ParseDuration(r.arg)
		if err != nil {
			panic("stagetest: " + err.Error())
		}
		select {
		case <-ctx.Done():
			return r, ctx.Err()
		case <-time.After(d):
		}
		return r, nil
	case "flip":
		return r, nil
	}
	return r, errs.New(errs.Code(r.fault), "a fault of the test").At(errs.Where{File: strings.Clone(name)})
}

// Stat implements source.Source.
func (f *Faulty) Stat(ctx context.Context, name string) (source.Info, error) {
	if _, err := f.before(ctx, "stat", name); err != nil {
		return source.Info{}, err
	}
	return f.src.Stat(ctx, name)
}

// ReadAt implements source.Source.
func (f *Faulty) ReadAt(ctx context.Context, obj source.Info, p []byte, off int64) error {
	r, err := f.before(ctx, "read", obj.Name)
	if err != nil {
		return err
	}
	if err := f.src.ReadAt(ctx, obj, p, off); err != nil {
		return err
	}
	if r != nil && r.fault == "flip" {
		at, err := strconv.ParseInt(r.arg, 10, 64)
		if err != nil {
			panic("stagetest: " + err.Error())
		}
		if at >= off && at < off+int64(len(p)) {
			p[at-off] ^= 1
		}
	}
	return nil
}

// List implements source.Source.
func (f *Faulty) List(ctx context.Context, prefix string) iter.Seq2[source.Info, error] {
	return func(yield func(source.Info, error) bool) {
		if _, err := f.before(ctx, "list", prefix); err != nil {
			yield(source.Info{}, err)
			return
		}
		f.src.List(ctx, prefix)(yield)
	}
}

// Head is source.Header's.
func (f *Faulty) Head(ctx context.Context, name string, p []byte) (int, error) {
	if _, err := f.before(ctx, "head", name); err != nil {
		return 0, err
	}
	return source.Head(ctx, f.src, name, p)
}

// Names is source.Namer's, and falls under the rules of list.
func (f *Faulty) Names(ctx context.Context, prefix string) ([]source.Info, error) {
	if _, err := f.before(ctx, "list", prefix); err != nil {
		return nil, err
	}
	return source.Names(ctx, f.src, prefix)
}
