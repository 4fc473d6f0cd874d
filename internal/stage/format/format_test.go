package format_test

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/stage/format"
)

// What was given out stays what it is until the next Begin, however much more is
// asked for.
func TestRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s format.Sample
		for id := range int64(3) {
			s.Begin(id)
			var given [][]byte
			for i, n := range rapid.SliceOfN(rapid.IntRange(0, 500), 0, 20).Draw(t, "sizes") {
				p := s.Room(n)
				if len(p) != n || cap(p) != n {
					t.Fatalf("%d bytes of %d for %d", len(p), cap(p), n)
				}
				for j := range p {
					p[j] = byte(i)
				}
				given = append(given, p)
			}
			for i, p := range given {
				if !bytes.Equal(p, bytes.Repeat([]byte{byte(i)}, len(p))) {
					t.Fatalf("piece %d was written over", i)
				}
			}
		}
	})
	var s format.Sample
	if n := testing.AllocsPerRun(10, func() {
		s.Begin(0)
		_, _ = s.Room(100), s.Room(300)
	}); n != 0 {
		t.Errorf("%v allocations for a sample like the last one", n)
	}
}
