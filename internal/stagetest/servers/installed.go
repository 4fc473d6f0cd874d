package servers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The names of tools/servers.sh.
const (
	versitygw = "versitygw"
	nginx     = "nginx"
	fakeGCS   = "fake-gcs-server"
	azurite   = "azurite"
	moto      = "moto"
	hub       = "hub"
)

// entry is the file of each server that is run, below build/servers.
var entry = map[string]string{
	versitygw: "versitygw",
	nginx:     "nginx",
	fakeGCS:   "fake-gcs-server",
	azurite:   "npm/node_modules/azurite/dist/src/blob/main.js",
	moto:      "moto/bin/python",
	hub:       "hub/bin/python",
}

// installed is the path of what tools/servers.sh has made. Without it, the test is skipped;
// only `make test-remote` runs tests of the servers that `make test` does not install.
//
// It does not call t.Helper: skips.txt declares the skips of this file, whoever calls it.
func installed(t testing.TB, name string) string {
	if name != versitygw && name != nginx && os.Getenv("STOKER_SERVERS") != "all" {
		t.Skipf("make test-remote runs this: it needs %s", name)
	}
	path := filepath.Join(top(t), "build/servers", entry[name])
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is not installed: tools/servers.sh", name)
	}
	return path
}

// top is the folder of the repository, for tests of any package and module in it.
func top(t testing.TB) string {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		mod, _ := os.ReadFile(filepath.Join(dir, "go.mod"))
		if strings.HasPrefix(string(mod), "module github.com/stoker-data/stoker\n") {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("this test is not below the folder of the repository")
		}
		dir = up
	}
}

// Hub is the Python that has huggingface_hub and datasets, the clients that a server of the
// Hub is held right by.
func Hub(t testing.TB) (python string) { return installed(t, hub) }
