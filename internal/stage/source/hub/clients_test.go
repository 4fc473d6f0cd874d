package hub_test

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
	"github.com/stoker-data/stoker/internal/stagetest/hubserver"
	"github.com/stoker-data/stoker/internal/stagetest/servers"
)

// readByClients is what testdata/clients.py says of a repository.
type readByClients struct {
	Files, Found, Globbed []string
	Tree                  map[string][2]any
	Revision              string
	Downloaded, Opened    map[string]string // in hex
	Errors                map[string]string
	Loaded, Streamed      [][3]any
}

// huggingface_hub and datasets read from the tests' server what was stored there, and
// stoker what they read: the server is right, and so is the source.
func TestRealClients(t *testing.T) {
	python := servers.Hub(t)
	s := serve(t)
	s.Page = 2
	// What is asked of anything but the server comes here, and is refused.
	var strayed atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.Host, "datasets-server.127.0.0.1:") { // of the endpoint, which has none
			strayed.Add(1)
			t.Errorf("a request for %s", r.Host)
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	defer proxy.Close()
	home := t.TempDir()
	run := func(args ...string) []byte {
		t.Helper()
		cmd := exec.Command(python, append([]string{"testdata/clients.py"}, args...)...)
		cmd.Env = append(os.Environ(), "HF_HOME="+home, "HF_TOKEN_PATH="+filepath.Join(home, "token"), "HF_ENDPOINT="+s.URL, "HF_HUB_DISABLE_TELEMETRY=1", "HF_HUB_DISABLE_PROGRESS_BARS=1", "HF_HUB_DISABLE_XET=1", "HF_UPDATE_DOWNLOAD_COUNTS=0",
			"HTTP_PROXY="+proxy.URL, "HTTPS_PROXY="+proxy.URL, "http_proxy="+proxy.URL, "https_proxy="+proxy.URL, "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1")
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, said.String())
		}
		return out
	}
	made := t.TempDir()
	run("make", made)
	all := map[string][]byte{"README.md": []byte("---\nlicense: mit\n---\n# Words\n"), "notes/more.txt": []byte("and so on")}
	shards, err := filepath.Glob(filepath.Join(made, "*.parquet"))
	stagetest.Must(t, err)
	for _, name := range shards {
		all["data/"+filepath.Base(name)], err = os.ReadFile(name)
		stagetest.Must(t, err)
	}
	s.Commit("owner/words", "main", all)
	s.Commit("owner/words", "refs/pr/1", map[string][]byte{"README.md": []byte("of a pull request")})
	s.Commit("owner/gated", "main", map[string][]byte{"x.bin": []byte("gated")})
	s.Gate("owner/gated")
	s.Allow("hf_somebody")

	var got readByClients
	stagetest.Must(t, json.Unmarshal(run("read", "owner/words"), &got))
	all[".gitattributes"] = []byte("*.parquet filter=lfs diff=lfs merge=lfs -text\n")
	names := slices.Sorted(maps.Keys(all))
	src := open(t, source.Access{})
	tree := map[string][2]any{}
	for it, err := range source.Walk(t.Context(), src, "hf://datasets/owner/words") {
		stagetest.Must(t, err)
		tree[strings.TrimPrefix(it.Name, "hf://datasets/owner/words/")] = [2]any{float64(it.Size), it.Version}
	}
	for what, d := range map[string]string{
		"list_repo_files":   cmp.Diff(names, got.Files),
		"HfFileSystem.find": cmp.Diff(names, got.Found),
		"HfFileSystem.glob": cmp.Diff([]string{"data/train-00000-of-00003.parquet", "data/train-00001-of-00003.parquet", "data/train-00002-of-00003.parquet"}, got.Globbed),
		"list_repo_tree":    cmp.Diff(tree, got.Tree),
		"errors": cmp.Diff(map[string]string{
			"no repository": "RepositoryNotFoundError", "no revision": "RevisionNotFoundError", "no file": "RemoteEntryNotFoundError", "gated": "GatedRepoError", "no token": "GatedRepoError",
		}, got.Errors),
		"load_dataset, streaming": cmp.Diff(got.Loaded, got.Streamed),
	} {
		if d != "" {
			t.Errorf("%s: %s", what, d)
		}
	}
	if got.Revision != "of a pull request" {
		t.Errorf("README.md at refs/pr/1: %q", got.Revision)
	}
	for name, data := range all {
		if got.Downloaded[name] != hex.EncodeToString(data) || got.Opened[name] != hex.EncodeToString(data[3:]) {
			t.Errorf("%s: other bytes were downloaded, or read in place", name)
		}
		if read(t, src, "hf://datasets/owner/words/"+name) != string(data) {
			t.Errorf("%s: stoker reads other bytes", name)
		}
	}
	if rows := rowsOf(t, "hf://datasets/owner/words"); len(rows) != 30 || !cmp.Equal(rows, got.Loaded) {
		t.Errorf("stoker reads other rows than load_dataset: %s", cmp.Diff(got.Loaded, rows))
	}
	if n := hubserver.Count(s.Seen(), "storage"); n == 0 || strayed.Load() > 0 {
		t.Errorf("%d requests of the storage, %d of others", n, strayed.Load())
	}
}

// rowsOf are the rows of a dataset as clients.py gives them.
func rowsOf(t *testing.T, path string) (rows [][3]any) {
	t.Helper()
	c, err := dataset.Open(t.Context(), spec.Spec{Dataset: spec.Dataset{Path: spec.Paths{path}}}, dataset.Options{Sources: sources(t), Stored: true})
	stagetest.Must(t, err)
	defer c.Close()
	r := format.NewReader(c.Dataset(), c.Source())
	var sample format.Sample
	for id := range c.Len() {
		stagetest.Must(t, r.Read(t.Context(), id, nil, &sample))
		var row [3]any
		for _, f := range sample.Fields {
			switch f.Name {
			case "n":
				row[0] = float64(binary.LittleEndian.Uint64(f.Data))
			case "text":
				row[1] = string(f.Data)
			case "blob":
				row[2] = hex.EncodeToString(f.Data)
			}
		}
		rows = append(rows, row)
	}
	return rows
}
