package entries

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/stage/facts"
)

// What a look costs, in processor time: the fingerprint of a photograph, then also the search
// of the store for its record, then also reading its points. STOKER_FACTS is how many records
// the store has (ImageNet: 1281167).
func BenchmarkLook(b *testing.B) {
	n := 20_000
	if k, err := strconv.Atoi(os.Getenv("STOKER_FACTS")); err == nil {
		n = k
	}
	jpeg, err := os.ReadFile("../../../testdata/photos/rocket.jpg")
	if err != nil {
		b.Fatal(err)
	}
	l := kernel.NewLane()
	defer l.Close()
	record := recordOf(b, l, jpeg)
	s, err := facts.Open(b.TempDir(), "looks", facts.Options{Limit: 1 << 40})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	key := func(i int) facts.Key { return facts.Key{File: uint64(i), Length: int64(len(jpeg))} }
	err = s.Add(b.Context(), func(yield func(facts.Key, []byte) bool) {
		for i := range n {
			if !yield(key(i), record) {
				return
			}
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Merge(b.Context()); err != nil {
		b.Fatal(err)
	}
	order := rand.New(rand.NewPCG(1, 2)).Perm(n)
	var raw []byte
	var ok bool
	var points []kernel.Point
	for _, way := range []string{"fingerprint", "and record", "and points"} {
		b.Run(way, func(b *testing.B) {
			began := spent(b)
			for i := range b.N {
				print := kernel.Fingerprint(jpeg)
				if way == "fingerprint" {
					continue
				}
				k := key(order[i%n])
				if raw, ok = s.Append(raw[:0], k); !ok {
					b.Fatal("no record")
				}
				if way == "and record" {
					continue
				}
				if points, ok = parseRecord(points[:0], raw, print); !ok {
					b.Fatal("no points")
				}
			}
			b.ReportMetric(float64(spent(b)-began)/float64(b.N), "cpu-ns/op")
		})
	}
	b.Logf("%d records of %d bytes, %d points each", n, len(record), len(points))
}

// spent is the processor time of this process, in nanoseconds: of use on a machine that
// others use too.
func spent(b *testing.B) int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
