package pack

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/packing"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/tool/pack/shard"
)

// planOf is the layout of a finished packing. Samples that are left out have places
// in the plan, and none in the manifest.
func planOf(m *Manifest) plan {
	p := plan{identity: m.Identity, layout: m.Layout}
	bad := int64(0)
	for _, s := range m.Shards {
		p.First = append(p.First, s.First+bad)
		bad += int64(len(s.Bad))
	}
	p.Samples += bad
	return p
}

// finish checks that every shard exists, and writes the digests and the manifest.
func (d *dst) finish() (*Manifest, error) {
	m := &Manifest{Identity: d.plan.identity, Layout: d.plan.layout}
	var missing []string
	for s := range d.plan.First {
		sh, err := d.done(s)
		if err != nil {
			return nil, err
		}
		first, end := d.plan.span(s)
		if sh == nil || sh.First != first || sh.Samples+int64(len(sh.Bad)) != end-first {
			missing = append(missing, d.name(s))
			continue
		}
		sh.First -= d.plan.Samples - m.Samples // the samples that were left out so far
		m.Samples -= int64(len(sh.Bad))
		m.Shards = append(m.Shards, *sh)
		for _, f := range sh.Files {
			m.Bytes += f.Bytes
		}
	}
	if n := len(missing); n > 0 {
		list := strings.Join(missing[:min(n, 20)], ", ")
		if n > 20 {
			list += fmt.Sprintf(" and %d more", n-20)
		}
		are := "are"
		if n == 1 {
			are = "is"
		}
		return nil, errs.New(errs.Differs, "%d of %s %s not finished: %s", n, errs.Many(d.plan.shards(), "shard"), are, list).At(file(d.dir)).
			Try("run their tasks again; finished shards are not made twice")
	}
	if err := d.join(m); err != nil {
		return nil, err
	}
	if err := shard.WriteFile(d.target, ManifestName, marshal(m)); err != nil {
		return nil, err
	}
	return m, d.tidy()
}

// join writes the digests of all shards into one file.
func (d *dst) join(m *Manifest) error {
	to := d.in(DigestsName)
	f, err := os.CreateTemp(d.target.Temp, DigestsName+".*.tmp")
	if err != nil {
		return shard.Failed("cannot write the digests", to, err)
	}
	defer f.Close()
	sum := sha256.New()
	for s := range m.Shards {
		part, err := source.Open(d.work(digests(s)))
		if err != nil {
			return errs.New(errs.Unreadable, "cannot read the digests of a shard").At(file(d.work(digests(s)))).Because(err)
		}
		_, err = io.Copy(io.MultiWriter(f, sum), part)
		_ = part.Close()
		if err != nil {
			return shard.Failed("cannot write the digests", to, err)
		}
	}
	if err = f.Chmod(0o644); err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = os.Rename(f.Name(), to)
	}
	if err != nil {
		return shard.Failed("cannot write the digests", to, err)
	}
	m.Digests = packing.Digests{Algorithm: "xxh64", File: packing.File{Name: DigestsName, Bytes: 8 * m.Samples, SHA256: hex.EncodeToString(sum.Sum(nil))}}
	return nil
}

// tidy removes what was only needed for work.
func (d *dst) tidy() error {
	if err := os.RemoveAll(d.target.Temp); err != nil {
		return shard.Failed("cannot remove the temporary files of packing", d.target.Temp, err)
	}
	return shard.SyncDir(d.dir)
}

// reopen reports whether a finished packing is complete. If something is missing,
// the rest becomes the finished shards of a packing in progress.
func (d *dst) reopen(m *Manifest) (whole bool, err error) {
	witness := d.in(ManifestName)
	kept := d.there(&Shard{Files: []packing.File{m.Digests.File}}, witness) && m.Digests.Bytes == 8*m.Samples
	whole = kept
	here := make([]bool, len(m.Shards))
	for i := range m.Shards {
		if here[i] = d.there(&m.Shards[i], witness); !here[i] {
			whole = false
			d.again++
		}
	}
	if whole {
		return true, d.tidy()
	}
	p := planOf(m)
	if err := d.keep(&p); err != nil {
		return false, err
	}
	d.plan = &p
	for i := range m.Shards {
		sh := &m.Shards[i]
		if !kept || !here[i] || sh.First < 0 || sh.Samples < 0 || sh.First+sh.Samples > m.Samples {
			continue
		}
		sums := make([]byte, 8*sh.Samples)
		if err := readAt(d.in(DigestsName), sums, 8*sh.First); err != nil {
			return false, err
		}
		sh.First = p.First[i]
		if err := d.finished(i, *sh, sums); err != nil {
			return false, err
		}
	}
	if err := os.Remove(d.in(ManifestName)); err != nil {
		return false, shard.Failed("cannot remove the manifest", d.in(ManifestName), err)
	}
	return false, nil
}

func readAt(path string, p []byte, off int64) error {
	f, err := source.Open(path)
	if err == nil {
		_, err = f.ReadAt(p, off)
		_ = f.Close()
	}
	if err != nil {
		return errs.New(errs.Unreadable, "cannot read the digests").At(file(path)).Because(err)
	}
	return nil
}
