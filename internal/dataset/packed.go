package dataset

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/packing"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/pattern"
)

// packed is the part of a packing's manifest that a loader needs.
type packed struct {
	packing.Manifest[packing.Options]
}

// wholePacking refuses a folder that stoker pack has not finished, or in which shards
// are missing, cut or unknown to the manifest. It accepts any folder that is not a
// packing.
func (f finder) wholePacking(dir string) error {
	m, err := f.packingIn(dir)
	if m == nil || err != nil {
		return err
	}
	entries, err := source.Names(f.ctx, f.src, dir)
	if err != nil {
		return err
	}
	var names []string
	for _, e := range entries {
		if name := e.Base(); !strings.HasPrefix(name, ".") {
			names = append(names, name)
		}
	}
	return f.compare(m, dir, names, func(string) bool { return true })
}

// wholeShards is wholePacking for files that patterns found: a glob over the shards of a
// packing must find all that it would match. A file that was named explicitly must have
// the length that was written; which files are named is the user's choice.
func (f finder) wholeShards(patterns, paths []string) error {
	seen := map[string]bool{}
	for _, p := range paths {
		dir := source.Dir(p)
		if seen[dir] || f.isDir(p) { // a shard is a file
			continue
		}
		seen[dir] = true
		globs := func() []string { return f.globsInto(dir, patterns) }
		m, err := f.packingIn(dir)
		if err != nil && len(globs()) > 0 {
			return err
		}
		if m == nil {
			continue
		}
		var names []string
		for _, p := range paths {
			if source.Dir(p) == dir {
				names = append(names, path.Base(p))
			}
		}
		bases := globs()
		matched := func(name string) bool {
			return slices.ContainsFunc(bases, func(g string) bool {
				ok, _ := path.Match(strings.ReplaceAll(g, "[!", "[^"), name)
				return ok || g == "**"
			})
		}
		if err := f.compare(m, dir, names, matched); err != nil {
			return err
		}
	}
	return nil
}

// globsInto are the last parts of the globs that found something in a folder.
func (f finder) globsInto(dir string, patterns []string) (bases []string) {
	for _, p := range patterns {
		if f.exists(p) {
			continue
		}
		names, err := source.Braces(p)
		if err != nil {
			continue // it has found nothing
		}
		for _, name := range names {
			if !strings.ContainsAny(name, "*?[") || f.exists(name) {
				continue
			}
			found, err := pattern.Expand(f.ctx, f.src, []string{name})
			if err == nil && slices.ContainsFunc(found, func(p string) bool { return source.Dir(p) == dir }) {
				bases = append(bases, path.Base(name))
			}
		}
	}
	return bases
}

// packedArrays reports whether all these files are shards of arrays that stoker pack
// wrote, whose names end in the shard's number.
func (f finder) packedArrays(paths []string) bool {
	of := map[string]map[string]bool{} // names of shards, by folder
	for _, p := range paths {
		dir := source.Dir(p)
		if _, seen := of[dir]; !seen {
			of[dir] = map[string]bool{}
			m, err := readPacking(f.ctx, f.src, source.Join(dir, packing.ManifestName))
			if err != nil || m == nil || m.Options.Output != packing.Npy {
				return false
			}
			for _, s := range m.Shards {
				for _, file := range s.Files {
					of[dir][path.Base(file.Name)] = true
				}
			}
		}
		if !of[dir][path.Base(p)] {
			return false
		}
	}
	return len(paths) > 0
}

// packingIn is the manifest of a folder; nil: it is not a packing. A packing that is not
// finished is an error.
func (f finder) packingIn(dir string) (*packed, error) {
	at := errs.Where{File: source.Join(dir, packing.ManifestName)}
	m, err := readPacking(f.ctx, f.src, at.File)
	if err != nil && f.ctx.Err() == nil {
		return nil, manifestDamage(at.File, err)
	}
	if err != nil {
		return nil, err
	}
	if m != nil || !f.exists(source.Join(dir, packing.WorkDir, packing.PlanName)) || f.exists(at.File) {
		return m, nil
	}
	return nil, errs.New(errs.Damaged, "packing is not finished: there are shards to come, and no manifest").At(errs.Where{File: dir}).
		Try("run the same `stoker pack` again, which goes on after what is done; of several tasks, when each is done, `stoker pack %s --finish`", dir)
}

// compare checks names, which are in dir, against the shards of the manifest. Of the
// shards that are not among names, and of the names that are not shards, wanted decides
// which ones must be.
func (f finder) compare(m *packed, dir string, names []string, wanted func(name string) bool) error {
	given := make(map[string]bool, len(names))
	for _, name := range names {
		given[name] = true
	}
	known, endings := map[string]bool{}, map[string]bool{}
	var missing, cut, more []string
	for _, s := range m.Shards {
		for _, file := range s.Files {
			name := path.Base(file.Name)
			e, _ := ending(name)
			known[name], endings[e] = true, true
			if !given[name] {
				if wanted(name) {
					missing = append(missing, name)
				}
				continue
			}
			st, err := f.src.Stat(f.ctx, source.Join(dir, name))
			switch {
			case errs.CodeOf(err) == errs.NotFound:
				missing = append(missing, name)
			case err != nil:
				return format.InShard(err)
			case st.Size != file.Bytes:
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
		At(errs.Where{Shard: source.Join(dir, first)}).Try("%s", hint)
}

// exists reports whether there is a file of that name; also false if an error prevents
// an answer, which reading the file will report.
func (f finder) exists(name string) bool {
	there, err := source.Exists(f.ctx, f.src, name)
	return there && err == nil
}

// listed is the first few of names.
func listed(names []string) string {
	const few = 10
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:few], ", ") + " and others"
}

// readPacking reads a manifest; nil: there is none, or another program wrote it.
func readPacking(ctx context.Context, src source.Source, name string) (*packed, error) {
	head := make([]byte, headBytes) // the key is the first one
	n, err := source.Head(ctx, src, name, head)
	if err != nil {
		return nil, ctx.Err() // no manifest
	}
	if !packing.Ours(head[:n]) {
		return nil, brokenManifest(ctx, src, name)
	}
	var text io.Reader = bytes.NewReader(head[:n])
	if n == len(head) {
		st, err := src.Stat(ctx, name)
		if err != nil {
			return nil, err
		}
		text = bufio.NewReaderSize(source.Reader(ctx, src, st), mostBuffer)
	}
	m, err := packing.Read[packing.Options](text)
	if m == nil || err != nil {
		return nil, err
	}
	return &packed{*m}, nil
}

// shardName matches the file names of stoker pack's shards.
var shardName = regexp.MustCompile(`-[0-9]{6}\.(tar|tfrecord|npy|bin|idx)(\.[a-z0-9]+)?$`)

// mostBuffer is how many bytes of a manifest are read at once.
const mostBuffer = 256 << 10

// mostManifest is how many bytes are read at most of a manifest that may not be ours.
const mostManifest = 64 << 20

// brokenManifest says why a manifest.json without our mark must be a broken one of ours:
// it is empty or not JSON, and is beside files named like stoker pack's shards. nil: it
// is another program's, such as JSON, or lines of JSON.
func brokenManifest(ctx context.Context, src source.Source, name string) error {
	text, err := source.ReadAll(ctx, src, name, mostManifest)
	if err != nil {
		return ctx.Err() // there is none
	}
	var first json.RawMessage
	why := json.NewDecoder(bytes.NewReader(text)).Decode(&first)
	if why == nil {
		return nil
	}
	if errors.Is(why, io.EOF) {
		why = errors.New("it is empty")
	}
	entries, err := source.Names(ctx, src, source.Dir(name))
	if err != nil || !slices.ContainsFunc(entries, func(e source.Info) bool { return shardName.MatchString(e.Base()) }) {
		return nil //nolint:nilerr // listing the folder says so
	}
	return why
}

// CheckManifest refuses a manifest.json beside shards that is empty or broken: whichever
// program wrote it, the shards that belong to the dataset are unknown.
func CheckManifest(ctx context.Context, src source.Source, name string) error {
	_, err := readPacking(ctx, src, name)
	if err != nil && ctx.Err() == nil {
		return manifestDamage(name, err)
	}
	return err
}

func manifestDamage(name string, why error) *errs.Error {
	return errs.New(errs.Damaged, "the manifest of a packing cannot be read").At(errs.Where{File: name}).Because(why).
		Try("fetch it again, or run the `stoker pack` that made it again with --overwrite; if it is of something else, move it away")
}
