package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stoker-data/stoker/internal/tool/peek"
	"github.com/stoker-data/stoker/internal/tool/verify"
	"github.com/stoker-data/stoker/testdata/photos"
)

// verified runs stoker verify and reads its report.
func verified(t *testing.T, status int, args ...string) (r verify.Report) {
	t.Helper()
	got := command(t, append([]string{"verify", "--json"}, args...)...)
	if got.status != status {
		t.Fatalf("exit status %d, not %d: %s", got.status, status, got.err)
	}
	if err := json.Unmarshal([]byte(got.out), &r); err != nil {
		t.Fatalf("%v in %q", err, got.out)
	}
	return r
}

func TestVerifyFindsWhatInspectCanNot(t *testing.T) {
	root := folder(t, 4)
	if got := command(t, "index", root, "--digests"); got.status != 0 {
		t.Fatal(got.err)
	}
	if r := verified(t, 0, root); r.Checked != 12 || r.Compared != 12 || r.Damaged != 0 || r.Digests == "" {
		t.Fatalf("%+v of a sound dataset", r)
	}
	// A byte of the last scan line's data: the picture still decodes.
	path := filepath.Join(root, "coffee", "02.jpg")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	at := len(raw) - 5
	raw[at] ^= 1
	write(t, path, raw)
	if err := os.Chtimes(path, st.ModTime(), st.ModTime()); err != nil {
		t.Fatal(err)
	}
	if r := verified(t, 0, root, "--quick"); r.Checked != 0 {
		t.Errorf("--quick read %d samples", r.Checked)
	}
	r := verified(t, 3, root)
	if r.Damaged != 1 || len(r.Damage) != 1 || r.Damage[0].Where.Sample.Or(-1) != 6 || r.Damage[0].Where.File != path {
		t.Fatalf("%+v", r.Damage)
	}
	if what := r.Damage[0].What; !strings.Contains(what, "digest") {
		t.Errorf("the damage is told as %q", what)
	}
}

func TestQuarantineLeavesTheData(t *testing.T) {
	root := folder(t, 2)
	path := filepath.Join(root, "chelsea", "01.jpg")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, raw[:len(raw)/2])
	dir := filepath.Join(t.TempDir(), "damaged")
	if got := command(t, "verify", root, "--sample", "50%", "--quarantine", dir); got.status != 2 {
		t.Errorf("a quarantine of a part ends with %d", got.status)
	}
	got := command(t, "verify", root, "--quarantine", dir)
	if got.status != 3 || !strings.Contains(got.out, "1 sample is damaged") {
		t.Fatalf("exit status %d: %s%s", got.status, got.out, got.err)
	}
	kept, err := os.ReadFile(filepath.Join(dir, "000000001-0-01.jpg"))
	if err != nil || len(kept) != len(raw)/2 {
		t.Errorf("%d bytes were kept: %v", len(kept), err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	spec := filepath.Join(t.TempDir(), "sound.yaml")
	write(t, spec, []byte("dataset: {path: "+root+"}\nfields: [{name: label, decode: int}]\norder: {subset: "+filepath.Join(dir, verify.SoundName)+"}\nbatch: {size: 5}\n"))
	list := command(t, "order", spec, "--json")
	if list.status != 0 || !strings.Contains(list.out, "0") {
		t.Errorf("cannot order the sound samples: %s%s", list.out, list.err)
	}
}

func TestSharesOfADataset(t *testing.T) {
	root := folder(t, 10)
	if r := verified(t, 0, root, "--sample", "10%"); r.Checked != 3 || !r.Decoded {
		t.Errorf("%d of 30 samples were read", r.Checked)
	}
	for _, bad := range []string{"0", "-5%", "200%", "half"} {
		if got := command(t, "verify", root, "--sample="+bad); got.status != 2 || !strings.Contains(got.err, "5%") {
			t.Errorf("--sample %s: %d, %s", bad, got.status, got.err)
		}
	}
}

func TestLsAndCat(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.tar")
	shard(t, path, 3)
	got := command(t, "ls", path, "--json", "--from", "1")
	lines := strings.Split(strings.TrimSpace(got.out), "\n")
	if got.status != 0 || len(lines) != 2 {
		t.Fatalf("%d lines: %s%s", len(lines), got.out, got.err)
	}
	var first peek.Line
	if err := json.Unmarshal([]byte(lines[0]), &first); err != nil {
		t.Fatal(err)
	}
	if first.ID != 1 || first.File != path || first.Key == "" || first.Bytes == 0 {
		t.Errorf("%+v", first)
	}
	var shown peek.Line
	by := command(t, "cat", path, first.Key)
	if err := json.Unmarshal([]byte(by.out), &shown); err != nil {
		t.Fatal(by.out, by.err, err)
	}
	first.Fields = shown.Fields
	if diff := cmp.Diff(first, shown); diff != "" || len(shown.Fields) == 0 {
		t.Errorf("cat by key shows another sample than ls: %s", diff)
	}
	var picture, errOut bytes.Buffer
	if status := run(t.Context(), []string{"cat", path, "2", "--field", "jpg"}, &picture, &errOut); status != 0 {
		t.Errorf("exit status %d: %s", status, errOut.String())
	}
	if raw := picture.Bytes(); !bytes.HasPrefix(raw, []byte("\xff\xd8")) || !bytes.HasSuffix(raw, []byte("\xff\xd9")) {
		t.Errorf("%d bytes of no JPEG", len(raw))
	}
	if none := command(t, "cat", path, "nobody"); none.status != 2 || !strings.Contains(none.err, "stoker ls") {
		t.Errorf("%d: %s", none.status, none.err)
	}
	if text := command(t, "ls", path, "--fields", "-n", "1").out; !strings.Contains(text, "jpg") {
		t.Errorf("ls --fields says %s", text)
	}
}

func TestIndexBeside(t *testing.T) {
	dir := t.TempDir()
	shard(t, filepath.Join(dir, "a.tar"), 3)
	got := command(t, "index", filepath.Join(dir, "a.tar"), "--beside", "--json")
	if got.status != 0 || !strings.Contains(got.out, ".stoker") {
		t.Fatalf("%d: %s%s", got.status, got.out, got.err)
	}
	if again := command(t, "inspect", dir, "--json"); again.status != 0 || !strings.Contains(again.out, `"format": "tar"`) {
		t.Errorf("a folder of shards with an index in it is %s%s", again.out, again.err)
	}
	if no := command(t, "index", folder(t, 1), "--beside"); no.status != 2 {
		t.Errorf("the index of a folder travels: %d", no.status)
	}
}

// What stoker pack has written is held against its manifest.
func TestVerifyOfAPacking(t *testing.T) {
	root, dst := folder(t, 30), filepath.Join(t.TempDir(), "packed")
	if got := command(t, "pack", root, dst, "--shard-size", "2MB"); got.status != 0 {
		t.Fatal(got.err)
	}
	if r := verified(t, 0, dst); r.Checked != 90 || r.Compared != 90 || r.Manifest == "" {
		t.Fatalf("%d of %d samples were compared", r.Compared, r.Checked)
	}
	shards, err := filepath.Glob(filepath.Join(dst, "*.tar"))
	if err != nil || len(shards) < 3 {
		t.Fatal(shards, err)
	}
	harm := func(change func(raw []byte) []byte, check func()) {
		t.Helper()
		raw, err := os.ReadFile(shards[1])
		if err != nil {
			t.Fatal(err)
		}
		write(t, shards[1], change(bytes.Clone(raw)))
		check()
		write(t, shards[1], raw)
	}
	harm(func(raw []byte) []byte { raw[600] ^= 1; return raw }, func() { // within the first picture
		r := verified(t, 3, dst)
		if len(r.Shards) != 1 || r.Shards[0].Where.Shard != shards[1] || r.Damaged != 1 || r.Damage[0].Where.Shard+r.Damage[0].Where.File != shards[1] {
			t.Errorf("%+v %+v", r.Shards, r.Damage)
		}
		if r := verified(t, 0, dst, "--quick"); r.Checked != 0 {
			t.Errorf("--quick read %d samples", r.Checked)
		}
	})
	harm(func(raw []byte) []byte { return raw[:len(raw)-1024] }, func() {
		if r := verified(t, 3, dst, "--quick"); len(r.Shards) != 1 || !strings.Contains(r.Shards[0].What, "bytes") {
			t.Errorf("%+v", r.Shards)
		}
	})
	if err := os.Remove(shards[2]); err != nil {
		t.Fatal(err)
	}
	if r := verified(t, 3, dst, "--quick"); len(r.Shards) != 1 || !strings.Contains(r.Shards[0].What, "missing") {
		t.Errorf("%+v", r.Shards)
	}
	if again := command(t, "pack", root, dst, "--shard-size", "2MB"); again.status != 0 {
		t.Fatal(again.err)
	}
	verified(t, 0, dst)
}

// Whatever samples and fields are called, what was packed is read again, and found
// to be what was packed.
func TestVerifyOfOddNames(t *testing.T) {
	photo, err := photos.Files.ReadFile("coffee.jpg")
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for _, name := range []string{"a/\x01\xff.jpg", "a/" + strings.Repeat("k", 240) + ".jpg", "b/日本.jpg", "b/日本 2.jpg", "é/" + strings.Repeat("ü/", 90) + "x.jpg"} {
		write(t, filepath.Join(root, name), photo)
	}
	pictures := "../../testdata/tfrecord/pictures.tfrecord" // image/encoded, image/class/label
	for _, src := range []string{root, pictures} {
		dst := filepath.Join(t.TempDir(), "packed")
		if got := command(t, "pack", src, dst); got.status != 0 {
			t.Fatal(got.err)
		}
		was, now := verified(t, 0, src), verified(t, 0, dst)
		if now.Samples != was.Samples || now.Compared != was.Samples {
			t.Errorf("%s: %d samples, and packed %d, of which %d were compared", src, was.Samples, now.Samples, now.Compared)
		}
		again := filepath.Join(t.TempDir(), "again")
		if got := command(t, "pack", dst, again); got.status != 0 {
			t.Fatal(got.err)
		}
		if r := verified(t, 0, again); r.Samples != was.Samples || r.Compared != was.Samples {
			t.Errorf("packed again: %+v", r)
		}
	}
}

// A raw array is not a damaged picture, whatever its field is called.
func TestVerifyOfRawArrays(t *testing.T) {
	pictures := filepath.Join(t.TempDir(), "a.tar")
	shard(t, pictures, 3)
	for _, src := range []string{pictures, folder(t, 1)} {
		dst := filepath.Join(t.TempDir(), "packed")
		if got := command(t, "pack", src, dst, "--decode", "--resize", "40", "--output", "tfrecord"); got.status != 0 {
			t.Fatal(got.err)
		}
		if r := verified(t, 0, dst); r.Checked != 3 {
			t.Errorf("%d samples were checked", r.Checked)
		}
	}
	kept := filepath.Join(t.TempDir(), "packed") // encoded pictures stay pictures
	if got := command(t, "pack", pictures, kept, "--output", "tfrecord"); got.status != 0 {
		t.Fatal(got.err)
	}
	if got := command(t, "inspect", kept); !strings.Contains(got.out, "JPEG") {
		t.Errorf("%s", got.out)
	}
}

// A file that was written anew within its folder is told of once; the next
// command sees the folder as it is.
func TestAFileWrittenAnewIsIndexedAnew(t *testing.T) {
	root := folder(t, 3)
	if got := command(t, "verify", root); got.status != 0 {
		t.Fatal(got.err)
	}
	other, err := os.ReadFile(filepath.Join(root, "rocket", "00.jpg"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "coffee", "01.jpg"), other)
	if r := verified(t, 3, root); r.Damaged != 1 || !strings.Contains(r.Damage[0].What, "indexed") {
		t.Errorf("%+v", r.Damage)
	}
	if r := verified(t, 0, root); r.Checked != 9 {
		t.Errorf("%d samples were checked", r.Checked)
	}
}
