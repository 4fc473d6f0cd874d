package verify_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/tool/inspect"
	"github.com/stoker-data/stoker/internal/tool/pack"
	"github.com/stoker-data/stoker/internal/tool/pack/prepare"
	"github.com/stoker-data/stoker/internal/tool/verify"
)

// rows is how many samples the packings below have, and perShard in each shard.
const rows = 40

// packings are one of each kind with uncompressed samples, in shards of a few.
func packings(t *testing.T) map[string]string {
	t.Helper()
	t.Setenv("STOKER_CACHE", t.TempDir())
	dir := t.TempDir()
	table, text := "x,y\n", ""
	for i := range rows {
		table += fmt.Sprintf("%d,%d\n", i, 1000-i)
		text += fmt.Sprintf("{\"text\": \"%s number %d\"}\n", strings.Repeat("word ", i%3), i)
	}
	for name, s := range map[string]string{"t.csv": table, "t.jsonl": text} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(s), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	all := map[string]string{}
	for output, size := range map[string]int64{"tar": 20 << 10, "npy": 256, "tfrecord": 1 << 10, "tokens": 200} {
		src, opt := dir+"/t.csv", pack.Options{Output: output, ShardSize: size}
		if output == "tokens" {
			src, opt.Options = dir+"/t.jsonl", prepare.Options{Tokenize: "gpt2"}
		}
		all[output] = filepath.Join(dir, output)
		r, err := pack.Run(context.Background(), pack.Config{Dataset: spec.Dataset{Path: spec.Paths{src}}, Dst: all[output], Options: opt})
		if err != nil || r.Shards < 2 {
			t.Fatalf("%s: %v, %+v", output, err, r)
		}
	}
	return all
}

// owner is the sample, by its number in the shard, that a byte of a whole shard is
// of; -1: of none. It is written down here from the layouts of the formats.
func owner(output string, f int, b [][]byte, n, at int) int {
	switch output {
	case "tar": // two members of two blocks for each
		if i := at / 2048; i < n {
			return i
		}
	case "npy":
		if i := (at - 128) / 8; at >= 128 {
			return i
		}
	case "tfrecord":
		for i, off := 0, 0; ; i++ {
			if off += 16 + int(binary.LittleEndian.Uint64(b[0][off:])); at < off {
				return i
			}
		}
	case "tokens":
		if f == 1 {
			switch {
			case at >= 34 && at < 34+4*n:
				return (at - 34) / 4
			case at >= 34+4*n && at < 34+12*n:
				return (at - 34 - 4*n) / 8
			}
			return -1
		}
		for i, off := 0, 0; ; i++ {
			if off += 2 * int(binary.LittleEndian.Uint32(b[1][34+4*i:])); at < off {
				return i
			}
		}
	}
	return -1
}

// Whatever byte of a packing is changed, exactly the samples that it is of are
// named, and all others are sound.
func TestWhichSamplesOfAPackingAreDamaged(t *testing.T) {
	all := packings(t)
	counts := map[string]pack.Manifest{}
	for output, dir := range all {
		raw, err := os.ReadFile(filepath.Join(dir, pack.ManifestName))
		if err != nil {
			t.Fatal(err)
		}
		var m pack.Manifest
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Fatal(err)
		}
		counts[output] = m
	}
	rapid.Check(t, func(t *rapid.T) {
		output := rapid.SampledFrom([]string{"npy", "tar", "tfrecord", "tokens"}).Draw(t, "output")
		dir, m := all[output], counts[output]
		s := m.Shards[rapid.IntRange(0, len(m.Shards)-1).Draw(t, "shard")]
		f := rapid.IntRange(0, len(s.Files)-1).Draw(t, "file")
		var whole [][]byte
		for _, made := range s.Files {
			b, err := os.ReadFile(filepath.Join(dir, made.Name))
			if err != nil {
				t.Fatal(err)
			}
			whole = append(whole, b)
		}
		at := rapid.IntRange(0, len(whole[f])-1).Draw(t, "byte")
		b := bytes.Clone(whole[f])
		b[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		path := filepath.Join(dir, s.Files[f].Name)
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.WriteFile(path, whole[f], 0o644) }()

		want := []int64{}
		switch i := owner(output, f, whole, int(s.Samples), at); {
		case i >= 0:
			want = append(want, s.First+int64(i))
		case output == "npy" || output == "tokens": // how to read all of them
			for id := s.First; id < s.First+s.Samples; id++ {
				want = append(want, id)
			}
		}
		r, err := verify.Run(context.Background(), verify.Config{Dataset: spec.Dataset{Path: spec.Paths{dir}}})
		if err != nil {
			t.Fatal(err)
		}
		if got := append([]int64{}, r.Broken...); !slices.Equal(got, want) || r.Damaged != int64(len(want)) || r.Checked != rows {
			t.Fatalf("%s: samples %d are damaged of %d, want %d", output, got, r.Checked, want)
		}
		if len(r.Shards) != 1 || r.Shards[0].Where.Shard != path || errs.CodeOf(r.Err()) != errs.Damaged {
			t.Fatalf("%+v, %v", r.Shards, r.Err())
		}
	})
}

// What a quarantine leaves names the damage, whether or not the dataset opens.
func TestQuarantineOfAPacking(t *testing.T) {
	dir := packings(t)["tar"]
	path := filepath.Join(dir, "shard-000001.tar")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[2048*3+100] ^= 8 // a header's mode: the rest of the archive cannot be read
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "shard-000000.tar")); err != nil {
		t.Fatal(err)
	}
	r := run(t, verify.Config{Dataset: spec.Dataset{Path: spec.Paths{dir}}})
	out := t.TempDir()
	if r.Opened {
		t.Fatal("a dataset without its first shard opens")
	}
	if err := verify.Quarantine(context.Background(), nil, nil, r, out); err != nil {
		t.Fatal(err)
	}
	var damage struct {
		Broken []int64
		Damage []json.RawMessage
		Shards []json.RawMessage
	}
	raw, err := os.ReadFile(filepath.Join(out, verify.DamageName))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &damage); err != nil {
		t.Fatal(err)
	}
	n := len(damage.Broken)
	if n < 2 || damage.Broken[n-1] != int64(n-1)+3 || len(damage.Damage) != n || len(damage.Shards) != 2 {
		t.Errorf("%d are broken, the last is %d: %s", n, damage.Broken[n-1], raw)
	}
	sound, err := os.ReadFile(filepath.Join(out, verify.SoundName))
	if err != nil || len(sound) != 128+8*(rows-n) {
		t.Errorf("%d bytes, %v", len(sound), err)
	}
}

// Shards that no manifest counts are looked at each by itself: all that are damaged
// are named, and the samples of the others are listed.
func TestEveryShardByItself(t *testing.T) {
	dir := packings(t)["tar"]
	if err := os.Remove(filepath.Join(dir, pack.ManifestName)); err != nil {
		t.Fatal(err)
	}
	shards, err := filepath.Glob(filepath.Join(dir, "*.tar"))
	if err != nil || len(shards) < 3 {
		t.Fatal(shards, err)
	}
	counts := int64(0) // of the others
	for i, path := range shards {
		if i != 0 && i != 2 {
			counts += run(t, verify.Config{Dataset: spec.Dataset{Path: spec.Paths{path}}}).Samples
		}
	}
	for _, path := range []string{shards[0], shards[2]} {
		if err := os.Truncate(path, 3000); err != nil {
			t.Fatal(err)
		}
	}
	for _, paths := range []spec.Paths{{dir}, shards, {filepath.Join(dir, "*.tar")}} {
		r := run(t, verify.Config{Dataset: spec.Dataset{Path: paths}})
		if len(r.Shards) != 2 || r.Shards[0].Where.Shard != shards[0] || r.Shards[1].Where.Shard != shards[2] || r.Damaged != 0 {
			t.Fatalf("%v: %+v, %d", paths, r.Shards, r.Damaged)
		}
		if len(r.Sound) != len(shards)-2 || r.Checked != counts || r.Samples != counts || counts == 0 {
			t.Errorf("%v: %v, %d samples", paths, r.Sound, r.Samples)
		}
		if e := errs.From(r.Err()); e.Code != errs.Damaged || !strings.Contains(e.What, "2 files cannot be read") {
			t.Errorf("%v", e)
		}
		if out := text(t, r); !strings.Contains(out, shards[0]) || !strings.Contains(out, shards[2]) {
			t.Errorf("%s", out)
		}
	}
}

// A manifest that was cut to nothing does not make its shards somebody else's;
// what is of somebody else does not make a folder a packing.
func TestBrokenManifest(t *testing.T) {
	for _, output := range []string{"tar", "npy", "tfrecord"} {
		dir := packings(t)[output]
		path := filepath.Join(dir, pack.ManifestName)
		for _, broken := range []string{"", " \n", "{", `{"shards": [`, "\x00\x00\x00", `{"stoker_pack": 2, "sha`} {
			if err := os.WriteFile(path, []byte(broken), 0o644); err != nil {
				t.Fatal(err)
			}
			_, err := verify.Run(context.Background(), verify.Config{Dataset: spec.Dataset{Path: spec.Paths{dir}}})
			if e := errs.From(err); err == nil || e.Code != errs.Damaged || !strings.Contains(e.What, "manifest") || e.Where.File != path {
				t.Errorf("%s, %q: %v", output, broken, err)
			}
			err = dataset.CheckManifest(t.Context(), source.NewFile(), path)
			if errs.CodeOf(err) != errs.Damaged {
				t.Errorf("%s, %q: %v", output, broken, err)
			}
			if _, err := inspect.Run(context.Background(), inspect.Config{Dataset: spec.Dataset{Path: spec.Paths{dir}}}); errs.CodeOf(err) != errs.Damaged {
				t.Errorf("%s, %q: it is loaded: %v", output, broken, err)
			}
		}
	}
	dir := packings(t)["tar"]
	for _, foreign := range []string{"[]", "{}", `{"version": 1}`, "{\"a\": 1}\n{\"a\": 2}\n"} {
		if err := os.WriteFile(filepath.Join(dir, pack.ManifestName), []byte(foreign), 0o644); err != nil {
			t.Fatal(err)
		}
		if r := run(t, verify.Config{Dataset: spec.Dataset{Path: spec.Paths{dir}}}); r.Err() != nil || r.Checked != rows {
			t.Errorf("%q: %v", foreign, r.Err())
		}
	}
	photos := t.TempDir() // no shards: whatever is called so is none of our business
	if err := os.WriteFile(filepath.Join(photos, pack.ManifestName), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := dataset.CheckManifest(t.Context(), source.NewFile(), filepath.Join(photos, pack.ManifestName)); err != nil {
		t.Error(err)
	}
}
