package lmdb_test

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
	"github.com/stoker-data/stoker/internal/stage/format/lmdb"
	"github.com/stoker-data/stoker/internal/stagetest"
)

var le = binary.LittleEndian

const page = 4096

// newest is where the meta page that counts begins.
func newest(data []byte) int {
	if le.Uint64(data[144:]) > le.Uint64(data[page+144:]) {
		return 0
	}
	return page
}

// root is the number of the root's page.
func root(data []byte) int { return int(le.Uint64(data[newest(data)+88+40:])) }

// leaf is the number of the first leaf, below one branch.
func leaf(data []byte) int {
	at := root(data) * page
	return int(le.Uint32(data[at+nodeOf(data, at, 0):]))
}

// nodeOf is where node i of the page at this offset begins in the page.
func nodeOf(data []byte, at, i int) int { return int(le.Uint16(data[at+16+2*i:])) }

// bigNode is where the first node begins whose value has its own pages.
func bigNode(data []byte) int {
	for at := 2 * page; at < len(data); at += page {
		if le.Uint64(data[at:]) != uint64(at/page) || le.Uint16(data[at+10:]) != 2 {
			continue
		}
		for i := range (int(le.Uint16(data[at+12:])) - 16) / 2 {
			if n := at + nodeOf(data, at, i); data[n+4]&1 != 0 {
				return n
			}
		}
	}
	panic("no value has pages of its own")
}

func TestDamage(t *testing.T) {
	for _, c := range []struct {
		name string
		harm func(b []byte) []byte
		code errs.Code
		what string
		off  func(b []byte) int // nil: anywhere
	}{
		{"no bytes", func([]byte) []byte { return nil }, errs.Damaged, "not an LMDB environment", at(0)},
		{"text", func([]byte) []byte { return []byte(strings.Repeat("hello ", 2000)) }, errs.Damaged, "not an LMDB environment", at(0)},
		{"one meta page only", func(b []byte) []byte { return b[:page] }, errs.Damaged, "the file ends at byte 4096", at(page)},
		{"magic of the first meta page", flip(16), errs.Damaged, "the magic number of a meta page is missing", at(0)},
		{"magic of the second meta page", flip(page + 16), errs.Damaged, "the second meta page", at(page)},
		{"data version", put32(20, 2), errs.Unsupported, "version 2 of LMDB's data format", at(20)},
		{"LMDB 1.0", func(b []byte) []byte {
			copy(b[24:], b[16:160])
			return put32(16, 0)(b)
		}, errs.Unsupported, "LMDB 1.0", at(24)},
		{"32 bits", func(b []byte) []byte { return append(append(bytes.Clone(b[:8]), b[12:]...), 0, 0, 0, 0) }, errs.Unsupported, "32-bit machine", at(12)},
		{"big-endian", func(b []byte) []byte { return put32(16, 0xDEC0EFBE)(b) }, errs.Unsupported, "big-endian", at(16)},
		{"length of a page", put32(40, 4097), errs.Damaged, "pages of 4097 bytes", at(40)},
		{"length of a page, absurd", put32(40, 1<<30), errs.Damaged, "pages of 1073741824 bytes", at(40)},
		{"meta pages that disagree", put32(page+40, 8192), errs.Damaged, "contradicts the first", at(page)},
		{"depth", func(b []byte) []byte { b[newest(b)+88+6] = 200; return b }, errs.Damaged, "a tree of depth 200", nil},
		{"depth, one too many", func(b []byte) []byte { b[newest(b)+88+6]++; return b }, errs.Damaged, "of kind 0x2, but kind 0x1 belongs here", nil},
		{"root beyond the file", func(b []byte) []byte { le.PutUint64(b[newest(b)+88+40:], 1<<50); return b }, errs.Damaged, "the tree leads to page", nil},
		{"root is a meta page", func(b []byte) []byte { le.PutUint64(b[newest(b)+88+40:], 1); return b }, errs.Damaged, "the tree leads to page 1", nil},
		{"fewer keys than promised", func(b []byte) []byte { b[newest(b)+88+32]++; return b }, errs.Damaged, "should have 212 keys, but has 211", nil},
		{"more keys than promised", func(b []byte) []byte { b[newest(b)+88+32]--; return b }, errs.Damaged, "should have 210 keys, but has more", nil},
		{"no root, but keys", func(b []byte) []byte { le.PutUint64(b[newest(b)+88+40:], ^uint64(0)); return b }, errs.Damaged, "without a root", nil},
		{"number of a page", func(b []byte) []byte { b[leaf(b)*page]++; return b }, errs.Damaged, "says that it is page", func(b []byte) int { return leaf(b) * page }},
		{"kind of a page", func(b []byte) []byte { b[leaf(b)*page+10] = 4; return b }, errs.Damaged, "of kind 0x4, but kind 0x2", func(b []byte) int { return leaf(b)*page + 10 }},
		{"pointers beyond the page", func(b []byte) []byte { le.PutUint16(b[leaf(b)*page+12:], 5000); return b }, errs.Damaged, "the pointers of page", func(b []byte) int { return leaf(b)*page + 12 }},
		{"a page without nodes", func(b []byte) []byte { le.PutUint16(b[leaf(b)*page+12:], 16); return b }, errs.Damaged, "the pointers of page", func(b []byte) int { return leaf(b)*page + 12 }},
		{"pointer out of its page", func(b []byte) []byte { le.PutUint16(b[leaf(b)*page+16:], 4095); return b }, errs.Damaged, "is outside the page", func(b []byte) int { return leaf(b) * page }},
		{"pointer into the pointers", func(b []byte) []byte { le.PutUint16(b[leaf(b)*page+16:], 18); return b }, errs.Damaged, "is outside the page", func(b []byte) int { return leaf(b) * page }},
		{"length of a key", func(b []byte) []byte {
			at := leaf(b) * page
			le.PutUint16(b[at+nodeOf(b, at, 0)+6:], 60000)
			return b
		}, errs.Damaged, "is outside the page", func(b []byte) int { return leaf(b) * page }},
		{"length of a value", func(b []byte) []byte {
			at := leaf(b) * page
			le.PutUint32(b[at+nodeOf(b, at, 0):], 4000)
			return b
		}, errs.Damaged, "is outside the page", func(b []byte) int { return leaf(b) * page }},
		{"keys out of order", func(b []byte) []byte {
			at := leaf(b) * page
			b[at+nodeOf(b, at, 0)+8] = 'z'
			return b
		}, errs.Damaged, "the keys are out of order", nil},
		{"a child twice", func(b []byte) []byte {
			at := root(b) * page
			copy(b[at+nodeOf(b, at, 1):], b[at+nodeOf(b, at, 0):][:6])
			return b
		}, errs.Damaged, "the keys are out of order", nil},
		{"a branch that is its own child", func(b []byte) []byte {
			at := root(b) * page
			le.PutUint32(b[at+nodeOf(b, at, 0):], uint32(at/page))
			return b
		}, errs.Damaged, "of kind 0x1, but kind 0x2", nil},
		{"value of 4 GiB", func(b []byte) []byte { le.PutUint32(b[bigNode(b):], ^uint32(0)); return b }, errs.Damaged, "the file ends with page", bigNode},
		{"value in pages beyond the file", func(b []byte) []byte { le.PutUint64(b[bigNode(b)+13:], 1<<40); return b }, errs.Damaged, "the file ends with page", bigNode},
		{"value in a meta page", func(b []byte) []byte { le.PutUint64(b[bigNode(b)+13:], 0); return b }, errs.Damaged, "from page 0 on", bigNode},
		{"two values in one place", func(b []byte) []byte {
			n := bigNode(b)
			at := n / page * page
			for i := range 200 {
				if o := at + nodeOf(b, at, i); o != n && b[o+4]&1 != 0 {
					copy(b[o+13:], b[n+13:n+21])
					return b
				}
			}
			return b
		}, errs.Damaged, "overlap", nil},
		{"flags of a value", func(b []byte) []byte { at := leaf(b) * page; b[at+nodeOf(b, at, 0)+4] = 4; return b }, errs.Damaged, "has the flags 0x4", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			sound := fixture(t, "mixed")
			data := c.harm(bytes.Clone(sound))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			d, err := try(data, lmdb.Options{})
			runtime.ReadMemStats(&after)
			if err == nil {
				_ = d.Close()
				t.Fatal("no error")
			}
			e := errs.From(err)
			if e.Code != c.code || !strings.Contains(e.What, c.what) || e.Where.Shard != here || e.Hint == "" {
				t.Errorf("%s %q at %v, hint %q", e.Code, e.What, e.Where, e.Hint)
			}
			if c.off != nil && int(e.Where.Offset.Or(-1)) != c.off(sound) {
				t.Errorf("at %d, want %d: %v", e.Where.Offset.Or(-1), c.off(sound), e)
			}
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20 {
				t.Errorf("%d MiB were allocated", grown>>20)
			}
			t.Log(time.Since(start))
		})
	}
}

func at(off int) func([]byte) int { return func([]byte) int { return off } }

func flip(at int) func([]byte) []byte {
	return func(b []byte) []byte { b[at] ^= 1; return b }
}

func put32(at int, v uint32) func([]byte) []byte {
	return func(b []byte) []byte { le.PutUint32(b[at:], v); return b }
}

// whole checks that an environment is read unchanged, or not at all.
func whole(t interface{ Fatalf(string, ...any) }, data []byte, want string, what string, a ...any) {
	d, err := try(data, lmdb.Options{Values: lmdb.Raw})
	if err != nil {
		return
	}
	defer d.Close()
	got, keys, err := sum(d, stagetest.Memory{here: data})
	if err == nil && got != want {
		t.Fatalf(what+": %d samples with other bytes: no error", append(a, len(keys))...)
	}
}

// An environment that is cut anywhere is refused, or what was lost was free.
func TestCut(t *testing.T) {
	for _, name := range []string{"mixed", "used"} {
		data, want := fixture(t, name), wanted(t)[name].SHA256
		for n := 0; n < len(data); n += 1361 {
			whole(t, data[:n], want, "%s cut at %d", name, n)
		}
	}
}

// A wrong bit never silently costs a sample. LMDB keeps no checksums: one in a value
// cannot be detected, nor one in a key or a length that still fits.
func TestFlipped(t *testing.T) {
	for _, name := range []string{"mixed", "integer", "used"} {
		data, want := fixture(t, name), wanted(t)[name].Keys
		rapid.Check(t, func(t *rapid.T) {
			b := bytes.Clone(data)
			// Heads of pages and their pointers, as a rule.
			i := rapid.IntRange(0, len(b)/page-1).Draw(t, "page")*page + min(rapid.IntRange(0, 60).Draw(t, "byte")*rapid.IntRange(1, 70).Draw(t, "times"), page-1)
			b[i] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
			if newest(b) != newest(data) {
				return // an older transaction is a whole environment too
			}
			d, err := try(b, lmdb.Options{Values: lmdb.Raw, Database: wantedName(name)})
			if err != nil {
				return
			}
			defer d.Close()
			if n := d.Index().Len() + d.Index().Meta().Skipped; n != int64(want) {
				t.Fatalf("a wrong bit in byte %d of %s leaves %d samples of %d: no error", i, name, n, want)
			}
		})
	}
}

// wantedName is the database of a fixture.
func wantedName(fixture string) string {
	if fixture == "integer" {
		return "n"
	}
	return ""
}

// Bytes stored before a value go bad later, with the same size and time of the file:
// reading the sample reports it.
func TestFlippedAtReading(t *testing.T) {
	for _, name := range []string{"mixed", "integer", "datum_raw"} {
		data := fixture(t, name)
		d := open(t, data, lmdb.Options{})
		for id := range d.Index().Len() {
			e := d.Extents(id, nil, nil)[0]
			field := d.Index().Meta().Fields[0]
			big, head := e.Off%page == 0, 8+len("00000000")
			if name != "datum_raw" {
				head = int(e.Len - d.Size(id, field))
			}
			for i := range min(head, 40) {
				if big && (i == 8 || i == 9 || i >= 12) {
					continue // unused, or a count of pages that is not smaller
				}
				raw := bytes.Clone(data[e.Off : e.Off+e.Len])
				raw[i] ^= 0xFF
				err := d.Parse(id, []string{field}, [][]byte{raw}, &format.Sample{})
				x := errs.From(err)
				if x.Code != errs.Damaged || x.Where.Sample.Or(-1) != id || x.Where.Shard != here || x.Hint == "" {
					t.Fatalf("%s, sample %d, byte %d of %d: %v", name, id, i, head, err)
				}
			}
		}
	}
}
