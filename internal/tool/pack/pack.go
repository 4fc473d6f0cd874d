package pack

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/tool/pack/prepare"
	"github.com/stoker-data/stoker/internal/tool/pack/shard"
)

// Report is the result of a run.
type Report struct {
	Shards   int       `json:"shards"`             // of the whole packing
	Made     int       `json:"made"`               // by this run
	Manifest *Manifest `json:"manifest,omitempty"` // if everything is finished
	Note     string    `json:"note,omitempty"`     // for the user
	// LeftOut are fields of the source that the samples do not have, or not all of
	// them.
	LeftOut []format.Left `json:"left_out,omitempty"`
}

// Run packs, or continues a packing that was begun with the same source and
// options. Errors: config (the destination has another packing; conflicting
// options), space (the disk is full), those of the source, and those of samples;
// finished shards stay complete after each of them.
//
// With Options.OnBad "skip" samples that cannot be read are left out, and the
// manifest names them.
func Run(ctx context.Context, c Config) (r *Report, err error) {
	p, end, err := open(ctx, c)
	if err != nil {
		return nil, err
	}
	defer end()
	d := openDst(p.Dst)
	d.target.Through = c.through
	unlock, err := d.lock(p.Tasks > 0)
	if err != nil {
		return nil, err
	}
	defer unlock()
	defer func() {
		if err != nil && p.Tasks == 0 {
			d.abandon()
		}
	}()
	complete, err := p.resume(ctx, d)
	if err != nil {
		return nil, err
	}
	r = &Report{Shards: p.plan.shards(), Manifest: complete, Note: p.note, LeftOut: p.plan.LeftOut}
	if complete != nil {
		return r, nil
	}
	todo, err := p.missing(d)
	if err != nil {
		return nil, err
	}
	if d.again > 0 {
		r.Note = strings.TrimPrefix(fmt.Sprintf("%s; %d of the finished shards were changed or removed since, and are made again", r.Note, d.again), "; ")
	}
	if r.Made = len(todo); r.Made > 0 {
		if err := p.make(ctx, d, todo); err != nil {
			return nil, err
		}
	}
	if p.Tasks == 0 {
		r.Manifest, err = d.finish()
	}
	return r, err
}

// toWrite is the folder that a packing is written to.
func toWrite(dst string) (string, error) { return source.ToWrite(dst, "shards") }

// open opens the source.
func open(ctx context.Context, c Config) (*packer, func(), error) {
	var err error
	if c.Dst, err = toWrite(c.Dst); err != nil {
		return nil, nil, err
	}
	if err := c.Options.settle(); err != nil {
		return nil, nil, err
	}
	if c.Tasks < 0 || c.Tasks > 0 && (c.Task < 0 || c.Task >= c.Tasks) {
		return nil, nil, errs.New(errs.Config, "there is no task %d of %d: tasks count from 0", c.Task, c.Tasks)
	}
	if c.Tasks > 0 && c.Overwrite {
		return nil, nil, errs.New(errs.Config, "tasks cannot overwrite: each would remove what the others made").Try("remove the folder before the tasks begin")
	}
	c.Dataset = c.Dataset.Hidden()
	if err := c.apart(ctx); err != nil {
		return nil, nil, err
	}
	p := &packer{Config: c}
	src, err := dataset.SourceOf(c.Sources, spec.Spec{Dataset: c.Dataset})
	if err != nil {
		return nil, nil, err
	}
	end, err := p.openSource(ctx, src)
	if err == nil {
		p.program, err = prepare.New(p.ds, p.kind.Names, p.Options.Options, p.Options.Output != OutputTar)
	}
	if err == nil {
		p.program.Limit(c.Dataset.MaxPixels)
		err = p.Options.vocabulary(p.program)
	}
	if err == nil {
		p.read = &reader{ds: p.ds, src: src, wants: p.program.Wants()}
		err = p.arrange()
	}
	closeAll := func() {
		_ = src.Close()
		if end != nil {
			end()
		}
	}
	if err != nil {
		closeAll()
		return nil, nil, err
	}
	return p, closeAll, nil
}

// resume reads the state of the destination, and decides the plan: the existing
// one, or a new one. It returns the manifest if everything is finished.
func (p *packer) resume(ctx context.Context, d *dst) (*Manifest, error) {
	m, old, err := d.state()
	if err != nil && !p.Overwrite {
		return nil, err
	}
	ours := p.identify()
	var other error
	switch {
	case m != nil:
		other = compare(m.Identity, ours)
	case old != nil:
		other = compare(old.identity, ours)
	}
	if p.Overwrite {
		if err := d.clear(m, old); err != nil {
			return nil, err
		}
		m, old, other = nil, nil, nil
	}
	if other != nil {
		return nil, errs.From(other).At(file(d.dir)).Try("choose another folder, or replace what is there with --overwrite")
	}
	if m != nil {
		whole, err := d.reopen(m)
		if err != nil || whole {
			p.plan = planOf(m)
			return m, err
		}
		if _, old, err = d.state(); err != nil {
			return nil, err
		}
	}
	if old == nil {
		if err := p.divide(ctx); err != nil {
			return nil, err
		}
		if err := p.strangers(d); err != nil {
			return nil, err
		}
		d.began = true
		if err := d.keep(&p.plan); err != nil {
			return nil, err
		}
	} else {
		p.plan = *old
		p.program.SetSeen(old.Texts, old.Words)
		if err := p.settleOutput(ctx); err != nil {
			return nil, err
		}
	}
	d.plan = &p.plan
	return nil, nil
}

// strangers refuses a destination with files that are named like shards but have no
// manifest.
func (p *packer) strangers(d *dst) error {
	for s := range p.plan.shards() {
		for _, name := range p.names(s) {
			if _, err := os.Lstat(d.in(name)); err == nil {
				return errs.New(errs.Config, "the destination has %s, but no manifest that describes it", name).At(file(d.dir)).
					Try("choose another folder, or another --name")
			}
		}
	}
	return nil
}

// keep writes the plan. Tasks that begin at the same time make the same plan, so it
// does not matter which writes it last.
func (d *dst) keep(p *plan) error {
	if err := d.begin(); err != nil {
		return err
	}
	return shard.WriteFile(d.notes(), planName, marshal(p))
}

// Finished is the number of finished shards of a packing in progress, and of all
// its shards; 0 if there is none.
func Finished(dir string) (done, all int, err error) {
	if dir, err = toWrite(dir); err != nil {
		return 0, 0, err
	}
	d := openDst(dir)
	m, p, err := d.state()
	switch {
	case err != nil:
		return 0, 0, err
	case m != nil || p == nil:
		return 0, 0, nil
	}
	d.plan = p
	notes, err := os.ReadDir(d.target.Temp)
	if err != nil {
		return 0, 0, errs.New(errs.Unreadable, "cannot read the destination").At(file(d.target.Temp)).Because(err)
	}
	for _, e := range notes {
		var s int
		if n, _ := fmt.Sscanf(e.Name(), "%d.json", &s); n != 1 || e.Name() != note(s) {
			continue
		}
		sh, err := d.done(s)
		if err != nil {
			return 0, 0, err
		}
		if sh != nil {
			done++
		}
	}
	return done, p.shards(), nil
}

// Finish ends a packing whose shards were made by tasks: it checks that all exist
// and writes the manifest. It needs no source.
func Finish(dir string) (*Report, error) {
	dir, err := toWrite(dir)
	if err != nil {
		return nil, err
	}
	d := openDst(dir)
	m, p, err := d.state()
	switch {
	case err != nil:
		return nil, err
	case m != nil:
		whole, err := d.reopen(m)
		if err != nil || whole {
			return &Report{Shards: len(m.Shards), Manifest: m}, err
		}
		if _, p, err = d.state(); err != nil {
			return nil, err
		}
	case p == nil:
		return nil, errs.New(errs.NotFound, "nothing was packed there").At(file(dir)).Try("--finish needs the folder that the tasks packed into")
	}
	d.plan = p
	m, err = d.finish()
	return &Report{Shards: p.shards(), Manifest: m}, err
}
