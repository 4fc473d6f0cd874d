package loader

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/stage/facts"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// learnedStore is a cache folder with the entry points of n photographs, and what epochs
// are without them.
type learnedStore struct {
	t    *testing.T
	sp   Spec
	n    int64
	from string // the cache folder that others are copied from
	want [2]uint64
}

func newLearnedStore(t *testing.T, n int) *learnedStore {
	t.Helper()
	s := &learnedStore{t: t, n: int64(n), from: t.TempDir(), sp: cropSpec(t, jpegs(t, n))}
	t.Setenv("STOKER_CACHE", s.from)
	for epoch := range int64(2) {
		s.want[epoch] = digest(plainly(t, s.sp, epoch))
	}
	epochOf(t, s.sp, 0, s.want[0])
	mergeStore(t, storesOf(t)[0])
	return s
}

// again is a cache folder with the same index and store, and the store's folder.
func (s *learnedStore) again(t *testing.T) (dir string) {
	t.Helper()
	cache := filepath.Join(t.TempDir(), "cache")
	if err := os.CopyFS(cache, os.DirFS(s.from)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("STOKER_CACHE", cache)
	stores := storesOf(t)
	if len(stores) != 1 {
		t.Fatalf("%q", stores)
	}
	return stores[0]
}

// sealed is the only file of a store's folder.
func sealed(t testing.TB, dir string) string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "entries-*.facts"))
	if err != nil || len(all) != 1 {
		t.Fatalf("%q: %v", all, err)
	}
	return all[0]
}

// changed writes a file anew, with what change makes of its bytes.
func changed(t testing.TB, path string, change func(b []byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, change(b), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// headed gives a file of facts another header, whose checksum is right.
func headed(version uint32, kind string) func(b []byte) []byte {
	return func(b []byte) []byte {
		castagnoli := crc32.MakeTable(crc32.Castagnoli)
		binary.LittleEndian.PutUint32(b[8:], version)
		clear(b[16:64])
		copy(b[16:64], kind)
		binary.LittleEndian.PutUint32(b[12:], crc32.Update(crc32.Checksum(b[:12], castagnoli), castagnoli, b[16:64]))
		return b
	}
}

// mergeStore merges all files of a store that this version understands, and returns the
// notices.
func mergeStore(t testing.TB, dir string) (told []string) {
	t.Helper()
	f, err := facts.Open(dir, "entries", facts.Options{Limit: 1 << 30, Notice: func(line string) { told = append(told, line) }})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Merge(context.Background()); err != nil {
		t.Error(err)
	}
	_ = f.Close()
	return told
}

// versionCase is a file that this version does not understand.
type versionCase struct {
	place   func(t *testing.T, dir string) string // puts it into a store, and says where
	notices int
	says    string
	known   bool // the store has what was learned besides
}

func (c versionCase) check(t *testing.T, path string, told []string) {
	t.Helper()
	if len(told) != c.notices || len(told) == 1 && (!strings.Contains(told[0], c.says) || !strings.Contains(told[0], path)) {
		t.Errorf("%q", told)
	}
}

// Files of other versions are ignored with one notice, and no version removes, by merges or
// otherwise, what it does not understand.
func TestEntryPointsOfOtherVersions(t *testing.T) {
	const part = "entries-00000000000000aa.part"
	s := newLearnedStore(t, 12)
	asPart := func(change func(b []byte) []byte) func(t *testing.T, dir string) string {
		return func(t *testing.T, dir string) string {
			path := filepath.Join(dir, part)
			if err := os.Rename(sealed(t, dir), path); err != nil {
				t.Fatal(err)
			}
			changed(t, path, change)
			then := time.Now().Add(-time.Hour)
			if err := os.Chtimes(path, then, then); err != nil {
				t.Fatal(err)
			}
			return path
		}
	}
	asSealed := func(change func(b []byte) []byte) func(t *testing.T, dir string) string {
		return func(t *testing.T, dir string) string {
			changed(t, sealed(t, dir), change)
			return sealed(t, dir)
		}
	}
	beside := func(t *testing.T, dir string) string { // a later version that changed what facts say
		f, err := facts.Open(dir, "entries-2", facts.Options{Limit: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		f.Put(facts.Key{File: 1}, []byte("what only that version understands"))
		_ = f.Close()
		all, _ := filepath.Glob(filepath.Join(dir, "entries-2-*.facts"))
		if len(all) != 1 {
			t.Fatalf("%q", all)
		}
		return all[0]
	}
	for what, c := range map[string]versionCase{
		"a later layout":             {asSealed(headed(2, "entries")), 1, "later version", false},
		"a much later layout":        {asSealed(func(b []byte) []byte { return append(headed(900, "x")(b[:64]), "of its own"...) }), 1, "later version", false},
		"an earlier layout":          {asSealed(headed(0, "entries")), 1, "not a file of facts", false},
		"another kind":               {asSealed(headed(1, "lengths")), 1, "lengths", false},
		"what a later process left":  {asPart(headed(2, "entries")), 1, "later version", false},
		"another kind in the folder": {beside, 0, "", true},
	} {
		t.Run(what, func(t *testing.T) {
			dir := s.again(t)
			path := c.place(t, dir)
			was, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for epoch, want := range s.want {
				found, told := epochOf(t, s.sp, int64(epoch), want)
				if epoch == 0 && (c.known && found.Known < found.Pictures || !c.known && found.Pictures-found.Known < s.n) {
					t.Errorf("%+v", found)
				}
				if len(told) == 0 && strings.HasSuffix(path, ".part") {
					continue // a short run may not come to merge what processes left
				}
				c.check(t, path, told)
			}
			c.check(t, path, mergeStore(t, dir))
			if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, was) {
				t.Errorf("a file of another version was touched: %v", err)
			}
			if found, _ := epochOf(t, s.sp, 0, s.want[0]); found.Known != found.Pictures {
				t.Errorf("after it was learned anew: %+v", found)
			}
		})
	}
}

// Damage of the file: one notice at most, the same batches, and what was lost is learned anew.
func TestEntryPointsInDamagedStores(t *testing.T) {
	s := newLearnedStore(t, 12)
	for what, harm := range map[string]func(b []byte) []byte{
		"the header":  func(b []byte) []byte { b[30] ^= 1; return b },
		"the table":   func(b []byte) []byte { b[len(b)-100] ^= 1; return b },
		"the footer":  func(b []byte) []byte { b[len(b)-40] ^= 1; return b },
		"the records": func(b []byte) []byte { return flipped(b, 64, binary.LittleEndian.Uint64(b[len(b)-48:])) },
		"its end":     func(b []byte) []byte { return b[:len(b)*2/3] },
		"all of it":   func([]byte) []byte { return nil },
		"zeros":       func(b []byte) []byte { clear(b); return b },
	} {
		t.Run(what, func(t *testing.T) {
			dir := s.again(t)
			changed(t, sealed(t, dir), harm)
			_, told := epochOf(t, s.sp, 0, s.want[0])
			if len(told) != 1 || !strings.Contains(told[0], dir) {
				t.Errorf("%q", told)
			}
			epochOf(t, s.sp, 1, s.want[1])
			mergeStore(t, dir)
			if found, told := epochOf(t, s.sp, 0, s.want[0]); found.Known != found.Pictures || found.Wrong > 0 || len(told) > 0 {
				t.Errorf("after a merge: %+v, %q", found, told)
			}
		})
	}
	r := rand.New(rand.NewPCG(22, 1))
	for range 12 { // anywhere, several times
		dir := s.again(t)
		harm := make([]byte, 20)
		for i := range harm {
			harm[i] = byte(r.Uint32())
		}
		changed(t, sealed(t, dir), func(b []byte) []byte { return stagetest.Harmed(b, harm) })
		if found, told := epochOf(t, s.sp, 0, s.want[0]); len(told) > 2 || found.Wrong > 0 {
			t.Errorf("% x: %+v, %q", harm, found, told)
		}
	}
}

// flipped has a flipped bit in every 600 bytes of a range.
func flipped(b []byte, from, to uint64) []byte {
	for i := from + 50; i < to; i += 600 {
		b[i] ^= 16
	}
	return b
}

// Records that are forged with right checksums, under the keys of the pictures, and with
// their fingerprints: none of them is a wrong picture, and each is found out.
func TestForgedEntryPoints(t *testing.T) {
	s := newLearnedStore(t, 12)
	const head = 18 // of a record (stage/entries): fingerprint, count, number of steps, widths
	r := rand.New(rand.NewPCG(22, 2))
	for what, forge := range map[string]func(rec, other []byte) []byte{
		"another picture's":       func(rec, other []byte) []byte { return append(rec[:8], other[8:]...) },
		"another fingerprint":     func(rec, _ []byte) []byte { rec[3] ^= 1; return rec },
		"one point more":          func(rec, _ []byte) []byte { rec[8]++; return rec },
		"four billion points":     func(rec, _ []byte) []byte { copy(rec[8:], "\xff\xff\xff\xff"); return rec },
		"no points":               func(rec, _ []byte) []byte { clear(rec[8:]); return rec[:head] },
		"absurd widths":           func(rec, _ []byte) []byte { copy(rec[13:], "\xff\xff\xff\xff\xff"); return rec },
		"cut":                     func(rec, _ []byte) []byte { return rec[:len(rec)*2/3] },
		"empty":                   func([]byte, []byte) []byte { return nil },
		"random points":           func(rec, _ []byte) []byte { return random256(r, rec, head+8*int(rec[12])) },
		"beyond the scan's end":   func(rec, _ []byte) []byte { return eachStep(rec, 4, 1<<24) },
		"beyond the last MCU":     func(rec, _ []byte) []byte { return eachStep(rec, 0, 1<<20) },
		"at the end of 32 bits":   func(rec, _ []byte) []byte { return eachStep(rec, 0, 1<<31) },
		"all steps a bit further": func(rec, _ []byte) []byte { return eachStep(rec, 4, 1) },
	} {
		t.Run(what, func(t *testing.T) {
			dir := s.again(t)
			f, err := facts.Open(dir, "entries", facts.Options{Limit: 1 << 30})
			if err != nil {
				t.Fatal(err)
			}
			all := make(map[facts.Key][]byte)
			for k, rec := range f.All() {
				all[k] = bytes.Clone(rec)
			}
			keys := slices.Collect(maps.Keys(all))
			slices.SortFunc(keys, func(a, b facts.Key) int { return int(a.Length - b.Length) })
			for i, k := range keys { // of another size: this one has the photographs twice
				other := all[keys[(i+len(keys)/2)%len(keys)]]
				f.Put(k, forge(bytes.Clone(all[k]), bytes.Clone(other)))
			}
			if err := f.Close(); err != nil || len(keys) < int(s.n) {
				t.Fatalf("%d records: %v", len(keys), err)
			}
			found, told := epochOf(t, s.sp, 0, s.want[0])
			if len(told) > 0 || found.Wrong == 0 && what != "no points" {
				t.Errorf("%+v, %q", found, told)
			}
			epochOf(t, s.sp, 1, s.want[1])
			if found, told = epochOf(t, s.sp, 0, s.want[0]); found.Known != found.Pictures || len(told) > 0 {
				t.Errorf("after it was learned anew: %+v, %q", found, told)
			}
		})
	}
}

// random256 makes all bytes of a record from one on random.
func random256(r *rand.Rand, rec []byte, from int) []byte {
	for i := from; i < len(rec); i++ {
		rec[i] = byte(r.Uint32())
	}
	return rec
}

// eachStep adds to a number of each listed step of a record: 0: its MCUs, 4: its bits.
func eachStep(rec []byte, field int, by uint32) []byte {
	for i := range int(rec[12]) {
		at := rec[18+8*i+field:]
		binary.LittleEndian.PutUint32(at, binary.LittleEndian.Uint32(at)+by)
	}
	return rec
}

// At the limit, samples keep what they have, others get nothing, and the batches are the same.
func TestEntryPointsBeyondTheLimit(t *testing.T) {
	const limit = 4 << 10
	s := newLearnedStore(t, 12)
	t.Setenv("STOKER_CACHE", t.TempDir())
	sp := s.sp
	sp.Entries.Limit = limit
	var first map[facts.Key]bool
	for round := range 3 {
		for epoch, want := range s.want {
			found, told := epochOf(t, sp, int64(epoch), want)
			// It is told after a merge has given back what there was; an epoch may end before.
			if len(told) > 1 || len(told) == 1 && !strings.Contains(told[0], "fill their limit of 4096 bytes") {
				t.Errorf("round %d: %q", round, told)
			}
			if found.Wrong > 0 || round > 0 && (found.Known == 0 || found.Known == found.Pictures || found.Bytes > limit+limit/8) {
				t.Errorf("round %d: %+v", round, found)
			}
		}
		f, err := facts.Open(storesOf(t)[0], "entries", facts.Options{})
		if err != nil {
			t.Fatal(err)
		}
		now := make(map[facts.Key]bool)
		for k := range f.All() {
			now[k] = true
		}
		_ = f.Close()
		if first == nil {
			first = now
		}
		for k := range first {
			if !now[k] {
				t.Errorf("round %d: %v was lost", round, k)
			}
		}
	}
	if len(first) == 0 || len(first) == int(s.n) {
		t.Errorf("%d of %d pictures have entry points", len(first), s.n)
	}
}

// mounted is a file system of its own for a cache folder.
func mounted(t *testing.T, size string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("STOKER_CACHE", dir)
	return dir
}

// A full disk, and one that is mounted read-only: one notice each, and work goes on, with
// what is there.
func TestEntryPointsOnFullAndReadOnlyDisks(t *testing.T) {
	s := newLearnedStore(t, 12)
	dir := mounted(t, "256k")
	plainly(t, s.sp, 0) // its index is kept
	fill, err := os.Create(filepath.Join(dir, "fill"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = fill.Write(make([]byte, 4096))
	}
	found, told := epochOf(t, s.sp, 0, s.want[0])
	if len(told) != 1 || !strings.Contains(told[0], "no space") || found.Known > 0 {
		t.Errorf("full: %+v, %q", found, told)
	}
	if err := fill.Truncate(100 << 10); err != nil {
		t.Fatal(err)
	}
	_ = fill.Close()
	if found, told = epochOf(t, s.sp, 0, s.want[0]); len(told) > 0 || found.Learned == 0 {
		t.Errorf("with room again: %+v, %q", found, told)
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, "size=256k"); err != nil {
		t.Fatal(err)
	}
	for epoch, want := range s.want {
		if found, told = epochOf(t, s.sp, int64(epoch), want); len(told) != 1 || !strings.Contains(told[0], "read-only") || found.Known != found.Pictures {
			t.Errorf("read-only: %+v, %q", found, told)
		}
	}
}

// The store of another user is used, as far as it can be read, and not written to.
func TestEntryPointsOfAnotherUser(t *testing.T) {
	s := newLearnedStore(t, 12)
	dir := s.again(t)
	if err := os.Chown(dir, 12345, -1); err != nil {
		t.Skipf("only root can give a folder to somebody else: %v", err)
	}
	for epoch, want := range s.want {
		found, told := epochOf(t, s.sp, int64(epoch), want)
		if len(told) != 1 || !strings.Contains(told[0], "another user") || found.Known != found.Pictures {
			t.Errorf("%+v, %q", found, told)
		}
	}
	sealed(t, dir) // there is no second file
}
