package npy_test

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"context"
	"encoding/binary"
	"hash/crc32"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/npy"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// member is an array of a zip file; compressed is its data as stored, if it is deflated.
type member struct {
	name       string
	data       []byte
	compressed []byte
}

func deflate(data []byte) []byte {
	var buf bytes.Buffer
	w, _ := flate.NewWriter(&buf, 9)
	_, _ = w.Write(data)
	_ = w.Close()
	return buf.Bytes()
}

func compressedMember(name string, data []byte) member { return member{name, data, deflate(data)} }

func archive(t stagetest.TB, list ...member) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	for _, m := range list {
		h := &zip.FileHeader{Name: m.name + ".npy", CRC32: crc32.ChecksumIEEE(m.data), UncompressedSize64: uint64(len(m.data)), CompressedSize64: uint64(len(m.data))}
		data := m.data
		if m.compressed != nil {
			h.Method, h.CompressedSize64, data = zip.Deflate, uint64(len(m.compressed)), m.compressed
		}
		f, err := w.CreateRaw(h)
		stagetest.Must(t, err)
		_, err = f.Write(data)
		stagetest.Must(t, err)
	}
	stagetest.Must(t, w.Close())
	return buf.Bytes()
}

// read opens a file of these bytes and reads all of it.
func read(name string, data []byte) error {
	src := stagetest.Bytes(data)
	d, err := npy.Open(context.Background(), src, []string{name}, npy.Options{Store: &index.Store{}, UnpackedBytes: 2 << 20})
	if err != nil {
		return err
	}
	defer d.Close()
	var s format.Sample
	for id := range min(d.Index().Len(), 1000) {
		if err := stagetest.Read(d, src, id, nil, &s); err != nil {
			return err
		}
	}
	return nil
}

// grown runs f and is the bytes that it allocated.
func grown(f func()) uint64 {
	var a, b runtime.MemStats
	runtime.ReadMemStats(&a)
	f()
	runtime.ReadMemStats(&b)
	return b.TotalAlloc - a.TotalAlloc
}

// replaced is data with the only place that has old having the other.
func replaced(t *testing.T, data []byte, old, other string) []byte {
	t.Helper()
	if bytes.Count(data, []byte(old)) != 1 || len(old) != len(other) {
		t.Fatalf("%q is there %d times", old, bytes.Count(data, []byte(old)))
	}
	return bytes.Replace(data, []byte(old), []byte(other), 1)
}

// patched is data with other bytes from off on.
func patched(data []byte, off int, other ...byte) []byte {
	data = bytes.Clone(data)
	copy(data[off:], other)
	return data
}

func TestDamagedNpy(t *testing.T) {
	good := array("<i4", []int{4, 3}, counting(48, 1))
	stagetest.Must(t, read("x.npy", good))
	end := int64(len(good))
	for _, c := range []struct {
		name string
		data []byte
		code errs.Code
		what string
		off  int64
	}{
		{"empty", nil, errs.Damaged, "does not begin as a .npy file", 0},
		{"cut in the magic", good[:5], errs.Damaged, "does not begin as a .npy file", 0},
		{"cut in the header", good[:60], errs.Damaged, "ends inside its header", 0},
		{"cut in the body", good[:end-1], errs.Damaged, "only 47 are there", end - 1},
		{"cut after the header", good[:128], errs.Damaged, "only 0 are there", 128},
		{"a byte more", append(bytes.Clone(good), 0), errs.Damaged, "by 1 more bytes", end},
		{"flipped magic", patched(good, 3, 'n'), errs.Damaged, "does not begin as a .npy file", 0},
		{"unknown version", patched(good, 6, 9), errs.Unsupported, "version 9.0", 0},
		{"absurd length of the header", patched(good, 6, 2, 0, 0xff, 0xff, 0xff, 0x7f), errs.Damaged, "header claims", 0},
		{"header longer than the file", patched(good, 8, 0xff, 0xff), errs.Damaged, "ends inside its header", 0},
		{"flipped key", replaced(t, good, "'shape'", "'shapf'"), errs.Damaged, "not a dictionary", 0},
		{"wrong count", replaced(t, good, "(4, 3, )", "(5, 3, )"), errs.Damaged, "has 60 bytes", end},
		{"fewer than there are", replaced(t, good, "(4, 3, )", "(3, 3, )"), errs.Damaged, "by 12 more bytes", end - 12},
		{"shape product overflow", array("<i4", []int{1 << 40, 1 << 40}, nil), errs.Damaged, "more elements than can be counted", 0},
		{"shape of the whole range", array("<i8", []int{1 << 60}, nil), errs.Damaged, "more elements than can be counted", 0},
		{"absurd shape", array("<i4", []int{1 << 50}, nil), errs.Damaged, "only 0 are there", 128},
		{"negative shape", withHeader("{'descr': '<i4', 'fortran_order': False, 'shape': (-4, 3), }", nil), errs.Damaged, "not a dictionary", 0},
		{"a number beyond 64 bits", withHeader("{'descr': '<i4', 'fortran_order': False, 'shape': (99999999999999999999, 3), }", nil), errs.Damaged, "not a dictionary", 0},
		{"too many dimensions", withHeader("{'descr': '<i4', 'fortran_order': False, 'shape': ("+strings.Repeat("1,", 65)+"), }", counting(4, 0)), errs.Damaged, "not a dictionary", 0},
		{"missing key", withHeader("{'descr': '<i4', 'shape': (4, 3), }", nil), errs.Damaged, "not a dictionary", 0},
		{"a key twice", withHeader("{'descr': '<i4', 'descr': '<i4', 'fortran_order': False, 'shape': (4, 3), }", nil), errs.Damaged, "not a dictionary", 0},
		{"an unknown key", withHeader("{'descr': '<i4', 'fortran_order': False, 'shape': (4, 3), 'x': (), }", nil), errs.Damaged, "not a dictionary", 0},
		{"code in the header", withHeader("__import__('os').system('true')", nil), errs.Damaged, "not a dictionary", 0},
		{"dtype object", array("|O", []int{4, 3}, counting(48, 0)), errs.Unsupported, "Python objects", 0},
		{"no dtype", array("", []int{4, 3}, counting(48, 0)), errs.Damaged, "names no dtype", 0},
		{"a dtype of no sense", array("<q9", []int{4, 3}, counting(48, 0)), errs.Unsupported, "not read", 0},
		{"a zero byte for a space at the end", patched(good, 126, 0), errs.Damaged, "not a dictionary", 0},
		{"a zero byte in the dtype", replaced(t, good, "'<i4'", "'i4\x00'"), errs.Damaged, "not a dictionary", 0},
		{"a zero byte for a space", replaced(t, good, "'descr': ", "'descr':\x00"), errs.Damaged, "not a dictionary", 0},
		{"brackets without end", withHeader("{'descr': "+strings.Repeat("[", 5000), nil), errs.Damaged, "not a dictionary", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var err error
			n := grown(func() { err = read("x.npy", c.data) })
			e := errs.From(err)
			if err == nil || e.Code != c.code || !strings.Contains(e.What, c.what) || e.Where.Shard != e.Where.File+e.Where.Shard || !strings.HasSuffix(e.Where.Shard, "x.npy") || e.Where.Offset.Or(-1) != c.off || e.Hint == "" {
				t.Errorf("%s: %v | %s; want %q at %d", e.Code, e, e.Hint, c.what, c.off)
			}
			if n > 8<<20 {
				t.Errorf("%d bytes were allocated", n)
			}
		})
	}
}

// Offsets in the archive of TestDamagedNpz.
const (
	nameLen = len("x.npy")
	bodyX   = 30 + nameLen
)

func TestDamagedNpz(t *testing.T) {
	plain, other := array("<i4", []int{4, 3}, counting(48, 1)), array("<i2", []int{4}, counting(8, 99))
	good := archive(t, member{name: "x", data: plain}, compressedMember("y", other))
	headY := bytes.LastIndex(good, []byte("PK\x03\x04"))
	dir := bytes.Index(good, []byte("PK\x01\x02"))
	entryY := bytes.LastIndex(good, []byte("PK\x01\x02"))
	end := bytes.LastIndex(good, []byte("PK\x05\x06"))
	le32 := func(n uint32) []byte { return binary.LittleEndian.AppendUint32(nil, n) }
	le16 := func(n uint16) []byte { return binary.LittleEndian.AppendUint16(nil, n) }
	stagetest.Must(t, read("a.npz", good))
	bomb := bytes.Repeat([]byte{0}, 4<<20)
	// Two members that share a body: the directory says that both are the first.
	twice := patched(good, entryY+42, le32(0)...)
	copy(twice[entryY+8:entryY+28], good[dir+8:dir+28])
	for _, c := range []struct {
		name string
		data []byte
		code errs.Code
		what string
		off  int
	}{
		{"empty", nil, errs.Damaged, "directory at its end is missing", 0},
		{"cut in a member", good[:100], errs.Damaged, "directory at its end is missing", 100},
		{"cut in the directory", good[:entryY+10], errs.Damaged, "directory at its end is missing", entryY + 10},
		{"cut in the end", good[:len(good)-1], errs.Damaged, "directory at its end is missing", len(good) - 1},
		{"bytes after the end", append(bytes.Clone(good), 1), errs.Damaged, "directory at its end is missing", len(good) + 1},
		{"wrong count", patched(good, end+10, le16(1)...), errs.Damaged, "should have 1 members, but has 2", dir},
		{"more members than fit", patched(good, end+10, le16(9000)...), errs.Damaged, "9000 members in", end},
		{"directory elsewhere", patched(good, end+16, le32(uint32(dir-4))...), errs.Damaged, "its directory should have", end},
		{"directory beyond", patched(good, end+16, le32(1<<31)...), errs.Damaged, "its directory should have", end},
		{"flipped entry", patched(good, entryY, 'Q'), errs.Damaged, "an entry of its directory should be here", entryY},
		{"entry too long", patched(good, entryY+28, 0xff, 0xff), errs.Damaged, "cut off", entryY},
		{"the same name twice", patched(replaced(t, replaced(t, good, "y.npy"+string(good[headY+30+nameLen:][:4]), "x.npy"+string(good[headY+30+nameLen:][:4])), "y.npyPK", "x.npyPK"), 0), errs.Damaged, "two members", entryY},
		{"member beyond", patched(good, entryY+42, le32(1<<31)...), errs.Damaged, "should begin here", 1 << 31},
		{"member where none is", patched(good, entryY+42, le32(uint32(headY+1))...), errs.Damaged, "should begin here", headY + 1},
		{"overlapping members", twice, errs.Damaged, "does not match the directory", 0},
		{"flipped local header", patched(good, headY+8, 9), errs.Damaged, "does not match the directory", headY},
		{"other name in the local header", patched(good, headY+30, 'z'), errs.Damaged, "does not match the directory", headY},
		{"longer than its place", patched(good, dir+20, le32(uint32(dir))...), errs.Damaged, "should begin here and have", 0},
		{"64-bit numbers missing", patched(good, entryY+20, le32(0xffffffff)...), errs.Damaged, "64-bit numbers of the member", entryY},
		{"64-bit end missing", patched(good, end+10, 0xff, 0xff), errs.Damaged, "64-bit end of its directory is missing", end - 20},
		{"many disks", patched(good, end+4, 1), errs.Unsupported, "divided over several", end},
		{"encrypted", patched(patched(good, headY+6, 1), entryY+8, 1), errs.Unsupported, "encrypted", headY},
		{"unknown method", patched(patched(good, headY+8, 93), entryY+10, 93), errs.Unsupported, "method 93", headY},
		{"cut array", archive(t, member{name: "x", data: plain[:170]}), errs.Damaged, "only 42 are there", bodyX + 170},
		{"object", archive(t, member{name: "x", data: array("|O", []int{1}, nil)}), errs.Unsupported, "Python objects", bodyX},
		{"cut packed array", archive(t, compressedMember("x", plain[:170])), errs.Damaged, "only 42 are there", 170},
		{"no deflate stream", archive(t, member{"x", plain, bytes.Repeat([]byte{0xff}, 80)}), errs.Damaged, "cannot decompress", 0},
		{"cut deflate stream", archive(t, member{"x", plain, deflate(plain)[:60]}), errs.Damaged, "cannot decompress", 0},
		{"bytes after the stream", archive(t, member{"x", plain, append(deflate(plain), 0)}), errs.Damaged, "cannot decompress", 0},
		{"stream too long", archive(t, member{"x", plain, deflate(append(bytes.Clone(plain), 0))}), errs.Damaged, "cannot decompress", 0},
		{"flipped body", archive(t, member{"x", plain, deflate(patched(plain, 150, 77))}), errs.Damaged, "cannot decompress", 0},
		{"bomb with a wrong length", archive(t, member{"x", plain, deflate(append(bytes.Clone(plain), bomb...))}), errs.Damaged, "cannot decompress", 0},
		{"bomb of a dwarf", archive(t, member{"x", bomb[:1<<20], deflate(plain)}), errs.Damaged, "more than its", 0},
		{"bomb beyond the limit", archive(t, compressedMember("x", array("|u1", []int{4 << 20}, bomb))), errs.Unsupported, "the limit is 2097152", 0},
		{"no array", archive(t), errs.Empty, "no array", -1},
		{"array without a name", archive(t, member{name: "", data: plain}), errs.Config, "not a name of a field", -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var err error
			n := grown(func() { err = read("a.npz", c.data) })
			e := errs.From(err)
			if err == nil || e.Code != c.code || !strings.Contains(e.What, c.what) || e.Where.Offset.Or(-1) != int64(c.off) || c.code != errs.Config && !strings.HasSuffix(e.Where.Shard, "a.npz") || e.Hint == "" {
				t.Errorf("%s: %v | %s; want %q at %d", e.Code, e, e.Hint, c.what, c.off)
			}
			if n > 8<<20 {
				t.Errorf("%d bytes were allocated", n)
			}
		})
	}
}

// Members nested in one another, each with a header of its own: the second one begins
// in the body of the first.
func TestOverlappingMembers(t *testing.T) {
	inner := array("|u1", []int{2}, []byte("ab"))
	local := archive(t, member{name: "y", data: inner})
	entry := bytes.Index(local, []byte("PK\x01\x02"))
	outer := array("|u1", []int{entry}, local[:entry])
	whole := archive(t, member{name: "x", data: outer}, member{name: "y", data: inner})
	second := bytes.LastIndex(whole[:bytes.Index(whole, []byte("PK\x01\x02"))], []byte("PK\x03\x04"))
	inside := bodyX + len(outer) - entry
	bad := patched(whole, bytes.LastIndex(whole, []byte("PK\x01\x02"))+42, binary.LittleEndian.AppendUint32(nil, uint32(inside))...)
	if inside >= second {
		t.Fatal("not one in another")
	}
	e := errs.From(read("a.npz", bad))
	if e.Code != errs.Damaged || !strings.Contains(e.What, `"x.npy" and "y.npy" overlap`) || e.Where.Offset.Or(-1) != int64(inside) {
		t.Errorf("%v", e)
	}
}

// The 64-bit end of a directory is what a writer of very many or very large
// members leaves.
func TestZip64End(t *testing.T) {
	good := archive(t, member{name: "x", data: array("|u1", []int{2}, []byte("ab"))})
	dir, end := bytes.Index(good, []byte("PK\x01\x02")), bytes.LastIndex(good, []byte("PK\x05\x06"))
	le := binary.LittleEndian
	long := le.AppendUint32(bytes.Clone(good[:end]), 0x06064b50)
	long = le.AppendUint64(long, 44)
	long = append(long, 45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	long = le.AppendUint64(le.AppendUint64(long, 1), 1)
	long = le.AppendUint64(le.AppendUint64(long, uint64(end-dir)), uint64(dir))
	long = le.AppendUint64(le.AppendUint32(le.AppendUint32(long, 0x07064b50), 0), uint64(end))
	long = le.AppendUint32(long, 1)
	for _, at := range []int{8, 12, 16} {
		tail := patched(good[end:], at, 0xff, 0xff)
		if at > 8 {
			tail = patched(tail, at, 0xff, 0xff, 0xff, 0xff)
		} else {
			tail = patched(tail, 10, 0xff, 0xff)
		}
		file := append(bytes.Clone(long), tail...)
		stagetest.Must(t, read("a.npz", file))
		for _, c := range []struct {
			off  int
			what string
		}{{end, "64-bit end of its directory is not where"}, {end + 56, "64-bit end of its directory is missing"}} {
			if err := read("a.npz", patched(file, c.off, 'Q')); err == nil || !strings.Contains(err.Error(), c.what) {
				t.Errorf("%v, not %s", err, c.what)
			}
		}
		if err := read("a.npz", patched(file, end+56+15, 0xff)); errs.CodeOf(err) != errs.Damaged {
			t.Errorf("%v", err)
		}
	}
}

// A compressed member that goes bad after it was indexed, under the same size and
// time.
func TestDamagedLater(t *testing.T) {
	s := newShelf(t)
	path := s.put(t, "a.npz", archive(t, compressedMember("x", array("<i4", []int{40, 3}, counting(480, 1)))))
	for off := range 30 + nameLen + 200 {
		d, err := npy.Open(ctx, s.src, []string{path}, npy.Options{Store: s.store})
		stagetest.Must(t, err)
		flipped := make([]byte, 0)
		var smp format.Sample
		flaky := stagetest.WithFaults(s.src, "read a.npz flip="+strconv.Itoa(off))
		e, err := npy.Open(ctx, flaky, []string{path}, npy.Options{Store: s.store})
		stagetest.Must(t, err)
		err = stagetest.Read(e, flaky, 3, nil, &smp)
		if err == nil {
			flipped = append(flipped, smp.Fields[0].Data...)
			stagetest.Must(t, stagetest.Read(d, s.src, 3, nil, &smp))
			if !bytes.Equal(flipped, smp.Fields[0].Data) {
				t.Fatalf("the byte at %d is wrong: no error", off)
			}
		} else if w := errs.From(err).Where; errs.CodeOf(err) != errs.Damaged || w.Sample.Or(-1) != 3 || w.Shard != path || w.Member != "x.npy" || w.Field != "x" || w.Offset.Or(-1) != 0 {
			t.Fatalf("%v at %+v", err, w)
		}
		_, _ = d.Close(), e.Close()
	}
}

func FuzzNpy(f *testing.F) {
	f.Add(array("<i4", []int{4, 3}, counting(48, 1)))
	f.Add(withHeader("{'descr': [('a', '<i4')], 'fortran_order': True, 'shape': (4L, 3), }", nil))
	f.Fuzz(func(t *testing.T, data []byte) { sound(t, "x.npy", data) })
}

func FuzzNpz(f *testing.F) {
	x, y := array("<i4", []int{4, 3}, counting(48, 1)), array("<i2", []int{4}, counting(8, 99))
	f.Add(archive(f, member{name: "x", data: x}, compressedMember("y", y)))
	f.Add(archive(f, compressedMember("x", x)))
	f.Fuzz(func(t *testing.T, data []byte) { sound(t, "x.npz", data) })
}

// sound wants samples, or an error of the data with its place.
func sound(t *testing.T, name string, data []byte) {
	err := read(name, data)
	if err == nil {
		return
	}
	switch e := errs.From(err); {
	case e.Code == errs.Damaged || e.Code == errs.Unsupported || e.Code == errs.Empty:
		if e.Where.Shard == "" || e.Hint == "" {
			t.Errorf("%v has no place or hint", e)
		}
	case e.Code != errs.Config:
		t.Errorf("%s: %v", e.Code, e)
	}
}
