package tar_test

import (
	gotar "archive/tar"
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/tar"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// three is three samples of two members each; the body of member i begins at
// 512+1536*i, and the end of the archive at 9216.
func three(t stagetest.TB) []byte {
	var list []member
	for i := range 6 {
		list = append(list, member{fmt.Sprintf("%d.%s", i/2, []string{"jpg", "cls"}[i%2]), strings.Repeat(fmt.Sprint(i), 1000)})
	}
	return archive(t, gotar.FormatUSTAR, list)
}

// damaged wants an error that names shard, offset and what to do.
func damaged(t *testing.T, err error, shard, what string, off int64) *errs.Error {
	t.Helper()
	e := errs.From(err)
	if err == nil || e.Code != errs.Damaged || e.Where.Shard != shard || !strings.Contains(e.What, what) || off >= 0 && e.Where.Offset.Or(-1) != off || e.Hint == "" {
		t.Errorf("got %s: %s at offset %d of %s | %s; want %q at %d", e.Code, e.What, e.Where.Offset.Or(-1), e.Where.Shard, e.Hint, what, off)
	}
	return e
}

// A cut anywhere in a shard is detected.
func TestCut(t *testing.T) {
	s := newShelf(t)
	data := three(t)
	end := len(data) - 1024
	for _, c := range []struct {
		at   int
		what string
		off  int64
	}{
		{1, "inside a header", 0},
		{511, "inside a header", 0},
		{512, "inside this member", 512},
		{1511, "inside this member", 512},
		{1512, "the end of the archive is missing", 1512},
		{1536, "the end of the archive is missing", 1536},
		{1536 * 2, "the end of the archive is missing", 1536 * 2}, // the boundary of a sample
		{1536*2 + 100, "inside a header", 1536 * 2},
		{1536*2 + 512 + 999, "inside this member", 1536*2 + 512},
		{end, "the end of the archive is missing", int64(end)},
		{end + 1, "inside a header", int64(end)},
		{end + 512, "the end of the archive is missing", int64(end)},
		{end + 1023, "the end of the archive is missing", int64(end)},
	} {
		path := s.put(t, "cut.tar", data[:c.at])
		_, err := s.try(path)
		e := damaged(t, err, path, c.what, c.off)
		if strings.Contains(c.what, "this member") && e.Where.Member == "" {
			t.Errorf("cut at %d: the member is not named", c.at)
		}
	}
	for at := range data[:end+1024] {
		if raceEnabled && at%7 != 0 {
			continue
		}
		d, err := tar.Open(ctx, stagetest.Bytes(data[:at]), []string{"s3://x.tar"}, tar.Options{Store: &index.Store{}})
		if err == nil {
			_ = d.Close()
			t.Fatalf("cut at %d: no error", at)
		}
	}
}

func TestNotTheEnd(t *testing.T) {
	s := newShelf(t)
	data := three(t)
	end := len(data) - 1024
	long := s.put(t, "long.tar", append(bytes.Clone(data), make([]byte, 3<<20)...))
	if n := s.open(t, long).Index().Len(); n != 3 {
		t.Errorf("%d samples", n)
	}
	for name, c := range map[string]struct {
		data []byte
		off  int64
	}{
		"cat a b":      {append(bytes.Clone(data), data...), int64(len(data))},
		"garbage":      {append(bytes.Clone(data), make([]byte, 2<<20)...), int64(len(data)) + 2<<20 - 1},
		"one zeroed":   {append(append(bytes.Clone(data[:1536]), make([]byte, 512)...), data[1536+512:]...), 1536 + 512},
		"half the end": {append(append(bytes.Clone(data[:end]), make([]byte, 600)...), 1), int64(end) + 600},
	} {
		if name == "garbage" {
			c.data[len(c.data)-1] = 1
		}
		if name == "half the end" {
			c.data = append(c.data, make([]byte, 1024)...)
		}
		path := s.put(t, "x.tar", c.data)
		_, err := s.try(path)
		damaged(t, err, path, "something after its end", c.off)
	}
}

// Every wrong bit of a header is found when the shard is indexed, but for those
// that turn a zero in front of the checksum, or what fills it up, into a space.
func TestFlippedHeaderAtIndexing(t *testing.T) {
	data := three(t)
	for _, header := range []int{0, 1536, 1536 * 5} {
		for i := range 512 {
			for bit := range 8 {
				if raceEnabled && (i+bit)%13 != 0 {
					continue
				}
				data[header+i] ^= 1 << bit
				d, err := tar.Open(ctx, stagetest.Bytes(data), []string{"s3://x.tar"}, tar.Options{Store: &index.Store{}})
				if err == nil {
					_ = d.Close()
					if i < 148 || i >= 156 || data[header+i] != ' ' && data[header+i] != 0 {
						t.Fatalf("bit %d of byte %d of the header at %d is wrong: no error", bit, i, header)
					}
				}
				data[header+i] ^= 1 << bit
			}
		}
	}
}

// A header that goes bad later, with the size and time unchanged, is detected when a
// member after it is read.
func TestFlippedHeaderAtReading(t *testing.T) {
	s := newShelf(t)
	path := s.put(t, "a.tar", three(t))
	d := s.open(t, path)
	for i := range 512 {
		bad := stagetest.WithFaults(s.src, fmt.Sprintf("read a.tar flip=%d", 1536*3+i))
		var smp format.Sample
		stagetest.Must(t, stagetest.Read(d, bad, 1, []string{"jpg"}, &smp)) // another member's header
		e := damaged(t, stagetest.Read(d, bad, 1, []string{"cls"}, &smp), path, "header of a member", 1536*3)
		if e.Where.Member != "1.cls" || e.Where.Sample.Or(-1) != 1 || e.Where.Field != "cls" {
			t.Fatalf("%+v", e.Where)
		}
	}
}

func TestDuplicates(t *testing.T) {
	s := newShelf(t)
	path := s.put(t, "key.tar", archive(t, gotar.FormatUSTAR, members("1.jpg", "2.jpg", "3.jpg", "3.cls", "1.cls", "2.cls")))
	_, err := s.try(path)
	e := damaged(t, err, path, `sample "1" begins at offset 0 of the shard and comes again at offset 4096`, 4096)
	if e.Where.Member != "1.cls" || !strings.Contains(e.What, "duplicate keys") {
		t.Errorf("%v", e)
	}
	path = s.put(t, "field.tar", archive(t, gotar.FormatUSTAR, members("0.jpg", "1.jpg", "1.cls", "1.JPG")))
	_, err = s.try(path)
	e = damaged(t, err, path, `sample "1" has the field "jpg" twice, at offset 1024`, 3072)
	if e.Where.Member != "1.JPG" {
		t.Errorf("%v", e)
	}
}

func TestHostileNames(t *testing.T) {
	s := newShelf(t)
	for name, what := range map[string]string{
		"../x.jpg": "has .. in it", "a/../../x.jpg": "has .. in it", "a/..": "has .. in it", "/etc/x.jpg": "begins with /", "..": "has .. in it",
	} {
		path := s.put(t, "h.tar", archive(t, gotar.FormatGNU, members("0.jpg", name)))
		_, err := s.try(path)
		if e := damaged(t, err, path, what, 1024); e.Where.Member != name {
			t.Errorf("%v", e)
		}
	}
	ok := s.put(t, "ok.tar", archive(t, gotar.FormatGNU, members("..x.jpg", "a..b.jpg", "a/...b/c.jpg", "x..")))
	if n := s.open(t, ok).Index().Len(); n != 3 {
		t.Errorf("%d samples", n)
	}
	nul := append(pax("path=a\x00b.jpg"), header("x.jpg", '0', "00000000000")...)
	path := s.put(t, "nul.tar", append(nul, make([]byte, 1024)...))
	_, err := s.try(path)
	damaged(t, err, path, "zero byte", -1)
}

// header is one header block, with a size field as it is given.
func header(name string, typ byte, size string) []byte {
	h := make([]byte, 512)
	copy(h, name)
	copy(h[100:], "0000644\x00")
	copy(h[124:136], size)
	copy(h[148:], "        ")
	h[156] = typ
	copy(h[257:], "ustar\x0000")
	sum := 0
	for _, c := range h {
		sum += int(c)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	return h
}

func padded(data string) []byte {
	return append([]byte(data), make([]byte, -len(data)&511)...)
}

// pax is an extended header with these lines.
func pax(lines ...string) []byte {
	body := ""
	for _, l := range lines {
		n := len(l) + 3
		for len(fmt.Sprint(n))+len(l)+2 != n {
			n++
		}
		body += fmt.Sprintf("%d %s\n", n, l)
	}
	return append(header("pax", 'x', fmt.Sprintf("%011o", len(body))), padded(body)...)
}

func TestOddHeaders(t *testing.T) {
	end := make([]byte, 1024)
	join := func(parts ...[]byte) []byte { return append(bytes.Join(parts, nil), end...) }
	zero, huge := "00000000000", "77777777777"
	for _, c := range []struct {
		name string
		data []byte
		want string // what was damaged, or key:data
	}{
		{"base 256", join(header("a.x", '0', "\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x03"), padded("abc")), "a:abc"},
		{"negative", join(header("a.x", '0', "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")), "the size is -1"},
		{"too large", join(header("a.x", '0', "\x81\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x03")), "too large"},
		{"largest", join(header("a.x", '0', "\x80\x00\x00\x00\x7f\xff\xff\xff\xff\xff\xff\xff")), "inside this member"},
		{"not octal", join(header("a.x", '0', "00000000009")), "not an octal number"},
		{"after a zero", join(header("a.x", '0', "\x0000000000003"), padded("abc")), "not an octal number"},
		{"beyond", join(header("a.x", '0', huge)), "inside this member"},
		{"spaces", join(header("a.x", '0', "         3 "), padded("abc")), "a:abc"},
		{"old", join(header("a.x", 0, "00000000003"), padded("abc")), "a:abc"},
		{"old folder", join(header("b.x/", 0, zero), header("a.x", 0, "3"), padded("abc")), "a:abc"},
		{"link with a size", join(header("b.x", '2', huge), header("a.x", '0', "3"), padded("abc")), "a:abc"},
		{"unknown type with a body", join(header("b.x", 'V', "3"), padded("xyz"), header("a.x", '0', "3"), padded("abc")), "a:abc"},
		{"pax size", join(pax("size=3"), header("a.x", '0', zero), padded("abc")), "a:abc"},
		{"pax path", join(pax("path=é.x"), header("b.x", '0', "3"), padded("abc")), "é:abc"},
		{"pax path taken back", join(pax("path=é.x", "path="), header("b.x", '0', "3"), padded("abc")), "b:abc"},
		{"pax for one only", join(pax("path=é.y"), header("b.x", '0', "0"), header("a.x", '0', "3"), padded("abc")), "é: a:abc"},
		{"global path", join(append(header("g", 'g', fmt.Sprintf("%o", len("12 path=q.x\n"))), padded("12 path=q.x\n")...), header("a.x", '0', "3"), padded("abc")), "q:abc"},
		{"long name and pax", join(header("l", 'L', "4"), padded("l.x\x00"), pax("path=p.x"), header("a.x", '0', "3"), padded("abc")), "p:abc"},
		{"long link", join(header("l", 'K', "4"), padded("l.x\x00"), header("b.x", '2', zero), header("a.x", '0', "3"), padded("abc")), "a:abc"},
		{"pax negative", join(pax("size=-3"), header("a.x", '0', zero)), `size in an extended header is "-3"`},
		{"pax without key", join(append(header("p", 'x', "5"), padded("5 =a\n")...), header("a.x", '0', zero)), "no key"},
		{"pax too short", join(append(header("p", 'x', "7"), padded("3 a=b\nx")...), header("a.x", '0', zero)), "not as long as it says"},
		{"pax too long", join(append(header("p", 'x', "6"), padded("99 a=b\n")...), header("a.x", '0', zero)), "not as long as it says"},
		{"pax no number", join(append(header("p", 'x', "6"), padded("abcdef")...), header("a.x", '0', zero)), "no length"},
		{"pax huge", join(header("p", 'x', "00010000001")), "an extended header of 2097153 bytes"},
		{"long name beyond", join(header("l", 'L', "00003000000")), "inside an extended header"},
		{"nothing after pax", join(pax("path=a")), "where the member of an extended header should be"},
		{"sparse", join(header("a.x", 'S', zero)), "sparse"},
		{"pax sparse", join(pax("GNU.sparse.major=1"), header("a.x", '0', zero)), "sparse"},
		{"many volumes", join(header("a.x", 'M', zero)), "divided"},
	} {
		t.Run(c.name, func(t *testing.T) {
			src := stagetest.Bytes(c.data)
			d, err := tar.Open(ctx, src, []string{"s3://x.tar"}, tar.Options{Store: &index.Store{}})
			got := ""
			if err != nil {
				if e := errs.From(err); e.Code != errs.Damaged && e.Code != errs.Unsupported || e.Where.Shard != "s3://x.tar" {
					t.Fatalf("%s at %v", e, e.Where)
				}
				got = errs.From(err).What
			} else {
				defer d.Close()
				for _, s := range all(t, d, src) {
					for _, data := range s.Fields {
						got += " " + s.Key + ":" + data
					}
				}
			}
			if !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestUnreadable(t *testing.T) {
	s := newShelf(t)
	path := s.put(t, "a.tar", three(t))
	bad := stagetest.WithFaults(s.src, "read a.tar #1 unreadable")
	_, err := tar.Open(ctx, bad, []string{path}, tar.Options{Store: s.store})
	if e := errs.From(err); err == nil || e.Code != errs.Unreadable || e.Where.Shard != path {
		t.Errorf("%v at %+v", e, e.Where)
	}
	d := s.open(t, path)
	stagetest.Must(t, os.Remove(path))
	var smp format.Sample
	if err := stagetest.Read(d, s.src, 0, nil, &smp); errs.CodeOf(err) != errs.NotFound {
		t.Errorf("%v", err)
	}
}

// Hostile shards of many members take no more than time in proportion.
func TestHostileCounts(t *testing.T) {
	var list []member
	for i := range 20_000 {
		list = append(list, member{fmt.Sprintf("same.%d", i), ""})
	}
	src := stagetest.Bytes(archive(t, gotar.FormatUSTAR, list))
	start := time.Now()
	d, err := tar.Open(ctx, src, []string{"s3://x.tar"}, tar.Options{Store: &index.Store{}})
	stagetest.Must(t, err)
	defer d.Close()
	if d.Index().Len() != 1 || len(d.Index().Meta().Fields) > 1000 {
		t.Errorf("%d samples, %d fields shown", d.Index().Len(), len(d.Index().Meta().Fields))
	}
	var smp format.Sample
	stagetest.Must(t, stagetest.Read(d, src, 0, nil, &smp))
	if len(smp.Fields) != 20_002 {
		t.Errorf("%d fields", len(smp.Fields))
	}
	t.Log(time.Since(start))
}
