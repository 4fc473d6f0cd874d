package facts

import (
	"bufio"
	"errors"
	"hash/crc32"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// A sealed file may also be by itself, under any name, to travel: WriteFile makes it, and
// OpenFile uses it where it is. Nobody merges it.

// WriteFile writes facts to a file, whole or not at all. One that is there is replaced: who
// has it open goes on with the old one. Facts of one key that differ are in it once, the last
// of them. what is Options.What. It takes 16 bytes of memory for each fact. Errors: unreadable or space (the
// folder cannot be written to).
func WriteFile(path, kind, what string, all iter.Seq2[Key, []byte]) error {
	d := disk{dir: filepath.Dir(path)}
	err := os.MkdirAll(d.dir, 0o755)
	if err == nil {
		err = writeFile(d, filepath.Base(path), kind, all)
	}
	if err != nil {
		return errs.New(unwritten(err), "cannot write the file of %s", what).At(errs.Where{File: path}).Because(err).
			Try("write beside a copy of the data that can be written to and has room, and put the folder beside the data")
	}
	return nil
}

func writeFile(d disk, name, kind string, all iter.Seq2[Key, []byte]) error {
	if left, err := d.list(kind); err == nil {
		d.sweep(left.tmps)
	}
	out, err := d.create(kind, mergeExt)
	if err != nil {
		return err
	}
	defer out.f.Close()
	p := part{file: out, size: headerLen}
	if err = p.fill(kind, all); err == nil {
		err = out.f.Chmod(0o644) // it travels with data that others read
	}
	if err == nil {
		err = d.rename(out, name)
	}
	if err != nil {
		_ = d.remove(out.name)
	}
	return err
}

// fill writes all of a part, in the order in which facts come.
func (p *part) fill(kind string, all iter.Seq2[Key, []byte]) error {
	seed := crc32.Checksum([]byte(kind), castagnoli)
	buf := bufio.NewWriterSize(p, 256<<10)
	_, _ = buf.Write(header(kind))
	stamp := uint64(time.Now().UnixNano())
	var rec []byte
	for k, fact := range all {
		rec = appendRecord(rec[:0], k, fact)
		finish(rec[:recordHead+len(fact)], stamp, seed)
		stamp++
		p.slots = append(p.slots, slot{hash(rec), placeOf(p.size, len(fact))})
		p.size += int64(len(rec))
		if _, err := buf.Write(rec); err != nil {
			return err
		}
	}
	if err := buf.Flush(); err != nil {
		return err
	}
	return p.end(seed)
}

// OpenFile opens the facts of one file that WriteFile has made. Nothing can be put: what is,
// is dropped. A file that is damaged, or not one of that kind, opens as an empty one, with a
// notice. Errors: not_found, and with Options.Named damaged or
// incompatible.
func OpenFile(path, kind string, o Options) (*Store, error) {
	s := &Store{
		d: disk{dir: filepath.Dir(path)}, name: filepath.Base(path), kind: kind,
		seed: crc32.Checksum([]byte(kind), castagnoli), opt: o, told: make(map[string]bool),
		closed: true, asks: make(chan ask), quit: make(chan struct{}), done: make(chan struct{}),
	}
	close(s.done)
	g, err := openSegment(s.d, s.name, kind, s.seed)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errs.New(errs.NotFound, "there is no file of %s", o.What).At(errs.Where{File: path})
	case err != nil:
		s.n.damaged.Add(1)
		s.report("damage", path, err)
		if o.Named {
			return nil, s.err
		}
		return s, nil
	}
	s.publish([]*segment{g})
	g.release() // the view holds it
	s.n.found.Store(g.facts)
	s.n.files.Store(1)
	s.n.bytes.Store(g.size)
	return s, nil
}

// Stored is how many facts of a kind a folder has, and their bytes, for who does not use them:
// nothing is made or merged. Those that were replaced count until a merge drops them.
func Stored(dir, kind string) (facts, bytes int64) {
	d := disk{dir: dir}
	l, err := d.list(kind)
	if err != nil {
		return 0, 0
	}
	seed := crc32.Checksum([]byte(kind), castagnoli)
	for _, name := range l.files {
		if g, err := openSegment(d, name, kind, seed); err == nil {
			facts, bytes = facts+g.facts, bytes+g.size
			g.release()
		}
	}
	return facts, bytes
}
