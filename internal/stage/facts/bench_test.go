package facts

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// The facts of the benchmarks: STOKER_FACTS of them, of 1,100 bytes; ImageNet has
// 1,281,167, and 1.4 GB of them.
const benchFact = 1100

func benchFacts() int {
	if n, err := strconv.Atoi(os.Getenv("STOKER_FACTS")); err == nil {
		return n
	}
	return 20_000
}

// full is a folder with the facts of the benchmarks, as an epoch leaves it.
func full(b *testing.B) (dir string, n int) {
	dir, n = b.TempDir(), benchFacts()
	s := openWith(b, disk{dir: dir}, Options{Limit: 1 << 40}, usual)
	fact := make([]byte, benchFact)
	r := rand.New(rand.NewPCG(1, 2))
	err := s.Add(ctx, func(yield func(Key, []byte) bool) {
		for i := range n {
			for j := 0; j < len(fact); j += 8 {
				le.PutUint64(fact[min(j, len(fact)-8):], r.Uint64())
			}
			if !yield(key(i), fact) {
				return
			}
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("written: %+v", s.Counts())
	s.close()
	return dir, n
}

func Benchmark(b *testing.B) {
	dir, n := full(b)
	measure := func(b *testing.B) {
		b.Run("open", func(b *testing.B) {
			for range b.N {
				s, err := Open(dir, "test", Options{})
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				_ = s.Close()
				b.StartTimer()
			}
		})
		s := openWith(b, disk{dir: dir}, Options{}, quiet)
		keys := rand.New(rand.NewPCG(3, 4)).Perm(n)
		var buf []byte
		run := func(name string, first int, found bool, do func(k Key) bool) {
			b.Run(name, func(b *testing.B) {
				b.ReportAllocs()
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				before := cpu(b)
				for i := range b.N {
					if do(key(first+keys[i%n])) != found {
						b.Fatal("found, or not")
					}
				}
				b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/op")
			})
		}
		run("append", 0, true, func(k Key) bool {
			var ok bool
			buf, ok = s.Append(buf[:0], k)
			return ok
		})
		// What a copy costs that knows where the record is: the bound.
		g := s.current.Load().segs[0]
		run("copy", 0, true, func(k Key) bool {
			off := uint64(headerLen) + k.File*0x9e3779b97f4a7c15%uint64(g.end-headerLen-2*benchFact)
			buf = append(buf[:0], g.data[off:off+recordHead+benchFact]...)
			return true
		})
		run("miss", n, false, func(k Key) bool {
			var ok bool
			buf, ok = s.Append(buf[:0], k)
			return ok
		})
		run("ahead", 0, true, func(k Key) bool { s.Ahead(k); return true })
		s.close()
	}
	s := openWith(b, disk{dir: dir}, Options{}, quiet)
	b.Run(fmt.Sprintf("files=%d", s.Counts().Files), measure)
	if err := s.Merge(ctx); err != nil {
		b.Fatal(err)
	}
	s.close()
	b.Run("files=1", measure)
}

// cpu is the processor time of this thread, in nanoseconds: of use on a machine that others
// use too.
func cpu(b *testing.B) int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

func BenchmarkPut(b *testing.B) {
	s := openWith(b, disk{dir: b.TempDir()}, Options{Limit: 1 << 30}, usual)
	fact := make([]byte, benchFact)
	b.ReportAllocs()
	for i := range b.N {
		s.Put(key(i), fact)
	}
	s.close()
}
