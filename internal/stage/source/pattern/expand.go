// Package pattern turns what a user wrote for "these files" into names that exist:
// braces, *, ?, [] and **, folders of stores, lists of names. What stands for nothing is an
// error that names the nearest thing there is.
package pattern

import (
	"context"
	"errors"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Expand turns what a user wrote for "these files" into names that exist. Braces
// become lists as in bash and WebDataset ({000..099}, {a,b}, nested); then *, ?,
// [] and ** stand for what is stored, in byte order, without hidden files unless
// the dot is written. The order of patterns and braces is kept. A name that exists
// as it is written is taken as it is written.
//
// A pattern that stands for nothing, and a name that does not exist, is an error
// that names the nearest one that does. So is a command of WebDataset's (pipe:...), of
// which none is run, and a chained URL of fsspec's. A folder that cannot be listed is an
// error too: nobody knows what of the dataset is in it. "@NAME" stands for what the list
// NAME names, which has to be stored where the list is (see ExpandFrom).
func Expand(ctx context.Context, src source.Source, patterns []string) ([]string, error) {
	return ExpandFrom(ctx, src, patterns, nil)
}

func expand(ctx context.Context, src source.Source, patterns []string) ([]string, error) {
	x := expander{ctx: ctx, src: src}
	patterns = slices.Clone(patterns)
	for i, p := range patterns {
		patterns[i] = source.Bare(p)
	}
	var out []string
	if k, ok := src.(source.Keeper); ok {
		var err error
		if patterns, err = k.Keep(patterns); err != nil {
			return nil, err
		}
	}
	for _, p := range patterns {
		if err := x.bucketless(p); err != nil {
			return nil, err
		}
	}
	if err := x.look(patterns); err != nil {
		return nil, err
	}
	for _, p := range patterns {
		there, err := x.exists(p)
		if err != nil {
			return nil, err
		}
		if there {
			out = append(out, p)
			continue
		}
		if err := notNames(p); err != nil {
			return nil, err
		}
		names, err := source.Braces(p)
		if err != nil {
			return nil, err
		}
		if len(out)+len(names) > source.MaxNames {
			return nil, source.TooMany(p)
		}
		if out, err = x.appendFound(out, p, names); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// expander looks for names, for one Expand.
type expander struct {
	ctx   context.Context
	src   source.Source
	known map[string]bool // names that were looked at together, and whether they exist
}

// look looks at the names that patterns stand for, where each by itself would be a
// request: those of files are looked at when it is their turn.
func (x *expander) look(patterns []string) error {
	if _, ok := x.src.(source.Statter); !ok {
		return nil
	}
	var names []string
	for _, p := range patterns {
		if source.SchemeOf(p) == "" {
			continue
		}
		names = append(names, p)
		if more, err := source.Braces(p); err == nil && (len(more) > 1 || len(more) == 1 && more[0] != p) && len(names)+len(more) <= source.MaxNames {
			names = append(names, more...)
		}
	}
	if len(names) < 2 {
		return nil
	}
	x.known = make(map[string]bool, len(names))
	return source.Stats(x.ctx, x.src, names, func(i int, _ source.Info, err error) error {
		if there, err := x.says(names[i], err); err == nil {
			x.known[names[i]] = there
		} else if errs.CodeOf(err) == errs.Unreachable {
			return err // it has waited as long as it may; each name by itself would do so again
		}
		return nil // another error is for whoever needs the name
	})
}

func (x expander) appendFound(out []string, pattern string, names []string) ([]string, error) {
	missing, first := 0, ""
	var exist []string
	for _, name := range names {
		there, err := x.exists(name)
		switch {
		case err != nil:
			return nil, err
		case there:
			out, exist = append(out, name), append(exist, name)
		case hasGlob(name):
			found, err := x.glob(name)
			if err != nil {
				return nil, err
			}
			if len(found) == 0 {
				return nil, x.notFound(pattern, name, 0, len(names), nil)
			}
			out = append(out, found...)
		default:
			if missing++; missing == 1 {
				first = name
			}
		}
	}
	if missing > 0 {
		return nil, x.notFound(pattern, first, missing, len(names), exist)
	}
	return out, nil
}

// exists is Exists, but false for a pattern that cannot be looked at, which is
// hardly the name of a file, and for a link that leads nowhere.
func (x expander) exists(name string) (bool, error) {
	if there, known := x.known[name]; known {
		return there, nil
	}
	_, err := x.src.Stat(x.ctx, name)
	return x.says(name, err)
}

// says is whether a name exists, of which Stat says err.
func (x expander) says(name string, err error) (bool, error) {
	switch {
	case err == nil:
		return true, nil
	case x.ctx.Err() != nil:
		return false, x.ctx.Err()
	case errs.CodeOf(err) == errs.NotFound && !errors.Is(err, source.ErrNoStore):
		return false, nil
	case errs.CodeOf(err) == errs.Unreadable:
		return !strings.ContainsAny(name, "{*?["), nil
	case errs.CodeOf(err) == errs.Denied && strings.ContainsAny(name, "{*?["):
		return false, nil // a store that may not be listed denies names that are not there
	}
	return false, err
}

// notFound is the error for names of a pattern that do not exist. exist are those that do;
// they are not suggested.
func (x expander) notFound(pattern, name string, missing, of int, exist []string) error {
	shown := source.Shown(name)
	e := errs.New(errs.NotFound, "there is no %s", strconv.Quote(shown))
	switch {
	case hasGlob(name):
		e = errs.New(errs.NotFound, "nothing matches %s", strconv.Quote(shown))
	case of > 1:
		are := "are missing, the first is"
		if missing == 1 {
			are = "is missing:"
		}
		e = errs.New(errs.NotFound, "%d of the %d files of %s %s %s", missing, of, strconv.Quote(source.Shown(pattern)), are, strconv.Quote(shown))
	}
	_ = e.At(errs.Where{File: shown})
	return e.Try("%s", x.suggest(name, exist))
}

// Suggest says what there is in place of a name that does not exist: the nearest
// name in the deepest folder that does, or some of the names there are.
func Suggest(ctx context.Context, src source.Source, name string) string {
	return expander{ctx: ctx, src: src}.suggest(name, nil)
}

func (x expander) suggest(name string, except []string) string {
	ctx, src := x.ctx, x.src
	if url := source.Unslashed(name); url != "" {
		return "write two slashes after the scheme: " + strconv.Quote(source.Shown(url)) + " (a Path of Python drops one: pass a str)"
	}
	dir, rest := deepest(ctx, src, name)
	word, more, _ := strings.Cut(rest, "/")
	all, err := source.Names(ctx, src, dir)
	switch prefix, in := source.CutScheme(dir); {
	case err != nil && prefix != "" && in == "": // its buckets, or its servers
		return "check the path: there is no " + strconv.Quote(prefix+word) + ", or you have no permission to list it"
	case err != nil:
		return "check the path"
	}
	names := make([]string, 0, len(all))
	for _, it := range all {
		names = append(names, it.Base())
	}
	if len(names) == 0 {
		return "the folder " + strconv.Quote(dir) + " is empty"
	}
	near := nearPattern(word, names)
	if near == "" {
		near = errs.Nearest(word, slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			return slices.Contains(except, source.Join(dir, name))
		}))
	}
	if near != "" {
		near = source.Join(dir, near)
		if whole := source.Join(near, more); more != "" && x.any(whole) {
			near = whole
		}
		return "did you mean " + strconv.Quote(near) + "?"
	}
	few := names
	if len(few) > 5 {
		few = few[:5]
	}
	many := strconv.Itoa(len(names)) + " entries: "
	if len(names) == 1 {
		many = "one entry: "
	}
	return "the folder " + strconv.Quote(dir) + " has " + many + strings.Join(few, ", ") +
		map[bool]string{true: ", ..."}[len(few) < len(names)]
}

// any reports whether a name exists, or a pattern stands for anything.
func (x expander) any(name string) bool {
	if strings.Contains(name, "**") { // a long listing, for a hint
		return false
	}
	if hasGlob(name) {
		found, err := x.glob(name)
		return err == nil && len(found) > 0
	}
	_, err := x.src.Stat(x.ctx, name)
	return err == nil
}

// mostNear is how many names are compared with a pattern.
const mostNear = 1000

// nearPattern is the nearest to a pattern of those that differ from it only before its first
// wildcard, or only after its last one, and match one of the names; "" if none is near.
func nearPattern(word string, names []string) string {
	first, last := strings.IndexAny(word, "*?["), strings.LastIndexAny(word, "*?]")
	if first < 0 || last < first || word == "**" {
		return ""
	}
	before, wild, after := word[:first], word[first:last+1], word[last+1:]
	var all []string
	for _, name := range names[:min(len(names), mostNear)] {
		add := func(near string) {
			if ok, err := path.Match(strings.ReplaceAll(near, "[!", "[^"), name); err == nil && ok {
				all = append(all, near)
			}
		}
		if rest, ok := strings.CutPrefix(name, before); ok {
			for i := range len(rest) {
				add(before + wild + rest[i:])
			}
		}
		if rest, ok := strings.CutSuffix(name, after); ok {
			for i := range len(rest) {
				add(rest[:i+1] + wild + after)
			}
		}
	}
	return errs.Nearest(word, all)
}

// deepest cuts a path where it stops existing: the folder that exists, and the
// rest.
func deepest(ctx context.Context, src source.Source, name string) (dir, rest string) {
	name = source.Clean(name)
	for dir = source.Dir(name); ; dir = source.Dir(dir) {
		if dir == source.Dir(dir) || !strings.HasSuffix(dir, "/") && source.IsDir(ctx, src, dir) {
			rest = strings.TrimLeft(strings.TrimPrefix(name, dir), "/")
			return dir, rest
		}
	}
}
