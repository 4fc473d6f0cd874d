package stats

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestMain is another process with a page when the tests start themselves as one.
func TestMain(m *testing.M) {
	if os.Getenv("STOKER_TEST_PAGE") != "" {
		p, err := NewPage(RoleEngine)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		s := p.Stream(1, 1, nil)
		w := p.Worker(LaneWorker)
		w.Turn(Busy, Monotonic())
		fmt.Println("ready")
		for i := int64(1); ; i++ { // until it is killed
			s.Decode.Add(time.Microsecond, 1, 1)
			s.Delivered(Progress{Epoch: i, Step: i, Samples: i, Batches: i, Memory: i})
			p.Span(Span{Loader: i, Epoch: i, Step: i, Steps: i, Begun: i, Filled: i, Delivered: i, Asked: i, Got: i, Rows: i})
			w.Turn(Busy+int(i)%2, Monotonic())
		}
	}
	os.Exit(m.Run())
}

// A process's page is read while it is written, and after its death.
func TestAnotherProcess(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "STOKER_TEST_PAGE=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("it said %q, %v", line, err)
	}
	r, err := Open(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if h := r.Header(); h.PID != cmd.Process.Pid || h.Role != RoleEngine {
		t.Errorf("the header is %+v", h)
	}
	consistent := func() (samples int64) {
		t.Helper()
		for _, l := range r.Loaders() {
			if l.Epoch != l.Samples || l.Step != l.Samples || l.Batches != l.Samples || l.Memory != l.Samples {
				t.Fatalf("a torn row: %+v", l)
			}
			samples = l.Samples
		}
		for _, s := range r.Spans() {
			if i := s.Loader; s != (Span{i, i, i, i, i, i, i, i, i, i}) {
				t.Fatalf("a torn span: %+v", s)
			}
		}
		for _, w := range r.Workers() {
			if sum := w.BusySeconds + w.InputSeconds + w.OutputSeconds + w.IdleSeconds; sum < w.Seconds-1e-6 || sum > w.Seconds+1e-6 {
				t.Fatalf("a lane of %.6f s did this and that for %.6f s", w.Seconds, sum)
			}
		}
		return samples
	}
	for range 2000 {
		consistent()
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	last := consistent()
	if again := consistent(); again != last {
		t.Errorf("a dead process went from %d to %d samples", last, again)
	}
	if _, err := Open(cmd.Process.Pid); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("opening the page of a dead process: %v", err)
	}
}

func TestAProcessWithoutAPage(t *testing.T) {
	sleep := exec.Command("sleep", "60")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sleep.Process.Kill(); _ = sleep.Wait() }()
	if _, err := Open(sleep.Process.Pid); !errors.Is(err, ErrNone) {
		t.Errorf("opening the page of sleep: %v", err)
	}
}

// A worker's books are those of a diary, whatever it does.
func TestAWorkersBooks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := rapid.Int64Range(0, 1e15).Draw(t, "begun")
		begun := now
		w := new(Worker).begin(LaneWorker, now)
		var diary [4]int64
		state := Idle
		for range rapid.IntRange(0, 30).Draw(t, "turns") {
			d := rapid.Int64Range(0, 1e12).Draw(t, "for")
			now += d
			diary[state] += d
			next := rapid.IntRange(Idle, Output).Draw(t, "state")
			was, took := w.Turn(next, now)
			if was != state {
				t.Fatalf("it was in state %d, not %d", was, state)
			}
			_ = took
			state = next
		}
		last := rapid.Int64Range(0, 1e12).Draw(t, "since")
		diary[state] += last
		s := row{w[:]}.worker(now + last)
		got := [4]float64{Idle: s.IdleSeconds, Busy: s.BusySeconds, Input: s.InputSeconds, Output: s.OutputSeconds}
		for i, ns := range diary {
			if got[i] != seconds(ns) {
				t.Fatalf("state %s: %g s, and the diary says %g", stateNames[i], got[i], seconds(ns))
			}
		}
		if s.Seconds != seconds(now+last-begun) {
			t.Fatalf("%g s since it began", s.Seconds)
		}
	})
}

// Percentiles are those of the sorted durations, to 12.5 %.
func TestPercentiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(rapid.OneOf(rapid.Int64Range(512, 1e6), rapid.Int64Range(512, 100e9)), 1, 200).Draw(t, "durations")
		var s Stage
		for _, d := range all {
			s.Add(time.Duration(d), 1, 0)
		}
		slices.Sort(all)
		got := row{s[:]}.stage(geometry{buckets: sBuckets, bucketCount: bucketWords})
		for _, c := range []struct{ q, got float64 }{{0.5, got.P50}, {0.99, got.P99}} {
			want := seconds(all[int(c.q*float64(len(all)))])
			if c.got < want*0.875 || c.got > want*1.125 {
				t.Fatalf("p%.0f is %g s, and %g s by sorting", 100*c.q, c.got, want)
			}
		}
	})
}

// Buckets follow each other without a gap, and a duration is in its own.
func TestBuckets(t *testing.T) {
	for i := range buckets - 1 {
		if at := floor(i); Bucket(at) != i || i > 0 && Bucket(at-1) != i-1 {
			t.Errorf("bucket %d begins at %d ns, which is in bucket %d", i, at, Bucket(at))
		}
	}
	for _, c := range []struct {
		ns   int64
		want int
	}{{-5, 0}, {0, 0}, {511, 0}, {512, 1}, {639, 1}, {640, 2}, {1023, 4}, {1024, 5}, {1 << 62, buckets - 1}} {
		if got := Bucket(c.ns); got != c.want {
			t.Errorf("%d ns are in bucket %d, not %d", c.ns, got, c.want)
		}
	}
}

// Many lanes count at once, and nothing is lost.
func TestCountingTogether(t *testing.T) {
	s := (*Page)(nil).Stream(1, 4, []string{"Resize"})
	const lanes, each = 4, 5000
	var all sync.WaitGroup
	for range lanes {
		all.Go(func() {
			for i := range each {
				s.Decode.Add(time.Microsecond, 1, 3)
				s.Transforms[0].Count(1)
				if i%100 == 0 {
					s.Transforms[0].Timed(10 * time.Microsecond)
				}
			}
		})
	}
	all.Wait()
	got := s.Snapshot()
	if d := got.Decode; d.Items != lanes*each || d.Bytes != 3*lanes*each || d.BusySeconds != 0.02 {
		t.Errorf("decode is %d items, %d bytes, %g s", d.Items, d.Bytes, d.BusySeconds)
	}
	if r := got.Transforms[0]; r.Items != lanes*each || r.Name != "Resize" || r.BusySeconds < 0.1999 || r.BusySeconds > 0.2001 {
		t.Errorf("of %d Resizes some were timed, and all of them took %g s", r.Items, r.BusySeconds)
	}
}

// A Sum put in is what adding one by one gives, whatever the buckets of its items.
func TestSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var one, together Stage
		var sum Sum
		for range rapid.IntRange(0, 20).Draw(t, "groups") {
			took := rapid.OneOf(rapid.Int64Range(0, 1500), rapid.Int64Range(0, 1e10)).Draw(t, "took")
			items := rapid.Int64Range(0, 40).Draw(t, "items")
			if items == 0 {
				took = 0 // nothing was done
			}
			one.Add(time.Duration(took), items, 3*items)
			together.Several(&sum, took, items)
		}
		together.Put(&sum, 3*one[sItems].Load())
		together.Put(&sum, 0) // nothing more
		for i := range one {
			if a, b := one[i].Load(), together[i].Load(); a != b {
				t.Fatalf("word %d is %d, and together %d", i, a, b)
			}
		}
	})
}

// Nobody is turned away: loaders beyond the table count for themselves, and closed
// ones make room.
func TestMoreLoadersThanEntries(t *testing.T) {
	m := make([]byte, smallRoom.bytes())
	p := newPage(m, smallRoom, RoleEngine, os.Getpid(), Monotonic)
	first, second, third := p.Stream(1, 1, nil), p.Stream(2, 1, nil), p.Stream(3, 1, nil)
	for i, s := range []*Stream{first, second, third} {
		s.Read.Add(time.Second, int64(i+1), 0)
		if got := s.Snapshot().Read.Items; got != int64(i+1) {
			t.Errorf("loader %d read %d", i+1, got)
		}
	}
	first.Close()
	fourth := p.Stream(4, 1, []string{"a", "b", "c", "d", "e", "f"}) // more transforms than stages
	if len(fourth.Transforms) != 6 || fourth.Transforms[5] != nil || fourth.Transforms[1] == nil {
		t.Errorf("the transforms are %v", fourth.Transforms)
	}
	fourth.Transforms[5].Count(1)
	r := opened(t, m)
	defer r.Close()
	var ids []int64
	for _, l := range r.Loaders() {
		ids = append(ids, l.Loader)
		if l.Loader == 4 && l.Read.Items != 0 {
			t.Error("a new loader has the numbers of an old one")
		}
	}
	if !slices.Equal(ids, []int64{2, 4}) || r.Header().Unseen != 1 {
		t.Errorf("the page shows loaders %v, %d unseen", ids, r.Header().Unseen)
	}
}

func TestOffCountsNothing(t *testing.T) {
	s := Off()
	s.Read.Add(time.Second, 1, 1)
	s.Decode.Begin().End(1, 1)
	s.Wait.Queue(3)
	s.Delivered(Progress{Epoch: 1})
	s.Close()
	if got := s.Snapshot(); got.Read.Items != 0 || got.Epoch != 0 {
		t.Errorf("off, and it counted %+v", got)
	}
}

func TestABatchThatWasReadyWasNotWaitedFor(t *testing.T) {
	p := newPage(make([]byte, smallRoom.bytes()), smallRoom, RoleEngine, 1, func() int64 { return 1 })
	s := p.Stream(1, 1, nil)
	s.Delivered(Progress{At: 1, Batches: 1, Begins: true, First: int64(500 * time.Millisecond)})
	s.Delivered(Progress{At: 2, Batches: 2})
	s.Delivered(Progress{At: 3, Batches: 3, Begins: true})
	if got := s.Snapshot(); got.Passes != 2 || got.First != 0 || got.FirstMean != 0.25 {
		t.Errorf("%d passes, first %v s, mean %v s", got.Passes, got.First, got.FirstMean)
	}
}
