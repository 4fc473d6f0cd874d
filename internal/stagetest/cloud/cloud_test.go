// Package cloud runs the suites of sources against a bucket of whoever has one: `make
// cloud-test URL=s3://bucket/prefix`. What they need is uploaded below the prefix by the
// store's own tool, and removed.
package cloud

import (
	"context"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
	"github.com/stoker-data/stoker/internal/stagetest"
	"github.com/stoker-data/stoker/internal/stagetest/formats"
)

func TestMain(m *testing.M) { os.Exit(stagetest.OwnCache(m)) }

// tool is how the store's own command writes. $file is a local file, $name an object's name,
// $bucket and $key its parts.
type tool struct{ put, remove []string }

var tools = map[string]tool{
	"s3": {
		put:    []string{"aws", "s3", "cp", "--only-show-errors", "$file", "$name"},
		remove: []string{"aws", "s3", "rm", "--only-show-errors", "--recursive", "$name"},
	},
	"gs": {
		put:    []string{"gcloud", "storage", "cp", "--quiet", "--no-user-output-enabled", "$file", "$name"},
		remove: []string{"gcloud", "storage", "rm", "--quiet", "--no-user-output-enabled", "--recursive", "$name"},
	},
	"az": { // of the account that AZURE_STORAGE_ACCOUNT names
		put:    []string{"az", "storage", "blob", "upload", "--only-show-errors", "--overwrite", "--output", "none", "--file", "$file", "--container-name", "$bucket", "--name", "$key"},
		remove: []string{"az", "storage", "blob", "delete-batch", "--only-show-errors", "--source", "$bucket", "--pattern", "$key/*"},
	},
}

func TestCloud(t *testing.T) {
	url := strings.TrimSuffix(os.Getenv("STOKER_CLOUD_URL"), "/")
	if url == "" {
		t.Skip("make cloud-test URL=... runs this: it needs a bucket")
	}
	tool, ok := tools[source.SchemeOf(url)]
	if !ok {
		t.Fatalf("%s: no command is known that writes there", url)
	}
	prefix := url + "/stoker-cloud-test-" + strings.ToLower(rand.Text()[:10])
	t.Cleanup(func() { run(t, tool.remove, prefix, nil) })
	put := func(name string, data []byte) { run(t, tool.put, name, data) }

	t.Run("source", func(t *testing.T) {
		stagetest.Source(t, func(t *testing.T, objects map[string][]byte) (source.Source, string, func(string, []byte)) {
			for name, data := range objects {
				put(prefix+"/suite/"+name, data)
			}
			net := remote.NewNet(remote.Options{})
			t.Cleanup(net.Close)
			all := dataset.Sources(net)
			of := all[slices.IndexFunc(all, func(s source.Scheme) bool { return s.Name == source.SchemeOf(url) })]
			src, err := of.Open(source.Access{Deadline: time.Minute})
			stagetest.Must(t, err)
			return src, prefix + "/suite/", func(name string, data []byte) { put(prefix+"/suite/"+name, data) }
		})
	})
	t.Run("formats", func(t *testing.T) {
		formats.Read(t, formats.Store{Prefix: prefix + "/formats", Put: func(path string, data []byte) { put(prefix+"/formats"+path, data) }})
	})
}

// run runs the store's command for an object.
func run(t *testing.T, command []string, name string, data []byte) {
	t.Helper()
	_, path, _ := strings.Cut(name, "://")
	bucket, key, _ := strings.Cut(path, "/")
	file := filepath.Join(t.TempDir(), "data")
	stagetest.Must(t, os.WriteFile(file, data, 0o600))
	args := slices.Clone(command)
	for i, a := range args {
		args[i] = strings.NewReplacer("$file", file, "$name", name, "$bucket", bucket, "$key", key).Replace(a)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
