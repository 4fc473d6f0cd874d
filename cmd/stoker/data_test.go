package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/stage/source"
)

// No verb waits for a pipe.
func TestPipes(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo.bin")
	if err := unix.Mkfifo(fifo, 0o644); err != nil {
		t.Fatal(err)
	}
	for verb, more := range map[string][]string{
		"inspect": nil, "verify": nil, "ls": nil, "cat": {"3"}, "index": nil, "pack": {filepath.Join(t.TempDir(), "packed")}, "bench": nil, "order": nil,
	} {
		args := append([]string{verb, fifo}, more...)
		if got := command(t, args...); got.status != 5 || !strings.Contains(got.err, "it is a named pipe") || !strings.Contains(got.err, "try: ") {
			t.Errorf("%s: %d: %s", verb, got.status, got.err)
		}
	}
}

// Every verb that opens a dataset takes what the dataset's path does not say.
func TestDatasetFlags(t *testing.T) {
	const tokens = "../../testdata/tokens/train.bin"
	flags := []string{"--window", "16", "--stride", "5", "--dtype", "uint16"}
	for verb, more := range map[string][]string{
		"inspect": {tokens, "--check", "9"}, "verify": {tokens}, "ls": {tokens, "-n", "2"}, "cat": {tokens, "3"},
		"index": {tokens}, "pack": {tokens, filepath.Join(t.TempDir(), "packed"), "--output", "npy"},
		"bench": {tokens, "--epochs", "1", "--batch-size", "8"},
	} {
		args := append([]string{verb}, more...)
		if got := command(t, append(args, flags...)...); got.status != 0 {
			t.Errorf("%s: %d: %s", verb, got.status, got.err)
		}
		if got := command(t, args...); got.status != 2 || !strings.Contains(got.err, "what a sample is") || !strings.Contains(got.err, "give --window 1024 for windows of 1024 tokens, or --documents\n") {
			t.Errorf("%s without flags: %d: %s", verb, got.status, got.err)
		}
	}
	for _, verb := range []string{"order", "verify-resume"} { // which take a Spec
		if got := command(t, verb, tokens); got.status != 2 || !strings.Contains(got.err, "give window: 1024 for windows of 1024 tokens, or window: {documents: true}; write this in a Spec, under dataset:\n") {
			t.Errorf("%s without a Spec: %d: %s", verb, got.status, got.err)
		}
	}
	for says, args := range map[string][]string{
		"--database is of lmdb":    {"ls", "../../testdata/tfrecord/raw.tfrec", "--database", "x"},
		"a manifest is one table":  {"ls", "a.csv", "b.csv", "--manifest"},
		"--eos 50256":              {"ls", tokens, "--documents"},
		"--bos":                    {"pack", tokens, filepath.Join(t.TempDir(), "packed"), "--output", "tokens"},
		"--unpacked":               {"ls", tokens, "--unpacked", "much"},
		`"foldr"`:                  {"inspect", tokens, "--format", "foldr"},
		"cannot be used elsewhere": {"index", "../../testdata/photos/coffee.jpg", "--format", "files", "--beside"},
	} {
		if got := command(t, args...); got.status != 2 || !strings.Contains(got.err, says) {
			t.Errorf("%v: %d: %s", args, got.status, got.err)
		}
	}
}

// Errors have the words of their door, and paths are what they are.
func TestWords(t *testing.T) {
	flags := map[string]bool{"documents": true}
	for _, name := range strings.Fields("dtype path-column window format batch-size memory workers prefetch") {
		flags[name] = false
	}
	for text, want := range map[string]string{
		`give dtype="uint32", or dtype="uint16" if these are`:                 "give --dtype uint32, or --dtype uint16 if these are",
		"dataset.path_column is of files":                                     "--path-column is of files",
		"give window=4 or documents=True; on_bad=\"skip\"":                    "give --window 4 or --documents; on_bad=\"skip\"",
		`there is no "dataset.window" in /data/window=3/x`:                    `there is no "dataset.window" in /data/window=3/x`,
		"leave dtype out; a window is eos":                                    "leave dtype out; a window is eos",
		"batch.size is -2; lower batch_size, or raise memory=":                "--batch-size is -2; lower --batch-size, or raise --memory",
		"workers is 300: it can be 1 to 256 lanes, or 0 for all; two workers": "--workers is 300: it can be 1 to 256 lanes, or 0 for all; two workers",
		"deliver.prefetch is -1; order.block is 3":                            "--prefetch is -1; order.block is 3",
		"there is no /x/batch_size, batch_size.tar, batch_size/x":             "there is no /x/batch_size, batch_size.tar, batch_size/x",
		"pass format= where the name does not say":                            "pass --format where the name does not say",
	} {
		if got := asFlags(text, flags); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for text, want := range map[string]string{
		"the token, eos=50256 for GPT-2's, or bos=": "the token, window: {documents: true, eos: 50256} for GPT-2's, or window: {documents: true, bos:}",
		`give dtype="uint32"`:                       `give dtype: "uint32"`,
	} {
		if got, found := asKeys(text); got != want || !found {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// How a store is reached, and how much is asked of it, are flags; secrets are none, and
// their values are not repeated.
func TestStorageFlags(t *testing.T) {
	f := benchCmd{
		Path:  []string{"https://u:HUSH@h/{0..3}.tar?sig=HUSH"},
		Data:  dataFlags{EndpointURL: "http://h:1", Region: "r", Profile: "p", RequesterPays: true, TokenEnv: "T", Fresh: "never", Origins: []string{"s3://b/c/"}},
		Fetch: fetchFlags{FetchAhead: "1GiB", Connections: "7", Bandwidth: "10MB/s", NoHedge: true, Deadline: "90"},
	}
	s, err := f.spec("bench")
	if err != nil {
		t.Fatal(err)
	}
	access := s.Access(s.Dataset)
	want := source.Access{
		Storage:     source.Storage{EndpointURL: "http://h:1", Region: "r", Profile: "p", RequesterPays: true, TokenEnv: "T", Fresh: "never"},
		Connections: 7, Bandwidth: 10e6, NoHedge: true, Deadline: 90 * time.Second,
	}
	if access != want || s.Fetch.Ahead != 1<<30 || s.Dataset.Origins[0] != "s3://b/c/" || s.Dataset.Path[0] != "https://h/{0..3}.tar" {
		t.Errorf("%+v: %+v", s, access)
	}
	const tokens = "../../testdata/tokens/train.bin"
	for says, args := range map[string][]string{
		"set AWS_SECRET_ACCESS_KEY":            {"bench", tokens, "--secret-access-key=HUSH"},
		"set AWS_ACCESS_KEY_ID":                {"inspect", tokens, "--key", "HUSH"},
		"set HF_TOKEN":                         {"ls", tokens, "--token=HUSH"},
		"set AZURE_STORAGE_SAS_TOKEN":          {"pack", tokens, "x", "--sas-token", "HUSH"},
		"--token-env is not the name":          {"verify", tokens, "--token-env", "hf_HUSH"},
		"--endpoint-url has a user name":       {"index", tokens, "--endpoint-url", "https://u:HUSH@h"},
		`--fresh is "now": it can be always, `: {"ls", tokens, "--fresh", "now"},
		`--origins has "s3://", which would`:   {"ls", tokens, "--origins", "s3://"},
		"--bandwidth: ":                        {"bench", tokens, "--bandwidth", "wide"},
		"--connections: ":                      {"tune", tokens, "--connections", "0"},
		"--deadline: ":                         {"bench", tokens, "--deadline", "x"},
		"--hedge and --no-hedge exclude":       {"bench", tokens, "--hedge", "--no-hedge"},
		"shards cannot be written to s3://":    {"pack", tokens, "s3://b/x?token=HUSH", "--window", "16"},
	} {
		if got := command(t, args...); got.status != 2 || !strings.Contains(got.err, says) || strings.Contains(got.err, "HUSH") || got.out != "" {
			t.Errorf("%v: %d: %s", args, got.status, got.err)
		}
	}
}
