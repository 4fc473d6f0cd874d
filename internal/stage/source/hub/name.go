package hub

import (
	"net/url"
	"regexp"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// ref is a name, cut into its parts.
type ref struct {
	root     string // what names of the repository begin with, as the user writes it; no slash at its end
	repo     string // "owner/name", or "name" of the few that have no owner
	revision string // branch, tag, commit or refs/...; "main" if the name has none
	path     string // in the repository; "": its root
}

// key is what a repository at a revision is known by.
func (r ref) key() string { return r.repo + "@" + r.revision }

// part is what owners and repositories may be called.
var part = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// special are revisions that are written with their slashes, as huggingface_hub does; in
// all others they are percent-encoded.
var special = regexp.MustCompile(`^refs/(convert/[A-Za-z0-9_]+|pr/[0-9]+)(/|$)`)

// cut returns what a name may mean: first a file of owner/name, then one of a repository
// without an owner. An "@" says where the repository ends, and leaves one of them.
func cut(name string) ([]ref, error) {
	rest := strings.Trim(name[strings.Index(name, "://")+len("://"):], "/")
	kind, rest, _ := strings.Cut(rest, "/")
	switch {
	case kind != "datasets" && kind != "":
		return nil, errs.New(errs.Config, "stoker reads only datasets from the Hub; their names begin with hf://datasets/").
			At(at(name)).Try("write hf://datasets/OWNER/NAME/PATH")
	case rest == "":
		return nil, errs.New(errs.NotFound, "this is not the name of a dataset on the Hub").At(at(name)).Try("write hf://datasets/OWNER/NAME, or a file of it")
	}
	first, more, deeper := strings.Cut(rest, "/")
	var all []ref
	if deeper && !strings.Contains(first, "@") {
		if r, ok := cutAfter(name, rest, len(first)+1); ok {
			all = append(all, r)
		}
		if second, _, _ := strings.Cut(more, "/"); strings.Contains(second, "@") && len(all) > 0 {
			return all, nil
		}
	}
	if r, ok := cutAfter(name, rest, 0); ok {
		all = append(all, r)
	}
	if len(all) == 0 {
		return nil, errs.New(errs.NotFound, "this is not the name of a dataset on the Hub").At(at(name)).
			Try("write hf://datasets/OWNER/NAME[@REVISION]/PATH; names have only letters, digits and - _ .")
	}
	return all, nil
}

// cutAfter cuts rest, which is name after "datasets/", where the repository's own name
// begins at start.
func cutAfter(name, rest string, start int) (ref, bool) {
	end := start + strings.IndexByte(rest[start:]+"/", '/')
	r := ref{repo: rest[:end], revision: "main"}
	if at := strings.IndexByte(rest[start:end], '@'); at >= 0 {
		at += start
		r.repo = rest[:at]
		if m := special.FindStringSubmatch(rest[at+1:]); m != nil {
			r.revision = "refs/" + m[1]
			end = at + 1 + len(r.revision)
		} else {
			r.revision, _ = url.PathUnescape(rest[at+1 : end]) // "" if that is not possible
		}
	}
	owner, own, ok := strings.Cut(r.repo, "/")
	if !part.MatchString(owner) || ok && !part.MatchString(own) || r.revision == "" {
		return ref{}, false
	}
	r.path = strings.TrimPrefix(rest[end:], "/")
	whole := strings.TrimRight(name, "/")
	r.root = strings.TrimSuffix(strings.TrimSuffix(whole, r.path), "/")
	return r, true
}

// escaped is a path of a repository in a URL: names are data.
func escaped(path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return strings.Join(parts, "/")
}

func at(name string) errs.Where { return errs.Where{File: strings.Clone(name)} }
