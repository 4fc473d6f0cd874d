package pattern

import (
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// What *, ?, [] and ** of a pattern stand for: asked of a source part by part, or of a
// flat listing. Several slashes are one, but not in keys (see Clean).

func hasGlob(name string) bool { return strings.ContainsAny(name, "*?[") }

// glob returns what matches a pattern, sorted; nil for nothing, a malformed pattern
// included.
func (x expander) glob(pattern string) ([]string, error) {
	prefix, rest := source.CutScheme(pattern)
	if prefix == "" && strings.HasPrefix(rest, "/") {
		prefix, rest = "/", strings.TrimLeft(rest, "/")
	}
	found := []string{prefix}
	for plain := true; rest != "" && len(found) > 0; {
		var part string
		part, rest, _ = strings.Cut(rest, "/")
		if part == "" && !source.Keyed(pattern) {
			continue
		}
		if plain = plain && !hasGlob(part); plain {
			found[0] += part + "/" // listing it says whether it exists
			continue
		}
		all := part
		if rest != "" {
			all += "/" + rest
		}
		next := make([][]string, len(found))
		deep := part == "**" // takes what follows it too, where a listing is flat
		if deep {
			deep = source.Can(x.src, found[0]).Walk
		}
		err := source.Each(x.ctx, x.width(found[0]), len(found), func(i int) (err error) {
			if deep {
				next[i], err = x.flat(found[i], all)
				return err
			}
			next[i], err = x.step(nil, found[i], part, rest == "")
			return err
		})
		if err != nil {
			return nil, err
		}
		if found = slices.Concat(next...); deep {
			break
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// foldersAtOnce is how many folders of a store are listed at the same time.
const foldersAtOnce = 16

// width is how many folders like this one are listed at once.
func (x expander) width(dir string) int {
	if _, waits := source.LinkOf(x.src, dir); waits {
		return foldersAtOnce
	}
	return 1
}

// flat is what matches the rest of a pattern, which begins with **, in a flat listing of
// what is below dir.
func (x expander) flat(dir, rest string) (next []string, err error) {
	pattern := strings.Split(strings.TrimRight(strings.ReplaceAll(rest, "[!", "[^"), "/"), "/")
	if !source.Keyed(dir) {
		pattern = slices.DeleteFunc(pattern, func(p string) bool { return p == "" })
	}
	folders := pattern[len(pattern)-1] != "**" // may be what is meant
	var before []string
	for it, err := range source.Walk(x.ctx, x.src, dir) {
		switch {
		case errs.CodeOf(err) == errs.NotFound && !errors.Is(err, source.ErrNoStore):
			return next, nil
		case err != nil:
			return nil, err
		}
		parts := strings.Split(strings.TrimPrefix(it.Name, dir), "/")
		same := 0
		for same < min(len(parts), len(before))-1 && parts[same] == before[same] {
			same++
		}
		for n := same + 1; folders && n < len(parts); n++ {
			if parts[n-1] != "" && matches(pattern, parts[:n]) {
				next = append(next, dir+strings.Join(parts[:n], "/"))
			}
		}
		if before = parts; matches(pattern, parts) {
			next = append(next, it.Name)
		}
	}
	return next, x.ctx.Err()
}

// matches says whether the parts of a name are those of a pattern. What ** and other
// patterns stand for is not hidden, unless the dot is written.
func matches(pattern, parts []string) bool {
	for n, p := range pattern {
		switch {
		case p == "**" && n == len(pattern)-1:
			return len(parts) > 0 && !slices.ContainsFunc(parts, hidden)
		case p == "**":
			for i := range len(parts) + 1 {
				if i > 0 && hidden(parts[i-1]) {
					return false
				}
				if matches(pattern[n+1:], parts[i:]) {
					return true
				}
			}
			return false
		case len(parts) == 0 || !hasGlob(p) && p != parts[0]:
			return false
		case hasGlob(p):
			if ok, err := path.Match(p, parts[0]); err != nil || !ok || hidden(parts[0]) && p[0] != '.' {
				return false
			}
		}
		parts = parts[1:]
	}
	return len(parts) == 0
}

func hidden(name string) bool { return strings.HasPrefix(name, ".") }

// step appends what one part of a pattern matches in dir.
func (x expander) step(next []string, dir, part string, last bool) ([]string, error) {
	switch {
	case part == "**" && last:
		return x.below(next, dir, true)
	case part == "**":
		return x.below(append(next, dir), dir, false)
	case !hasGlob(part):
		there, err := source.Exists(x.ctx, x.src, dir+part)
		if there {
			next = append(next, closed(dir+part, last))
		}
		return next, err
	}
	entries, err := x.begin(dir, part[:strings.IndexAny(part, "*?[")])
	if err != nil {
		return nil, err
	}
	part = strings.ReplaceAll(part, "[!", "[^")
	for _, e := range entries {
		name := e.Base()
		ok, err := path.Match(part, name)
		if err != nil || !ok || name[0] == '.' && part[0] != '.' {
			continue
		}
		if last || e.Dir || e.Other == source.Symlink && source.IsDir(x.ctx, x.src, dir+name) {
			next = append(next, closed(dir+name, last))
		}
	}
	return next, x.ctx.Err()
}

// below appends the folders (or, for files, the files) at any depth below dir.
// Links to folders are not followed, so that it ends.
func (x expander) below(next []string, dir string, files bool) ([]string, error) {
	entries, err := x.entries(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := e.Base()
		switch {
		case name[0] == '.':
		case e.Dir:
			if !files {
				next = append(next, dir+name+"/")
			}
			if next, err = x.below(next, dir+name+"/", files); err != nil {
				return nil, err
			}
		case files:
			next = append(next, dir+name)
		}
	}
	return next, nil
}

// begin is what a folder holds that may begin with some letters, and more where the source
// lists whole folders only.
func (x expander) begin(dir, letters string) (all []source.Info, err error) {
	if letters == "" || !source.Can(x.src, dir+letters).Begin {
		return x.entries(dir)
	}
	for it, err := range source.Begin(x.ctx, x.src, dir+letters) {
		if err != nil {
			return nil, err
		}
		all = append(all, it)
	}
	return all, x.ctx.Err()
}

// entries returns what a folder holds; nothing if it is not a folder.
func (x expander) entries(dir string) ([]source.Info, error) {
	if err := x.ctx.Err(); err != nil {
		return nil, err
	}
	all, err := source.Names(x.ctx, x.src, dir)
	if errs.CodeOf(err) == errs.NotFound && !errors.Is(err, source.ErrNoStore) {
		return nil, nil
	}
	return all, err
}

// closed ends the name of a folder that is looked into with a slash.
func closed(name string, last bool) string {
	if last {
		return name
	}
	return name + "/"
}
