package facts

import (
	"bytes"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"
)

// sum makes the checksums of a forged file right, as far as it has the parts.
func sum(data []byte, seed uint32) []byte {
	data = bytes.Clone(data)
	if len(data) < headerLen+footerLen {
		return data
	}
	le.PutUint32(data[12:], headerSum(data))
	f := data[len(data)-footerLen:]
	le.PutUint64(f[8:], uint64(len(data)))
	if table := le.Uint64(f[16:]); table < uint64(len(data)-footerLen) {
		le.PutUint32(f[48:], crc32.Update(seed, castagnoli, data[table:len(data)-footerLen]))
	}
	le.PutUint32(f[60:], crc32.Update(seed, castagnoli, f[:60]))
	return data
}

// FuzzFile opens any bytes, with and without right checksums of header, table and footer,
// takes them over as what a process left, and uses them as a file by itself.
func FuzzFile(f *testing.F) {
	_, name := one(f)
	data, err := os.ReadFile(name)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data, false)
	f.Add(data[:len(data)/2], false)
	table := int64(le.Uint64(data[len(data)-footerLen+16:]))
	for off := table; off < table+64*slotLen; off += 72 {
		forged := bytes.Clone(data)
		for i := range int64(4) {
			forged[off+i*3] ^= 0xff
		}
		f.Add(forged, true)
	}
	for at := len(data) - footerLen; at < len(data); at += 8 {
		forged := bytes.Clone(data)
		copy(forged[at:], "\xff\xff\xff\xff\xff\xff\xff\xff")
		f.Add(forged, true)
		copy(forged[at:], "\xff\xff\xff\xff\xff\xff\xff\x7f")
		f.Add(forged, true)
		copy(forged[at:], "\x00\x00\x00\x00\x00\x00\x00\x00")
		f.Add(forged, true)
	}
	same := bytes.Clone(data) // every slot is one record's
	for off := table; off < int64(len(data)-footerLen); off += slotLen {
		copy(same[off:], data[table:table+slotLen])
	}
	f.Add(same, true)
	f.Fuzz(func(t *testing.T, data []byte, right bool) {
		dir := t.TempDir()
		if right {
			data = sum(data, crc32.Checksum([]byte("test"), castagnoli))
		}
		for _, ext := range []string{sealedExt, partExt} {
			if err := os.WriteFile(filepath.Join(dir, "test-0123456789abcdef"+ext), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		look := func(s *opened) {
			for i := range 101 {
				s.Ahead(key(i))
				if got, ok := s.Append(nil, key(i)); ok && !bytes.Equal(got, fact(key(i), 1)) {
					t.Fatalf("fact %d: %q", i, got)
				}
			}
			for k, got := range s.All() {
				if !bytes.Equal(got, fact(k, 1)) {
					t.Fatalf("fact %v: %q", k, got)
				}
			}
		}
		f := alone(t, filepath.Join(dir, "test-0123456789abcdef"+sealedExt))
		look(f)
		f.close()
		lim := quiet
		lim.orphan = 0
		s := openWith(t, disk{dir: dir}, Options{Limit: plenty}, lim)
		look(s)
		s.add(0, 3, 1)
		if err := s.Merge(ctx); err != nil {
			t.Fatal(err)
		}
		s.has(0, 3, 1)
		look(s)
		if told := s.told(); len(told) > 2 {
			t.Errorf("%q", told)
		}
		s.close()
	})
}
