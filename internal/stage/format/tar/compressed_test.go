package tar_test

import (
	gotar "archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/tar"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stagetest"
)

func gzipped(t stagetest.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(data)
	stagetest.Must(t, err)
	stagetest.Must(t, w.Close())
	return b.Bytes()
}

func zstded(t stagetest.TB, data []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	stagetest.Must(t, err)
	return w.EncodeAll(data, nil)
}

var packedShards = []string{"large.tar.gz", "members.tgz", "large.tar.zst", "frames.tar.zst", "large.tar.lz4", "alone.tar.lz4"}

// What Python's gzip, zstandard and lz4 compressed; see testdata/make.py.
func TestCompressedByOthers(t *testing.T) {
	text, err := os.ReadFile("testdata/packed.json")
	stagetest.Must(t, err)
	var sums map[string]string
	stagetest.Must(t, json.Unmarshal(text, &sums))
	var digest []sample
	for _, name := range packedShards {
		t.Run(name, func(t *testing.T) {
			s := newShelf(t)
			path, err := filepath.Abs("testdata/" + name)
			stagetest.Must(t, err)
			d := s.open(t, path)
			got := all(t, d, s.src)
			n := 0
			for i := range got {
				got[i].URL = ""
				for field, data := range got[i].Fields {
					sum := sha256.Sum256([]byte(data))
					if want := sums[got[i].Key+"."+field]; hex.EncodeToString(sum[:]) != want {
						t.Errorf("%s.%s differs", got[i].Key, field)
					}
					n++
				}
			}
			if n != len(sums) {
				t.Errorf("%d members of %d", n, len(sums))
			}
			if digest == nil {
				digest = got
			} else if !cmp.Equal(digest, got) {
				t.Error("other samples than in the first shard")
			}
			stagetest.Dataset(t, d, s.src)
			if !tar.Sniff(name, nil) {
				t.Error("was not recognised")
			}
		})
	}
}

// The index of a compressed shard is kept, and taken over where another shard of the
// list changed.
func TestCompressedIsIndexedOnce(t *testing.T) {
	s := newShelf(t)
	one := archive(t, gotar.FormatPAX, members("1.txt="+strings.Repeat("one ", 300_000), "2.txt=two"))
	two := archive(t, gotar.FormatPAX, members("3.txt=three"))
	a, b := s.put(t, "a.tar.gz", gzipped(t, one)), s.put(t, "b.tar.zst", zstded(t, two))
	c := s.put(t, "c.tar", two)
	want := all(t, s.open(t, a, b, c), s.src)
	s.bytes.Store(0)
	if diff := cmp.Diff(want, all(t, s.open(t, a, b, c), s.src)); diff != "" || s.bytes.Load() != 0 {
		t.Errorf("built again: %v; %s", s.bytes.Load() != 0, diff)
	}
	s.put(t, "b.tar.zst", zstded(t, archive(t, gotar.FormatPAX, members("4.txt=another one"))))
	faulty := stagetest.WithFaults(s.src, "read a.tar.gz unreadable")
	d, err := tar.Open(ctx, faulty, []string{a, b, c}, tar.Options{Store: s.store})
	stagetest.Must(t, err)
	defer d.Close()
	want[2] = sample{"4", b, map[string]string{"txt": "another one"}}
	if diff := cmp.Diff(want, all(t, d, s.src)); diff != "" {
		t.Error(diff)
	}
}

func TestCompressedDamage(t *testing.T) {
	three := three(t)
	gz, zs := gzipped(t, three), zstded(t, three)
	lz, err := os.ReadFile("testdata/alone.tar.lz4")
	stagetest.Must(t, err)
	change := func(data []byte, at int, by byte) []byte {
		out := bytes.Clone(data)
		if at < 0 {
			at += len(out)
		}
		out[at] ^= by
		return out
	}
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	bomb := gzipped(t, make([]byte, 70<<20))
	s := newShelf(t)
	for _, c := range []struct {
		name string
		data []byte
		code errs.Code
		what string
		off  int64 // -1: anywhere in the file
	}{
		{"gzip cut in its head", gz[:7], errs.Damaged, "cut off", 7},
		{"gzip cut in its body", gz[:len(gz)/2], errs.Damaged, "cut off", int64(len(gz) / 2)},
		{"gzip cut in its CRC", gz[:len(gz)-6], errs.Damaged, "cut off", int64(len(gz) - 6)},
		{"gzip CRC", change(gz, -8, 1), errs.Damaged, "the CRC", int64(len(gz) - 8)},
		{"gzip length", change(gz, -1, 1), errs.Damaged, "its end says", int64(len(gz) - 8)},
		{"gzip block type", change(gz, 10, 6), errs.Damaged, "", -1},
		{"gzip head", change(gz, 3, 0x80), errs.Damaged, "head of a gzip member", 0},
		{"garbage after gzip", append(bytes.Clone(gz), "garbage"...), errs.Damaged, "the end of the gzip stream is followed", int64(len(gz))},
		{"gzip of no tar", gzipped(t, bytes.Repeat([]byte("text"), 500)), errs.Damaged, "first header", 0},
		{"gzip of a cut tar", gzipped(t, three[:1536*2]), errs.Damaged, "the end of the archive is missing", 0},
		{"gzip of a tar cut in a member", gzipped(t, three[:1536*2+700]), errs.Damaged, "it ends inside this member", 0},
		{"gzip of two tars", gzipped(t, join(three, three)), errs.Damaged, "something after its end", 0},
		{"two tars in gzip", join(gz, gz), errs.Damaged, "something after its end", -1},
		{"gzip bomb", bomb, errs.Damaged, "first", -1},
		{"zstd cut", zs[:len(zs)-9], errs.Damaged, "cut off", int64(len(zs) - 9)},
		{"zstd checksum", change(zs, -1, 1), errs.Damaged, "cannot decompress a zstd frame", 0},
		{"zstd body", change(zs, len(zs)/2, 1), errs.Damaged, "", 0},
		{"garbage after zstd", append(bytes.Clone(zs), "garbage..."...), errs.Damaged, "a zstd frame should begin here", int64(len(zs))},
		{"zstd dictionary", []byte("\x28\xb5\x2f\xfd\x21\x07\x05\x00\x00\x00\x00\x00\x00"), errs.Unsupported, "dictionary", 0},
		{"zstd window of 2 GiB", []byte("\x28\xb5\x2f\xfd\x00\xa8\x01\x00\x00\x00\x00\x00\x00"), errs.Unsupported, "window", 0},
		{"zstd block of 2 MiB", []byte("\x28\xb5\x2f\xfd\x00\x58\xfd\xff\xff\x00\x00\x00\x00"), errs.Damaged, "zstd block", 6},
		{"lz4 cut", lz[:len(lz)-5], errs.Damaged, "cut off", int64(len(lz) - 5)},
		{"lz4 content checksum", change(lz, -1, 1), errs.Damaged, "checksum", int64(len(lz) - 4)},
		{"lz4 block checksum", change(lz, 2000, 1), errs.Damaged, "LZ4 block", 7 + 8},
		{"lz4 head", change(lz, 5, 0x10), errs.Damaged, "head of an LZ4 frame", 0},
		{"lz4 legacy", []byte("\x02\x21\x4c\x18\x00\x00\x00\x00"), errs.Unsupported, "legacy", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := s.put(t, "x.tar.packed", c.data)
			_, err := s.try(path)
			e := errs.From(err)
			if c.name == "gzip bomb" { // zeros are the end of an archive: it is found to be empty
				if e.Code != errs.Empty && e.Code != errs.Damaged {
					t.Errorf("%v", e)
				}
				return
			}
			if err == nil || e.Code != c.code || e.Where.Shard != path || !strings.Contains(e.What, c.what) || e.Hint == "" ||
				c.off >= 0 && e.Where.Offset.Or(-1) != c.off || e.Where.Offset.Or(-1) < 0 || e.Where.Offset.Or(-1) > int64(len(c.data)) {
				t.Errorf("%s: %s at %+v (of %d) | %s; want %q at %d", e.Code, e, e.Where, len(c.data), e.Hint, c.what, c.off)
			}
		})
	}
}

// Compressed bytes that go bad later, under the same size and time.
func TestCompressedBytesThatGoBad(t *testing.T) {
	for _, name := range packedShards {
		s := newShelf(t)
		path, err := filepath.Abs("testdata/" + name)
		stagetest.Must(t, err)
		d := s.open(t, path)
		e := d.Extents(20, []string{"txt"}, nil)[0]
		step := max(e.Len/60, 1)
		found := 0
		for at := e.Off; at < e.Off+e.Len; at += step {
			d := s.open(t, path) // with nothing unpacked yet
			bad := stagetest.WithFaults(s.src, fmt.Sprintf("read * flip=%d", at))
			var smp format.Sample
			err := stagetest.Read(d, bad, 20, []string{"txt"}, &smp)
			if err == nil { // a bit that means nothing; then the bytes are right
				if !strings.HasPrefix(string(smp.Fields[0].Data), "sample 20 0 0|") {
					t.Fatalf("%s: bit at %d: wrong bytes", name, at)
				}
				continue
			}
			found++
			if e := errs.From(err); e.Code != errs.Damaged || e.Where.Shard != path || e.Where.Sample.Or(-1) != 20 || e.Where.Offset.Or(-1) < 0 {
				t.Fatalf("%s: bit at %d: %v at %+v", name, at, e, e.Where)
			}
		}
		if found < 30 {
			t.Errorf("%s: only %d of 60 wrong bits were found", name, found)
		}
	}
}

// One zstd frame of a whole shard: read in any order, and said to be slow.
func TestOneLargeFrame(t *testing.T) {
	var list []member
	for i := range 60 {
		list = append(list, member{fmt.Sprintf("%d.txt", i), strings.Repeat(fmt.Sprintf("%d ", i), 100_000)})
	}
	data := zstded(t, archive(t, gotar.FormatUSTAR, list))
	src := stagetest.Bytes(data)
	d, err := tar.Open(ctx, src, []string{"s3://x.tar.zst"}, tar.Options{Store: &index.Store{}})
	stagetest.Must(t, err)
	defer d.Close()
	if n := d.Notes(); len(n) != 1 || !strings.Contains(n[0], "stoker pack --compress zstd") {
		t.Errorf("%q", n)
	}
	var smp format.Sample
	for k := range int64(60) {
		id := k * 37 % 60
		stagetest.Must(t, stagetest.Read(d, src, id, []string{"txt"}, &smp))
		if string(smp.Fields[0].Data) != list[id].data {
			t.Fatalf("sample %d differs", id)
		}
	}
	small := stagetest.Bytes(zstded(t, three(t)))
	d, err = tar.Open(ctx, small, []string{"s3://x.tar.zst"}, tar.Options{Store: &index.Store{}})
	stagetest.Must(t, err)
	defer d.Close()
	if n := d.Notes(); n != nil {
		t.Errorf("%q", n)
	}
}

func TestRefused(t *testing.T) {
	for field, want := range map[string]bool{"pyd": true, "a.pkl": true, "pickle": true, "A.PKL": true, "x.y.pth": true, "npy": false, "jpg": false, "": false} {
		if why := tar.Refused(field); (why != "") != want {
			t.Errorf("%s: %q", field, why)
		}
	}
}
