package hdf5_test

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/hdf5"
	"github.com/stoker-data/stoker/internal/stagetest"
)

var le = binary.LittleEndian

// words is numbers as they are stored in a file.
func words(size int, v ...uint64) string {
	var b []byte
	for _, x := range v {
		b = append(b, binary.LittleEndian.AppendUint64(nil, x)[:size]...)
	}
	return string(b)
}

// find is where a pattern occurs for the nth time, counted from 0.
func find(b []byte, pattern string, nth int) int {
	at := 0
	for {
		i := bytes.Index(b[at:], []byte(pattern))
		if i < 0 {
			panic("the pattern is not there: " + pattern)
		}
		if at += i; nth == 0 {
			return at
		}
		at, nth = at+1, nth-1
	}
}

// put replaces the bytes at a distance after the beginning of a pattern.
func put(pattern string, nth, skip int, with string) func([]byte) []byte {
	return func(b []byte) []byte {
		copy(b[find(b, pattern, nth)+skip:], with)
		return b
	}
}

// flip flips a bit of the byte at a distance after the beginning of a pattern.
func flip(pattern string, nth, skip int) func([]byte) []byte {
	return func(b []byte) []byte {
		b[find(b, pattern, nth)+skip] ^= 1
		return b
	}
}

// readAll opens a file and reads every sample.
func readAll(data []byte, opt hdf5.Options) (samples int64, err error) {
	d, err := try(data, opt)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	var s format.Sample
	for id := range d.Index().Len() {
		if err := stagetest.Read(d, stagetest.Memory{here: data}, id, nil, &s); err != nil {
			return id, err
		}
	}
	return d.Index().Len(), nil
}

// Patterns of the fixtures.
var (
	imageDims  = words(8, 24, 4, 5, 3)           // plain: dimensions of images
	imageSize  = words(8, 24*4*5*3)              // plain: bytes of images, after their address
	chunkDims  = words(4, 5, 4, 4, 4)            // filters: chunks of float32, after the address of their index
	bigChunk   = words(4, 1<<12, 1<<12, 1<<4, 4) // 1 GiB
	hugeChunk  = words(4, 1<<16, 1<<15, 1, 4)
	rowsOfTree = "TREE\x01\x00" // a leaf of chunks
)

func TestDamage(t *testing.T) {
	only := func(columns ...string) hdf5.Options { return hdf5.Options{Columns: columns} }
	for _, c := range []struct {
		name, file string
		opt        hdf5.Options
		harm       func(b []byte) []byte
		code       errs.Code
		what       string // of the error or its cause
		sample     int64  // -1: when it is indexed
	}{
		{"no bytes", "plain", only(), func([]byte) []byte { return nil }, errs.Damaged, "its signature is missing", -1},
		{"text", "plain", only(), func([]byte) []byte { return bytes.Repeat([]byte("hello "), 999) }, errs.Damaged, "its signature is missing", -1},
		{"signature", "plain", only(), flip("\x89HDF", 0, 3), errs.Damaged, "its signature is missing", -1},
		{"cut within the superblock", "plain", only(), func(b []byte) []byte { return b[:40] }, errs.Damaged, "ends within its superblock", -1},
		{"cut in the middle", "plain", only(), func(b []byte) []byte { return b[:len(b)/2] }, errs.Damaged, "it was cut", -1},
		{"last byte is missing", "latest", only("fixed"), func(b []byte) []byte { return b[:len(b)-1] }, errs.Damaged, "it was cut", -1},
		{"version of the superblock", "plain", only(), put("\x89HDF", 0, 8, "\x09"), errs.Unsupported, "a superblock of version 9", -1},
		{"addresses of four bytes", "plain", only(), put("\x89HDF", 0, 13, "\x04"), errs.Unsupported, "addresses of 4 bytes", -1},
		{"checksum of the superblock", "latest", only("fixed"), flip("\x89HDF", 0, 12), errs.Damaged, "the checksum of the ", -1},
		{"checksum of the superblock, at its end", "latest", only("fixed"), flip("\x89HDF", 0, 44), errs.Damaged, "the checksum of the ", -1},
		{"open for writing", "latest", only("fixed"), put("\x89HDF", 0, 11, "\x05"), errs.Changed, "open for writing", -1},
		{"root beyond the file", "plain", only(), put("\x89HDF", 0, 64, words(8, 1<<40)), errs.Damaged, "the address 1099511627776 is outside the file", -1},
		{"root is not an object", "plain", only(), put("\x89HDF", 0, 64, words(8, 8)), errs.Damaged, "no object begins here", -1},
		{"number of messages", "plain", only(), func(b []byte) []byte { b[le.Uint64(b[64:])+2] += 9; return b }, errs.Damaged, "but has", -1},
		{"a message beyond its header", "plain", only(), func(b []byte) []byte { le.PutUint16(b[le.Uint64(b[64:])+18:], 60000); return b }, errs.Damaged, "does not fit into its header", -1},
		{"checksum of a header", "latest", only("fixed"), flip("OHDR", 0, 20), errs.Damaged, "the checksum of the ", -1},
		{"a tree of names", "plain", only(), flip("TREE\x00", 0, 0), errs.Damaged, `instead of "TREE"`, -1},
		{"a tree of names that leads to itself", "plain", only(), func(b []byte) []byte {
			at := find(b, "TREE\x00", 0)
			b[at+5] = 1
			le.PutUint64(b[at+32:], uint64(at))
			return b
		}, errs.Damaged, "form a cycle", -1},
		{"a table of names", "plain", only(), flip("SNOD", 0, 1), errs.Damaged, `instead of "SNOD"`, -1},
		{"a heap of names", "plain", only(), flip("HEAP", 0, 1), errs.Damaged, `instead of "HEAP"`, -1},
		{"a name that is not there", "plain", only(), put("SNOD", 0, 8, words(8, 1<<30)), errs.Damaged, "or the name is not valid", -1},
		{"a name twice", "plain", only(), func(b []byte) []byte {
			at := find(b, "SNOD", 0) + 8
			copy(b[at+40:at+48], b[at:at+8])
			return b
		}, errs.Damaged, "has the name", -1},
		{"a dataset at the end of the file", "plain", only(), func(b []byte) []byte {
			le.PutUint64(b[find(b, "SNOD", 0)+16:], uint64(len(b)-2))
			return b
		}, errs.Damaged, "", -1},
		{"product of the dimensions", "plain", only(), put(imageDims, 0, 0, words(8, 1<<62, 1<<40, 5, 3)), errs.Damaged, "", -1},
		{"more than there may be", "plain", only(), put(imageDims, 0, 0, words(8, 25)), errs.Damaged, "of at most", -1},
		{"number of rows", "plain", only("images"), put(imageDims, 0, 0, words(8, 23)), errs.Damaged, "has 1440 bytes, but", -1},
		{"data beyond the file", "plain", only("images"), put(imageSize, 0, -8, words(8, 1<<40)), errs.Damaged, "is outside the file", -1},
		{"data that reaches beyond the file", "plain", only("images"), func(b []byte) []byte {
			le.PutUint64(b[find(b, imageSize, 0)-8:], uint64(len(b)-100))
			return b
		}, errs.Damaged, "has 1440 bytes at", -1},
		{"data in other data", "plain", only(), func(b []byte) []byte {
			labels := find(b, words(8, 24*8), 0) - 8
			copy(b[labels:labels+8], b[find(b, imageSize, 0)-8:])
			return b
		}, errs.Damaged, "overlap other data", -1},
		{"a chunk of nothing", "filters", only("none"), put(chunkDims, 0, 0, words(4, 0)), errs.Damaged, "chunks of [0 4 4]", -1},
		{"size of elements", "filters", only("none"), put(chunkDims, 0, 12, words(4, 8)), errs.Damaged, "whose elements have 4", -1},
		{"chunks of more than 4 GiB", "filters", only("none"), put(chunkDims, 0, 0, hugeChunk), errs.Damaged, "chunks of", -1},
		{"chunks of 1 GiB", "filters", only("gzip"), putEach(chunkDims, bigChunk), errs.Damaged, "and chunks of [4096 4096 16]", -1},
		{"index of chunks", "filters", only("all"), flipEach(rowsOfTree, 2), errs.Damaged, `instead of "TREE"`, -1},
		{"index that lost an entry", "chunk_orders", only("rows"), func(b []byte) []byte { b[find(b, rowsOfTree, 3)+6]--; return b }, errs.Damaged, "has lost some of its", -1},
		{"index that lost its last entry", "filters", only("none"), eachLeaf(func(p []byte) { p[6]-- }), errs.Damaged, "has lost some of its", -1},
		{"index that leads to itself", "chunk_orders", only("rows"), func(b []byte) []byte {
			at := find(b, "TREE\x01\x01", 0)
			copy(b[at+24+32:at+24+40], words(8, uint64(at)))
			return b
		}, errs.Damaged, "", -1},
		{"a chunk beyond the file", "filters", only("none"), eachLeaf(func(p []byte) { le.PutUint64(p[24+40:], 1<<40) }), errs.Damaged, "is outside the file", -1},
		{"a chunk that is too long", "filters", only("gzip"), eachLeaf(func(p []byte) { le.PutUint32(p[24:], 1<<31) }), errs.Damaged, "has 2147483648 bytes at", -1},
		{"a chunk out of the grid", "filters", only("gzip"), eachLeaf(func(p []byte) { le.PutUint64(p[24+8:], 50) }), errs.Damaged, "has a chunk at [10 0 0]", -1},
		{"a chunk between the others", "filters", only("gzip"), eachLeaf(func(p []byte) { le.PutUint64(p[24+8:], 3) }), errs.Damaged, "has a chunk that begins at 3", -1},
		{"two chunks in one place", "filters", only("gzip"), eachLeaf(func(p []byte) { copy(p[24+48:24+48+40], p[24:24+40]) }), errs.Damaged, "has two chunks at", -1},
		{"chunks in each other", "filters", only("none"), eachLeaf(func(p []byte) { copy(p[24+48+40:24+96], p[24+40:24+48]) }), errs.Damaged, "overlap other data", -1},
		{"a plain chunk that is too short", "filters", only("none"), eachLeaf(func(p []byte) { p[24]-- }), errs.Damaged, "and should have 320", -1},
		{"a filter that is not built", "filters", only("gzip"), put("deflate", 0, -8, words(2, 32001)), errs.Unsupported, "blosc", -1},
		{"gzip", "filters", only("gzip"), chunkByte(20, 1), errs.Damaged, "cannot decompress a chunk", 0},
		{"gzip's checksum", "filters", only("gzip"), chunkByte(-1, 1), errs.Damaged, "checksum", 0},
		{"LZF", "filters", only("lzf"), chunkByte(0, 0xFF), errs.Damaged, "LZF", 0},
		{"fletcher32", "filters", only("fletcher"), chunkByte(7, 1), errs.Damaged, "its checksum is", 0},
		{"a chunk that lost bytes", "filters", only("all"), eachLeaf(func(p []byte) { p[24] -= 5 }), errs.Damaged, "cannot decompress a chunk", 0},
		{"a mask that skips gzip", "filters", only("gzip"), eachLeaf(func(p []byte) { p[28] = 1 }), errs.Damaged, "and should have 320", -1},
		{"a bomb", "filters", only("gzip"), putEach(chunkDims, words(4, 5, 1, 1, 4)), errs.Damaged, "more bytes than expected", 0},
		{"a collection of values", "types", only("jpegs"), flipEach("GCOL", 1), errs.Damaged, "no collection of values begins here", -1},
		{"length of a collection", "types", only("jpegs"), putEach("GCOL\x01\x00\x00\x00", "GCOL\x01\x00\x00\x00"+words(8, 1<<40)), errs.Damaged, "no collection of values begins here", -1},
		{"length of a value", "types", only("jpegs"), putAfterEach("GCOL\x01\x00\x00\x00", 24, words(8, 1<<30)), errs.Damaged, "and its collection ends", -1},
		{"a value that is not there", "types", only("jpegs"), putAfterEach("GCOL\x01\x00\x00\x00", 16, words(2, 99)), errs.Damaged, "", -1},
		{"array of chunks", "latest", only("fixed"), flipEach("FADB", 30), errs.Damaged, "the checksum of the ", -1},
		{"head of an array", "latest", only("extensible"), flipEach("EAHD", 8), errs.Damaged, "the checksum of the ", -1},
		{"index block of an array", "latest", only("extensible"), flipEach("EAIB", 20), errs.Damaged, "the checksum of the ", -1},
		{"block of an array", "latest", only("supers"), flipEach("EADB", 20), errs.Damaged, "the checksum of the ", -1},
		{"super block of an array", "latest", only("supers"), flipEach("EASB", 20), errs.Damaged, "the checksum of the ", -1},
		{"tree of chunks", "latest", only("tree"), flipEach("BTLF", 12), errs.Damaged, "the checksum of the ", -1},
		{"head of a tree", "latest", only("tree"), flipEach("BTHD", 6), errs.Damaged, "the checksum of the ", -1},
		{"a shuffle of nothing that was not skipped", "shuffled_2", only("ints_gzip"), func(b []byte) []byte {
			for at := 0; ; at++ { // in the leaves of chunks of one dimension: keys of 24 bytes
				i := bytes.Index(b[at:], []byte(rowsOfTree))
				if i < 0 {
					return b
				}
				at += i
				b[at+24+4] = 0
			}
		}, errs.Damaged, "which is not a number of bytes", -1},
		{"heap of links", "groups_latest", only("many/000"), flipEach("FRHP", 9), errs.Damaged, "the checksum of the ", -1},
		{"block of a heap of links", "groups_latest", only("many/000"), flipEach("FHDB", 60), errs.Damaged, "the checksum of the ", -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			data := c.harm(fixture(t, c.file))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			n, err := readAll(data, c.opt)
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Fatalf("%d samples: no error", n)
			}
			e := errs.From(err)
			if e.Code != c.code || !strings.Contains(e.Error(), c.what) || e.Where.Shard != here || e.Hint == "" || e.Where.Sample.Or(-1) != c.sample {
				t.Errorf("%s: %v at %v, hint %q", e.Code, e, e.Where, e.Hint)
			}
			if c.sample >= 0 && (e.Where.Offset.Or(-1) <= 0 || e.Where.Member == "" || e.Where.Field != c.opt.Columns[0]) {
				t.Errorf("at %+v", e.Where)
			}
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20 {
				t.Errorf("%d MiB were allocated", grown>>20)
			}
			t.Log(time.Since(start))
		})
	}
}

// putEach, flipEach and putAfterEach harm every place of a pattern.
func putEach(pattern, with string) func([]byte) []byte { return putAfterEach(pattern, 0, with) }

func putAfterEach(pattern string, skip int, with string) func([]byte) []byte {
	return func(b []byte) []byte {
		for n, at := bytes.Count(b, []byte(pattern)), 0; n > 0; n-- {
			at += bytes.Index(b[at:], []byte(pattern))
			copy(b[at+skip:], with)
			at += len(pattern)
		}
		return b
	}
}

func flipEach(pattern string, skip int) func([]byte) []byte {
	return func(b []byte) []byte {
		for at := 0; ; {
			i := bytes.Index(b[at:], []byte(pattern))
			if i < 0 {
				return b
			}
			at += i + len(pattern)
			b[at-len(pattern)+skip] ^= 4
		}
	}
}

// eachLeaf harms every leaf of chunks of three dimensions that has the first
// chunk: keys of 40 bytes, and addresses of eight.
func eachLeaf(harm func(leaf []byte)) func([]byte) []byte {
	return func(b []byte) []byte {
		for at := 0; ; {
			i := bytes.Index(b[at:], []byte(rowsOfTree))
			if i < 0 {
				return b
			}
			at += i
			if words(8, 0, 0, 0, 0) == string(b[at+32:at+64]) {
				harm(b[at:])
			}
			at += 6
		}
	}
}

// chunkByte harms a byte of the first chunk of every leaf, counted from its end
// where at is negative.
func chunkByte(at int, with byte) func([]byte) []byte {
	return func(b []byte) []byte {
		return eachLeaf(func(leaf []byte) {
			size, off := int(le.Uint32(leaf[24:])), int(le.Uint64(leaf[24+40:]))
			if off == 0 || size == 0 || off+size > len(b) {
				return
			}
			k := off + at
			if at < 0 {
				k += size
			}
			b[k] ^= with
		})(b)
	}
}

// A file that is cut anywhere is refused.
func TestCut(t *testing.T) {
	for _, name := range []string{"plain", "types", "latest"} {
		data := fixture(t, name)
		for n := 0; n < len(data); n += 1 + len(data)/200 {
			if _, err := try(data[:n], hdf5.Options{}); err == nil {
				t.Fatalf("%s cut at %d: no error", name, n)
			}
		}
	}
}

// A wrong bit never silently costs a row of the datasets that were asked for. (Where
// the old layout has no checksum, it may say that there are fewer rows; then the data
// or the chunks do not fit. Or it may say that there are a few more, for which the
// last chunk has room: nothing in the file contradicts that.)
func TestFlipped(t *testing.T) {
	for name, column := range map[string]string{"plain": "images", "filters": "all", "chunk_orders": "rows", "latest": "extensible_gzip", "types": "jpegs"} {
		data := fixture(t, name)
		want, err := readAll(data, hdf5.Options{Columns: []string{column}})
		stagetest.Must(t, err)
		rapid.Check(t, func(t *rapid.T) {
			b := bytes.Clone(data)
			b[rapid.IntRange(0, len(b)-1).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
			d, err := try(b, hdf5.Options{Columns: []string{column}})
			if err != nil {
				return
			}
			defer d.Close()
			if n := d.Index().Len(); n < want {
				t.Fatalf("%s has %d rows of %d: no error", name, n, want)
			}
		})
	}
}

// One dataset that is damaged does not keep the others from opening, unless it is
// asked for, or what a sample is depends on it.
func TestOnlyWhatIsAskedForIsRequired(t *testing.T) {
	for _, c := range []struct {
		name, file string
		harm       func([]byte) []byte
		fine       string // a column that opens
		broken     string // one that does not; "": that which is left out
		note       string // of what is left out if none is named; "": then it does not open
	}{
		{"index of chunks", "filters", func(b []byte) []byte {
			at := find(b, rowsOfTree, 0)
			b[at] ^= 1
			return b
		}, "all", "", `instead of "TREE"`},
		{"address of data", "plain", put(imageSize, 0, -8, words(8, 1<<40)), "labels", "images", `"images" (the address 1099511627776 is outside the file`},
		{"dimensions", "plain", put(imageDims, 0, 0, words(8, 25)), "labels", "images", ""},
		{"header", "latest", func(b []byte) []byte {
			at := find(b, words(8, 60, 9, 8), 0) // of the first header that has it
			b[at] ^= 1
			return b
		}, "strings", "", "the checksum of the "},
	} {
		t.Run(c.name, func(t *testing.T) {
			data := c.harm(fixture(t, c.file))
			if c.fine != "" {
				if _, err := readAll(data, hdf5.Options{Columns: []string{c.fine}}); err != nil {
					t.Errorf("%s alone: %v", c.fine, err)
				}
			}
			if c.broken != "" {
				if _, err := try(data, hdf5.Options{Columns: []string{c.broken}}); errs.CodeOf(err) != errs.Damaged {
					t.Errorf("%s alone: %v", c.broken, err)
				}
			}
			d, err := try(data, hdf5.Options{})
			if c.note == "" {
				if errs.CodeOf(err) != errs.Damaged {
					t.Errorf("all: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			notes := strings.Join(d.Notes(), "\n")
			if !strings.Contains(notes, c.note) || len(d.Lost()) != 1 {
				t.Errorf("%q, %d lost", notes, len(d.Lost()))
			}
			name := d.Left()[0].Name
			if err := d.Check([]string{name}); errs.CodeOf(err) != errs.Damaged || !strings.Contains(err.Error(), "left out") {
				t.Errorf("who asks for %q is told %v", name, err)
			}
			if _, err := readAll(data, hdf5.Options{Columns: []string{name}}); errs.CodeOf(err) != errs.Damaged {
				t.Errorf("%q alone: %v", name, err)
			}
		})
	}
}

// HDF5 2 has chunks of more than 4 GiB; they are refused as large, not as damaged.
func TestChunksOfHDF5Two(t *testing.T) {
	data := fixture(t, "large_2")
	if _, err := try(data, hdf5.Options{Columns: []string{"declared"}}); errs.CodeOf(err) != errs.Unsupported {
		t.Errorf("%v", err)
	}
	if n, err := readAll(data, hdf5.Options{}); n != 4 || err != nil {
		t.Errorf("%d rows, %v", n, err)
	}
}
