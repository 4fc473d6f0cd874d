package source

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// maxNames bounds what braces may become: {0..999999999} is a slip of the hand,
// and must not eat the memory.
const maxNames = 10_000_000

// Expand turns what a user wrote for "these files" into names that exist. Braces
// become lists as in bash and WebDataset ({000..099}, {a,b}, nested); then *, ?,
// [] and ** stand for what lies on disk, in byte order, without hidden files
// unless the dot is written. The order of patterns and braces is kept. A name
// that is there as it is written is taken as it is written. Names with a scheme
// (s3://...) have only their braces expanded.
//
// A pattern that stands for nothing, and a name that does not exist, is an error
// that names the nearest one that does. So is a command of WebDataset's (pipe:...):
// none is run.
func Expand(patterns []string) ([]string, error) {
	var out []string
	for _, p := range patterns {
		if command, ok := strings.CutPrefix(p, "pipe:"); ok && !exists(p) {
			return nil, piped(command)
		}
		if exists(p) {
			out = append(out, p)
			continue
		}
		names, err := Braces(p)
		if err != nil {
			return nil, err
		}
		if len(out)+len(names) > maxNames {
			return nil, tooMany(p)
		}
		if out, err = appendFound(out, p, names); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func appendFound(out []string, pattern string, names []string) ([]string, error) {
	missing, first := 0, ""
	for _, name := range names {
		switch {
		case strings.Contains(name, "://"):
			out = append(out, name)
		case hasGlob(name) && !exists(name):
			found := glob(name)
			if len(found) == 0 {
				return nil, notFound(pattern, name, 0, len(names))
			}
			out = append(out, found...)
		case exists(name):
			out = append(out, name)
		default:
			if missing++; missing == 1 {
				first = name
			}
		}
	}
	if missing > 0 {
		return nil, notFound(pattern, first, missing, len(names))
	}
	return out, nil
}

// exists is also true of what is there and can not be looked at.
func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil || errors.Is(err, fs.ErrPermission) && !strings.ContainsAny(name, "{*?[")
}

func notFound(pattern, name string, missing, of int) error {
	e := errs.New(errs.NotFound, "there is no %s", quote(name))
	switch {
	case hasGlob(name):
		e = errs.New(errs.NotFound, "nothing matches %s", quote(name))
	case of > 1:
		e = errs.New(errs.NotFound, "%d of the %d files of %s are missing, the first is %s", missing, of, quote(pattern), quote(name))
	}
	_ = e.At(place(name, -1))
	return e.Try("%s", Suggest(name))
}

func piped(command string) error {
	e := errs.New(errs.Config, "%s is a command, and stoker does not run commands: it reads local files by their paths", quote("pipe:"+command))
	if path, ok := strings.CutPrefix(strings.TrimSpace(command), "cat "); ok && !strings.ContainsAny(path, "|;&<>") {
		return e.Try("give the path: %s", quote(strings.TrimSpace(path)))
	}
	return e.Try("copy or mount the data, and give its path")
}

func quote(s string) string { return strconv.Quote(s) }

// Suggest says what there is in place of a path that does not exist: the nearest
// name in the deepest folder that does, or some of the names there are.
func Suggest(name string) string {
	dir, rest := deepest(name)
	word, more, _ := strings.Cut(rest, "/")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "check the path"
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if len(names) == 0 {
		return "the folder " + quote(dir) + " is empty"
	}
	if near := errs.Nearest(word, names); near != "" {
		near = filepath.Join(dir, near)
		if _, err := os.Stat(filepath.Join(near, more)); more != "" && err == nil && !hasGlob(more) {
			near = filepath.Join(near, more)
		}
		return "did you mean " + quote(near) + "?"
	}
	few := names
	if len(few) > 5 {
		few = few[:5]
	}
	return "the folder " + quote(dir) + " has " + strconv.Itoa(len(names)) + " entries: " + strings.Join(few, ", ") +
		map[bool]string{true: ", ..."}[len(few) < len(names)]
}

// deepest cuts a path where it stops existing: the folder that is there, and the
// rest.
func deepest(name string) (dir, rest string) {
	name = filepath.Clean(name)
	for dir = filepath.Dir(name); ; dir = filepath.Dir(dir) {
		if fi, err := os.Stat(dir); err == nil && fi.IsDir() || dir == "." || dir == "/" {
			rest = strings.TrimPrefix(strings.TrimPrefix(name, dir), "/")
			return dir, rest
		}
	}
}

func hasGlob(name string) bool { return strings.ContainsAny(name, "*?[") }

// glob is what matches a pattern, sorted; nil for nothing, a malformed pattern
// included.
func glob(pattern string) []string {
	found := []string{""}
	rest := pattern
	if strings.HasPrefix(rest, "/") {
		found, rest = []string{"/"}, strings.TrimLeft(rest, "/")
	}
	for rest != "" && len(found) > 0 {
		var part string
		part, rest, _ = strings.Cut(rest, "/")
		if part == "" {
			continue
		}
		var next []string
		for _, dir := range found {
			next = step(next, dir, part, rest == "")
		}
		found = next
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// step appends what one part of a pattern matches in dir.
func step(next []string, dir, part string, last bool) []string {
	switch {
	case part == "**" && last:
		return below(next, dir, true)
	case part == "**":
		return below(append(next, dir), dir, false)
	case !hasGlob(part):
		if _, err := os.Lstat(dir + part); err == nil {
			next = append(next, closed(dir+part, last))
		}
		return next
	}
	part = strings.ReplaceAll(part, "[!", "[^")
	for _, e := range entries(dir) {
		ok, err := filepath.Match(part, e.Name())
		if err != nil || !ok || e.Name()[0] == '.' && part[0] != '.' {
			continue
		}
		if last || isDir(dir, e) {
			next = append(next, closed(dir+e.Name(), last))
		}
	}
	return next
}

// below appends the folders (or, for files, the files) at any depth below dir.
// Links to folders are not followed, so that it ends.
func below(next []string, dir string, files bool) []string {
	for _, e := range entries(dir) {
		switch {
		case e.Name()[0] == '.':
		case e.IsDir():
			if !files {
				next = append(next, dir+e.Name()+"/")
			}
			next = below(next, dir+e.Name()+"/", files)
		case files:
			next = append(next, dir+e.Name())
		}
	}
	return next
}

func entries(dir string) []os.DirEntry {
	if dir == "" {
		dir = "."
	}
	e, _ := os.ReadDir(dir) // what can not be listed matches nothing
	return e
}

func isDir(dir string, e os.DirEntry) bool {
	if e.Type()&fs.ModeSymlink == 0 {
		return e.IsDir()
	}
	fi, err := os.Stat(dir + e.Name())
	return err == nil && fi.IsDir()
}

// closed ends the name of a folder that is looked into with a slash.
func closed(name string, last bool) string {
	if last {
		return name
	}
	return name + "/"
}

func tooMany(pattern string) error {
	return errs.New(errs.Config, "the braces of %s stand for more than %d names", quote(pattern), maxNames).
		Try("check the numbers in the braces")
}
