package shard

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/packing"
)

// Target is the folders of a Writer.
type Target struct {
	Dir  string // for finished files
	Temp string // for unfinished files, on the same file system
	// Through wraps the writes to a file, for tests of failing disks; may be nil.
	Through func(io.Writer) io.Writer
}

// Writer writes the files of one shard. One goroutine at a time.
//
// The files are in Temp until Finish has synced them to disk; then they get their
// names in Dir, one by one. A shard is done when Finish has returned and its caller
// has recorded that: a kill between two names leaves complete files that the next
// run writes again, with the same bytes.
type Writer struct {
	target  Target
	files   []*file
	samples int64
}

// file is one file being written. Bytes go through: frames -> out -> sum, bytes,
// disk.
type file struct {
	kind   File
	name   string
	temp   string
	disk   *os.File
	out    *bufio.Writer
	sum    hash.Hash
	bytes  int64
	frame  []byte // collected for the compressor
	packed []byte
	comp   *Compressor
}

// frameLen is the smallest amount that is compressed at once, in bytes: a reader
// unpacks that much to get one sample.
const frameLen = 1 << 20

// NewWriter begins a shard of samples samples; names are those of its files, one
// for each of kinds. comp may be nil.
func NewWriter(at Target, names []string, kinds []File, samples int64, comp *Compressor) (*Writer, error) {
	w := &Writer{target: at, samples: samples}
	for i, kind := range kinds {
		f := &file{kind: kind, name: names[i], sum: sha256.New()}
		if !kind.Plain {
			f.comp = comp
		}
		f.temp = filepath.Join(at.Temp, f.name+".tmp")
		var err error
		if f.disk, err = os.OpenFile(f.temp, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o644); err != nil {
			w.Abort()
			return nil, Failed("cannot begin a shard", f.temp, err)
		}
		var to io.Writer = f.disk
		if at.Through != nil {
			to = at.Through(to)
		}
		f.out = bufio.NewWriterSize(&counted{f, to}, 256<<10)
		w.files = append(w.files, f)
		if kind.Head != nil {
			if err := f.write(kind.Head(samples)); err != nil {
				w.Abort()
				return nil, Failed("cannot write a shard", filepath.Join(at.Dir, f.name), err)
			}
		}
	}
	return w, nil
}

// counted counts and hashes what is written to a file.
type counted struct {
	f  *file
	to io.Writer
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.f.sum.Write(p[:n])
	c.f.bytes += int64(n)
	return n, err
}

func (f *file) write(p []byte) error {
	if f.comp == nil {
		_, err := f.out.Write(p)
		return err
	}
	f.frame = append(f.frame, p...)
	if len(f.frame) < frameLen {
		return nil
	}
	return f.flush()
}

// flush compresses what was collected.
func (f *file) flush() error {
	if len(f.frame) == 0 {
		return nil
	}
	var err error
	if f.packed, err = f.comp.Frame(f.packed[:0], f.frame); err != nil {
		return err
	}
	f.frame = f.frame[:0]
	_, err = f.out.Write(f.packed)
	return err
}

// Append writes one sample with the parts that Encode made, and returns the XXH64
// of all parts.
func (w *Writer) Append(parts [][]byte) (sum uint64, err error) {
	var all xxhash.Digest
	all.Reset()
	for i, f := range w.files {
		_, _ = all.Write(parts[i])
		if err := f.write(parts[i]); err != nil {
			return 0, w.failed(f, err)
		}
	}
	return all.Sum64(), nil
}

// Finish ends the files, syncs them to disk and gives them their names.
func (w *Writer) Finish() ([]packing.File, error) {
	var made []packing.File
	for _, f := range w.files {
		if err := f.end(w.samples); err != nil {
			return nil, w.failed(f, err)
		}
		made = append(made, packing.File{Name: f.name, Bytes: f.bytes, SHA256: hex.EncodeToString(f.sum.Sum(nil))})
	}
	for _, f := range w.files {
		err := os.Rename(f.temp, filepath.Join(w.target.Dir, f.name))
		if err != nil {
			return nil, w.failed(f, err)
		}
	}
	if err := SyncDir(w.target.Dir); err != nil {
		return nil, err
	}
	w.files = nil
	return made, nil
}

// end writes the bytes after the last sample, and syncs the file.
func (f *file) end(samples int64) error {
	if f.kind.Tail != nil {
		var body io.ReaderAt
		if f.kind.Plain {
			if err := f.out.Flush(); err != nil {
				return err
			}
			body = f.disk
		}
		var to io.Writer = f.out
		if f.comp != nil {
			to = (*collected)(f)
		}
		if err := f.kind.Tail(to, body, f.bytes, samples); err != nil {
			return err
		}
	}
	if f.comp != nil {
		if err := f.flush(); err != nil {
			return err
		}
	}
	if err := f.out.Flush(); err != nil {
		return err
	}
	if err := f.disk.Sync(); err != nil {
		return err
	}
	return f.disk.Close()
}

// collected is a file whose writes go through its compressor.
type collected file

func (c *collected) Write(p []byte) (int, error) { return len(p), (*file)(c).write(p) }

// Abort drops what is not finished; after Finish it does nothing.
func (w *Writer) Abort() {
	for _, f := range w.files {
		_ = f.disk.Close()
		_ = os.Remove(f.temp)
	}
	w.files = nil
}

func (w *Writer) failed(f *file, err error) error {
	return Failed("cannot write a shard", filepath.Join(w.target.Dir, f.name), err)
}

// Failed is the error of an operating system that failed to write.
func Failed(what, path string, err error) *errs.Error {
	at := errs.Where{File: path}
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return errs.New(errs.Space, "%s: the disk is full", what).At(at).Because(err).
			Try("free some space and run it again: it continues after the finished shards; --dry-run says how much it needs")
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		return errs.New(errs.Config, "%s", what).At(at).Because(err).Try("choose a writable folder")
	}
	return errs.New(errs.Unreadable, "%s", what).At(at).Because(err)
}

// SyncDir syncs the names in a folder to disk.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err == nil {
		err = d.Sync()
		if errors.Is(err, unix.EINVAL) { // not supported by the file system
			err = nil
		}
		_ = d.Close()
	}
	if err != nil {
		return Failed("cannot sync the folder", dir, err)
	}
	return nil
}

// WriteFile writes a small file so that it appears complete or not at all, even if
// others write it at the same time.
func WriteFile(at Target, name string, data []byte) error {
	to := filepath.Join(at.Dir, name)
	f, err := os.CreateTemp(at.Temp, name+".*.tmp")
	if err != nil {
		return Failed("cannot write a file", to, err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	if end := f.Close(); err == nil {
		err = end
	}
	if err == nil {
		err = os.Rename(f.Name(), to)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return Failed("cannot write a file", to, err)
	}
	return SyncDir(at.Dir)
}
