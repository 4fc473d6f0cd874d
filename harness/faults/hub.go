package faults

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stoker-data/stoker/harness/slownet"
	"github.com/stoker-data/stoker/internal/stagetest"
	"github.com/stoker-data/stoker/internal/stagetest/hubserver"
)

// repo is the private dataset of the Hub that the data are in.
const repo = "lab/photos"

// repository is the data of a run's Hub, and the tokens that may read them.
type repository struct {
	files map[string][]byte
	first string // the token that the file of `hf auth login` has at the beginning
	next  string // another
	file  string // of the token
}

func (l *Lab) repository(t *testing.T) *repository {
	t.Helper()
	h := &repository{files: map[string][]byte{}, first: "hf_" + planted("first"), next: "hf_" + planted("next")}
	l.Secrets["Hub's token"], l.Secrets["Hub's next token"], l.Secrets["signed URL"] = h.first, h.next, "X-Amz-Signature="
	stagetest.Must(t, fs.WalkDir(os.DirFS(l.local), ".", func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			h.files[name] = l.Bytes(name)
		}
		return err
	}))
	h.file = stagetest.Put(t, filepath.Join(t.TempDir(), "token"), []byte(h.first))
	t.Setenv("HF_TOKEN_PATH", h.file)
	t.Setenv("HF_TOKEN", "")
	t.Setenv("HF_HUB_OFFLINE", "")
	return h
}

// renew writes another token into the file, which all Hubs but this run's know, too.
func (r *Run) renew() {
	if err := os.WriteFile(r.Lab.hub.file, []byte(r.Lab.hub.next), 0o600); err != nil {
		panic(err)
	}
}

// startHub starts a Hub of the run's own, with two proxies: one before the Hub, one before
// its storage.
func (r *Run) startHub(opt slownet.Options) error {
	ends := &ending{TB: r.Lab.t}
	h := hubserver.New(ends)
	h.Page = 500
	files := map[string][]byte{}
	for name, data := range r.Lab.hub.files {
		if strings.HasPrefix(name, r.data+"/") {
			files[name] = data
		}
	}
	h.Commit(repo, "main", files)
	h.Private(repo)
	h.Allow(r.Lab.hub.first, repo)
	h.Allow(r.Lab.hub.next, repo)
	defer func() { r.closer = append(r.closer, ends.end) }()
	for _, at := range []*string{&h.URL, &h.Storage} {
		opt.Server = *at
		p, err := slownet.New(opt)
		if err != nil {
			return err
		}
		r.closer = append(r.closer, func() { _ = p.Close() })
		r.proxies = append(r.proxies, p)
		*at = p.URL()
	}
	r.Hub, r.Proxy = h, r.proxies[0]
	return nil
}

// ending is a test whose servers end with a run.
type ending struct {
	testing.TB
	mu  sync.Mutex
	all []func()
}

// Cleanup is testing.TB's.
func (e *ending) Cleanup(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, f)
}

func (e *ending) end() {
	for _, f := range e.all {
		f()
	}
}
