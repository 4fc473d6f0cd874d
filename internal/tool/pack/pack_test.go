package pack_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/rng"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/tokens"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
	"github.com/stoker-data/stoker/internal/tool/pack"
	"github.com/stoker-data/stoker/internal/tool/pack/prepare"
)

func TestMain(m *testing.M) {
	os.Exit(stagetest.OwnCache(m))
}

// noise is n bytes, the same ones for one key.
func noise(key rng.Key, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(key.Uint64(uint64(i)))
	}
	return b
}

func put(t testing.TB, path string, b []byte) {
	t.Helper()
	stagetest.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	stagetest.Must(t, os.WriteFile(path, b, 0o644))
}

// folder is a dataset of n files of up to most bytes in three classes. They are not
// pictures: unprocessed files are not decoded.
func folder(t testing.TB, n, most int) string {
	root := t.TempDir()
	for i := range n {
		key := rng.New(1).With(uint64(i))
		name := fmt.Sprintf("%s/%s%d.jpg", []string{"ant", "bee", "cat"}[i%3], strings.Repeat("x", i%7), i)
		put(t, filepath.Join(root, name), noise(key, max(1, int(key.Intn(1<<40, int64(most))))))
	}
	return root
}

// tree is all files below a folder.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	stagetest.Must(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		out[rel] = string(b)
		return err
	}))
	return out
}

func config(src, dst string, o pack.Options) pack.Config {
	return pack.Config{Dataset: spec.Dataset{Path: []string{src}}, Dst: dst, Options: o}
}

func run(t testing.TB, c pack.Config) *pack.Report {
	t.Helper()
	r, err := pack.Run(context.Background(), c)
	stagetest.Must(t, err)
	return r
}

func same(t testing.TB, want, got map[string]string, what string) {
	t.Helper()
	if !maps.Equal(want, got) {
		t.Fatalf("%s: %v and %v differ", what, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)))
	}
}

// member is one of a shard.
type member struct{ name, body string }

// members are those of all shards in order, as Go's archive/tar reads them.
func members(t testing.TB, dir, end string) (all []member, perShard []int) {
	t.Helper()
	shards, err := filepath.Glob(dir + "/*.tar" + end)
	stagetest.Must(t, err)
	for _, path := range shards {
		f, err := os.Open(path)
		stagetest.Must(t, err)
		var in io.Reader = f
		switch end {
		case ".zst":
			z, err := zstd.NewReader(f)
			stagetest.Must(t, err)
			in = z
		case ".lz4":
			in = lz4.NewReader(f)
		case ".gz":
			in, err = gzip.NewReader(f)
			stagetest.Must(t, err)
		}
		r := tar.NewReader(in)
		n := len(all)
		for {
			h, err := r.Next()
			if err == io.EOF {
				break
			}
			stagetest.Must(t, err)
			body, err := io.ReadAll(r)
			stagetest.Must(t, err)
			all = append(all, member{h.Name, string(body)})
		}
		perShard = append(perShard, len(all)-n)
		stagetest.Must(t, f.Close())
	}
	return all, perShard
}

// Every file of a folder is in the shards once, in the folder's order, beside the
// number of its class.
func TestFolderToTar(t *testing.T) {
	src := folder(t, 60, 3000)
	for _, compress := range []string{"", "zstd", "gzip", "lz4"} {
		dst := t.TempDir() + "/new/packed"
		r := run(t, config(src, dst, pack.Options{ShardSize: 20_000, Compress: compress}))
		var want []member
		for class, name := range []string{"ant", "bee", "cat"} {
			files, err := os.ReadDir(filepath.Join(src, name))
			stagetest.Must(t, err)
			for _, f := range files {
				b, err := os.ReadFile(filepath.Join(src, name, f.Name()))
				stagetest.Must(t, err)
				key := name + "/" + strings.TrimSuffix(f.Name(), ".jpg")
				want = append(want, member{key + ".jpg", string(b)}, member{key + ".cls", strconv.Itoa(class)})
			}
		}
		got, each := members(t, dst, map[string]string{"zstd": ".zst", "gzip": ".gz", "lz4": ".lz4"}[compress])
		if !slices.Equal(got, want) {
			t.Errorf("%d members, not the %d of the folder", len(got), len(want))
		}
		if len(each) < 5 || r.Shards != len(each) || r.Made != r.Shards || r.Manifest.Samples != 60 {
			t.Errorf("%d shards of %v members, %+v", r.Shards, each, r)
		}
		if diff := cmp.Diff([]string{"ant", "bee", "cat"}, r.Manifest.Classes); diff != "" {
			t.Error(diff)
		}
	}
}

// The manifest's digests are those of the files and of the samples.
func TestManifest(t *testing.T) {
	src, dst := folder(t, 40, 2000), t.TempDir()
	run(t, config(src, dst, pack.Options{ShardSize: 20_000, Shuffle: true, Seed: 3}))
	var m struct {
		Samples, Bytes int64
		Source         struct{ Format, Digest string }
		Shards         []struct {
			Files []struct {
				Name, SHA256 string
				Bytes        int64
			}
			First, Samples int64
		}
		Digests struct{ Name, SHA256 string } `json:"sample_digests"`
	}
	files := tree(t, dst)
	stagetest.Must(t, json.Unmarshal([]byte(files["manifest.json"]), &m))
	sum := func(s string) string { h := sha256.Sum256([]byte(s)); return hex.EncodeToString(h[:]) }
	samples, all := int64(0), int64(0)
	sums := []byte(files["samples.xxh64"])
	for _, s := range m.Shards {
		if s.First != samples {
			t.Errorf("a shard begins at %d, those before it end at %d", s.First, samples)
		}
		body := files[s.Files[0].Name]
		if sum(body) != s.Files[0].SHA256 || int64(len(body)) != s.Files[0].Bytes {
			t.Errorf("%s is not what the manifest says", s.Files[0].Name)
		}
		for range s.Samples { // two members each: 512 bytes and a body filled up to 512
			n := 0
			for range 2 {
				size, err := strconv.ParseInt(body[n+124:n+135], 8, 64)
				stagetest.Must(t, err)
				n += 512 + int(size+511)/512*512
			}
			if got := binary.LittleEndian.Uint64(sums[8*samples:]); got != xxhash.Sum64String(body[:n]) {
				t.Errorf("sample %d has another digest", samples)
			}
			body, samples = body[n:], samples+1
		}
		all += s.Files[0].Bytes
	}
	if samples != 40 || m.Samples != 40 || m.Bytes != all || m.Source.Format != "folder" || sum(string(sums)) != m.Digests.SHA256 {
		t.Errorf("%d samples, %+v", samples, m)
	}
}

// Workers, tasks and what was there before decide nothing about the bytes.
func TestSameBytes(t *testing.T) {
	src := folder(t, 90, 4000)
	for _, o := range []pack.Options{
		{ShardSize: 30_000},
		{ShardSize: 30_000, Shuffle: true, Seed: 7, Compress: "zstd"},
		{ShardSize: 30_000, Output: pack.OutputTFRecord, Shuffle: true, Compress: "gzip"},
	} {
		var want map[string]string
		for _, jobs := range []int{1, 2, 9} {
			c := config(src, t.TempDir(), o)
			c.Jobs = jobs
			run(t, c)
			if want == nil {
				want = tree(t, c.Dst)
			}
			same(t, want, tree(t, c.Dst), fmt.Sprintf("%d jobs", jobs))
		}
		dst := t.TempDir()
		for _, task := range []int{2, 0, 1} {
			if _, err := pack.Finish(dst); err == nil {
				t.Fatal("finished before all tasks were")
			}
			c := config(src, dst, o)
			c.Task, c.Tasks = task, 3
			if r := run(t, c); r.Made == 0 || r.Made == r.Shards || r.Manifest != nil {
				t.Errorf("task %d made %d of %d shards", task, r.Made, r.Shards)
			}
		}
		_, err := pack.Finish(dst)
		stagetest.Must(t, err)
		same(t, want, tree(t, dst), "three tasks")
		if r := run(t, config(src, dst, o)); r.Made != 0 || r.Manifest == nil {
			t.Errorf("%d shards of a finished packing were made again", r.Made)
		}
	}
}

func TestFinishSaysWhatIsMissing(t *testing.T) {
	src, dst := folder(t, 60, 2000), t.TempDir()
	_, err := pack.Finish(dst)
	if errs.CodeOf(err) != errs.NotFound {
		t.Errorf("of an empty folder: %v", err)
	}
	c := config(src, dst, pack.Options{ShardSize: 10_000})
	c.Task, c.Tasks = 1, 2
	r := run(t, c)
	_, err = pack.Finish(dst)
	if e := errs.From(err); err == nil || e.Code != errs.Differs || !strings.Contains(e.What, "shard-000000, shard-000001") ||
		!strings.Contains(e.What, fmt.Sprintf("%d of %d", r.Shards-r.Made, r.Shards)) {
		t.Errorf("%v", err)
	}
}

// A disk that is full after n bytes, whatever n is: the error says so, every file
// with a shard's name is whole, and the next run ends with the same bytes.
func TestFullDisk(t *testing.T) {
	src := folder(t, 40, 4000)
	o := pack.Options{ShardSize: 20_000}
	whole := t.TempDir()
	run(t, config(src, whole, o))
	want := tree(t, whole)
	for _, room := range []int64{0, 1, 15_000, 40_000, 70_000, 90_000} {
		var written atomic.Int64
		c := config(src, t.TempDir(), o)
		c.Jobs = 2
		c.Through(func(w io.Writer) io.Writer {
			return writer(func(p []byte) (int, error) {
				if written.Add(int64(len(p))) > room {
					n, _ := w.Write(p[:len(p)/2])
					return n, unix.ENOSPC
				}
				return w.Write(p)
			})
		})
		_, err := pack.Run(context.Background(), c)
		if e := errs.From(err); err == nil || e.Code != errs.Space || errs.Classes[e.Code].Exit != 6 || !strings.Contains(e.Hint, "finished shards") || e.Where.File == "" {
			t.Fatalf("%d bytes: %v", room, err)
		}
		for name, body := range tree(t, c.Dst) {
			if !strings.HasPrefix(name, ".pack/") && want[name] != body {
				t.Errorf("%d bytes: %s is there and is not whole", room, name)
			}
			if strings.HasSuffix(name, ".tmp") {
				t.Errorf("%s takes room on a full disk", name)
			}
		}
		c.Through(nil)
		run(t, c)
		same(t, want, tree(t, c.Dst), "after the disk was full")
	}
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// Ctrl-C at any sample.
func TestInterrupted(t *testing.T) {
	src := folder(t, 48, 2000)
	o := pack.Options{ShardSize: 10_000, Shuffle: true}
	whole := t.TempDir()
	run(t, config(src, whole, o))
	dst := t.TempDir()
	for stop := int64(0); stop < 3; stop++ {
		ctx, cancel := context.WithCancel(context.Background())
		c := config(src, dst, o)
		c.Progress = func(done, _, _ int64) {
			if done >= 16*stop {
				cancel()
			}
		}
		if _, err := pack.Run(ctx, c); err != nil && ctx.Err() == nil {
			t.Fatal(err)
		}
		cancel()
	}
	run(t, config(src, dst, o))
	same(t, tree(t, whole), tree(t, dst), "after three stops")
}

func TestOtherPackingIsRefused(t *testing.T) {
	src, dst := folder(t, 12, 500), t.TempDir()
	c := config(src, dst, pack.Options{ShardSize: 2000})
	run(t, c)
	before := tree(t, dst)
	other := c
	other.Options.Shuffle, other.Options.Seed = true, 5
	_, err := pack.Run(context.Background(), other)
	if e := errs.From(err); err == nil || e.Code != errs.Config || !strings.Contains(e.What, "seed (not set there, 5 now), shuffle (not set there, true now)") || !strings.Contains(e.Hint, "--overwrite") {
		t.Errorf("%v", err)
	}
	put(t, src+"/dog/1.jpg", []byte("new"))
	_, err = pack.Run(context.Background(), c)
	if e := errs.From(err); err == nil || !strings.Contains(e.What, "source.digest") || !strings.Contains(e.What, "source.samples (12 there, 13 now)") {
		t.Errorf("%v", err)
	}
	same(t, before, tree(t, dst), "refused")

	other.Overwrite = true
	run(t, other)
	fresh := config(src, t.TempDir(), other.Options)
	run(t, fresh)
	same(t, tree(t, fresh.Dst), tree(t, dst), "overwritten")

	strange := t.TempDir()
	put(t, strange+"/shard-000000.tar", []byte("precious"))
	if _, err := pack.Run(context.Background(), config(src, strange, pack.Options{})); errs.CodeOf(err) != errs.Config {
		t.Errorf("a shard of unknown origin: %v", err)
	}
}

// What is lost of a finished packing is made again, and only that.
// A pipe where pack keeps its plan, a note or a shard is refused, or the shard made
// again: nobody waits for what may be written into it.
func TestPipesInTheDestination(t *testing.T) {
	src, dst := folder(t, 20, 500), t.TempDir()
	for _, name := range []string{pack.ManifestName, ".pack/plan.json"} {
		dst := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dst, ".pack"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mkfifo(filepath.Join(dst, name), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := pack.Run(context.Background(), config(src, dst, pack.Options{Output: pack.OutputTar})); errs.CodeOf(err) != errs.Unreadable {
			t.Errorf("%s: %v", name, err)
		}
	}
	run(t, config(src, dst, pack.Options{Output: pack.OutputTar}))
	want := tree(t, dst)
	shards, err := filepath.Glob(dst + "/*.tar")
	if err != nil || len(shards) == 0 || os.Remove(shards[0]) != nil {
		t.Fatal(shards, err)
	}
	if err := unix.Mkfifo(shards[0], 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, config(src, dst, pack.Options{Output: pack.OutputTar}))
	same(t, want, tree(t, dst), "with a pipe in the place of a shard")
}

func TestLostShard(t *testing.T) {
	src, dst := folder(t, 30, 2000), t.TempDir()
	c := config(src, dst, pack.Options{ShardSize: 8000})
	run(t, c)
	want := tree(t, dst)
	stagetest.Must(t, os.Remove(dst+"/shard-000001.tar"))
	stagetest.Must(t, os.Truncate(dst+"/shard-000003.tar", 700))
	if r := run(t, c); r.Made != 2 {
		t.Errorf("%d shards were made again", r.Made)
	}
	same(t, want, tree(t, dst), "after a loss")
	stagetest.Must(t, os.Remove(dst+"/samples.xxh64"))
	run(t, c)
	same(t, want, tree(t, dst), "after the digests were lost")
}

// A finished shard that somebody wrote to is made again, at every point of a
// packing, and one that was only touched is not.
func TestChangedShard(t *testing.T) {
	src, dst := folder(t, 30, 2000), t.TempDir()
	c := config(src, dst, pack.Options{ShardSize: 8000})
	run(t, c)
	want := tree(t, dst)
	flip := func(path string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		stagetest.Must(t, err)
		var b [1]byte
		_, err = f.ReadAt(b[:], 600)
		stagetest.Must(t, err)
		_, err = f.WriteAt([]byte{b[0] ^ 1}, 600)
		stagetest.Must(t, err)
		stagetest.Must(t, f.Close())
	}
	touch := func(path string) {
		t.Helper()
		later := time.Now().Add(time.Hour)
		stagetest.Must(t, os.Chtimes(path, later, later))
	}
	again := func(what string, made int, note string) {
		t.Helper()
		if r := run(t, c); r.Made != made || r.Note != note {
			t.Errorf("%s: %d shards were made, %q", what, r.Made, r.Note)
		}
		same(t, want, tree(t, dst), what)
	}
	touch(dst + "/shard-000002.tar")
	again("touched", 0, "")
	flip(dst + "/shard-000002.tar")
	stagetest.Must(t, os.Remove(dst+"/shard-000000.tar"))
	again("changed", 2, "2 of the finished shards were changed or removed since, and are made again")
	stagetest.Must(t, os.Remove(dst+"/shard-000001.tar"))
	stagetest.Must(t, os.Mkdir(dst+"/shard-000001.tar", 0o755))
	if _, err := pack.Run(context.Background(), c); errs.CodeOf(err) == errs.Bug {
		t.Error(err) // no shard takes the name of a folder, and the error says so
	}
	stagetest.Must(t, os.Remove(dst+"/shard-000001.tar"))
	run(t, c)
	same(t, want, tree(t, dst), "after a folder in a shard's place")

	parts := c
	parts.Dst, parts.Tasks = t.TempDir(), 2
	run(t, parts)
	flip(parts.Dst + "/shard-000000.tar")
	touch(parts.Dst + "/shard-000001.tar")
	parts.Task = 1
	run(t, parts)
	if _, err := pack.Finish(parts.Dst); errs.CodeOf(err) != errs.Differs || !strings.Contains(err.Error(), "1 of 15 shards is not finished: shard-000000 ") {
		t.Errorf("%v", err)
	}
	parts.Task = 0
	if r := run(t, parts); r.Made != 1 || !strings.HasPrefix(r.Note, "1 of the finished shards") {
		t.Errorf("%d shards were made, %q", r.Made, r.Note)
	}
	_, err := pack.Finish(parts.Dst)
	stagetest.Must(t, err)
	same(t, want, tree(t, parts.Dst), "in parts")
}

// tarOf is an archive as Go's archive/tar writes it.
func tarOf(t testing.TB, all ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range all {
		stagetest.Must(t, w.WriteHeader(&tar.Header{Name: m.name, Size: int64(len(m.body)), Mode: 0o600}))
		_, err := w.Write([]byte(m.body))
		stagetest.Must(t, err)
	}
	stagetest.Must(t, w.Close())
	return b.Bytes()
}

// From tar to tar only the position of samples changes.
func TestTarToTar(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	var want []member
	for i := range 20 {
		for _, m := range []member{
			{fmt.Sprintf("dir.x/%03d.left.jpg", i), string(noise(rng.New(uint64(i)), 1+i*50))},
			{fmt.Sprintf("dir.x/%03d.cls", i), strconv.Itoa(i)},
			{fmt.Sprintf("dir.x/%03d.json", i), fmt.Sprintf(`{"i": %d}`, i)},
		} {
			stagetest.Must(t, w.WriteHeader(&tar.Header{Name: m.name, Size: int64(len(m.body)), Mode: 0o600}))
			_, err := w.Write([]byte(m.body))
			stagetest.Must(t, err)
			want = append(want, m)
		}
	}
	stagetest.Must(t, w.Close())
	src := t.TempDir() + "/a.tar"
	put(t, src, b.Bytes())
	dst := t.TempDir()
	run(t, config(src, dst, pack.Options{ShardSize: 10_000}))
	got, each := members(t, dst, "")
	if !slices.Equal(got, want) || len(each) < 3 {
		t.Errorf("%d members in %d shards", len(got), len(each))
	}

	some := t.TempDir()
	run(t, config(src, some, pack.Options{Options: prepare.Options{Fields: []string{"cls", "left.jpg"}}}))
	got, _ = members(t, some, "")
	if len(got) != 40 || got[0] != want[1] || got[1] != want[0] {
		t.Errorf("chosen fields: %v", got[:2])
	}
}

// Samples of one name would be one sample in a shard.
func TestOneName(t *testing.T) {
	src := t.TempDir()
	put(t, src+"/a/x.jpg", []byte("1"))
	put(t, src+"/a/x.png", []byte("2"))
	_, err := pack.Run(context.Background(), config(src, t.TempDir(), pack.Options{}))
	if e := errs.From(err); err == nil || e.Code != errs.Config || !strings.Contains(e.What, "samples 0 and 1") || !strings.Contains(e.Hint, "--keys number") {
		t.Errorf("%v", err)
	}
	dst := t.TempDir()
	run(t, config(src, dst, pack.Options{Options: prepare.Options{Keys: "number"}}))
	got, _ := members(t, dst, "")
	if len(got) != 4 || got[0] != (member{"000000000.jpg", "1"}) || got[2] != (member{"000000001.png", "2"}) {
		t.Errorf("%v", got)
	}
}

// Some fields of a format whose samples have no names: they are called by number.
func TestFieldsWithoutNames(t *testing.T) {
	dst := t.TempDir()
	c := config("../../../testdata/guides/photos.h5", dst, pack.Options{})
	c.Options.Fields = []string{"encoded", "labels"}
	run(t, c)
	got, _ := members(t, dst, "")
	if len(got) != 24 || !strings.HasPrefix(got[0].name, "000000000.") || !strings.HasPrefix(got[23].name, "000000011.") {
		t.Errorf("%d members", len(got))
	}
}

// A file that is gone is an error with its place, and the shards before it stay.
func TestBadSample(t *testing.T) {
	src, dst := folder(t, 300, 900), t.TempDir()
	c := config(src, dst, pack.Options{ShardSize: 10_000})
	names, err := os.ReadDir(src + "/cat")
	stagetest.Must(t, err)
	bad := src + "/cat/" + names[len(names)/2+3].Name() // none of the probes
	c.Progress = func(done, _, _ int64) {
		if done == 0 { // its size is known, and it was not read yet
			stagetest.Must(t, os.WriteFile(bad, []byte("another length"), 0o644))
		}
	}
	_, err = pack.Run(context.Background(), c)
	if e := errs.From(err); err == nil || e.Code != errs.Changed || e.Where.Sample.Or(-1) < 200 || e.Where.File != bad {
		t.Errorf("%v", err)
	}
	if done, _ := filepath.Glob(dst + "/shard-*.tar"); len(done) < 3 {
		t.Errorf("%d shards are left", len(done))
	}
}

// Lines and files of text become the tokens of each, in order, each followed by the
// end of text.
func TestTokens(t *testing.T) {
	src := t.TempDir()
	put(t, src+"/a.jsonl", []byte("{\"text\": \"Hello world\"}\n{\"text\": \"\"}\n"))
	put(t, src+"/sub/b.txt", []byte("Hello"))
	for name, want := range map[string][]uint32{"gpt2": {15496, 995, 50256, 50256, 15496, 50256}, "o200k_base": {13225, 2375, 199999, 199999, 13225, 199999}} {
		dst := t.TempDir()
		r := run(t, config(src, dst, pack.Options{Options: prepare.Options{Tokenize: name}}))
		b := []byte(tree(t, dst)["shard-000000.bin"])
		width := len(b) / len(want)
		var got []uint32
		for ; len(b) >= width; b = b[width:] {
			v := uint32(binary.LittleEndian.Uint16(b))
			if width == 4 {
				v = binary.LittleEndian.Uint32(b)
			}
			got = append(got, v)
		}
		if !slices.Equal(got, want) || r.Manifest.Samples != 3 || (width == 4) != (name == "o200k_base") {
			t.Errorf("%s: %v of %d bytes", name, got, width)
		}
	}
	dst := t.TempDir()
	run(t, config(src, dst, pack.Options{Options: prepare.Options{Tokenize: "gpt2"}}))
	ds, err := tokens.Open(context.Background(), source.NewFile(), []string{dst + "/shard-000000.bin"}, tokens.Options{Documents: true})
	stagetest.Must(t, err)
	defer ds.Close()
	r := format.NewReader(ds, source.NewFile())
	var s format.Sample
	for id, want := range []string{"\x88\x3c\xe3\x03\x50\xc4", "\x50\xc4", "\x88\x3c\x50\xc4"} {
		if err := r.Read(context.Background(), int64(id), nil, &s); err != nil || string(s.Fields[0].Data) != want {
			t.Errorf("document %d is %q: %v", id, s.Fields[0].Data, err)
		}
	}
	again := t.TempDir()
	run(t, config(dst, again, pack.Options{Output: pack.OutputTokens}))
	for _, end := range []string{"bin", "idx"} {
		if tree(t, dst)["shard-000000."+end] != tree(t, again)["shard-000000."+end] {
			t.Errorf("the .%s is another when it is packed again", end)
		}
	}
	put(t, src+"/c.txt", []byte("\xff"))
	_, err = pack.Run(context.Background(), config(src, t.TempDir(), pack.Options{Options: prepare.Options{Tokenize: "gpt2"}}))
	if e := errs.From(err); err == nil || e.Code != errs.Damaged || e.Where.File != src+"/c.txt" {
		t.Errorf("%v", err)
	}
}

// What is predicted comes true, and nothing is written for it.
func TestDryRun(t *testing.T) {
	src := folder(t, 90, 9000)
	for _, o := range []pack.Options{{ShardSize: 50_000}, {ShardSize: 50_000, Output: pack.OutputTFRecord}, {ShardSize: 50_000, Compress: "zstd"}} {
		dst := t.TempDir() + "/none"
		e, err := pack.DryRun(context.Background(), config(src, dst, o))
		stagetest.Must(t, err)
		if _, err := os.Stat(dst); err == nil {
			t.Error("a dry run made the destination")
		}
		r := run(t, config(src, dst, o))
		if d := e.Bytes - r.Manifest.Bytes; d < -e.Bytes/20 || d > e.Bytes/20 {
			t.Errorf("%+v: %d bytes were predicted, and %d written", o, e.Bytes, r.Manifest.Bytes)
		}
		if d := e.Shards - int64(r.Shards); d < -2 || d > 2 || e.Samples != 90 || e.SourceFiles != 90 || e.Measured != 90 || e.Seconds <= 0 {
			t.Errorf("%+v, and there are %d shards", e, r.Shards)
		}
	}
}

// A field that is called like a number is one in all samples of a TFRecord, or in
// none: what some records hold as numbers and others as bytes, nothing reads.
func TestOneKindOfAField(t *testing.T) {
	dir := t.TempDir()
	ids := func(values ...string) []byte {
		var all []member
		for i, v := range values {
			all = append(all, member{fmt.Sprintf("%03d.id", i), v})
		}
		return tarOf(t, all...)
	}
	kinds := func(dst string) (bytes, ints int) {
		b := tree(t, dst)["shard-000000.tfrecord"]
		return strings.Count(b, "id\x12\x05\x0a\x03\x0a\x01"), strings.Count(b, "id\x12\x05\x1a\x03\x0a\x01")
	}
	put(t, dir+"/mixed.tar", ids("1", "x", "3"))
	run(t, config(dir+"/mixed.tar", dir+"/mixed", pack.Options{Output: pack.OutputTFRecord}))
	if b, n := kinds(dir + "/mixed"); b != 3 || n != 0 {
		t.Errorf("%d of bytes, %d of numbers", b, n)
	}
	put(t, dir+"/whole.tar", ids("1", "2", "3"))
	run(t, config(dir+"/whole.tar", dir+"/whole", pack.Options{Output: pack.OutputTFRecord}))
	if b, n := kinds(dir + "/whole"); b != 0 || n != 3 {
		t.Errorf("%d of bytes, %d of numbers", b, n)
	}
	late := make([]string, 200) // one that is not looked at before
	for i := range late {
		late[i] = strconv.Itoa(i % 10)
	}
	late[1] = "x"
	put(t, dir+"/late.tar", ids(late...))
	_, err := pack.Run(context.Background(), config(dir+"/late.tar", dir+"/late", pack.Options{Output: pack.OutputTFRecord}))
	if e := errs.From(err); err == nil || e.Code != errs.Damaged || e.Where.Sample.Or(-1) != 1 || !strings.Contains(e.Hint, "tar") {
		t.Errorf("%v", err)
	}
}
