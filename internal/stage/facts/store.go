package facts

import (
	"context"
	"errors"
	"hash/crc32"
	"iter"
	"os"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// Options are how a store is opened; the zero value reads and adds nothing.
type Options struct {
	// What is what the facts are, for messages: "entry points of JPEGs".
	What string
	// Limit is how many bytes the folder's files may have, those of other kinds
	// included. Beyond it, nothing is added: samples keep the facts that they have. A
	// merge needs room for its result besides, while it runs.
	Limit int64
	// Notice is told what the user should know, at most once for each cause, one call at
	// a time, from any goroutine. It may be nil, and must not call the store.
	Notice func(string)
	// Holds is asked, when the limit is reached, for a function that says whether facts of a
	// File still hold; the others are dropped. It may be nil: all do.
	Holds func() func(file uint64) bool
	// Named says that the user asked for the store by name: what Notice would be told is
	// an error of Open or Flush instead.
	Named bool
}

// Counts are what a store did since it was opened.
type Counts struct {
	Found   int64 // facts in the folder when it was opened; replaced ones count until a merge drops them
	Put     int64 // facts that were written
	Known   int64 // facts that were put, and were stored already
	Dropped int64 // facts that were put and not written: the queue was full, or nothing can be written
	Refused int64 // facts that were put and not written: Options.Limit
	Damaged int64 // records and files that were not used because a check failed
	Merges  int64 // merges that this process made
	Files   int64 // files that are mapped now
	Bytes   int64 // of the folder's files, as Options.Limit counts them
}

type counters struct {
	found, put, known, dropped, refused, damaged, merges, files, bytes atomic.Int64
}

// limits are the store's own, with the reasons for the usual ones.
type limits struct {
	// queue is how many bytes wait to be written, at most; there are two such buffers.
	// Ten thousand pictures per second with facts of 1.1 KB fill one in 0.1 s.
	queue int
	// facts, bytes and age seal a part: what a killed process loses, and what others do
	// not see yet. Its table is made in memory: 16 bytes for each fact, 0.25 MiB. 1.28
	// million facts of 1.1 KB are 78 parts.
	facts int
	bytes int64
	age   time.Duration
	// tick is how often the queue is emptied, if it does not fill before.
	tick time.Duration
	// look is how often the folder's time is compared, for files of other processes.
	look time.Duration
	// orphan is how long a part was not written to before it is taken over. Its lock
	// shows that its process has ended; on file systems whose locks end at the machine,
	// only its age does. A process that lives has sealed it long before.
	orphan time.Duration
	// fan is how many files of similar size are merged. 4: a fact is written about four
	// times on its way into a file of 1.4 GB, and there are rarely more than ten files.
	fan int
}

var usual = limits{
	queue: 1 << 20, facts: 16 << 10, bytes: 32 << 20, age: 10 * time.Second,
	tick: time.Second, look: 3 * time.Second, orphan: time.Minute, fan: 4,
}

// Store is an open folder of facts of one kind; safe for concurrent use. Its anonymous
// memory is bounded by its limits, whatever the number of facts.
type Store struct {
	d    disk
	name string // of the only file, which is not written to; "": all of the folder's
	kind string
	seed uint32 // checksums begin with it
	opt  Options
	lim  limits

	current atomic.Pointer[view]
	n       counters

	mu     sync.Mutex
	queue  []byte   // records that wait for the writer, without stamps
	spare  [][]byte // buffers for queues: mappings, so that the collector does not let them grow
	closed bool
	failed bool // nothing can be written; set by the writer alone, once it runs

	telling sync.Mutex
	told    map[string]bool // causes that the user was told
	err     error           // the first problem, for Options.Named

	wake chan struct{} // the queue is filling
	room chan struct{} // the queue was emptied
	asks chan ask
	quit chan struct{}
	done chan struct{}
	once sync.Once
}

// ask is a request to the writer, which answers once.
type ask struct {
	merge bool // merge everything, as well
	reply chan error
}

var kinds = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)

// Open opens the facts of a kind in a folder, which it makes if there is none. kind is
// lower-case letters, digits and hyphens, 48 at most: it names what the facts say and
// the version of their bytes. Errors: config (kind), and with Options.Named unreadable,
// space, damaged or incompatible; without it, a store opens whatever is there. memory: no
// 2 MiB can be mapped.
func Open(dir, kind string, o Options) (*Store, error) {
	return open(disk{dir: dir}, kind, o, usual)
}

func open(d disk, kind string, o Options, lim limits) (*Store, error) {
	if !kinds.MatchString(kind) || len(kind) > maxKind {
		return nil, errs.New(errs.Config, "facts cannot be of kind %q", kind)
	}
	s := &Store{
		d: d, kind: kind, seed: crc32.Checksum([]byte(kind), castagnoli), opt: o, lim: lim,
		told: make(map[string]bool),
		wake: make(chan struct{}, 1), room: make(chan struct{}, 1),
		asks: make(chan ask), quit: make(chan struct{}), done: make(chan struct{}),
	}
	for range 2 { // pages that nothing is put into take no memory
		buf, err := unix.Mmap(-1, 0, lim.queue, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return nil, errs.New(errs.Memory, "there is no room for a queue of %d bytes", lim.queue).Because(err)
		}
		s.spare = append(s.spare, buf)
	}
	s.publish([]*segment{})
	if err := writable(d.dir); err != nil {
		s.failed = true
		s.report("write", d.dir, err)
	}
	w := newWriter(s)
	w.look(true)
	for _, g := range w.files {
		s.n.found.Add(g.facts)
	}
	if o.Named && s.err != nil {
		w.end()
		return nil, s.err
	}
	go w.run()
	return s, nil
}

// writable says why nothing can be written to the folder; nil: it can be.
func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return err
	}
	// A user who may write everywhere leaves no files that the folder's owner cannot replace.
	if int(st.Uid) != os.Geteuid() {
		return errors.New("the folder belongs to another user")
	}
	return unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS)
}

// report tells the user of a problem, once for each cause, or keeps it for Flush.
func (s *Store) report(cause, path string, err error) {
	var e *errs.Error
	hint := "remove the file; it is a cache"
	if s.name != "" {
		hint = "write the file again, or remove it"
	}
	switch at := (errs.Where{File: path}); {
	case cause == "write":
		code, hint := unwritten(err), ""
		if code == errs.Space {
			hint = "free some space there, or "
		}
		e = errs.New(code, "cannot write %s", s.opt.What).At(at).Because(err).
			Try("%sset STOKER_CACHE to a folder that can be written to", hint)
	case cause == "merge":
		e = errs.New(errs.Unreadable, "files of %s are not merged", s.opt.What).At(at).Because(err).
			Try("set STOKER_CACHE to a folder on a local disk")
	case errors.Is(err, errLater):
		cause = "version"
		e = errs.New(errs.Incompatible, "a file of %s is not used", s.opt.What).At(at).Because(err).
			Try("%s", hint)
	case !isDamage(err):
		cause = "read"
		e = errs.New(errs.Unreadable, "a file of %s cannot be read", s.opt.What).At(at).Because(err)
	default:
		e = errs.New(errs.Damaged, "a file of %s is not used", s.opt.What).At(at).Because(err).Try("%s", hint)
	}
	s.tell(cause, e)
}

// tell passes a problem on.
func (s *Store) tell(cause string, e *errs.Error) {
	s.telling.Lock()
	defer s.telling.Unlock()
	if s.err == nil && cause != "limit" {
		s.err = e
	}
	if s.told[cause] || s.opt.Named || s.opt.Notice == nil {
		return
	}
	s.told[cause] = true
	text := e.Error()
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	s.opt.Notice(text)
}

// isDamage says whether a file's bytes are the reason why it was not opened, and not the
// system: too many open files, a permission, a disk that fails.
func isDamage(err error) bool {
	var number unix.Errno
	return !errors.As(err, &number)
}

// unwritten is the code of what could not be written.
func unwritten(err error) errs.Code {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return errs.Space
	}
	return errs.Unreadable
}

// Append appends the fact of k to dst, and says whether there is one. It takes no lock,
// and does not wait if Ahead was called before. What is appended is a copy.
func (s *Store) Append(dst []byte, k Key) ([]byte, bool) {
	v := s.acquire()
	if v == nil {
		return dst, false
	}
	defer v.release()
	for {
		out, ok, bad, broken := v.append(dst, k, s.seed)
		if broken {
			s.damaged(errTruncated)
			continue
		}
		if bad {
			s.damaged(errors.New("the checksum of a fact is wrong"))
		}
		return out, ok
	}
}

func (s *Store) damaged(err error) {
	s.n.damaged.Add(1)
	s.tell("record", errs.New(errs.Damaged, "damaged %s are not used, and are learned again", s.opt.What).At(errs.Where{File: s.d.path(s.name)}).Because(err))
}

// Ahead brings the fact of k into memory, and waits for it. A reader calls it when it
// reads the sample, so that no lane has to wait in Append.
func (s *Store) Ahead(k Key) {
	v := s.acquire()
	if v == nil {
		return
	}
	defer v.release()
	guarded(func() { v.populate(k.hash()) })
}

// AheadAll begins to bring all facts into memory that are in the folder now. It does not wait,
// and ends with Close. What this machine writes later is in its page cache anyway.
func (s *Store) AheadAll() {
	if v := s.acquire(); v != nil {
		go func() {
			defer v.release()
			for _, g := range v.segs {
				if !willNeed(g.data, s.quit) {
					return
				}
			}
		}()
	}
}

// Put adds a fact, which it copies, and returns at once. A later fact of a key replaces
// an earlier one; of those that different processes put, the one that was written last.
// Append finds it when its file is sealed, some seconds later. It is dropped, and
// counted, if it is longer than MaxFact or the queue is full.
func (s *Store) Put(k Key, fact []byte) {
	if full := s.put(k, fact); full {
		s.n.dropped.Add(1)
	}
}

// put says whether the queue has no room.
func (s *Store) put(k Key, fact []byte) (full bool) {
	s.mu.Lock()
	if s.closed || s.failed || len(fact) > min(MaxFact, s.lim.queue-recordHead-8) {
		s.mu.Unlock()
		s.n.dropped.Add(1)
		return false
	}
	if s.queue == nil && len(s.spare) > 0 {
		last := len(s.spare) - 1
		s.queue, s.spare = s.spare[last][:0], s.spare[:last]
	}
	if full = len(s.queue)+recordHead+align8(len(fact)) > cap(s.queue); !full {
		s.queue = appendRecord(s.queue, k, fact)
	}
	filling := len(s.queue) >= s.lim.queue/4
	s.mu.Unlock()
	if filling {
		signal(s.wake)
	}
	return full
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Add puts many facts, waiting for room instead of dropping any, and flushes. Errors: as
// Flush.
func (s *Store) Add(ctx context.Context, all iter.Seq2[Key, []byte]) error {
	for k, fact := range all {
		for s.put(k, fact) {
			select {
			case <-s.room:
			case <-s.done:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return s.Flush(ctx)
}

// All is the newest version of every fact that is sealed, in no order: Flush first. The
// bytes are valid until the next one. Damaged ones are left out, and counted.
func (s *Store) All() iter.Seq2[Key, []byte] {
	return func(yield func(Key, []byte) bool) {
		v := s.acquire()
		if v == nil {
			return
		}
		defer v.release()
		for rec := range s.newest(v.segs) {
			if !yield(keyOf(rec), rec[recordHead:]) {
				return
			}
		}
	}
}

// Counts are what the store did so far.
func (s *Store) Counts() Counts {
	n := &s.n
	return Counts{
		Found: n.found.Load(), Put: n.put.Load(), Known: n.known.Load(), Dropped: n.dropped.Load(), Refused: n.refused.Load(),
		Damaged: n.damaged.Load(), Merges: n.merges.Load(), Files: n.files.Load(), Bytes: n.bytes.Load(),
	}
}

// Flush returns when everything that was put before is durable, and found by every
// process that opens the folder from then on. Errors: that of ctx, and with
// Options.Named the first problem since Open.
func (s *Store) Flush(ctx context.Context) error { return s.request(ctx, ask{}) }

// Merge flushes, and makes one file of all, without facts that were replaced: for a copy
// that travels. If another process is merging, it does not wait for it. Errors: as Flush.
func (s *Store) Merge(ctx context.Context) error { return s.request(ctx, ask{merge: true}) }

func (s *Store) request(ctx context.Context, a ask) error {
	a.reply = make(chan error, 1)
	select {
	case s.asks <- a:
	case <-s.done:
		return s.problem()
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-a.reply:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// problem is what Flush and Close return.
func (s *Store) problem() error {
	s.telling.Lock()
	defer s.telling.Unlock()
	if s.opt.Named {
		return s.err
	}
	return nil
}

// Close writes what was put, as Flush does, ends a merge, and releases everything. Append
// finds nothing afterwards; a second Close does nothing. Errors: as Flush.
func (s *Store) Close() error {
	s.once.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		close(s.quit)
	})
	<-s.done
	s.publish(nil)
	return s.problem()
}
