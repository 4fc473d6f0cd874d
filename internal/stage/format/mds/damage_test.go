package mds_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/mds"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stagetest"
)

func unzstd(t testing.TB, data []byte) []byte {
	t.Helper()
	z, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	out, err := z.DecodeAll(data, nil)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func enzstd(t testing.TB, data []byte) []byte {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return z.EncodeAll(data, nil)
}

const shard0, shard1 = root + "/shard.00000.mds", root + "/shard.00001.mds"

// replace changes the text of index.json, which has to hold it.
func replace(t testing.TB, m stagetest.Memory, old, by string) {
	t.Helper()
	text := string(m[root+"/index.json"])
	if !strings.Contains(text, old) {
		t.Fatalf("index.json has no %q: %s", old, text)
	}
	m[root+"/index.json"] = []byte(strings.Replace(text, old, by, 1))
}

func put32(b []byte, at int, v uint32) { binary.LittleEndian.PutUint32(b[at:], v) }
func get32(b []byte, at int) uint32    { return binary.LittleEndian.Uint32(b[at:]) }

// damages are datasets that went bad: what was done to which, and where it has to
// be found.
var damages = []struct {
	name, of string
	do       func(t testing.TB, m stagetest.Memory)
	code     errs.Code
	what     string
	file     string // path of the file in the error; "": index.json
	off      int64
	sample   int64 // -1: found at Open
}{
	{"index.json cut", "plain", func(_ testing.TB, m stagetest.Memory) { m[root+"/index.json"] = m[root+"/index.json"][:100] }, errs.Damaged, "cannot read", "", -2, -1},
	{"index.json empty", "plain", func(_ testing.TB, m stagetest.Memory) { m[root+"/index.json"] = nil }, errs.Damaged, "cannot read", "", 0, -1},
	{"index.json a list", "plain", func(_ testing.TB, m stagetest.Memory) { m[root+"/index.json"] = []byte("[]") }, errs.Damaged, "cannot read", "", -2, -1},
	{"index.json not UTF-8", "plain", func(t testing.TB, m stagetest.Memory) {
		replace(t, m, `"column_names": ["`, "\"column_names\": [\"\xff")
	}, errs.Damaged, "cannot read", "", -2, -1},
	{"index.json with half a pair", "plain", func(t testing.TB, m stagetest.Memory) {
		replace(t, m, `"column_names": ["`, `"column_names": ["\ud800`)
	}, errs.Damaged, "cannot read", "", -2, -1},
	{"another index.json", "plain", func(_ testing.TB, m stagetest.Memory) { m[root+"/index.json"] = []byte(`{"shard": 1}`) }, errs.Damaged, "no list of shards", "", -1, -1},
	{"no shards", "plain", func(_ testing.TB, m stagetest.Memory) { m[root+"/index.json"] = []byte(`{"shards": [], "version": 2}`) }, errs.Empty, "lists no shard", "", -1, -1},
	{"version 3", "plain", func(t testing.TB, m stagetest.Memory) { replace(t, m, `}], "version": 2}`, `}], "version": 3}`) }, errs.Unsupported, "version 3", "", -1, -1},
	{"csv shards", "plain", func(t testing.TB, m stagetest.Memory) { replace(t, m, `"format": "mds"`, `"format": "csv"`) }, errs.Unsupported, "csv", "", -1, -1},
	{"negative samples", "plain", func(t testing.TB, m stagetest.Memory) { replace(t, m, `"samples": 10`, `"samples": -7`) }, errs.Damaged, "-7 samples", "", -1, -1},
	{"absurd samples", "plain", func(t testing.TB, m stagetest.Memory) { replace(t, m, `"samples": 10`, `"samples": 4000000000`) }, errs.Damaged, "4000000000 samples in", "", -1, -1},
	{"a path out of the folder", "plain", func(t testing.TB, m stagetest.Memory) { replace(t, m, `"shard.00000.mds"`, `"../../etc/passwd"`) }, errs.Damaged, "leads out", "", -1, -1},
	{"a shard twice", "plain", func(t testing.TB, m stagetest.Memory) { replace(t, m, `"shard.00001.mds"`, `"shard.00000.mds"`) }, errs.Damaged, "once more", "", -1, -1},
	{"fewer columns", "plain", func(t testing.TB, m stagetest.Memory) {
		replace(t, m, `"column_sizes": [8, null]`, `"column_sizes": [8]`)
	}, errs.Damaged, "1 sizes", "", -1, -1},
	{"a column twice", "plain", func(t testing.TB, m stagetest.Memory) { replace(t, m, `["label", "text"]`, `["text", "text"]`) }, errs.Damaged, "twice", "", -1, -1},
	{"a wrong size of a column", "plain", func(t testing.TB, m stagetest.Memory) { replace(t, m, `[8, null]`, `[4, null]`) }, errs.Damaged, "4 bytes", "", -1, -1},
	{"an absurd size of a column", "plain", func(t testing.TB, m stagetest.Memory) { replace(t, m, `[8, null]`, `[8, 99999999999999]`) }, errs.Damaged, "99999999999999", "", -1, -1},
	{"an absurd shape", "one", func(t testing.TB, m stagetest.Memory) {
		replace(t, m, `"int32"`, `"ndarray:int32:4294967295,4294967295"`)
	}, errs.Damaged, "shape is not valid", "", -1, -1},
	{"a type that is not one", "one", func(t testing.TB, m stagetest.Memory) { replace(t, m, `"int32"`, `"ndarray:object"`) }, errs.Damaged, "which is not a type of array", "", -1, -1},
	{"other columns later", "plain", func(t testing.TB, m stagetest.Memory) {
		text := string(m[root+"/index.json"])
		at := strings.LastIndex(text, `"text"`)
		m[root+"/index.json"] = []byte(text[:at] + `"tixt"` + text[at+6:])
	}, errs.Unsupported, "other columns than shard 0", "", -1, -1},

	{"a shard missing", "plain", func(_ testing.TB, m stagetest.Memory) { delete(m, shard1) }, errs.NotFound, "no MDS shard", shard1, -1, -1},
	{"a shard cut", "plain", func(_ testing.TB, m stagetest.Memory) { m[shard1] = m[shard1][:300] }, errs.Damaged, "300 bytes", shard1, 300, -1},
	{"a shard longer", "plain", func(_ testing.TB, m stagetest.Memory) { m[shard1] = append(m[shard1], 0) }, errs.Damaged, "says", shard1, -2, -1},
	{"a wrong count", "plain", func(_ testing.TB, m stagetest.Memory) { m[shard1][0]++ }, errs.Damaged, "beginning of the shard", shard1, 0, -1},
	{"an absurd count", "plain", func(_ testing.TB, m stagetest.Memory) { put32(m[shard1], 0, 1<<32-1) }, errs.Damaged, "beginning of the shard", shard1, 0, -1},
	{"offsets that fall", "plain", func(_ testing.TB, m stagetest.Memory) { put32(m[shard0], 12, get32(m[shard0], 8)-1) }, errs.Damaged, "beginning of the shard", shard0, 12, -1},
	{"an offset beyond", "plain", func(_ testing.TB, m stagetest.Memory) { put32(m[shard0], 8, 1<<31) }, errs.Damaged, "beginning of the shard", shard0, 8, -1},
	{"an offset into the table", "plain", func(_ testing.TB, m stagetest.Memory) { put32(m[shard0], 4, 5) }, errs.Damaged, "beginning of the shard", shard0, 4, -1},
	{"bytes that no sample has", "plain", func(_ testing.TB, m stagetest.Memory) {
		n := int(get32(m[shard0], 0))
		put32(m[shard0], 4+4*n, get32(m[shard0], 4+4*n)-1)
	}, errs.Damaged, "beginning of the shard", shard0, -2, -1},
	{"columns of another dataset", "plain", func(_ testing.TB, m stagetest.Memory) {
		m[shard0] = bytes.Replace(m[shard0], []byte(`"label"`), []byte(`"lapel"`), 1)
	}, errs.Damaged, "beginning of the shard", shard0, -2, -1},
	{"columns that are not JSON", "plain", func(_ testing.TB, m stagetest.Memory) {
		m[shard0] = bytes.Replace(m[shard0], []byte(`{"column`), []byte(`#"column`), 1)
	}, errs.Damaged, "beginning of the shard", shard0, -2, -1},
	{"a length in a sample", "plain", func(_ testing.TB, m stagetest.Memory) { m[shard0][get32(m[shard0], 12)]++ }, errs.Damaged, "do not add up", shard0, -2, 2},
	{"an absurd length in a sample", "plain", func(_ testing.TB, m stagetest.Memory) { put32(m[shard0], int(get32(m[shard0], 12)), 1<<32-1) }, errs.Damaged, "do not add up", shard0, -2, 2},
	{"samples that share bytes", "plain", func(_ testing.TB, m stagetest.Memory) { put32(m[shard0], 12, get32(m[shard0], 12)-4) }, errs.Damaged, "do not add up", shard0, -2, 1},
	{"a Pillow picture larger than it is", "rgba", func(_ testing.TB, m stagetest.Memory) { put32(m[shard0], int(get32(m[shard0], 4))+4, 1<<31) }, errs.Unsupported, "RGBA", shard0, -2, 0},

	{"a type of an array", "everything", func(_ testing.TB, m stagetest.Memory) { damageArray(m[shard0], 200, 0) }, errs.Damaged, "type of number 200", shard0, -2, -1},
	{"axes of an array", "everything", func(_ testing.TB, m stagetest.Memory) { damageArray(m[shard0], 255, 1) }, errs.Damaged, "63 axes", shard0, -2, -1},
	{"a shape of an array", "everything", func(_ testing.TB, m stagetest.Memory) { damageArray(m[shard0], 255, 2) }, errs.Damaged, "should take", shard0, -2, -1},

	{"zstd: a frame cut", "zstd", func(t testing.TB, m stagetest.Memory) {
		m[shard1+".zstd"] = m[shard1+".zstd"][:200]
		resize(t, m, shard1+".zstd")
	}, errs.Damaged, "cannot decompress", shard1 + ".zstd", 0, -1},
	{"zstd: no frame", "zstd", func(_ testing.TB, m stagetest.Memory) { m[shard1+".zstd"][0]++ }, errs.Damaged, "cannot decompress", shard1 + ".zstd", 0, -1},
	{"zstd: fewer bytes", "zstd", func(t testing.TB, m stagetest.Memory) {
		raw := unzstd(t, m[shard1+".zstd"])
		m[shard1+".zstd"] = enzstd(t, raw[:len(raw)-1])
		resize(t, m, shard1+".zstd")
	}, errs.Damaged, "cannot decompress", shard1 + ".zstd", 0, -1},
	{"zstd: a bomb", "zstd", func(t testing.TB, m stagetest.Memory) {
		raw := unzstd(t, m[shard1+".zstd"])
		m[shard1+".zstd"] = enzstd(t, append(raw, make([]byte, 256<<20)...))
		resize(t, m, shard1+".zstd")
	}, errs.Damaged, "cannot decompress", shard1 + ".zstd", 0, -1},
	{"zstd: a bomb that index.json knows of", "zstd", func(t testing.TB, m stagetest.Memory) {
		m[shard1+".zstd"] = enzstd(t, make([]byte, 256<<20))
		resize(t, m, shard1+".zstd")
		setRaw(t, m, shard1, 256<<20)
	}, errs.Damaged, "cannot decompress", shard1 + ".zstd", 0, -1},
	{"gzip: a wrong CRC", "gz", func(_ testing.TB, m stagetest.Memory) { m[shard1+".gz"][len(m[shard1+".gz"])-6]++ }, errs.Damaged, "cannot decompress", shard1 + ".gz", 0, -1},
	{"snappy: an absurd length", "snappy", func(_ testing.TB, m stagetest.Memory) {
		copy(m[shard1+".snappy"], "\xff\xff\xff\xff\x0f")
	}, errs.Damaged, "cannot decompress", shard1 + ".snappy", 0, -1},
	{"bzip2: a flipped bit", "bz2", func(_ testing.TB, m stagetest.Memory) { m[shard1+".bz2"][90] ^= 4 }, errs.Damaged, "cannot decompress", shard1 + ".bz2", 0, -1},
}

// damageArray sets a byte of the head of "odd", the last dynamic array with its
// type in it, of the first sample: its values are counted from the end.
func damageArray(b []byte, v byte, at int) {
	begin := int(get32(b, 4))
	i := bytes.Index(b[begin:], []byte{33, 4, 1, 0, 0, 0, 0}) // int32, one axis of one byte, 1, the element 0
	b[begin+i+at] = v
}

// resize tells index.json the present size of a file.
func resize(t testing.TB, m stagetest.Memory, name string) { setBytes(t, m, name, int64(len(m[name]))) }

func setRaw(t testing.TB, m stagetest.Memory, name string, n int64) { setBytes(t, m, name, n) }

func setBytes(t testing.TB, m stagetest.Memory, name string, n int64) {
	t.Helper()
	text := string(m[root+"/index.json"])
	_, base, _ := strings.Cut(name, root+"/")
	at := strings.Index(text, `"basename": "`+base+`"`)
	if at < 0 {
		t.Fatalf("index.json has no %s", base)
	}
	from := at + strings.Index(text[at:], `"bytes": `) + len(`"bytes": `)
	to := from + strings.IndexAny(text[from:], ",}")
	m[root+"/index.json"] = fmt.Appendf(nil, "%s%d%s", text[:from], n, text[to:])
}

func TestDamage(t *testing.T) {
	for _, c := range damages {
		t.Run(c.name, func(t *testing.T) {
			m := stagetest.Memory{}
			for name, data := range stored(t, c.of) {
				m[name] = bytes.Clone(data)
			}
			c.do(t, m)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			d, err := mds.Open(ctx, m, root, mds.Options{Store: &index.Store{}})
			if err == nil {
				defer d.Close()
				if c.sample < 0 {
					t.Fatal("it was opened")
				}
				for id := range d.Index().Len() {
					if err = stagetest.Read(d, m, id, nil, &format.Sample{}); err != nil {
						break
					}
				}
			} else if c.sample >= 0 {
				t.Fatal(err)
			}
			runtime.ReadMemStats(&after)
			e := errs.From(err)
			file := e.Where.File + e.Where.Shard
			if err == nil || e.Code != c.code || !strings.Contains(e.What, c.what) || e.Hint == "" && c.code == errs.Damaged {
				t.Fatalf("%v: %v, hint %q", e.Code, err, e.Hint)
			}
			if want := c.file; file != want && (want != "" || file != root+"/index.json") {
				t.Errorf("found in %s, want %s", file, want)
			}
			if c.off != -2 && e.Where.Offset.Or(-1) != c.off || c.off == -2 && c.sample >= 0 && e.Where.Offset.Or(-1) <= 0 || e.Where.Sample.Or(-1) != c.sample {
				t.Errorf("found at %d of sample %d, want %d of %d", e.Where.Offset.Or(-1), e.Where.Sample.Or(-1), c.off, c.sample)
			}
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20 {
				t.Errorf("%d MiB were allocated", grown>>20)
			}
		})
	}
}

// A bit that goes wrong after indexing is detected when the shard is unpacked, by the
// hash of the result; the few bits that a frame does not use do no harm.
func TestFlippedLater(t *testing.T) {
	src := stored(t, "zstd")
	shard := src[shard0+".zstd"]
	want := make([]format.Sample, 1)
	if err := stagetest.Read(open(t, src, mds.Options{}), src, 1, nil, &want[0]); err != nil {
		t.Fatal(err)
	}
	silent := 0
	for at := range shard {
		d, err := mds.Open(ctx, src, root, mds.Options{Store: &index.Store{}})
		if err != nil {
			t.Fatal(err)
		}
		shard[at] ^= 16
		var s format.Sample
		err = stagetest.Read(d, src, 1, nil, &s)
		shard[at] ^= 16
		switch e := errs.From(err); {
		case err == nil:
			silent++
			if !slices.EqualFunc(s.Fields, want[0].Fields, func(a, b format.Field) bool { return bytes.Equal(a.Data, b.Data) }) {
				t.Fatalf("byte %d: wrong bytes: no error", at)
			}
		case e.Code != errs.Damaged || e.Where.Shard != shard0+".zstd" || e.Where.Sample.Or(-1) != 1:
			t.Fatalf("byte %d: %v", at, err)
		}
		if err := stagetest.Read(d, src, 1, nil, &s); err != nil {
			t.Fatalf("byte %d: the error stays: %v", at, err)
		}
		_ = d.Close()
	}
	if silent > 8 {
		t.Errorf("%d of %d flipped bits were not noticed", silent, len(shard))
	}
}
