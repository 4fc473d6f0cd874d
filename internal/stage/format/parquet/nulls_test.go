package parquet_test

import (
	"context"
	"encoding/binary"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/klauspost/compress/snappy"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/parquet"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// Whatever a writer says about nulls, a column is delivered unasked exactly where no
// row of it has a null: a null list counts as one, an empty list does not.
func TestNullsAreKnownBeforeTheRow(t *testing.T) {
	left := map[string]string{
		"gap": "null in 1 of 24 rows", "hole": "null in 4 of 24 rows", "nolist": "null in 1 of 24 rows",
		"inlist": "2 nulls in its lists", "both": "null in 1 of 24 rows", "out.x": "null in 2 of 24 rows",
	}
	files, err := filepath.Glob("../../../../testdata/parquet/nulls-*.parquet")
	stagetest.Must(t, err)
	if len(files) < 9 {
		t.Fatalf("only %d files", len(files))
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			d, src := open(t, parquet.Options{}, filepath.Base(file))
			var delivered []string
			for _, name := range d.Index().Meta().Fields {
				if why := d.LeftOut(name); why != left[name] || (why != "") != (d.Decode(name) == "none") {
					t.Errorf("%q is left out for %q", name, why)
				}
				if d.Decode(name) != "none" {
					delivered = append(delivered, name)
				}
			}
			if want := []string{"full", "blob", "lists", "in.x"}; !slices.Equal(delivered, want) {
				t.Fatalf("%q are delivered", delivered)
			}
			var s format.Sample
			for id := range d.Index().Len() {
				stagetest.Must(t, stagetest.Read(d, src, id, delivered, &s))
			}
		})
	}
}

// The error of a null says where it is, and what to do.
func TestNullTeaches(t *testing.T) {
	d, src := open(t, parquet.Options{}, "nulls-told.parquet", "nulls-none.parquet")
	var s format.Sample
	for id, want := range map[int64]struct{ field, says string }{
		24 + 17: {"gap", `column "gap" is null in row 17 of the file (row group 1)`},
		24 + 20: {"nolist", `column "nolist" is null in row 20 of the file (row group 2)`},
		19:      {"inlist", `the list in column "inlist" has a null in it, in row 19 of the file (row group 1)`},
	} {
		e := errs.From(stagetest.Read(d, src, id, []string{want.field}, &s))
		if e.Code != errs.MissingField || e.What != want.says || e.Where.Sample.Or(-1) != id || e.Where.Field != want.field ||
			!strings.Contains(e.Where.Shard, "nulls-") || !strings.Contains(e.Hint, "on_bad") {
			t.Errorf("%v at %v | %s", e, e.Where, e.Hint)
		}
	}
}

// optional is a page of nullable byte strings, stored after their levels: the given
// values, and a null where only one is given.
func optional(values ...[]byte) crafted {
	c := numbers()
	c.physical, c.repeats, c.rows, c.values, c.count = 6, 1, 2, 2, 2
	c.body = []byte{2, 0, 0, 0, 3, 1<<len(values) - 1} // one group of 8 bits
	for _, v := range values {
		c.body = append(binary.LittleEndian.AppendUint32(c.body, uint32(len(v))), v...)
	}
	return c
}

// counting is a source that counts the bytes that are read, by any goroutine.
type counting struct {
	stagetest.Bytes
	n *int64
}

func (c counting) ReadAt(ctx context.Context, obj source.Info, p []byte, off int64) error {
	atomic.AddInt64(c.n, int64(len(p)))
	return c.Bytes.ReadAt(ctx, obj, p, off)
}

// Of a page of megabytes whose nulls nobody has counted, as Spark writes pictures,
// the levels are read and not the values.
func TestNullsOfLargePages(t *testing.T) {
	big := make([]byte, 4<<20)
	for i := range big {
		big[i] = byte(i*i>>3 ^ i)
	}
	for name, pack := range map[string]func(c *crafted){
		"plain": func(*crafted) {},
		"snappy": func(c *crafted) {
			c.codec, c.unpacked = 1, int64(len(c.body))
			c.body = snappy.Encode(nil, c.body)
		},
	} {
		for _, values := range [][][]byte{{big}, {big, big[:9]}} {
			c := optional(values...)
			pack(&c)
			n := int64(0)
			src := counting{stagetest.Bytes(c.file()), &n}
			d, err := parquet.Open(ctx, src, []string{anywhere}, parquet.Options{Store: &index.Store{}})
			stagetest.Must(t, err)
			if n > 100<<10 {
				t.Errorf("%s: %d bytes are read of a file of %d", name, n, len(src.Bytes))
			}
			if none := d.Decode("x") == "none"; none != (len(values) == 1) {
				t.Errorf("%s: of %d values, left out is %v", name, len(values), none)
			}
			var s format.Sample
			stagetest.Must(t, stagetest.Read(d, src, 0, []string{"x"}, &s))
			stagetest.Must(t, d.Close())
		}
	}
}

// A page that cannot be decoded hides no column: reading a row of it is an error.
func TestNullsOfDamagedPages(t *testing.T) {
	c := optional([]byte("value"))
	c.body[0] = 99 // bytes of levels
	src := stagetest.Bytes(c.file())
	d, err := parquet.Open(ctx, src, []string{anywhere}, parquet.Options{Store: &index.Store{}})
	stagetest.Must(t, err)
	defer d.Close()
	var s format.Sample
	if err := stagetest.Read(d, src, 0, []string{"x"}, &s); d.Decode("x") == "none" || errs.CodeOf(err) != errs.Damaged {
		t.Errorf("%q, %v", d.Decode("x"), err)
	}
}
