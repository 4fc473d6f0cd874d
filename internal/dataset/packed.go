package dataset

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/packing"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// packed is the manifest of a packing, as far as a loader needs it.
type packed struct {
	packing.Manifest[packing.Options]
}

// wholePacking refuses a folder that stoker pack has not finished, or of whose
// shards some are gone, cut or more than it wrote. Any other folder is none of its
// business.
func wholePacking(dir string) error {
	m, err := packingIn(dir)
	if m == nil || err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return errs.New(errs.Unreadable, "a folder can not be listed").At(errs.Where{File: dir}).Because(err)
	}
	var names []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return m.compare(dir, names, func(string) bool { return true })
}

// wholeShards is wholePacking for files that patterns have found: a glob over the
// shards of a packing stands for all of them that it would match. A file that was
// named is as long as it was written; which ones are named is its user's business.
func wholeShards(patterns, paths []string) error {
	seen := map[string]bool{}
	for _, p := range paths {
		dir := filepath.Dir(p)
		if seen[dir] {
			continue
		}
		seen[dir] = true
		globs := func() []string { return globsInto(dir, patterns) }
		m, err := packingIn(dir)
		if err != nil && len(globs()) > 0 {
			return err
		}
		if m == nil {
			continue
		}
		var names []string
		for _, p := range paths {
			if filepath.Dir(p) == dir {
				names = append(names, filepath.Base(p))
			}
		}
		bases := globs()
		matched := func(name string) bool {
			return slices.ContainsFunc(bases, func(g string) bool {
				ok, _ := filepath.Match(strings.ReplaceAll(g, "[!", "[^"), name)
				return ok || g == "**"
			})
		}
		if err := m.compare(dir, names, matched); err != nil {
			return err
		}
	}
	return nil
}

// globsInto are the last parts of the globs that found something in a folder.
func globsInto(dir string, patterns []string) (bases []string) {
	for _, p := range patterns {
		if exists(p) {
			continue
		}
		names, err := source.Braces(p)
		if err != nil {
			continue // it has found nothing
		}
		for _, name := range names {
			if !strings.ContainsAny(name, "*?[") || exists(name) {
				continue
			}
			found, err := source.Expand([]string{name})
			if err == nil && slices.ContainsFunc(found, func(f string) bool { return filepath.Dir(f) == dir }) {
				bases = append(bases, filepath.Base(name))
			}
		}
	}
	return bases
}

// packedArrays says whether all these files are shards of arrays that stoker pack
// has written, whose names end in the shard's number.
func packedArrays(paths []string) bool {
	of := map[string]map[string]bool{} // names of shards, by folder
	for _, p := range paths {
		dir := filepath.Dir(p)
		if _, seen := of[dir]; !seen {
			of[dir] = map[string]bool{}
			m, err := readPacking(filepath.Join(dir, packing.ManifestName))
			if err != nil || m == nil || m.Options.Output != "npy" {
				return false
			}
			for _, s := range m.Shards {
				for _, f := range s.Files {
					of[dir][filepath.Base(f.Name)] = true
				}
			}
		}
		if !of[dir][filepath.Base(p)] {
			return false
		}
	}
	return len(paths) > 0
}

// packingIn is what the manifest in a folder says; nil: nothing was packed there.
// A packing that is not finished is an error.
func packingIn(dir string) (*packed, error) {
	at := errs.Where{File: filepath.Join(dir, packing.ManifestName)}
	m, err := readPacking(at.File)
	if err != nil {
		return nil, manifestDamage(at.File, err)
	}
	if m != nil || !exists(filepath.Join(dir, packing.WorkDir, packing.PlanName)) || exists(at.File) {
		return m, nil
	}
	return nil, errs.New(errs.Damaged, "packing is not finished: there are shards to come, and no manifest").At(errs.Where{File: dir}).
		Try("run the same `stoker pack` again, which goes on behind what is done; of several tasks, when each is done, `stoker pack %s --finish`", dir)
}

// compare holds names, which are in dir, against the shards of the manifest; of
// those that are not among names, and of those that are not shards, wanted says
// which ones should be.
func (m *packed) compare(dir string, names []string, wanted func(name string) bool) error {
	given := make(map[string]bool, len(names))
	for _, name := range names {
		given[name] = true
	}
	known, endings := map[string]bool{}, map[string]bool{}
	var missing, cut, more []string
	for _, s := range m.Shards {
		for _, f := range s.Files {
			name := filepath.Base(f.Name)
			e, _ := ending(name)
			known[name], endings[e] = true, true
			if !given[name] {
				if wanted(name) {
					missing = append(missing, name)
				}
				continue
			}
			st, err := os.Stat(filepath.Join(dir, name))
			switch {
			case errors.Is(err, fs.ErrNotExist):
				missing = append(missing, name)
			case err != nil:
				return errs.New(errs.Unreadable, "a shard can not be looked at").At(errs.Where{Shard: filepath.Join(dir, name)}).Because(err)
			case st.Size() != f.Bytes:
				cut = append(cut, name)
			}
		}
	}
	for _, name := range names {
		if kind, _ := ending(name); endings[kind] && !known[name] && wanted(name) {
			more = append(more, name)
		}
	}
	var what []string
	for _, w := range []struct {
		which []string
		is    string
	}{{missing, "missing: "}, {cut, "not of the size that was written: "}, {more, "not of this packing: "}} {
		if w.which != nil {
			what = append(what, w.is+listed(w.which))
		}
	}
	if what == nil {
		return nil
	}
	hint := "run the same `stoker pack` again, which makes only what is gone, or fetch the shards again"
	if missing == nil && cut == nil {
		hint = "move elsewhere what is not of this packing, or give the files themselves"
	}
	first := slices.Concat(missing, cut, more)[0]
	return errs.New(errs.Damaged, "the shards are not those that the manifest of the packing counts; %s", strings.Join(what, "; ")).
		At(errs.Where{Shard: filepath.Join(dir, first)}).Try("%s", hint)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// listed is the first few of names.
func listed(names []string) string {
	const few = 10
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:few], ", ") + " and others"
}

// readPacking reads a manifest; nil: there is none, or it is of somebody else.
func readPacking(path string) (*packed, error) {
	head := make([]byte, headBytes) // which has the key: it is the first one
	n, err := source.Head(path, head)
	if err != nil {
		return nil, nil //nolint:nilerr // no manifest
	}
	if !packing.Ours(head[:n]) {
		return nil, brokenManifest(path)
	}
	f, err := source.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m, err := packing.Read[packing.Options](f)
	if m == nil || err != nil {
		return nil, err
	}
	return &packed{*m}, nil
}

// shardName is what stoker pack calls the files of shards.
var shardName = regexp.MustCompile(`-[0-9]{6}\.(tar|tfrecord|npy|bin|idx)(\.[a-z0-9]+)?$`)

// mostManifest bounds what is read of a manifest that is not known to be ours, bytes.
const mostManifest = 64 << 20

// brokenManifest is why a manifest.json without our mark can not be of somebody
// else: it is empty or no JSON, beside files called as stoker pack calls its shards.
// nil: it is another's, such as JSON, or lines of it.
func brokenManifest(path string) error {
	f, err := source.Open(path)
	if err != nil {
		return nil //nolint:nilerr // there is none
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() || st.Size() > mostManifest {
		return nil //nolint:nilerr // as above
	}
	var first json.RawMessage
	why := json.NewDecoder(f).Decode(&first)
	if why == nil {
		return nil
	}
	if errors.Is(why, io.EOF) {
		why = errors.New("it is empty")
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return shardName.MatchString(e.Name()) }) {
		return nil //nolint:nilerr // listing the folder says so
	}
	return why
}

// CheckManifest refuses a manifest.json beside shards that is empty or broken;
// whoever wrote it, nobody can tell which shards there should be.
func CheckManifest(path string) error {
	_, err := readPacking(path)
	if err != nil {
		return manifestDamage(path, err)
	}
	return nil
}

func manifestDamage(path string, why error) *errs.Error {
	return errs.New(errs.Damaged, "the manifest of a packing can not be read").At(errs.Where{File: path}).Because(why).
		Try("fetch it again, or run the `stoker pack` that made it again with --overwrite; if it is of something else, move it away")
}
