package pattern_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/mux"
	"github.com/stoker-data/stoker/internal/stage/source/pattern"
	"github.com/stoker-data/stoker/internal/stagetest"
)

func tree(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, n := range names {
		if strings.HasSuffix(n, "/") {
			if err := os.MkdirAll(filepath.Join(dir, n), 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		stagetest.Put(t, filepath.Join(dir, n), nil)
	}
	t.Chdir(dir)
	return dir
}

func TestExpand(t *testing.T) {
	dir := tree(t, "train-000.tar", "train-001.tar", "train-002.tar", "val.tar", ".hidden.tar", "sub/a.tar", "sub/deep/b.tar", "sub/.h/c.tar",
		"[odd].tar", "{0..1}.tar", "other/a.tar", "nodots")
	if err := os.Symlink("..", "sub/up"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ patterns, want string }{
		{"train-{000..002}.tar", "train-000.tar train-001.tar train-002.tar"},
		{"train-{002,000}.tar val.tar", "train-002.tar train-000.tar val.tar"},
		{"val.tar train-*.tar", "val.tar train-000.tar train-001.tar train-002.tar"},
		{"*.tar", "[odd].tar train-000.tar train-001.tar train-002.tar val.tar {0..1}.tar"},
		{".*.tar", ".hidden.tar"},
		{"train-00[!1].tar", "train-000.tar train-002.tar"},
		{"train-00[01].tar", "train-000.tar train-001.tar"},
		{"[odd].tar", "[odd].tar"},
		{"{0..1}.tar", "{0..1}.tar"},
		{"**/*.tar", "[odd].tar other/a.tar sub/a.tar sub/deep/b.tar train-000.tar train-001.tar train-002.tar val.tar {0..1}.tar"},
		{"sub/**", "sub/a.tar sub/deep/b.tar sub/up"},
		{"{sub,other}/*.tar", "sub/a.tar other/a.tar"},
		{"s?b/a.tar", "sub/a.tar"},
		{"sub", "sub"},
		{dir + "/v*.tar", dir + "/val.tar"},
		{"val.tar val.tar", "val.tar val.tar"},
	} {
		got, err := pattern.Expand(t.Context(), source.NewFile(), strings.Fields(c.patterns))
		if err != nil {
			t.Errorf("%s: %v", c.patterns, err)
		} else if diff := cmp.Diff(strings.Fields(c.want), got); diff != "" {
			t.Errorf("%s: %s", c.patterns, diff)
		}
	}
}

func TestExpandTeaches(t *testing.T) {
	tree(t, "train-000.tar", "train-001.tar", "val/x.tar", "empty/")
	for _, c := range []struct{ given, what, hint string }{
		{"train-{000..003}.tar", `2 of the 4 files of "train-{000..003}.tar" are missing, the first is "train-002.tar"`, `the folder "." has 4 entries: empty, train-000.tar, train-001.tar, val`},
		{"train-{000,01}.tar", `1 of the 2 files of "train-{000,01}.tar" is missing: "train-01.tar"`, `did you mean "train-001.tar"?`},
		{"train-*.tra", `nothing matches "train-*.tra"`, `did you mean "train-*.tar"?`},
		{"tran-00?.tar", `nothing matches "tran-00?.tar"`, `did you mean "train-00?.tar"?`},
		{"zzzz-*.bin", `nothing matches "zzzz-*.bin"`, `the folder "." has 4 entries: empty, train-000.tar, train-001.tar, val`},
		{"tarin-000.tar", `there is no "tarin-000.tar"`, `did you mean "train-000.tar"?`},
		{"s3:/bucket/x.tar", `there is no "s3:/bucket/x.tar"`, `write two slashes after the scheme: "s3://bucket/x.tar" (a Path of Python drops one: pass a str)`},
		{"/home/hf:/datasets/a/b", `there is no "/home/hf:/datasets/a/b"`, `write two slashes after the scheme: "hf://datasets/a/b" (a Path of Python drops one: pass a str)`},
		{"https:/me:word@h/x?X-Amz-Signature=0a", `nothing matches "https:/h/x"`, `write two slashes after the scheme: "https://h/x" (a Path of Python drops one: pass a str)`},
		{"vla/x.tar", `there is no "vla/x.tar"`, `did you mean "val/x.tar"?`},
		{"Val/*.tar", `nothing matches "Val/*.tar"`, `did you mean "val/*.tar"?`},
		{"nowhere/at/all.tar", `there is no "nowhere/at/all.tar"`, `the folder "." has 4 entries: empty, train-000.tar, train-001.tar, val`},
		{"empty/x.tar", `there is no "empty/x.tar"`, `the folder "empty" is empty`},
		{"empty/*", `nothing matches "empty/*"`, `the folder "empty" is empty`},
		{"train-000.tar/x", `there is no "train-000.tar/x"`, `did you mean "train-000.tar"?`},
		{"val/[x.tar", `nothing matches "val/[x.tar"`, `did you mean "val/x.tar"?`},
	} {
		_, err := pattern.Expand(t.Context(), source.NewFile(), []string{c.given})
		e := errs.From(err)
		if err == nil || e.Code != errs.NotFound || e.What != c.what || e.Hint != c.hint {
			t.Errorf("%s:\n got %s | %s\nwant %s | %s", c.given, e.What, e.Hint, c.what, c.hint)
		}
	}
}

// A command of WebDataset's is named as one, whatever braces and spaces are in it, and
// so is a chain of fsspec's; the hint is what to write. No secret in them is repeated.
func TestWhatOtherToolsTakeAsNames(t *testing.T) {
	for given, want := range map[string]string{
		"pipe:cat /data/x-{0..3}.tar":                                     `give the path: "/data/x-{0..3}.tar"`,
		"pipe:cat a.tar.gz | gzip -d":                                     `give the path: "a.tar.gz"`,
		"pipe:cat a.tar | gzip -d":                                        "copy or mount",
		"pipe:cat a.tar b.tar":                                            "copy or mount",
		"pipe:":                                                           "copy or mount",
		"pipe:aws s3 cp s3://b/{0..3}.tar -":                              `give the URL: "s3://b/{0..3}.tar"`,
		"pipe:aws s3 cp --quiet 's3://b/a b.tar' - || true":               `give the URL: "s3://b/a b.tar"`,
		"pipe:aws --endpoint-url http://h:9000 s3 cp s3://b/k -":          `give the URL: "s3://b/k", with endpoint_url in dataset.storage: http://h:9000`,
		"pipe:aws s3 cp --profile=me --region eu s3://b/k -":              `"s3://b/k", with profile in dataset.storage: me, with region in dataset.storage: eu`,
		"pipe:aws s3 cp --no-sign-request s3://b/k -":                     `with anonymous in dataset.storage: true`,
		"pipe:s3cmd get --no-progress s3://b/k -":                         `give the URL: "s3://b/k"`,
		"pipe:s5cmd cat s3://b/k":                                         `give the URL: "s3://b/k"`,
		"pipe:curl -s -L https://h/x-{000..099}.tar || true":              `give the URL: "https://h/x-{000..099}.tar"`,
		"pipe:curl -s -L -H 'Authorization: Bearer HUSH' https://h/x.tar": `"https://h/x.tar"; export the token and give the name of its variable as token_env`,
		"pipe:curl -u me:HUSH https://h/x.tar":                            `"https://h/x.tar"; put the user and the password into ~/.netrc`,
		"pipe:curl -s 'https://h/x.tar?sig=HUSH'":                         "give the URL that is in the command",
		"pipe:wget -q -O - http://h/x.tar":                                `give the URL: "http://h/x.tar"`,
		"pipe:gsutil cat gs://b/{0..3}.tar":                               `give the URL: "gs://b/{0..3}.tar"`,
		"pipe:gcloud storage cat gs://b/k.tar.zst | zstd -d":              `give the URL: "gs://b/k.tar.zst"`,
		"pipe:AWS_SECRET_ACCESS_KEY=HUSH aws s3 cp s3://b/k -":            `give the URL: "s3://b/k"`,
		"pipe:curl $(cat HUSH)/x":                                         "copy or mount",
		"pipe:make-shards | cat":                                          "copy or mount",
		"simplecache::s3://b/k":                                           `give only the URL, which is read in place: "s3://b/k"`,
		"filecache::https://h/x.tar?sig=HUSH":                             "give only the URL after the last ::",
		"blockcache::gs://b/*":                                            `"gs://b/*"`,
		"zip://a.csv::s3://b/k.zip":                                       `unpack "s3://b/k.zip"`,
		"zip://*.csv::simplecache::s3://b/k.zip":                          `unpack "s3://b/k.zip"`,
		"simplecache::zip://*::s3://b/k.zip":                              `unpack "s3://b/k.zip"`,
		"tar://a.jpg::s3://b/k.tar":                                       `give the archive, whose members are the samples: "s3://b/k.tar"`,
		"dbfs:/mnt/x":                                                     `give the path under which Databricks mounts it: "/dbfs/mnt/x"`,
	} {
		_, err := pattern.Expand(t.Context(), source.NewFile(), []string{given})
		e := errs.From(err)
		if err == nil || e.Code != errs.Config || !strings.Contains(e.Hint, want) || strings.Contains(err.Error()+e.Hint, "HUSH") {
			t.Errorf("%s: %v (%s), want %s", given, err, e.Hint, want)
		}
		if strings.HasPrefix(given, "pipe:") && !strings.Contains(e.What, "is a command") {
			t.Errorf("%s: %s", given, e.What)
		}
	}
	tree(t, "a::b.tar", "pipe:x")
	for _, name := range []string{"a::b.tar", "pipe:x", "zip::x"} { // names like any other, where they exist
		if got, err := pattern.Expand(t.Context(), source.NewFile(), []string{name}); name != "zip::x" && (err != nil || len(got) != 1) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// The error of a scheme that nothing reads says what to write.
func TestSchemesOfOtherTools(t *testing.T) {
	m := mux.New([]source.Scheme{source.Local(), {Name: "s3"}, {Name: "http"}, {Name: "https"}}, source.Access{})
	for name, want := range map[string]string{
		"s3a://b/{0..3}.tar":                    `write "s3://b/{0..3}.tar"`,
		"s3n://b/k":                             `write "s3://b/k"`,
		"S3A://b/k":                             `write "s3://b/k"`,
		"wasbs://c@a.blob.core.windows.net/p/x": `write "abfss://c@a.dfs.core.windows.net/p/x"`,
		"wasb://c@a.blob.core.windows.net/p?sig=HUSH": `write "abfss://c@a.dfs.core.windows.net/p"`,
		"dbfs://mnt/x":                      `"/dbfs/mnt/x"`,
		"hdfs://namenode/x":                 "hdfs dfs -get",
		"oss://b/k":                         `write "s3://b/k", and set endpoint_url in dataset.storage: https://s3.oss-REGION.aliyuncs.com`,
		"cos://b/k":                         `write "s3://b/k", and set endpoint_url`,
		"r2://b/k":                          `https://ACCOUNT.r2.cloudflarestorage.com`,
		"minio://b/k":                       `write "s3://b/k", and set endpoint_url in dataset.storage: http://HOST:9000`,
		"github://owner:repo@v1/data/x.tar": `write "https://raw.githubusercontent.com/owner/repo/v1/data/x.tar"`,
		"github://owner/repo":               "raw.githubusercontent.com/OWNER/REPOSITORY",
		"sftp://u:HUSH@h/x":                 "mount the folder",
		"htps://h/x":                        "did you mean https://?",
		"s4://b/x":                          "did you mean s3://?",
		"quux://u:HUSH@b/x":                 "copy or mount the data",
		"davs://h/x":                        `write "https://h/x"`,
	} {
		_, err := pattern.Expand(t.Context(), m, []string{name})
		e := errs.From(err)
		if err == nil || e.Code != errs.Config || !strings.Contains(e.Hint, want) || strings.Contains(err.Error()+e.Hint, "HUSH") {
			t.Errorf("%s: %v (%s), want %s", name, err, e.Hint, want)
		}
	}
}

// A link that leads nowhere is not the same as nothing: a pattern that finds it must
// not give a smaller dataset, and its error says what it is.
func TestALinkThatLeadsNowhere(t *testing.T) {
	dir := tree(t, "a/x.tar", "b/")
	stagetest.Must(t, os.Symlink("gone", filepath.Join(dir, "b/x.tar")))
	f := source.NewFile()
	got, err := pattern.Expand(t.Context(), f, []string{"*/x.tar"})
	if err != nil || strings.Join(got, " ") != "a/x.tar b/x.tar" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := f.Stat(t.Context(), "b/x.tar"); errs.CodeOf(err) != errs.NotFound || !errors.Is(err, source.ErrNowhere) {
		t.Errorf("%v", err)
	}
	if _, err := pattern.Expand(t.Context(), f, []string{"b/x.tar"}); errs.CodeOf(err) != errs.NotFound {
		t.Errorf("%v", err)
	}
}

// What a folder holds is not known if it cannot be listed: that is an error, and not a
// smaller dataset.
func TestAFolderThatCannotBeListed(t *testing.T) {
	tree(t, "a/x.tar", "b/x.tar")
	src := stagetest.WithFaults(source.NewFile(), "list b unreadable")
	for _, given := range []string{"**/*.tar", "*/*.tar"} {
		if got, err := pattern.Expand(t.Context(), src, []string{given}); errs.CodeOf(err) != errs.Unreadable {
			t.Errorf("%s: %v, %v", given, got, err)
		}
	}
}
