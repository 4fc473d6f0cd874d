package mem

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever lanes ask for, in whatever order, under whatever limits that change
// meanwhile: all of them get on, in the order of arrival, and what is held together is
// within the limit of whoever came last, or is one lane's alone.
func TestScratchNeverWaitsForItself(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lanes := rapid.IntRange(1, 6).Draw(t, "lanes")
		type want struct{ bytes, limit int64 }
		work := make([][]want, lanes)
		for i := range work {
			for range rapid.IntRange(1, 12).Draw(t, "pictures") {
				work[i] = append(work[i], want{rapid.Int64Range(1, 200).Draw(t, "bytes"), rapid.Int64Range(-10, 150).Draw(t, "limit")})
			}
		}
		var s Scratch
		var moved atomic.Int64 // by which limits shrink while lanes wait
		var holders atomic.Int64
		var wg sync.WaitGroup
		for _, mine := range work {
			wg.Go(func() {
				for _, w := range mine {
					limit := func() int64 { return w.limit - moved.Load()%7 }
					s.Take(w.bytes, limit)
					others := holders.Add(1) - 1
					if used := s.Used(); others == 0 && used < w.bytes {
						t.Errorf("%d bytes are held by one who took %d", used, w.bytes)
					}
					moved.Add(1)
					holders.Add(-1)
					s.Give(w.bytes)
				}
			})
		}
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(30 * time.Second):
			t.Fatal("lanes wait for one another")
		}
		if s.Used() != 0 {
			t.Fatalf("%d bytes are held after all are done", s.Used())
		}
	})
}

// The rule against a model: one step after the other, with the bytes that are held
// known exactly.
func TestScratchFollowsItsRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 100
		var s Scratch
		type picture struct {
			bytes int64
			got   chan struct{}
		}
		var waiting, holding []picture
		used := int64(0)
		admit := func() {
			for len(waiting) > 0 && (used == 0 || used+waiting[0].bytes <= limit) {
				<-waiting[0].got // hangs where the rule lets it on and Scratch does not
				used += waiting[0].bytes
				holding, waiting = append(holding, waiting[0]), waiting[1:]
			}
			for _, p := range waiting {
				select {
				case <-p.got:
					t.Fatalf("%d bytes were given beside %d of %d", p.bytes, used, limit)
				default:
				}
			}
			if s.Used() != used {
				t.Fatalf("%d bytes are held, and %d should be", s.Used(), used)
			}
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			if n := len(holding); n > 0 && rapid.Bool().Draw(t, "give") {
				i := rapid.IntRange(0, n-1).Draw(t, "which")
				used -= holding[i].bytes
				s.Give(holding[i].bytes)
				holding = append(holding[:i], holding[i+1:]...)
			} else {
				p := picture{rapid.Int64Range(1, 150).Draw(t, "bytes"), make(chan struct{})}
				queued := len(waiting)
				go func() {
					s.Take(p.bytes, func() int64 { return limit })
					close(p.got)
				}()
				waiting = append(waiting, p)
				for s.waits() != queued+1 && !closed(p.got) { // until it is in the queue, or through
					time.Sleep(10 * time.Microsecond)
				}
			}
			admit()
		}
		for len(holding) > 0 || len(waiting) > 0 {
			used -= holding[0].bytes
			s.Give(holding[0].bytes)
			holding = holding[1:]
			admit()
		}
	})
}

func (s *Scratch) waits() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue)
}

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A large picture that waits is not passed by small ones for ever.
func TestScratchKeepsTheOrder(t *testing.T) {
	var s Scratch
	limit := func() int64 { return 10 }
	s.Take(5, limit)
	large := make(chan struct{})
	go func() { s.Take(100, limit); close(large) }()
	for s.waits() == 0 {
		time.Sleep(time.Millisecond)
	}
	small := make(chan struct{})
	go func() { s.Take(1, limit); close(small) }()
	for s.waits() < 2 {
		time.Sleep(time.Millisecond)
	}
	s.Give(5)
	<-large
	if closed(small) {
		t.Fatal("a small picture came before a large one that had waited for longer, or beside it")
	}
	s.Give(100)
	<-small
}

func TestMap(t *testing.T) {
	b, err := Map(5 << 20)
	if err != nil || len(b) != 5<<20 || b[0] != 0 {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	b[len(b)-1] = 1
	Unmap(b[:100])
	Unmap(make([]byte, 100)) // is left alone
	Unmap(nil)
}
