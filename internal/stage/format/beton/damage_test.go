package beton_test

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/beton"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// Where things are stored in a file; see the comment of the package.
const (
	fieldLen = 1 + 16 + 1024
	fields   = 24
)

func put64(b []byte, at int, v uint64) { binary.LittleEndian.PutUint64(b[at:], v) }
func get64(b []byte, at int) uint64    { return binary.LittleEndian.Uint64(b[at:]) }

// allocs is where the allocations begin, and row where sample id begins, in a file of
// n fields whose rows have that many bytes.
func allocs(b []byte) int       { return int(get64(b, 16)) }
func row(n, length, id int) int { return fields + n*fieldLen + length*id }
func arrayArgs(field int) int   { return fields + field*fieldLen + 17 }
func setType(b []byte, s string) {
	copy(b[arrayArgs(5)+264:], s)
	put64(b, arrayArgs(5)+256, uint64(len(s)))
}
func setDim(b []byte, i int, v int) { put64(b, arrayArgs(5)+8*i, uint64(v)) }

// damages are files that went bad. "raw" has rows of 24 bytes: image 13, label at
// 16; "everything" of 96: label 0, image 8, raw 21, score 40, meta 48, grid 64.
var damages = []struct {
	name, of string
	do       func(b []byte) []byte
	code     errs.Code
	what     string
	off      func(b []byte) int
	sample   int64
}{
	{"empty", "raw", func([]byte) []byte { return nil }, errs.Damaged, "too few", at(0), -1},
	{"cut in the header", "raw", func(b []byte) []byte { return b[:20] }, errs.Damaged, "too few", at(0), -1},
	{"cut in the pages", "raw", func(b []byte) []byte { return b[:len(b)/2] }, errs.Damaged, "allocations should begin", at(0), -1},
	{"cut in the allocations", "raw", func(b []byte) []byte { return b[:len(b)-5] }, errs.Damaged, "allocations take", at(0), -1},
	{"an allocation lost", "raw", func(b []byte) []byte { return b[:len(b)-24] }, errs.Damaged, "nothing was allocated", nil, 8},
	{"never finished", "raw", func(b []byte) []byte { put64(b, 16, 0); return b }, errs.Damaged, "not written to its end", at(0), -1},
	{"an old version", "raw", func(b []byte) []byte { b[0] = 1; return b }, errs.Unsupported, "version 1", at(0), -1},
	{"no fields", "raw", func(b []byte) []byte { b[2] = 0; return b }, errs.Damaged, "no field", at(0), -1},
	{"more fields than bytes", "raw", func(b []byte) []byte { b[2], b[3] = 255, 255; return b }, errs.Damaged, "allocations should begin", at(0), -1},
	{"absurd pages", "raw", func(b []byte) []byte { b[4] = 7; return b }, errs.Damaged, "pages have", at(0), -1},
	{"absurd samples", "raw", func(b []byte) []byte { put64(b, 8, 1<<63); return b }, errs.Damaged, "samples", at(0), -1},
	{"more samples than bytes", "raw", func(b []byte) []byte { put64(b, 8, 1<<40); return b }, errs.Damaged, "do not fit", at(8), -1},
	{"one sample more", "raw", func(b []byte) []byte { put64(b, 8, 10); return b }, errs.Damaged, "the picture \"image\" has the mode", nil, -2},
	{"no samples", "numbers", func(b []byte) []byte { put64(b, 8, 0); return b }, errs.Empty, "no sample", at(-1), -1},
	{"a type that is not one", "raw", func(b []byte) []byte { b[fields] = 77; return b }, errs.Damaged, "type 77", at(fields), -1},
	{"a class of the writer's own", "raw", func(b []byte) []byte { b[fields] = 255; return b }, errs.Unsupported, "custom class", at(fields), -1},
	{"no name", "raw", func(b []byte) []byte { b[fields+1] = 0; return b }, errs.Damaged, "no name", at(fields), -1},
	{"a name of control characters", "raw", func(b []byte) []byte { b[fields+1] = 7; return b }, errs.Damaged, "is called", at(fields), -1},
	{"two fields of one name", "raw", func(b []byte) []byte { copy(b[fields+fieldLen+1:], "image\x00"); return b }, errs.Damaged, "two fields called", at(fields + fieldLen), -1},
	{"another type of a number", "raw", func(b []byte) []byte { b[fields+fieldLen] = 3; return b }, errs.Damaged, "", nil, -2},

	{"an allocation into the header", "raw", func(b []byte) []byte { put64(b, allocs(b)+8, 100); return b }, errs.Damaged, "an allocation is damaged", allocs, -1},
	{"an allocation beyond the file", "raw", func(b []byte) []byte { put64(b, allocs(b)+8, 1<<62); return b }, errs.Damaged, "an allocation is damaged", allocs, -1},
	{"an absurd allocation", "raw", func(b []byte) []byte { put64(b, allocs(b)+16, 1<<63); return b }, errs.Damaged, "an allocation is damaged", allocs, -1},
	{"an allocation larger than a page", "raw", func(b []byte) []byte { put64(b, allocs(b)+16, 1<<21+1); return b }, errs.Damaged, "an allocation is damaged", allocs, -1},
	{"an allocation of no sample", "raw", func(b []byte) []byte { put64(b, allocs(b), 9); return b }, errs.Damaged, "an allocation is damaged", allocs, -1},
	{"allocations that share bytes", "raw", func(b []byte) []byte { put64(b, allocs(b)+16, 200); return b }, errs.Damaged, "share bytes", nil, -2},
	{"an allocation of another sample", "raw", func(b []byte) []byte { put64(b, allocs(b), 5); return b }, errs.Damaged, "where a value of sample 5 is stored", nil, 0},

	{"a picture that is nowhere", "raw", func(b []byte) []byte { put64(b, row(2, 24, 3)+5, 1<<63); return b }, errs.Damaged, "nothing was allocated", at(row(2, 24, 3)), 3},
	{"the picture of another sample", "raw", func(b []byte) []byte { put64(b, row(2, 24, 3)+5, get64(b, row(2, 24, 4)+5)); return b }, errs.Damaged, "where a value of sample 4 is stored", at(row(2, 24, 3)), 3},
	{"a mode that is not one", "raw", func(b []byte) []byte { b[row(2, 24, 3)] = 2; return b }, errs.Damaged, "mode 2", at(row(2, 24, 3)), 3},
	{"a width that is wrong", "raw", func(b []byte) []byte { b[row(2, 24, 3)+1]++; return b }, errs.Damaged, "were allocated", at(row(2, 24, 3)), 3},
	{"a width of nothing", "raw", func(b []byte) []byte { b[row(2, 24, 3)+1] = 0; return b }, errs.Damaged, "0 x", at(row(2, 24, 3)), 3},
	{"more bytes than a page", "everything", func(b []byte) []byte { put64(b, row(9, 96, 2)+21+8, 1<<40); return b }, errs.Damaged, "but a page", at(row(9, 96, 2) + 21), 2},
	{"bytes that are fewer", "everything", func(b []byte) []byte { put64(b, row(9, 96, 2)+21+8, 5); return b }, errs.Damaged, "were allocated", at(row(9, 96, 2) + 21), 2},
	{"one value for two fields", "everything", func(b []byte) []byte {
		copy(b[row(9, 96, 2)+48:][:16], b[row(9, 96, 2)+21:][:16])
		return b
	}, errs.Damaged, "where a value of sample 2 is stored", at(row(9, 96, 2) + 48), 2},
	{"JSON without its end", "everything", func(b []byte) []byte {
		m := row(9, 96, 2) + 48
		b[get64(b, m)+get64(b, m+8)-1] = 'x'
		return b
	}, errs.Damaged, "zero byte", nil, 2},
	{"an array of another shape", "everything", func(b []byte) []byte { setDim(b, 1, 4); return b }, errs.Damaged, "were allocated", nil, 0},
	{"an absurd shape", "everything", func(b []byte) []byte {
		for i := range 32 {
			setDim(b, i, 1<<31-1)
		}
		return b
	}, errs.Damaged, "shape that is impossible", at(fields + 5*fieldLen), -1},
	{"a type of no JSON", "everything", func(b []byte) []byte { setType(b, `[["", "<i2"`); return b }, errs.Damaged, "which is not one", at(fields + 5*fieldLen), -1},
	{"an absurd length of a type", "everything", func(b []byte) []byte { put64(b, arrayArgs(5)+256, 1<<63); return b }, errs.Damaged, "type whose text", at(fields + 5*fieldLen), -1},
	{"an array of objects", "everything", func(b []byte) []byte { setType(b, `[["", "|O"]]`); return b }, errs.Unsupported, "|O", nil, 0},
}

func at(off int) func([]byte) int { return func([]byte) int { return off } }

func TestDamage(t *testing.T) {
	for _, c := range damages {
		t.Run(c.name, func(t *testing.T) {
			data := stored(t, c.of)
			whole := bytes.Clone(data)
			src := stagetest.Bytes(c.do(data))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			d, err := beton.Open(ctx, src, path, beton.Options{Store: &index.Store{}})
			if err == nil {
				defer d.Close()
				if c.sample < 0 {
					t.Fatal("it was opened")
				}
				fields := []string(nil)
				if c.code == errs.Unsupported {
					fields = []string{"grid"}
				}
				for id := range d.Index().Len() {
					if err = stagetest.Read(d, src, id, fields, &format.Sample{}); err != nil {
						break
					}
				}
			}
			runtime.ReadMemStats(&after)
			e := errs.From(err)
			if err == nil || e.Code != c.code || !strings.Contains(e.What, c.what) || e.Hint == "" && c.code == errs.Damaged {
				t.Fatalf("%v: %v, hint %q", e.Code, err, e.Hint)
			}
			off := e.Where.Offset.Or(-1)
			if c.off != nil {
				off = int64(c.off(whole))
			}
			if e.Where.Shard != path || e.Where.Offset.Or(-1) != off || c.sample != -2 && e.Where.Sample.Or(-1) != c.sample {
				t.Errorf("found at %v, want offset %d of sample %d", e.Where, off, c.sample)
			}
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20 {
				t.Errorf("%d MiB were allocated", grown>>20)
			}
		})
	}
}
