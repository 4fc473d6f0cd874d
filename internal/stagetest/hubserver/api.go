package hubserver

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// routes are the paths of the API: kind, and what is cut out of them. Revisions are
// percent-encoded, so that they have no slash.
var routes = []struct {
	kind string
	path *regexp.Regexp
}{
	{"info", regexp.MustCompile(`^/api/datasets/((?:[^/]+/)?[^/]+)/revision/([^/]+)$`)},
	{"tree", regexp.MustCompile(`^/api/datasets/((?:[^/]+/)?[^/]+)/tree/([^/]+)(?:/(.*))?$`)},
	{"paths", regexp.MustCompile(`^/api/datasets/((?:[^/]+/)?[^/]+)/paths-info/([^/]+)$`)},
	{"refs", regexp.MustCompile(`^/api/datasets/((?:[^/]+/)?[^/]+)/refs$`)},
	{"resolve", regexp.MustCompile(`^/datasets/((?:[^/]+/)?[^/]+)/resolve/([^/]+)/(.+)$`)},
	{"cached", regexp.MustCompile(`^/api/resolve-cache/datasets/((?:[^/]+/)?[^/]+)/([0-9a-f]{40})/(.+)$`)},
	{"info", regexp.MustCompile(`^/api/datasets/((?:[^/]+/)?[^/]+)$`)},
	{"search", regexp.MustCompile(`^/api/datasets$`)},
}

func (s *Server) hub(w http.ResponseWriter, r *http.Request) {
	kind, parts := "", [4]string{}
	escaped := r.URL.EscapedPath()
	for _, route := range routes {
		if m := route.path.FindStringSubmatch(escaped); m != nil {
			kind = route.kind
			for i := range m {
				parts[i], _ = url.PathUnescape(m[i])
			}
			break
		}
	}
	s.mu.Lock()
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	s.seen = append(s.seen, Request{Kind: kind, Path: r.URL.RequestURI(), Token: token})
	spoil := s.Spoil
	s.mu.Unlock()
	if spoil != nil && spoil(w, r) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("X-Request-Id", "Root=1")
	allowed, known := s.users[token]
	id := parts[1]
	switch {
	case token != "" && !known:
		refuse(w, 401, "", "Invalid credentials in Authorization header")
		return
	case kind == "search":
		s.search(w, r.URL.Query(), allowed)
		return
	case kind == "":
		refuse(w, 404, "", "Sorry, we can't find the page you are looking for.")
		return
	case s.moved[id] != "":
		w.Header().Set("Location", strings.Replace(r.URL.RequestURI(), "/"+id, "/"+s.moved[id], 1))
		w.WriteHeader(http.StatusTemporaryRedirect)
		return
	}
	repo := s.repos[id]
	if repo == nil || repo.private && !allowed[id] {
		if token == "" {
			refuse(w, 401, "RepoNotFound", "Invalid username or password.")
		} else {
			refuse(w, 404, "RepoNotFound", "Repository not found")
		}
		return
	}
	if kind == "refs" {
		repo.list(w)
		return
	}
	commit := cmp.Or(repo.refs[cmp.Or(parts[2], "main")], parts[2])
	tree, ok := repo.commits[commit]
	if !ok {
		refuse(w, 404, "RevisionNotFound", "Invalid rev id: "+parts[2])
		return
	}
	switch kind {
	case "info":
		repo.info(w, id, commit, r.URL.Query())
	case "tree":
		s.tree(w, r, tree, parts[3])
	case "paths":
		paths(w, r, tree)
	case "resolve", "cached":
		if repo.gated && !allowed[id] {
			status := map[bool]int{true: 401, false: 403}[token == ""]
			refuse(w, status, "GatedRepo", "Access to dataset "+id+" is restricted.")
			return
		}
		s.resolve(w, r, tree, id, commit, parts[3], kind == "cached")
	}
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	if code != "" {
		w.Header().Set("X-Error-Code", code)
	}
	w.Header().Set("X-Error-Message", message)
	answer(w, status, map[string]string{"error": message})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func (r *repo) info(w http.ResponseWriter, id, commit string, q url.Values) {
	all := map[string]any{"_id": "1", "id": id, "sha": commit}
	if !q.Has("expand") {
		var siblings []map[string]string
		for _, name := range slices.Sorted(maps.Keys(r.commits[commit])) {
			siblings = append(siblings, map[string]string{"rfilename": name})
		}
		owner, _, _ := strings.Cut(id, "/")
		maps.Copy(all, map[string]any{
			"author": owner, "private": r.private, "gated": r.gated, "disabled": false, "downloads": 0, "likes": 0, "tags": []string{},
			"lastModified": "2026-01-01T00:00:00.000Z", "createdAt": "2026-01-01T00:00:00.000Z", "siblings": siblings, "cardData": map[string]any{},
		})
	}
	answer(w, 200, all)
}

func (r *repo) list(w http.ResponseWriter) {
	all := map[string][]map[string]string{"branches": {}, "converts": {}, "tags": {}}
	for _, ref := range slices.Sorted(maps.Keys(r.refs)) {
		kind, name, full := "branches", ref, "refs/heads/"+ref
		if rest, ok := strings.CutPrefix(ref, "refs/convert/"); ok {
			kind, name, full = "converts", rest, ref
		} else if strings.HasPrefix(ref, "refs/") {
			continue // those of pull requests are listed on request only
		}
		all[kind] = append(all[kind], map[string]string{"name": name, "ref": full, "targetCommit": r.refs[ref]})
	}
	answer(w, 200, all)
}

func (s *Server) search(w http.ResponseWriter, q url.Values, allowed map[string]bool) {
	found := []map[string]any{}
	limit, err := strconv.Atoi(q.Get("limit"))
	for _, id := range slices.Sorted(maps.Keys(s.repos)) {
		owner, _, _ := strings.Cut(id, "/")
		switch {
		case s.repos[id].private && !allowed[id], err == nil && len(found) == limit:
		case q.Get("author") != "" && q.Get("author") != owner:
		case strings.Contains(strings.ToLower(id), strings.ToLower(q.Get("search"))):
			found = append(found, map[string]any{"_id": "1", "id": id, "private": s.repos[id].private})
		}
	}
	answer(w, 200, found)
}

// tree lists folders before files, as the Hub does: not in the order of names.
func (s *Server) tree(w http.ResponseWriter, r *http.Request, tree map[string]blob, dir string) {
	q := r.URL.Query()
	prefix := strings.TrimSuffix(dir, "/") + "/"
	if dir == "" {
		prefix = ""
	}
	var folders, files []map[string]any
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		for i := range len(rest) {
			if f := prefix + rest[:i]; rest[i] == '/' && !seen[f] && (q.Get("recursive") == "true" || !strings.Contains(rest[:i], "/")) {
				seen[f] = true
				folders = append(folders, map[string]any{"type": "directory", "oid": gitHash([]byte(f)), "size": 0, "path": f})
			}
		}
		if q.Get("recursive") == "true" || !strings.Contains(rest, "/") {
			files = append(files, tree[name].entry(name))
		}
	}
	all := append(folders, files...)
	if len(all) == 0 {
		if b, ok := tree[dir]; ok {
			answer(w, 200, []any{b.entry(dir)})
			return
		}
		if dir != "" || len(tree) > 0 {
			refuse(w, 404, "EntryNotFound", dir+" does not exist")
			return
		}
	}
	size := 1000
	if q.Get("expand") == "true" {
		size = 50
	}
	size = cmp.Or(s.Page, size)
	from, _ := strconv.Atoi(strings.TrimPrefix(q.Get("cursor"), "at:"))
	all = all[min(from, len(all)):]
	if len(all) > size {
		q.Set("cursor", "at:"+strconv.Itoa(from+size))
		w.Header().Set("Link", fmt.Sprintf(`<%s%s?%s>; rel="next"`, s.URL, r.URL.EscapedPath(), q.Encode()))
		all = all[:size]
	}
	answer(w, 200, all)
}

func (b blob) entry(name string) map[string]any {
	e := map[string]any{"type": "file", "oid": b.oid, "size": len(b.data), "path": name}
	if b.sha256 != "" {
		e["lfs"] = map[string]any{"oid": b.sha256, "size": len(b.data), "pointerSize": 134}
	}
	return e
}

// paths answers what is there of some paths; the others are left out.
func paths(w http.ResponseWriter, r *http.Request, tree map[string]blob) {
	_ = r.ParseForm()
	found := []any{}
	for _, name := range r.Form["paths"] {
		name = strings.Trim(path.Clean("/"+name), "/")
		if b, ok := tree[name]; ok {
			found = append(found, b.entry(name))
			continue
		}
		for other := range tree {
			if strings.HasPrefix(other, name+"/") {
				found = append(found, map[string]any{"type": "directory", "oid": gitHash([]byte(name)), "size": 0, "path": name})
				break
			}
		}
	}
	answer(w, 200, found)
}

// resolve answers with a file, or with where it is: in the storage, or, of a file of Git,
// at another path of the Hub's.
func (s *Server) resolve(w http.ResponseWriter, r *http.Request, tree map[string]blob, id, commit, name string, cached bool) {
	h := w.Header()
	h.Set("X-Repo-Commit", commit)
	h.Set("Accept-Ranges", "bytes")
	b, ok := tree[name]
	switch {
	case !ok:
		refuse(w, 404, "EntryNotFound", "Entry not found")
	case b.sha256 == "" && !cached:
		h.Set("Location", (&url.URL{Path: "/api/resolve-cache/datasets/" + id + "/" + commit + "/" + name}).EscapedPath())
		w.WriteHeader(http.StatusTemporaryRedirect)
	case b.sha256 == "":
		h.Set("ETag", `"`+b.oid+`"`)
		h.Set("Content-Type", "text/plain; charset=utf-8")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b.data))
	default:
		h.Set("X-Linked-Size", strconv.Itoa(len(b.data)))
		h.Set("X-Linked-Etag", `"`+b.sha256+`"`)
		h.Set("ETag", `"`+b.oid+`"`)
		h.Set("Location", s.signed(b.sha256))
		w.WriteHeader(http.StatusFound)
		fmt.Fprint(w, "Found. Redirecting to the storage")
	}
}
