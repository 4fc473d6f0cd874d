// Package hubserver is a server that answers as the Hugging Face Hub does, of what its
// datasets are read by: information, revisions, trees, "resolve", and a storage at another
// address to which files of Git LFS are redirected with signed URLs. The real
// huggingface_hub and datasets must read from it (TestRealClients of source/hub).
package hubserver

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Server is a Hub of a test's own.
type Server struct {
	URL     string // HF_ENDPOINT
	Storage string // where files of Git LFS are, and no token may go

	// LFS says which files are in the storage; nil: all but those of text.
	LFS func(path string) bool
	// Page is how many entries a page of a tree has; 0: 1000, and 50 with "expand".
	Page int
	// Life is how long a signed URL is good; 0: an hour.
	Life time.Duration
	// Spoil may answer a request in the server's place, which it then says: of the Hub, or
	// of the storage. It may also change the headers of an answer to come. nil: it does not.
	Spoil func(w http.ResponseWriter, r *http.Request) bool

	t     testing.TB
	mu    sync.Mutex
	repos map[string]*repo
	moved map[string]string          // names that repositories had before
	users map[string]map[string]bool // token: private and gated repositories that it may read
	blobs map[string][]byte          // the storage, by SHA-256
	key   int                        // of signatures: raised by Expire
	seen  []Request
}

// Request is one that was made.
type Request struct {
	Storage bool   // of the storage
	Kind    string // "info", "tree", "resolve", "cached", "paths", "refs", "search"; "" of the storage
	Path    string // with its query, but for the storage
	Token   string
}

type repo struct {
	private, gated bool
	refs           map[string]string          // branches, tags and refs/...: to commits
	commits        map[string]map[string]blob // by path
}

type blob struct {
	data   []byte
	oid    string // as Git hashes the file, or the pointer to it
	sha256 string // of a file of LFS; "": it is none
}

// New starts a server that ends with the test.
func New(t testing.TB) *Server {
	s := &Server{t: t, repos: map[string]*repo{}, moved: map[string]string{}, users: map[string]map[string]bool{}, blobs: map[string][]byte{}}
	hub := httptest.NewServer(http.HandlerFunc(s.hub))
	storage := httptest.NewServer(http.HandlerFunc(s.storage))
	s.URL, s.Storage = hub.URL, storage.URL
	t.Cleanup(func() { hub.Close(); storage.Close() })
	return s
}

// Commit adds files to a branch of a repository (a nil one is removed), makes both if they
// are not there, and returns the commit. A branch may be refs/convert/parquet.
func (s *Server) Commit(id, branch string, files map[string][]byte) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.repos[id]
	if r == nil {
		r = &repo{refs: map[string]string{}, commits: map[string]map[string]blob{}}
		s.repos[id] = r
	}
	parent := r.refs[branch]
	tree := maps.Clone(r.commits[parent])
	if tree == nil {
		tree = map[string]blob{".gitattributes": s.blob(".gitattributes", []byte("*.parquet filter=lfs diff=lfs merge=lfs -text\n"))}
	}
	for name, data := range files {
		if tree[name] = s.blob(name, data); data == nil {
			delete(tree, name)
		}
	}
	h := sha1.New()
	fmt.Fprintf(h, "%s %s %d", id, parent, len(r.commits))
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		fmt.Fprintf(h, "%s %s\n", name, tree[name].oid)
	}
	commit := hex.EncodeToString(h.Sum(nil))
	r.commits[commit] = tree
	r.refs[branch] = commit
	return commit
}

func (s *Server) blob(name string, data []byte) blob {
	lfs := s.LFS
	if lfs == nil {
		lfs = func(name string) bool {
			return !slices.Contains([]string{"", ".md", ".json", ".jsonl", ".txt", ".csv", ".yaml", ".gitattributes"}, path.Ext(name))
		}
	}
	if !lfs(name) {
		return blob{data: data, oid: gitHash(data)}
	}
	sum := sha256.Sum256(data)
	id := hex.EncodeToString(sum[:])
	s.blobs[id] = data
	return blob{data: data, sha256: id, oid: gitHash(fmt.Appendf(nil, "version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n", id, len(data)))}
}

func gitHash(data []byte) string {
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", len(data))
	h.Write(data)
	return hex.EncodeToString(h.Sum(nil))
}

// Private hides a repository from all but the tokens that Allow names.
func (s *Server) Private(id string) { s.locked(func() { s.repos[id].private = true }) }

// Gate shows a repository to everybody, and its files to the tokens that Allow names.
func (s *Server) Gate(id string) { s.locked(func() { s.repos[id].gated = true }) }

// Allow makes a token known, and lets it read these repositories.
func (s *Server) Allow(token string, ids ...string) {
	s.locked(func() {
		if s.users[token] == nil {
			s.users[token] = map[string]bool{}
		}
		for _, id := range ids {
			s.users[token][id] = true
		}
	})
}

// Forget makes a token unknown.
func (s *Server) Forget(token string) { s.locked(func() { delete(s.users, token) }) }

// Rename leaves a redirect from the old name of a repository.
func (s *Server) Rename(from, to string) {
	s.locked(func() {
		s.repos[to], s.moved[from] = s.repos[from], to
		delete(s.repos, from)
	})
}

// Expire ends all URLs that were signed.
func (s *Server) Expire() { s.locked(func() { s.key++ }) }

// Corrupt changes what the storage has of a file, and keeps its hash.
func (s *Server) Corrupt(data []byte) {
	sum := sha256.Sum256(data)
	s.locked(func() {
		bad := slices.Clone(data)
		bad[len(bad)/2] ^= 1
		s.blobs[hex.EncodeToString(sum[:])] = bad
	})
}

func (s *Server) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// Seen returns the requests since it was last called.
func (s *Server) Seen() (all []Request) {
	s.locked(func() { all, s.seen = s.seen, nil })
	return all
}

// Count is how many of these requests are of a kind; "storage" counts those of the storage.
func Count(all []Request, kind string) (n int) {
	for _, r := range all {
		if r.Storage && kind == "storage" || !r.Storage && r.Kind == kind {
			n++
		}
	}
	return n
}

// storage answers as a store of objects does to signed URLs.
func (s *Server) storage(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.seen = append(s.seen, Request{Storage: true, Path: r.URL.Path, Token: r.Header.Get("Authorization")})
	if r.Header.Get("Authorization") != "" {
		s.t.Errorf("a token was sent to the storage, for %s", r.URL.Path)
	}
	id := strings.TrimPrefix(r.URL.Path, "/xet-bridge/")
	data, ok := s.blobs[id]
	q := r.URL.Query()
	made, err := time.Parse("20060102T150405Z", q.Get("X-Amz-Date"))
	life, _ := strconv.Atoi(q.Get("X-Amz-Expires"))
	good := err == nil && q.Get("X-Amz-Signature") == s.sign(id, q.Get("X-Amz-Date"), life) && time.Since(made) < time.Duration(life+1)*time.Second
	spoil := s.Spoil
	s.mu.Unlock()
	switch {
	case spoil != nil && spoil(w, r):
	case !good:
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, "<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>")
	case !ok:
		http.Error(w, "<Error><Code>NoSuchKey</Code></Error>", http.StatusNotFound)
	default:
		w.Header().Set("ETag", `"`+id[:32]+`"`) // of the storage's own
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(string(data)))
	}
}

// sign is called with s.mu held.
func (s *Server) sign(id, date string, life int) string {
	h := hmac.New(sha256.New, fmt.Appendf(nil, "key %d", s.key))
	fmt.Fprintf(h, "%s %s %d", id, date, life)
	return hex.EncodeToString(h.Sum(nil))
}

func (s *Server) signed(id string) string {
	life := int(cmp.Or(s.Life, time.Hour) / time.Second)
	date := time.Now().UTC().Format("20060102T150405Z")
	return fmt.Sprintf("%s/xet-bridge/%s?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Date=%s&X-Amz-Expires=%d&X-Amz-Signature=%s", s.Storage, id, date, life, s.sign(id, date, life))
}
