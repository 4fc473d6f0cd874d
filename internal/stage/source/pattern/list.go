package pattern

import (
	"bytes"
	"cmp"
	"context"
	"strconv"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// A list is a file of names, one per line: "@" and its name stand for what it names.
// That cannot be mistaken for data: a file of text is data where its own name is given.

// mostList is the longest list, in bytes.
const mostList = 256 << 20

// ExpandFrom is Expand for lists that may name more than what is stored where they are:
// a list somebody else wrote must not send the user's keys to any host, or have files of
// this machine read. elsewhere says which names of other hosts (buckets, containers; this
// machine) are allowed, as the user wrote them into dataset.origins; nil: none.
func ExpandFrom(ctx context.Context, src source.Source, patterns []string, elsewhere func(name string) bool) ([]string, error) {
	all := make([]string, 0, len(patterns))
	for _, p := range patterns {
		list, is := strings.CutPrefix(p, "@")
		if is {
			there, err := (expander{ctx: ctx, src: src}).exists(p)
			if err != nil {
				return nil, err
			}
			is = !there
		}
		if !is {
			all = append(all, p)
			continue
		}
		names, err := readList(ctx, src, source.Bare(list), elsewhere)
		if err != nil {
			return nil, err
		}
		all = append(all, names...)
	}
	return expand(ctx, src, all)
}

// readList returns what a list names: URLs, absolute paths in a local list, or names relative
// to the folder of the list, which may have braces and patterns. Empty lines and those that
// begin with "#" are left out.
func readList(ctx context.Context, src source.Source, list string, elsewhere func(name string) bool) (all []string, err error) {
	there, err := source.Exists(ctx, src, list)
	if err != nil {
		return nil, err
	}
	if !there {
		return nil, errs.New(errs.NotFound, "there is no list %s", strconv.Quote(list)).At(errs.Where{File: list}).Try("%s", Suggest(ctx, src, list))
	}
	text, err := source.ReadAll(ctx, src, list, mostList)
	if err != nil {
		return nil, err
	}
	number := 0
	for raw := range bytes.Lines(bytes.TrimPrefix(text, []byte("\uFEFF"))) {
		number++
		line := strings.TrimSpace(string(raw))
		if line == "" || line[0] == '#' {
			continue
		}
		bad := func(format string, a ...any) *errs.Error {
			return errs.New(errs.Config, "line %d of the list "+format, append([]any{number}, a...)...).At(errs.Where{File: list})
		}
		if at := strings.IndexFunc(line, func(r rune) bool { return r < ' ' || r == 0x7f }); at >= 0 {
			return nil, bad("has the control character %#02x: it is not a list of names", line[at]).Try("write one name per line, as text; without the @, the file itself is the data")
		}
		if line[0] == '@' {
			return nil, bad("names another list").Try("write the names of that list into this one, or give both")
		}
		name, err := listed(list, line)
		if err != nil {
			return nil, bad("has an absolute path, but the list is not a local file").Try("write a URL, or a name relative to the folder of the list")
		}
		names, err := source.Braces(name)
		if err != nil {
			return nil, errs.From(err).At(errs.Where{File: list})
		}
		for _, name := range names {
			if !source.SameStore(list, name) && (elsewhere == nil || !elsewhere(name)) {
				host := cmp.Or(source.StoreOf(name), "files on this machine")
				return nil, bad("names %s, but the list is stored elsewhere: a list may name only what is stored where it is", errs.Name(host)).
					Try("if you trust the list, add a prefix of these names to dataset.origins")
			}
		}
		if all = append(all, names...); len(all) > source.MaxNames {
			return nil, source.TooMany(list)
		}
	}
	if len(all) == 0 {
		return nil, errs.New(errs.Empty, "the list has no names").At(errs.Where{File: list}).Try("write one name per line; lines that begin with # are comments")
	}
	return all, nil
}

// listed is the name on a line of a list.
func listed(list, line string) (string, error) {
	switch {
	case source.SchemeOf(line) != "" || strings.HasPrefix(line, "pipe:"):
		return source.Bare(line), nil
	case line[0] != '/':
		if source.Keyed(list) {
			return source.Join(source.Dir(list), line), nil
		}
		return source.Clean(source.Dir(list) + "/" + line), nil
	case source.SchemeOf(list) != "":
		return "", errs.New(errs.Config, "an absolute path")
	}
	return line, nil
}
