package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/testdata/photos"
)

var update = flag.Bool("update", false, "rewrite the goldens")

// asCommand makes the test binary the command itself.
const asCommand = "STOKER_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	cache, err := os.MkdirTemp("", "stoker-cache-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = os.Setenv("STOKER_CACHE", cache) // no test touches the user's own
	_ = os.Unsetenv("COLUMNS")
	status := m.Run()
	_ = os.RemoveAll(cache)
	os.Exit(status)
}

type result struct {
	out, err string
	status   int
}

func command(t *testing.T, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	status := run(t.Context(), args, &out, &errOut)
	if strings.ContainsAny(out.String()+errOut.String(), "\x1b\r\b") {
		t.Errorf("control characters without a terminal: %q %q", out.String(), errOut.String())
	}
	return result{out.String(), errOut.String(), status}
}

// folder is a small dataset: per photograph so many copies.
func folder(t *testing.T, each int) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range []string{"chelsea", "coffee", "rocket"} {
		raw, err := photos.Files.ReadFile(name + ".jpg")
		if err != nil {
			t.Fatal(err)
		}
		for i := range each {
			write(t, filepath.Join(root, name, fmt.Sprintf("%02d.jpg", i)), raw)
		}
	}
	return root
}

func write(t *testing.T, path string, raw []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, raw, 0o644); err != nil {
		t.Fatal(err)
	}
}

// shard is a tar of so many samples: a picture, its class and a JSON.
func shard(t *testing.T, path string, samples int) {
	t.Helper()
	raw, err := photos.Files.ReadFile("coffee.jpg")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range samples {
		for _, m := range []struct {
			ext string
			raw []byte
		}{{"jpg", raw}, {"cls", fmt.Append(nil, i%3)}, {"json", fmt.Appendf(nil, `{"n": %d}`, i)}} {
			if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%04d.%s", i, m.ext), Mode: 0o644, Size: int64(len(m.raw))}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(m.raw); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, path, b.Bytes())
}

// golden compares text with a file of testdata.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		write(t, path, []byte(text))
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("%s (go test -update rewrites it):\n%s", path, diff)
	}
}

func TestHelp(t *testing.T) {
	for name, args := range map[string][]string{
		"help.txt": {"--help"}, "help-demo.txt": {"help", "demo"}, "help-bench.txt": {"bench", "--help"}, "help-inspect.txt": {"inspect", "-h"},
		"help-order.txt": {"order", "--help"}, "help-diff.txt": {"help", "diff"}, "help-verify-resume.txt": {"verify-resume", "--help"},
	} {
		got := command(t, args...)
		if got.status != 0 || got.err != "" {
			t.Errorf("%v: status %d, %s", args, got.status, got.err)
		}
		golden(t, name, got.out)
	}
	if first, second := command(t, "help"), command(t, "--help"); first != second {
		t.Errorf("stoker help and stoker --help differ")
	}
}

// A verb alone is described to the parser as it is among all of them, and is found alone:
// an engine would start with a description of all verbs otherwise.
func TestOneVerb(t *testing.T) {
	names := []string{"engine", "stream"} // hidden: not completed
	for line := range strings.Lines(command(t, "complete", "--", "").out) {
		if name, _, _ := strings.Cut(line, "\t"); name != "help" {
			names = append(names, strings.TrimSpace(name))
		}
	}
	if len(names) < 17 {
		t.Fatalf("verbs: %q", names)
	}
	for _, name := range names {
		if found := reflect.TypeOf(verbs([]string{name})).Elem().NumField(); found != 1 {
			t.Errorf("%s: %d verbs are described", name, found)
		}
		alone, among := command(t, name, "--help"), command(t, "help", name)
		if alone.status != 0 || !strings.HasPrefix(alone.out, "Usage: stoker "+name) || alone != among {
			t.Errorf("%s alone:\n%s%s\namong all:\n%s%s", name, alone.out, alone.err, among.out, among.err)
		}
	}
}

func TestVersion(t *testing.T) {
	raw, err := os.ReadFile("../../VERSION")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.TrimSpace(string(raw))
	if got := command(t, "version"); got.status != 0 || !strings.HasPrefix(got.out, "stoker "+want+" (go") || strings.Contains(got.out, "libjpeg-turbo") != kernel.HasLibjpeg {
		t.Errorf("%+v", got)
	}
	var v map[string]any
	if got := command(t, "version", "--json"); got.status != 0 || json.Unmarshal([]byte(got.out), &v) != nil || v["version"] != want || len(v["libraries"].([]any)) != len(kernel.Libraries()) {
		t.Errorf("%+v", got)
	}
}

// Every mistake is one error of one shape, with what to try and the nearest that
// exists.
func TestMistakes(t *testing.T) {
	root := folder(t, 1)
	spec := filepath.Join(t.TempDir(), "train.yaml")
	write(t, spec, []byte("dataset: {path: "+root+"}\nfields: [{name: imag, from: imge, decode: rgb, transform: [{op: CenterCrop, size: 8}]}]\n"))
	ofPython := filepath.Join(t.TempDir(), "train.yaml")
	write(t, ofPython, []byte("dataset: {format: python, samples: 10, digest: x}\n"))
	wrongKey := filepath.Join(t.TempDir(), "train.yaml")
	write(t, wrongKey, []byte("dataset: {path: x}\nbatch: {sise: 4}\n"))
	wrongOp := filepath.Join(t.TempDir(), "train.yaml")
	write(t, wrongOp, []byte("dataset: {path: "+root+"}\nfields: [{name: image, decode: rgb, transform: [{op: CentreCrop, size: 8}]}]\n"))
	shards := t.TempDir()
	shard(t, filepath.Join(shards, "train-000.tar"), 2)
	flat := t.TempDir()
	write(t, filepath.Join(flat, "1.jpg"), []byte("x"))
	for _, c := range []struct {
		args   string
		status int
		want   string
	}{
		{"inspct x", 2, "stoker: unexpected argument inspct\n  try: did you mean \"inspect\"?\n"},
		{"nonsense", 2, "stoker: unexpected argument nonsense\n  try: see `stoker --help`\n"},
		{"ROOT", 2, "stoker: unexpected argument ROOT\n  try: stoker inspect ROOT\n"},
		{"bench ROOT --batchsize 3", 2, "stoker: unknown flag --batchsize\n  try: did you mean \"--batch-size\"?\n"},
		{"bench ROOT --batch-size many", 2, "stoker: --batch-size: expected a valid 64 bit int but got \"many\"\n  try: see `stoker bench --help`\n"},
		{"bench ROOT --shuffle ful --tail pda", 2, "stoker: --shuffle cannot be \"ful\"; --tail cannot be \"pda\"\n  try: did you mean --shuffle full? did you mean --tail pad?\n"},
		{"bench ROOT --on-bad ignore", 2, "stoker: --on-bad cannot be \"ignore\"\n  try: --on-bad must be one of fail, skip, replace\n"},
		{"bench", 2, "stoker: no dataset was given\n  try: stoker bench data/train, or stoker demo, which makes a dataset\n"},
		{"bench ROOT --memory lots", 2, "stoker: --memory: \"lots\" is not an amount of memory: write \"auto\", a number of bytes, or one like \"8GiB\" or \"500MB\"\n"},
		{"bench ROOT --seconds=-1", 2, "stoker: a limit, a step or a size is negative\n  try: see `stoker bench --help`\n"},
		{"bench ROOT --need 0", 2, "stoker: --need is 0\n  try: give the samples per second that one GPU trains: --need 2500\n"},
		{"bench ROOT --need=-5 --gpus 2", 2, "stoker: --need is -5\n  try: give the samples per second that one GPU trains: --need 2500\n"},
		{"bench ROOT --need NaN", 2, "--need is NaN\n"},
		{"bench ROOT --need inf", 2, "--need is +Inf\n"},
		{"bench ROOT --need many", 2, "--need: expected a float but got \"many\" (string)\n"},
		{"bench ROOT --need 100 --gpus 0", 2, "stoker: --gpus is 0\n  try: give the number of GPUs of the whole training: --gpus 8\n"},
		{"bench ROOT --gpus 4", 2, "stoker: --gpus needs --need\n  try: say what one GPU trains per second: --need 2500 --gpus 4\n"},
		{"bench ROOT --need 100 --step-ms 5", 2, "stoker: --need measures at full speed, and --step-ms slows the loop down\n  try: leave out one of them\n"},
		{"bench --need 100", 2, "stoker: no dataset was given\n  try: stoker bench data/train, or stoker demo, which makes a dataset\n"},
		{"bench ROOTT", 2, "stoker: there is no \"ROOTT\"\n  try: did you mean \"ROOT\"?\n"},
		{"inspect ROOT/{chelsea,cofee}", 2, "stoker: 1 of the 2 files of \"ROOT/{chelsea,cofee}\" is missing: \"ROOT/cofee\"\n  try: did you mean \"ROOT/coffee\"?\n"},
		{"inspect SHARDS/train-{000..001}.tar", 2, "stoker: 1 of the 2 files of \"SHARDS/train-{000..001}.tar\" is missing: \"SHARDS/train-001.tar\"\n  try: the folder \"SHARDS\" has one entry: train-000.tar\n"},
		{"inspect FLAT", 2, "stoker: \"FLAT\" has no class folder\n  try: 1 image is directly in it: put them in one folder per class, such as FLAT/cat/1.jpg\n"},
		{"bench --spec SPECX", 2, "stoker: cannot read the Spec: open SPECX: no such file or directory\n  try: did you mean \"SPEC\"?\n"},
		{"bench --spec WRONGKEY", 2, "stoker: the Spec has keys that do not exist: unknown key \"batch.sise\"\n  try: did you mean \"batch.size\"?\n"},
		{"bench --spec OFPYTHON", 2, "stoker: dataset.format is python: only the program whose code makes the samples can load them\n  try: load this dataset with stoker.DataLoader in Python; a Spec cannot hold code\n"},
		{"bench --spec WRONGOP", 2, "stoker: field \"image\": transform 1 of 1 (CentreCrop): unknown operation \"CentreCrop\" (did you mean CenterCrop?)\n"},
		{"bench --spec SPEC --samples 2", 2, "did you mean \"image\"?"},
		{"bench ROOT --memory 1KiB", 6, "raise --memory"},
		{"demo --count 1", 2, "stoker: a demo needs at least six pictures, and some time\n"},
	} {
		fill := strings.NewReplacer("ROOT", root, "SHARDS", shards, "FLAT", flat, "WRONGKEY", wrongKey, "WRONGOP", wrongOp, "OFPYTHON", ofPython, "SPECX", spec+"x", "SPEC", spec)
		got := command(t, strings.Fields(fill.Replace(c.args))...)
		if got.status != c.status || got.out != "" {
			t.Errorf("%s: status %d, not %d; %s", c.args, got.status, c.status, got.out)
		}
		if want := fill.Replace(c.want); strings.HasPrefix(want, "stoker:") && got.err != want || !strings.Contains(got.err, want) {
			t.Errorf("%s:\n%swant:\n%s", c.args, got.err, want)
		}
	}
}

// The table of exit statuses holds at the door, and --json makes errors JSON.
func TestEveryCodeHasItsStatus(t *testing.T) {
	for code, class := range errs.Classes {
		e := errs.New(code, "it went wrong").At(errs.Where{File: "x.jpg", Offset: errs.Known(3), Sample: errs.Known(7)}).Try("again")
		var text, asJSON bytes.Buffer
		if got := newConsole(t.Context(), nil, &text, false).report(fmt.Errorf("wrapped: %w", e)); got != class.Exit {
			t.Errorf("%s ends with %d, not %d", code, got, class.Exit)
		}
		if want := "stoker: it went wrong (x.jpg, offset 3, sample 7)\n  try: again\n"; text.String() != want {
			t.Errorf("%q", text.String())
		}
		newConsole(t.Context(), nil, &asJSON, true).report(e)
		var got struct {
			Error struct {
				Code, What, Hint, Exception string
				Where                       errs.Where
			}
			Exit int
		}
		if err := json.Unmarshal(asJSON.Bytes(), &got); err != nil || got.Exit != class.Exit || got.Error.Code != string(code) ||
			got.Error.Where != e.Where || got.Error.Hint != "again" || got.Error.Exception != class.Python {
			t.Errorf("%v: %s", err, asJSON.String())
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var text bytes.Buffer
	if got := newConsole(ctx, nil, &text, false).report(context.Canceled); got != 130 || text.String() != "stoker: interrupted\n" {
		t.Errorf("%d, %q", got, text.String())
	}
	if got := newConsole(t.Context(), nil, &text, false).report(errors.New("oops")); got != 1 {
		t.Errorf("an unknown error ends with %d", got)
	}
	got := command(t, "bench", "--json", filepath.Join(t.TempDir(), "x"))
	if got.status != 2 || got.out != "" || !json.Valid([]byte(got.err)) || strings.Count(got.err, "\n") != 1 {
		t.Errorf("%+v", got)
	}
}

// shape is the keys of a JSON document and the kinds of their values, a line
// each; lists are those of their first item.
func shape(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	var b strings.Builder
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, k := range slices.Sorted(maps.Keys(v)) {
				walk(at+"."+k, v[k])
			}
		case []any:
			if len(v) > 0 {
				walk(at+"[]", v[0])
			}
		default:
			fmt.Fprintf(&b, "%s %T\n", strings.TrimPrefix(at, "."), v)
		}
	}
	walk("", v)
	return b.String()
}

func TestBench(t *testing.T) {
	root := folder(t, 4)
	got := command(t, "bench", root, "--batch-size", "5", "--epochs", "2", "--workers", "2", "--image-size", "32", "--json")
	if got.status != 0 || got.err != "" {
		t.Fatalf("%+v", got)
	}
	golden(t, "bench-shape.txt", shape(t, got.out))
	var r struct {
		Samples, Batches int64
		BatchSize        int     `json:"batch_size"`
		CPU              float64 `json:"cpu_s"`
	}
	if err := json.Unmarshal([]byte(got.out), &r); err != nil || r.Samples != 24 || r.Batches != 6 || r.BatchSize != 5 || r.CPU <= 0 {
		t.Errorf("%v, %+v", err, r)
	}
	got = command(t, "bench", root, "--samples", "10", "--batch-size", "5", "--output-float", "--step-ms", "1", "--entries", "off")
	if got.status != 0 {
		t.Fatalf("%+v", got)
	}
	golden(t, "bench.txt", blanked(got.out, root))
	spec := filepath.Join(t.TempDir(), "s.yaml")
	write(t, spec, []byte(`
dataset: {path: `+root+`}
fields: [{name: picture, from: image, decode: gray, transform: [{op: Resize, size: [16, 16]}]}]
batch: {size: 3}
`))
	got = command(t, "bench", "--spec", spec, "--epochs", "1", "--batch-size", "4", "--json")
	if err := json.Unmarshal([]byte(got.out), &r); err != nil || r.Samples != 12 || r.Batches != 3 || r.BatchSize != 4 {
		t.Errorf("%v, %+v, %+v", err, r, got)
	}
	shards := t.TempDir()
	shard(t, filepath.Join(shards, "a-0.tar"), 5)
	shard(t, filepath.Join(shards, "a-1.tar"), 4)
	got = command(t, "bench", filepath.Join(shards, "a-{0..1}.tar"), "--epochs", "1", "--batch-size", "4", "--image-size", "16", "--json")
	if err := json.Unmarshal([]byte(got.out), &r); err != nil || r.Samples != 9 || r.Batches != 3 {
		t.Errorf("%v, %+v, %+v", err, r, got)
	}
}

var (
	numbers = regexp.MustCompile(`[0-9]+([.,][0-9]+)*`)
	spaces  = regexp.MustCompile(` +`)
)

// blanked is text with its numbers, units of bytes and columns made equal.
func blanked(text, root string) string {
	text = strings.ReplaceAll(text, root, "ROOT")
	text = numbers.ReplaceAllString(text, "0")
	text = strings.NewReplacer("KiB", "MiB", "GiB", "MiB", "0 B", "0 MiB", "avx0", "KERNEL", "kernel base", "kernel KERNEL", "kernel go", "kernel KERNEL").Replace(text)
	return spaces.ReplaceAllString(text, " ")
}

func TestInspectFolder(t *testing.T) {
	root := folder(t, 4)
	got := command(t, "inspect", root)
	if got.status != 0 || got.err != "" {
		t.Fatalf("%+v", got)
	}
	golden(t, "inspect.txt", strings.ReplaceAll(got.out, root, "ROOT"))
	got = command(t, "inspect", root, "--json", "--all")
	if got.status != 0 {
		t.Fatalf("%+v", got)
	}
	golden(t, "inspect-shape.txt", shape(t, got.out))

	// Damage of several kinds: each file is named, the status is 3, the report is
	// whole all the same.
	raw, err := photos.Files.ReadFile("coffee.jpg")
	if err != nil {
		t.Fatal(err)
	}
	flipped := slices.Clone(raw)
	for i := range 400 {
		flipped[len(raw)/2+i] = 0xA5 ^ byte(i)
	}
	write(t, filepath.Join(root, "coffee", "00.jpg"), nil)
	write(t, filepath.Join(root, "coffee", "01.jpg"), raw[:len(raw)/2])
	write(t, filepath.Join(root, "coffee", "02.jpg"), []byte("no picture at all, whatever its name says"))
	write(t, filepath.Join(root, "coffee", "04.jpg"), flipped)
	var r struct {
		Damaged, Checked int64
		Damage           []struct {
			Code, Cause string
			Where       errs.Where
		}
	}
	for _, c := range []struct {
		flag  string
		files []string
	}{{"--check=1000", []string{"00", "01", "02"}}, {"--all", []string{"00", "01", "02", "04"}}} {
		got = command(t, "inspect", root, c.flag, "--json")
		if err := json.Unmarshal([]byte(got.out), &r); err != nil || got.status != 3 || r.Damaged != int64(len(c.files)) || r.Checked != 13 {
			t.Fatalf("%s: %v, %+v", c.flag, err, got)
		}
		for i, name := range c.files {
			d := r.Damage[i]
			if d.Code != "damaged" || d.Where.File != filepath.Join(root, "coffee", name+".jpg") || d.Where.Sample.Or(-1) < 4 || d.Cause == "" {
				t.Errorf("%s: %+v", c.flag, d)
			}
		}
		if !strings.Contains(got.err, `"code":"damaged"`) {
			t.Errorf("the error is %s", got.err)
		}
	}
	// What training passes over is a class of its own here: bytes that belong to no block.
	longer := filepath.Join(t.TempDir(), "longer")
	write(t, filepath.Join(longer, "a", "00.jpg"), slices.Concat(raw[:len(raw)-2], make([]byte, 30), raw[len(raw)-2:]))
	if got = command(t, "inspect", longer); got.status != 0 {
		t.Errorf("%+v", got)
	}
	for _, args := range [][]string{{"inspect", longer, "--all"}, {"verify", longer}} {
		if got = command(t, args...); got.status != 0 || !strings.Contains(got.out, "1 sample is complete, with data after the last block") || !strings.Contains(got.out, "before the end marker") {
			t.Errorf("%q: %+v", args, got)
		}
	}
	got = command(t, "inspect", root)
	want := fmt.Sprintf("stoker: %d of the 13 samples that were checked are damaged\n  try: repair or remove them, or train with on_bad=\"skip\" or \"replace\"\n", 3)
	if got.status != 3 || got.err != want || !strings.Contains(got.out, "3 samples are damaged:\n  "+root+"/coffee/00.jpg") {
		t.Errorf("%+v", got)
	}
	if got = command(t, "inspect", root, "--check", "0"); got.status != 0 || !strings.Contains(got.out, "No sample was read") {
		t.Errorf("%+v", got)
	}
}

// inspect --all says how many JPEGs are not stoker's own decoder's.
func TestInspectDecoders(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"rgb", "progressive411", "cmyk"} {
		raw, err := os.ReadFile("../../internal/base/kernel/testdata/" + name + ".jpg")
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(root, "a", name+".jpg"), raw)
	}
	got := command(t, "inspect", root, "--all")
	if got.status != 0 || !strings.Contains(got.out, "image: 2 of 3 JPEGs are progressive, CMYK or otherwise unusual") {
		t.Errorf("%+v", got)
	}
}

func TestUnknownKernel(t *testing.T) {
	t.Setenv("STOKER_KERNEL", "avx3")
	got := command(t, "inspect", ".")
	if got.status != 2 || !strings.Contains(got.err, "STOKER_KERNEL=avx3 is not a kernel: the choices are go, base, avx2, avx512") {
		t.Errorf("%+v", got)
	}
}

func TestInspectShards(t *testing.T) {
	dir := t.TempDir()
	for i := range 3 {
		shard(t, filepath.Join(dir, fmt.Sprintf("train-%d.tar", i)), 4)
	}
	pattern := filepath.Join(dir, "train-{0..2}.tar")
	got := command(t, "inspect", pattern, "--all")
	if got.status != 0 || got.err != "" {
		t.Fatalf("%+v", got)
	}
	golden(t, "inspect-shards.txt", strings.ReplaceAll(got.out, dir, "DIR"))

	// A byte that is wrong in a label, then a shard that is cut off.
	one := filepath.Join(dir, "train-1.tar")
	raw, err := os.ReadFile(one)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(raw, []byte(`{"n": 2}`))
	raw[at] = '['
	write(t, one, raw)
	got = command(t, "inspect", pattern)
	if got.status != 3 || !strings.Contains(got.out, fmt.Sprintf("shard %s, member 0002.json, field \"json\", offset %d, sample 6", one, at)) {
		t.Errorf("%+v", got)
	}
	write(t, one, raw[:len(raw)-2000])
	got = command(t, "inspect", pattern)
	if got.status != 3 || got.out != "" || !strings.Contains(got.err, one) {
		t.Errorf("%+v", got)
	}
}

func TestDemo(t *testing.T) {
	t.Setenv("STOKER_CACHE", t.TempDir())
	got := command(t, "demo", "--count", "12", "--seconds", "0.2")
	if got.status != 0 || got.err != "" {
		t.Fatalf("%+v", got)
	}
	golden(t, "demo.txt", blanked(got.out, os.Getenv("STOKER_CACHE")))
	got = command(t, "demo", "--count", "12", "--seconds", "0.1", "--json")
	golden(t, "demo-shape.txt", shape(t, got.out))
	var r demoReport
	if err := json.Unmarshal([]byte(got.out), &r); err != nil || r.Data.Made || r.Data.Samples != 12 || r.FullSpeed.Samples == 0 {
		t.Errorf("%v, %+v", err, got)
	}
}

// Ctrl-C ends a command with 130, and leaves no files.
func TestInterrupt(t *testing.T) {
	cache := t.TempDir()
	for _, args := range [][]string{{"demo", "--count", "100000"}, {"bench", folder(t, 2), "--seconds", "1000"}} {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), self, args...)
		cmd.Env = append(os.Environ(), asCommand+"=1", "STOKER_CACHE="+cache)
		var out, errOut bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errOut
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for begun := false; !begun; time.Sleep(10 * time.Millisecond) {
			left, _ := filepath.Glob(filepath.Join(cache, "*", "*"))
			begun = len(left) > 0
		}
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 130 {
			t.Errorf("%v: %v", args, err)
		}
		if out.String() != "" || errOut.String() != "stoker: interrupted\n" {
			t.Errorf("%v: %q, %q", args, out.String(), errOut.String())
		}
		if left, _ := filepath.Glob(filepath.Join(cache, "demo-*")); len(left) > 0 {
			t.Errorf("%v left %v", args, left)
		}
		_ = os.RemoveAll(cache)
	}
}

// A text that names a flag for verbs that have it names it once where it is one.
func TestFlagOfBenchIsNamedOnce(t *testing.T) {
	text := "fetch.deadline (stoker bench: --deadline) sets it"
	for want, flags := range map[string]map[string]bool{"--deadline sets it": {"deadline": false}, text: {}} {
		if got := asFlags(text, flags); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestNearestVerb(t *testing.T) {
	// What kong suggests is what errs.Nearest would.
	for _, wrong := range []string{"bnech", "inspekt", "verson", "dmeo"} {
		got := command(t, wrong)
		near := errs.Nearest(wrong, []string{"demo", "bench", "inspect", "version"})
		if !strings.Contains(got.err, `did you mean "`+near+`"?`) {
			t.Errorf("%s: %s", wrong, got.err)
		}
	}
}

// A script whose verb is empty must not take what it got for success.
func TestNoVerb(t *testing.T) {
	got := command(t)
	if got.status != 2 || got.out != "" || !strings.HasPrefix(got.err, "Usage: stoker") {
		t.Errorf("no verb: %d, %q, %.60q", got.status, got.out, got.err)
	}
	if asked := command(t, "--help"); asked.status != 0 || asked.out != got.err {
		t.Errorf("asked for: %d, %.60q", asked.status, asked.out)
	}
}

// What the engine refuses is named by the flag, and not by the key of a Spec.
func TestFlagsAreNamed(t *testing.T) {
	root := folder(t, 1)
	for flag, says := range map[string]string{
		"--batch-size=-2":    "stoker: --batch-size is -2: it can be",
		"--batch-size=0":     "stoker: --batch-size is 0: it can be",
		"--prefetch=0":       "stoker: --prefetch is 0: it can be",
		"--workers=100000":   "stoker: --workers is 100000: it can be",
		"--prefetch=-1":      "stoker: --prefetch is -1: it can be",
		"--max-pixels=-3":    "stoker: --max-pixels is -3: it can be",
		"--memory=1KiB":      "try: raise --memory to at least",
		"--batch-size=99999": "lower --batch-size",
	} {
		args := []string{"bench", root, flag, "--samples", "1"}
		if flag == "--batch-size=99999" {
			args = append(args, "--memory", "1MiB")
		}
		if got := command(t, args...); !strings.Contains(got.err, says) || strings.Contains(got.err, "0.00") {
			t.Errorf("%s: %d: %s", flag, got.status, got.err)
		}
	}
}
