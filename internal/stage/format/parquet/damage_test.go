package parquet_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/parquet"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stagetest"
)

const anywhere = "mem://x.parquet"

// walk opens a file from stagetest.Bytes and reads all of it.
func walk(data []byte) (samples int64, err error) {
	src := stagetest.Bytes(data)
	d, err := parquet.Open(ctx, src, []string{anywhere}, parquet.Options{Store: &index.Store{}})
	if err != nil {
		return 0, err
	}
	defer d.Close()
	var s format.Sample
	for id := range d.Index().Len() {
		if err := stagetest.Read(d, src, id, nil, &s); err != nil {
			return id, err
		}
		for _, f := range s.Fields {
			if typ, ok := d.Type(f.Name); ok {
				show(typ, f.Data)
			}
		}
	}
	return d.Index().Len(), nil
}

// bomb is a zstd frame of n zeros.
func bomb(n int) []byte {
	w, _ := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest))
	return w.EncodeAll(make([]byte, n), nil)
}

func varints(v ...uint64) (out []byte) {
	for _, n := range v {
		out = binary.AppendUvarint(out, n)
	}
	return out
}

// Every class of damage is an error with its place, and allocates little memory.
func TestDamaged(t *testing.T) {
	sound := numbers().file()
	if n, err := walk(sound); n != 3 || err != nil {
		t.Fatalf("the sound file has %d samples, %v", n, err)
	}
	end := int64(len(sound))
	foot := end - 8 - int64(binary.LittleEndian.Uint32(sound[end-8:]))
	body := int64(4 + len(sound[4:foot]) - 12) // where the values begin
	huge := append([]byte{0x09, 4, 0xfc}, varints(1<<31-1)...)
	with := func(change func(c *crafted)) []byte {
		c := numbers()
		change(&c)
		return c.file()
	}
	texts := func(c *crafted) {
		c.physical, c.rows, c.values, c.count = 6, 1, 1, 1
	}
	zeros := bomb(1 << 26)
	for _, c := range []struct {
		name string
		data []byte
		code errs.Code
		what string // in the sentence or its cause
		off  int64  // -2: not looked at
	}{
		{"nothing", nil, errs.Damaged, "0 bytes", 0},
		{"cut at the end", sound[:end-1], errs.Damaged, "does not end with PAR1", -2},
		{"cut in the pages", sound[:body+4], errs.Damaged, "does not end with PAR1", -2},
		{"another beginning", append([]byte("PARX"), sound[4:]...), errs.Damaged, "does not begin with PAR1", 0},
		{"another file", bytes.Repeat([]byte("x"), 100), errs.Damaged, "PAR1", 0},
		{"encrypted", append(bytes.Clone(sound[:end-4]), "PARE"...), errs.Unsupported, "encrypted", end - 4},
		{"a footer longer than the file", append(binary.LittleEndian.AppendUint32(bytes.Clone(sound[:end-8]), uint32(end)), "PAR1"...), errs.Damaged, "does not fit", end - 8},
		{"an empty footer", closed([]byte("PAR1"), []byte{0}), errs.Damaged, "no schema", 4},
		{"a list of 2^31 row groups", closed([]byte("PAR1"), append(structOf(list(2, 12, structOf(text(4, "r"), num(5, 1)), structOf(num(1, 1), text(4, "x"))))[:19], huge...)), errs.Damaged, "footer", 4},
		{"a list of 2^31 columns", closed([]byte("PAR1"), append([]byte{0x09, 4, 0xfc}, varints(1<<31-1)...)), errs.Damaged, "footer", 4},
		{"structs in structs", closed([]byte("PAR1"), bytes.Repeat([]byte{0x1c}, 1<<20)), errs.Damaged, "footer", 4},
		{"a schema that is cut", with(func(c *crafted) { c.footer = structOf(list(2, 12, structOf(text(4, "r"), num(5, 7)))) }), errs.Damaged, "children", foot},
		{"no column", with(func(c *crafted) { c.footer = structOf(list(2, 12, structOf(text(4, "r"), num(5, 0)))) }), errs.Damaged, "no column", foot},
		{"no row", with(func(c *crafted) { c.rows, c.values, c.count, c.body = 0, 0, 0, []byte{} }), errs.Empty, "no row", -1},
		{"a column too few", with(func(c *crafted) { c.columns = 0 }), errs.Damaged, "0 columns", foot},
		{"a column too many", with(func(c *crafted) { c.columns = 2 }), errs.Damaged, "more columns", foot},
		{"another file's column", with(func(c *crafted) { c.chunk = []item{text(1, "other.parquet")} }), errs.Unsupported, "another file", foot},
		{"an encrypted column", with(func(c *crafted) { c.chunk = []item{sub(8, sub(1))} }), errs.Unsupported, "encrypted", foot},
		{"other rows than values", with(func(c *crafted) { c.rows = 4 }), errs.Damaged, "3 values for 4 rows", 4},
		{"pages after the footer", with(func(c *crafted) { c.offset = 1 << 40 }), errs.Damaged, "before the footer", 1 << 40},
		{"pages before the file", with(func(c *crafted) { c.offset = -(1 << 40) + 1; c.offset = 1 }), errs.Damaged, "before the footer", 1},
		{"a chunk of absurd length", with(func(c *crafted) { c.length = 1 << 62 }), errs.Damaged, "before the footer", 4},
		{"a chunk that is too short", with(func(c *crafted) { c.length = 20 }), errs.Damaged, "page", 4},
		{"a page of absurd length", with(func(c *crafted) { c.packed = 1<<31 - 1 }), errs.Damaged, "does not fit", 4},
		{"a page of other rows", with(func(c *crafted) { c.count = 2 }), errs.Damaged, "2 rows and 2 values, instead of 3 and 3", 4},
		{"a header that is none", with(func(c *crafted) { c.page = []item{text(9, "x")} }), errs.Damaged, "header", 4},
		{"a page of an unknown kind", with(func(c *crafted) { c.page = []item{num(1, 9), num(2, 12), num(3, 12)} }), errs.Damaged, "0 rows", 4},
		{"an unpacked length that is wrong", with(func(c *crafted) { c.unpacked = 13 }), errs.Damaged, "instead of 13", 4},
		{"a claim to be two gigabytes", with(func(c *crafted) { c.unpacked, c.codec = 1<<31-1, 6 }), errs.Damaged, "claims", 4},
		{"a claim of two billion values", with(func(c *crafted) { c.rows, c.values, c.count = 1<<31-1, 1<<31-1, 1<<31-1 }), errs.Damaged, "claims", 4},
		{"a zstd bomb", with(func(c *crafted) { c.codec, c.unpacked, c.body = 6, 12, zeros }), errs.Damaged, "decompress", 4},
		{"a zstd bomb that is honest", with(func(c *crafted) { c.codec, c.unpacked, c.body = 6, 1<<26, zeros }), errs.Damaged, "claims", 4},
		{"invalid snappy", with(func(c *crafted) { c.codec = 1 }), errs.Damaged, "decompress", 4},
		{"invalid gzip", with(func(c *crafted) { c.codec = 2 }), errs.Damaged, "decompress", 4},
		{"LZO", with(func(c *crafted) { c.codec = 3 }), errs.Unsupported, "LZO", 4},
		{"invalid brotli", with(func(c *crafted) { c.codec = 4 }), errs.Damaged, "decompress", 4},
		{"invalid LZ4", with(func(c *crafted) { c.codec = 7 }), errs.Damaged, "decompress", 4},
		{"invalid LZ4 of Hadoop's", with(func(c *crafted) { c.codec = 5 }), errs.Damaged, "decompress", 4},
		{"an encoding for others", with(func(c *crafted) { c.encoding = 6 }), errs.Damaged, "does not encode such values", 4},
		{"values that are short", with(func(c *crafted) { c.body = c.body[:11] }), errs.Damaged, "11 bytes instead of 12", 4},
		{"values that are long", with(func(c *crafted) { c.body = append(c.body, 1) }), errs.Damaged, "13 bytes instead of 12", 4},
		{"a text without end", with(func(c *crafted) { texts(c); c.body = []byte{255, 255, 255, 127, 'x'} }), errs.Damaged, "too early", 4},
		{"a text with more after it", with(func(c *crafted) { texts(c); c.body = []byte{1, 0, 0, 0, 'x', 'y'} }), errs.Damaged, "6 bytes instead of 5", 4},
		{"no dictionary", with(func(c *crafted) { c.encoding, c.body = 8, []byte{1, 6, 0} }), errs.Damaged, "dictionary that is missing", 4},
		{"a number beyond the dictionary", with(func(c *crafted) {
			c.encoding, c.body, c.dict, c.dictCount = 8, []byte{2, 6, 3}, []byte{1, 0, 0, 0}, 1
		}), errs.Damaged, "does not have", -2},
		{"a dictionary that is short", with(func(c *crafted) {
			c.encoding, c.body, c.dict, c.dictCount = 8, []byte{2, 6, 0}, []byte{1, 0, 0}, 1
		}), errs.Damaged, "3 bytes instead of 4", 4},
		{"numbers of 99 bits", with(func(c *crafted) {
			c.encoding, c.body, c.dict, c.dictCount = 8, []byte{99, 6, 0}, []byte{1, 0, 0, 0}, 1
		}), errs.Damaged, "99 bits", -2},
		{"levels without end", with(func(c *crafted) { c.repeats, c.body = 1, append([]byte{255, 255, 255, 255}, c.body...) }), errs.Damaged, "levels", 4},
		{"a level that is too high", with(func(c *crafted) { c.repeats, c.body = 1, append([]byte{2, 0, 0, 0, 6, 3}, c.body...) }), errs.Damaged, "above 1", 4},
		{"a run of nothing", with(func(c *crafted) { c.repeats, c.body = 1, append([]byte{2, 0, 0, 0, 0, 1}, c.body...) }), errs.Damaged, "run", 4},
		{"deltas of other number", with(func(c *crafted) { c.encoding, c.body = 5, varints(128, 4, 1<<40, 0) }), errs.Damaged, "3 values are", 4},
		{"deltas in blocks of nothing", with(func(c *crafted) { c.encoding, c.body = 5, varints(0, 0, 3, 0) }), errs.Damaged, "blocks of 0", 4},
		{"deltas of 255 bits", with(func(c *crafted) { c.encoding, c.body = 5, append(varints(128, 4, 3, 0, 0), 255, 0, 0, 0) }), errs.Damaged, "255 bits", 4},
		{"a length below zero", with(func(c *crafted) { texts(c); c.encoding, c.body = 6, varints(128, 4, 1, 1) }), errs.Damaged, "too early", 4},
		{"a prefix of nothing", with(func(c *crafted) {
			texts(c)
			c.encoding, c.body = 7, append(varints(128, 4, 1, 6), append(varints(128, 4, 1, 2), 'x')...)
		}), errs.Damaged, "too early", 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := walk(c.data)
			runtime.ReadMemStats(&after)
			e := errs.From(err)
			if err == nil || e.Code != c.code || !strings.Contains(e.Error(), c.what) || e.Where.Shard != anywhere || c.off != -2 && e.Where.Offset.Or(-1) != c.off || e.Hint == "" {
				t.Errorf("%s: %v at %d | %s", e.Code, err, e.Where.Offset.Or(-1), e.Hint)
			}
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20 {
				t.Errorf("%d MiB were allocated", grown>>20)
			}
		})
	}
}

// A file that is cut anywhere is found out when it is opened.
func TestCutAnywhere(t *testing.T) {
	for _, name := range []string{"huggingface.parquet", "old-time.parquet"} {
		data, err := os.ReadFile(filepath.Join("../../../../testdata/parquet", name))
		stagetest.Must(t, err)
		for n := range data {
			if _, err := walk(data[:n]); errs.CodeOf(err) != errs.Damaged {
				t.Fatalf("cut at %d: %v", n, err)
			}
		}
	}
}

// A page with a checksum tells any bit that is wrong in it, with its place, when a
// row of it is read; the rows of other pages are not touched.
func TestFlippedBits(t *testing.T) {
	data, err := os.ReadFile("../../../../testdata/parquet/rows-crc.parquet")
	stagetest.Must(t, err)
	d, src := open(t, parquet.Options{}, "rows-crc.parquet")
	var s format.Sample
	for _, field := range []string{"f64", "text", "maybe", "vec"} {
		page := d.Extents(12, []string{field}, nil)[0]
		for at := page.Off + page.Len - 30; at < page.Off+page.Len; at += 7 {
			for bit := range 8 {
				bad := bytes.Clone(data)
				bad[at] ^= 1 << bit
				b, err := parquet.Open(ctx, stagetest.Bytes(bad), []string{anywhere}, parquet.Options{Store: &index.Store{}})
				if err == nil {
					err = stagetest.Read(b, stagetest.Bytes(bad), 12, []string{field}, &s)
					stagetest.Must(t, stagetest.Read(b, stagetest.Bytes(bad), 30, []string{field}, &format.Sample{}))
					_ = b.Close()
				}
				e := errs.From(err)
				if err == nil || e.Code != errs.Damaged || e.Where.Offset.Or(-1) != page.Off || e.Where.Field != field || !strings.Contains(e.Error(), "checksum") && field != "vec" {
					t.Fatalf("bit %d at %d of %q: %v at %v", bit, at, field, err, e.Where)
				}
			}
		}
	}
	stagetest.Must(t, stagetest.Read(d, src, 12, nil, &s))
}

// Whichever bit of a file is wrong, opening it gives a dataset or a data error, and
// never fewer rows.
func TestAnyBit(t *testing.T) {
	for _, name := range []string{"huggingface-plain.parquet", "old-time.parquet", "lists.parquet"} {
		data, err := os.ReadFile(filepath.Join("../../../../testdata/parquet", name))
		stagetest.Must(t, err)
		want, err := walk(data)
		stagetest.Must(t, err)
		step := 1
		if testing.Short() || raceEnabled {
			step = 97
		} else if len(data) > 4000 {
			step = 5
		}
		for at := 0; at < len(data); at += step {
			data[at] ^= 1 << (at % 8)
			n, err := walk(data)
			if e := errs.From(err); err == nil && n != want || err != nil && (e.Code == errs.Bug || e.Hint == "") {
				t.Fatalf("byte %d of %s: %d samples, %s: %v | %s", at, name, n, e.Code, err, e.Hint)
			}
			data[at] ^= 1 << (at % 8)
		}
	}
}

// FuzzFooter: whatever a footer says of the pages, the file is a dataset or an error.
// The footer's length is stored after it and would otherwise be wrong in most files.
func FuzzFooter(f *testing.F) {
	add := func(data []byte) {
		foot := len(data) - 8 - int(binary.LittleEndian.Uint32(data[len(data)-8:]))
		f.Add(data[:foot], data[foot:len(data)-8])
	}
	for _, name := range []string{"huggingface.parquet", "old-time.parquet"} {
		data, err := os.ReadFile(filepath.Join("../../../../testdata/parquet", name))
		stagetest.Must(f, err)
		add(data)
	}
	add(numbers().file())
	f.Fuzz(func(t *testing.T, pages, footer []byte) {
		if _, err := walk(closed(pages, footer)); err != nil {
			if e := errs.From(err); e.Code == errs.Bug || e.Hint == "" {
				t.Fatalf("%s: %v | %s", e.Code, err, e.Hint)
			}
		}
	})
}

// FuzzPage: the same, for whatever a page of each type and encoding holds.
func FuzzPage(f *testing.F) {
	for encoding := range byte(10) {
		f.Add(encoding, byte(1), byte(0), byte(0), int64(3), []byte{1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0})
		f.Add(encoding, byte(6), byte(1), byte(0), int64(2), append([]byte{2, 0, 0, 0, 4, 1}, varints(128, 4, 2, 2, 0, 0, 0, 0, 0)...))
	}
	f.Fuzz(func(t *testing.T, encoding, physical, repeats, codec byte, rows int64, body []byte) {
		c := numbers()
		c.encoding, c.physical, c.repeats, c.codec, c.body = int64(encoding%10), int64(physical%7), int64(repeats%3), int64(codec%8), body
		c.rows, c.values, c.count = rows, rows, rows
		if c.codec != 0 {
			c.unpacked = 256
		}
		if c.encoding == 8 {
			c.dict, c.dictCount = []byte{1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0}, 3
		}
		if _, err := walk(c.file()); err != nil {
			if e := errs.From(err); e.Code == errs.Bug || e.Hint == "" {
				t.Fatalf("%s: %v | %s", e.Code, err, e.Hint)
			}
		}
	})
}
