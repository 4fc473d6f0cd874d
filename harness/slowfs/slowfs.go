// Package slowfs is a file system that shows a folder read-only and as slowly as
// requested: latency per open and per read, a bandwidth, a penalty for small reads.
// It is mounted with FUSE, so that programs in any language meet the same storage. It
// counts exactly what it served, so that other counts of opens, reads and bytes can be
// checked.
//
// Data comes from files below the folder by pread and goes to the kernel. What the
// kernel keeps of it is said at the mount, see [Cache]: unless asked, nothing, so
// that a delay is met by every read (those beyond 1 MiB are several).
//
// Delays are of the whole mount: latencies of requests that overlap pass side by
// side, as in a network or an SSD; bytes share the one bandwidth, in the order in
// which requests arrive.
//
// The process that mounts must not open files of the mount across a fork, nor run
// programs from it: it would wait for itself. It mounts for others.
package slowfs

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// Delays is how slow the storage is; the zero value adds nothing.
type Delays struct {
	Open time.Duration // of every open of a file
	Read time.Duration // of every read request, before its bytes

	BytesPerSecond int64 // over all readers; 0: no bound

	// A read that asks for fewer than SmallBytes takes Small longer. What asks for
	// them at the end of a file, where there are no more, is not counted as small.
	SmallBytes int
	Small      time.Duration
}

// Served is what was asked of a file system since it was mounted.
type Served struct {
	Opens int64 `json:"opens"`
	Reads int64 `json:"reads"` // requests, those at the end of a file with them
	Bytes int64 `json:"bytes"` // given out
	Most  int64 `json:"most"`  // reads that waited at once, since Set
}

// FS is a mounted file system. Its methods may be called concurrently.
type FS struct {
	at     string
	cache  Cache
	server *fuse.Server

	delays              atomic.Pointer[Delays]
	opens, reads, bytes atomic.Int64
	waiting, most       atomic.Int64 // reads that wait now, and at most

	mu   sync.Mutex
	free time.Time // when the bandwidth has no more promises to keep; under mu
}

// Options of a mount.
type Options struct {
	Delays Delays
	Cache  Cache
}

// Cache is what the kernel keeps in memory of what was read.
type Cache int

// The caches.
const (
	Direct Cache = iota // nothing: every read of a program arrives as it is; files can be mapped privately only
	Reopen              // the pages of a file, read ahead and mapped as from a disk, until it is opened again
	Keep                // all that there is memory for, as of a disk
)

// largest is the most that the kernel asks for at once.
const largest = 1 << 20

// Mount shows the folder of at the empty folder at, until Close.
func Mount(of, at string, o Options) (*FS, error) {
	of, err := filepath.Abs(of)
	if err != nil {
		return nil, err
	}
	info, err := folder(of)
	if err != nil {
		return nil, err
	}
	if _, err := folder(at); err != nil {
		return nil, err
	}
	f := &FS{at: at, cache: o.Cache}
	f.Set(o.Delays)
	root := &fs.LoopbackRoot{Path: of, Dev: uint64(info.Sys().(*syscall.Stat_t).Dev)}
	node := &node{LoopbackNode: &fs.LoopbackNode{RootData: root}, of: f}
	root.RootNode = node
	forever := 24 * time.Hour // nothing below the folder changes while it is shown
	f.server, err = fs.Mount(at, node, &fs.Options{
		EntryTimeout: &forever, AttrTimeout: &forever,
		MountOptions: fuse.MountOptions{
			FsName: of, Name: "slowfs", Options: []string{"ro"}, DirectMount: true,
			MaxWrite: largest, MaxBackground: 128, DisableXAttrs: true, DisableSplice: true, // bytes are counted on their way
		},
	})
	if err != nil {
		return nil, errs.New(errs.Unsupported, "the slow file system cannot be mounted").At(where(at)).Because(err).
			Try("run as root where /dev/fuse is, or install fusermount3 (Debian: fuse3)")
	}
	return f, nil
}

func folder(path string) (os.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, errs.New(errs.NotFound, "the folder cannot be read").At(where(path)).Because(err)
	}
	if !info.IsDir() {
		return nil, errs.New(errs.Config, "this is not a folder").At(where(path))
	}
	return info, nil
}

// Set changes the delays of requests that come from now on.
func (f *FS) Set(d Delays) {
	f.delays.Store(&d)
	f.most.Store(0)
}

// Served is what was asked for so far. It holds all of a read before the program
// that asked has its bytes.
func (f *FS) Served() Served {
	return Served{Opens: f.opens.Load(), Reads: f.reads.Load(), Bytes: f.bytes.Load(), Most: f.most.Load()}
}

// Close unmounts. Where a program still holds files open, the mount is taken out
// of the tree and ends when that program does; the error says so.
func (f *FS) Close() error {
	var err error
	for range 20 {
		if err = f.server.Unmount(); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	if lazy := syscall.Unmount(f.at, syscall.MNT_DETACH); lazy != nil {
		err = fmt.Errorf("%w; %w", err, lazy)
	}
	return errs.New(errs.Held, "the slow file system is still in use").At(where(f.at)).Because(err)
}

func where(path string) errs.Where { return errs.Where{File: path} }

// wait lets a read request of so many bytes take its time: it arrived at a
// moment, asked for some bytes and was given some. False: nobody waits any more.
func (f *FS) wait(ctx context.Context, arrived time.Time, asked, given int) bool {
	d := f.delays.Load()
	now := f.waiting.Add(1)
	defer f.waiting.Add(-1)
	for most := f.most.Load(); now > most && !f.most.CompareAndSwap(most, now); {
		most = f.most.Load()
	}
	until := arrived.Add(d.Read)
	if asked < d.SmallBytes && given == asked {
		until = until.Add(d.Small)
	}
	if d.BytesPerSecond > 0 {
		took := time.Duration(float64(given) / float64(d.BytesPerSecond) * float64(time.Second))
		f.mu.Lock()
		if f.free.Before(arrived) {
			f.free = arrived
		}
		f.free = f.free.Add(took)
		if until = until.Add(took); until.Before(f.free) {
			until = f.free
		}
		f.mu.Unlock()
	}
	return pause(ctx, time.Until(until))
}

// pause sleeps, unless the program that waits is killed.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// node is a file or a folder: of the folder below, but for opens and reads.
type node struct {
	*fs.LoopbackNode
	of *FS
}

var (
	_ fs.NodeWrapChilder = (*node)(nil)
	_ fs.NodeOpener      = (*node)(nil)
	_ fs.FileReader      = (*file)(nil)
	_ fs.FileReleaser    = (*file)(nil)
)

func (n *node) WrapChild(_ context.Context, ops fs.InodeEmbedder) fs.InodeEmbedder {
	return &node{LoopbackNode: ops.(*fs.LoopbackNode), of: n.of}
}

func (n *node) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	if flags&(syscall.O_WRONLY|syscall.O_RDWR|syscall.O_TRUNC|syscall.O_APPEND) != 0 {
		return nil, 0, syscall.EROFS
	}
	if !pause(ctx, n.of.delays.Load().Open) {
		return nil, 0, syscall.EINTR
	}
	n.of.opens.Add(1)
	path := filepath.Join(n.RootData.Path, n.Path(n.Root()))
	fd, err := os.Open(path)
	if err != nil {
		return nil, 0, fs.ToErrno(err)
	}
	how := map[Cache]uint32{Direct: fuse.FOPEN_DIRECT_IO, Reopen: 0, Keep: fuse.FOPEN_KEEP_CACHE}[n.of.cache]
	return &file{below: fd, of: n.of}, how, 0
}

// file is an open file; it is closed when the last program has closed its own.
type file struct {
	below *os.File
	of    *FS
}

func (f *file) Read(ctx context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	arrived := time.Now()
	n, err := f.below.ReadAt(dest, off)
	if err != nil && err != io.EOF {
		return nil, fs.ToErrno(err)
	}
	if !f.of.wait(ctx, arrived, len(dest), n) {
		return nil, syscall.EINTR
	}
	f.of.reads.Add(1)
	f.of.bytes.Add(int64(n))
	return fuse.ReadResultData(dest[:n]), 0
}

func (f *file) Release(context.Context) syscall.Errno { return fs.ToErrno(f.below.Close()) }
