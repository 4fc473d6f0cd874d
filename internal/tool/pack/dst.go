package pack

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/jsontext"
	"github.com/stoker-data/stoker/internal/stage/packing"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/tool/pack/shard"
)

// The files of a destination, see the package's comment.
const (
	ManifestName = packing.ManifestName
	DigestsName  = packing.DigestsName
	workDir      = packing.WorkDir
	planName     = packing.PlanName
)

// dst is a destination.
type dst struct {
	dir    string
	target shard.Target
	plan   *plan
	again  int      // finished shards that were changed or removed since, and are made again
	began  bool     // this run wrote the plan
	made   []string // folders that this run created for it, innermost first
}

func openDst(dir string) *dst {
	return &dst{dir: dir, target: shard.Target{Dir: dir, Temp: filepath.Join(dir, workDir)}}
}

// notes is where the small files about work in progress are stored.
func (d *dst) notes() shard.Target { return shard.Target{Dir: d.target.Temp, Temp: d.target.Temp} }

func (d *dst) in(name string) string   { return filepath.Join(d.dir, name) }
func (d *dst) work(name string) string { return filepath.Join(d.target.Temp, name) }

func note(s int) string    { return fmt.Sprintf("%06d.json", s) }
func digests(s int) string { return fmt.Sprintf("%06d.xxh64", s) }

// name is the name of shard s, without an extension.
func (d *dst) name(s int) string { return fmt.Sprintf("%s-%06d", d.plan.Options.Name, s) }

// begin creates the folders for work.
func (d *dst) begin() error {
	if err := os.MkdirAll(d.target.Temp, 0o755); err != nil {
		return shard.Failed("cannot create the destination", d.target.Temp, err)
	}
	return nil
}

// readJSON reads one of the packing's own files; false if it does not exist.
func readJSON(path string, v any) (bool, error) {
	b, err := source.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return false, nil
	}
	if err != nil {
		return false, errs.New(errs.Unreadable, "cannot read the destination").At(file(path)).Because(err)
	}
	if err := jsontext.Unmarshal(b, v); err != nil {
		return false, errs.New(errs.Damaged, "a file of the destination is damaged").At(file(path)).Because(err).
			Try("pack again with --overwrite")
	}
	return true, nil
}

func file(path string) errs.Where { return errs.Where{File: path} }

// marshal is the format of all these files: indented, with a newline at the end.
func marshal(v any) []byte {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		panic(err) // impossible with plain structs
	}
	return append(b, '\n')
}

// state returns what is in the destination: a finished packing, one in progress, or
// neither.
func (d *dst) state() (m *Manifest, p *plan, err error) {
	m, p = &Manifest{}, &plan{}
	if ok, err := readJSON(d.in(ManifestName), m); err != nil {
		return nil, nil, err
	} else if !ok {
		m = nil
	}
	if ok, err := readJSON(d.work(planName), p); err != nil {
		return nil, nil, err
	} else if !ok {
		p = nil
	}
	return m, p, nil
}

// compare returns an error that names the differences between two packings; nil if
// there are none.
func compare(theirs, ours identity) error {
	flat := func(id identity) map[string]any {
		var m, all map[string]any
		_ = json.Unmarshal(marshal(id), &m)
		all = map[string]any{}
		for k, v := range m {
			if sub, ok := v.(map[string]any); ok {
				for name, v := range sub {
					all[k+"."+name] = v
				}
				continue
			}
			all[k] = v
		}
		return all
	}
	a, b := flat(theirs), flat(ours)
	var names []string
	for k := range a {
		names = append(names, k)
	}
	for k := range b {
		if _, both := a[k]; !both {
			names = append(names, k)
		}
	}
	slices.Sort(names)
	var differ []string
	for _, k := range names {
		if !reflect.DeepEqual(a[k], b[k]) {
			differ = append(differ, fmt.Sprintf("%s (%s there, %s now)", strings.TrimPrefix(k, "options."), shown(a[k]), shown(b[k])))
		}
	}
	if differ == nil {
		return nil
	}
	return errs.New(errs.Config, "the destination holds another packing, which differs in %s", strings.Join(differ, ", "))
}

func shown(v any) string {
	if v == nil {
		return "not set"
	}
	b, _ := json.Marshal(v)
	return string(b)
}

// done returns the note of a finished shard whose files are there; nil if the shard
// is to be made.
func (d *dst) done(s int) (*Shard, error) {
	var sh Shard
	ok, err := readJSON(d.work(note(s)), &sh)
	if err != nil || !ok || !d.there(&sh, d.work(note(s))) {
		return nil, err
	}
	if st, err := os.Stat(d.work(digests(s))); err != nil || st.Size() != 8*sh.Samples {
		return nil, nil //nolint:nilerr // made again
	}
	return &sh, nil
}

// there reports whether the files of a shard are unchanged since witness was
// written, which was after them: they have their sizes, and every file that was
// written to since has its digest. Reading all files would cost a resumed packing a
// fifth of its time; damage without a write is found by stoker verify.
func (d *dst) there(s *Shard, witness string) bool {
	w, err := os.Stat(witness)
	if err != nil {
		return false
	}
	for _, f := range s.Files {
		st, err := os.Stat(d.in(f.Name))
		if err != nil || !st.Mode().IsRegular() || st.Size() != f.Bytes {
			return false
		}
		if !st.ModTime().Before(w.ModTime()) && !d.holds(f) {
			return false
		}
	}
	return len(s.Files) > 0
}

// holds reports whether a file has its digest.
func (d *dst) holds(made packing.File) bool {
	f, err := source.Open(d.in(made.Name))
	if err != nil {
		return false
	}
	defer f.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	return err == nil && hex.EncodeToString(sum.Sum(nil)) == made.SHA256
}

// broken reports whether shard s was finished, but is not any more.
func (d *dst) broken(s int) bool {
	_, err := os.Stat(d.work(note(s)))
	return err == nil
}

// lock keeps other packings out of the destination until unlock; tasks only keep
// out packings that are not tasks. The lock is on the folder itself, so that a
// packing that is refused creates no file; on file systems that cannot lock folders
// there are still the locks of shards.
func (d *dst) lock(task bool) (unlock func(), err error) {
	for dir := filepath.Clean(d.dir); ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		d.made = append(d.made, dir)
	}
	if err := os.MkdirAll(d.dir, 0o755); err != nil {
		return nil, shard.Failed("cannot create the destination", d.dir, err)
	}
	f, err := os.Open(d.dir)
	if err != nil {
		return nil, shard.Failed("cannot open the destination", d.dir, err)
	}
	how := unix.LOCK_EX
	if task {
		how = unix.LOCK_SH
	}
	if err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		_ = f.Close()
		return nil, errs.New(errs.Config, "another stoker pack is writing to this folder").At(file(d.dir)).
			Try("wait for it, or choose another folder; give processes that work together --task i/n each")
	}
	return func() { _ = f.Close() }, nil
}

// abandon removes what a run leaves if it failed before any shard was finished: the
// destination is free for another packing, and is removed if this run created it.
// Tasks leave it, because other tasks may need it.
func (d *dst) abandon() {
	if d.began {
		notes, err := filepath.Glob(d.work("*.xxh64"))
		if err != nil || len(notes) > 0 {
			return
		}
		_ = os.RemoveAll(d.target.Temp)
	}
	for _, dir := range d.made {
		_ = os.Remove(dir) // fails if it is not empty
	}
}

// claim locks shard s for this process; done means that another process has
// finished it meanwhile. A lock ends with its process, however that ends.
func (d *dst) claim(s int) (unlock func(), done bool, err error) {
	path := d.work(fmt.Sprintf("%06d.lock", s))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, false, shard.Failed("cannot begin a shard", path, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, false, errs.New(errs.Config, "another process is packing %s", d.name(s)).At(file(d.dir)).
				Try("wait for it, or give each process its own shards with --task i/n")
		}
		return nil, false, shard.Failed("cannot lock a shard", path, err)
	}
	have, err := d.done(s)
	if err != nil || have != nil {
		_ = f.Close()
		return nil, have != nil, err
	}
	return func() { _ = f.Close() }, false, nil
}

// finished records that shard s is complete and its files have their names.
func (d *dst) finished(s int, sh Shard, sums []byte) error {
	if err := shard.WriteFile(d.notes(), digests(s), sums); err != nil {
		return err
	}
	return shard.WriteFile(d.notes(), note(s), marshal(sh))
}

// clear removes what another packing left.
func (d *dst) clear(m *Manifest, p *plan) error {
	var names []string
	if m != nil {
		for _, s := range m.Shards {
			for _, f := range s.Files {
				names = append(names, f.Name)
			}
		}
	}
	if p != nil {
		other := &dst{dir: d.dir, target: d.target, plan: p}
		for s := range p.First {
			var sh Shard
			if ok, err := readJSON(other.work(note(s)), &sh); err == nil && ok {
				for _, f := range sh.Files {
					names = append(names, f.Name)
				}
			}
		}
	}
	// The manifest is removed first: what is left after a kill is not a complete
	// packing.
	for _, name := range append([]string{ManifestName, DigestsName}, names...) {
		if filepath.Base(name) != name {
			continue // not written by stoker pack
		}
		if err := os.Remove(d.in(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return shard.Failed("cannot remove what was packed before", d.in(name), err)
		}
	}
	if err := os.RemoveAll(d.target.Temp); err != nil {
		return shard.Failed("cannot remove what was packed before", d.target.Temp, err)
	}
	return nil
}
