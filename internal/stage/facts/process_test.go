package facts

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// TestMain is also the main function of other processes of these tests.
func TestMain(m *testing.M) {
	if dir := os.Getenv("STOKER_TEST_FACTS_IN"); dir != "" {
		seed, _ := strconv.Atoi(os.Getenv("STOKER_TEST_FACTS_SEED"))
		parent := os.Getppid()
		go func() { // a test that is killed leaves no child running
			for os.Getppid() == parent {
				time.Sleep(time.Second)
			}
			os.Exit(1)
		}()
		if err := other(dir, uint64(seed)); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

const shared = 2000 // keys of the processes

// other writes, reads and flushes until it is killed. It says what was flushed.
func other(dir string, seed uint64) error {
	if seed == 0 {
		return remember(dir)
	}
	lim := small
	lim.queue, lim.facts, lim.age, lim.look = 1<<20, 40, 10*time.Millisecond, 3*time.Millisecond
	s, err := open(disk{dir: dir}, "test", Options{Limit: plenty, Named: true}, lim)
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(seed, 8))
	var buf []byte
	for {
		var put strings.Builder
		for range 1 + r.IntN(60) {
			n := r.IntN(shared)
			s.Put(key(n), fact(key(n), 1))
			fmt.Fprint(&put, " ", n)
			n = r.IntN(shared)
			s.Ahead(key(n))
			var ok bool
			if buf, ok = s.Append(buf[:0], key(n)); ok && !bytes.Equal(buf, fact(key(n), 1)) {
				return fmt.Errorf("fact %d: %q", n, buf)
			}
		}
		if err := s.Flush(ctx); err != nil {
			return err
		}
		if n := s.Counts(); n.Dropped > 0 {
			return fmt.Errorf("%+v", n)
		}
		fmt.Printf("flushed%s.\n", put.String())
	}
}

func child(t *testing.T, dir string, seed int) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "STOKER_TEST_FACTS_IN="+dir, fmt.Sprint("STOKER_TEST_FACTS_SEED=", seed))
	cmd.Stderr = os.Stderr
	return cmd
}

// Four processes write and read a folder, and are killed, again and again.
func TestKills(t *testing.T) {
	rounds := 6
	if n, err := strconv.Atoi(os.Getenv("STOKER_KILLS")); err == nil {
		rounds = n
	}
	dir := t.TempDir()
	flushed := map[int]bool{}
	r := rand.New(rand.NewPCG(9, 10))
	for round := range rounds {
		var mu sync.Mutex
		var wg sync.WaitGroup
		for p := range 4 {
			cmd := child(t, dir, 1+round*4+p)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := 1 + r.IntN(30)
			wg.Go(func() {
				in := bufio.NewReader(out)
				for n := 0; ; n++ {
					if n == lines {
						_ = cmd.Process.Kill()
					}
					line, err := in.ReadString('\n')
					if err != nil {
						break
					}
					said, ok := strings.CutSuffix(strings.TrimPrefix(line, "flushed"), ".\n")
					if !ok {
						t.Error(line)
						continue
					}
					mu.Lock()
					for _, w := range strings.Fields(said) {
						n, _ := strconv.Atoi(w)
						flushed[n] = true
					}
					mu.Unlock()
				}
				_ = cmd.Wait()
			})
		}
		wg.Wait()
		s := openWith(t, disk{dir: dir}, Options{Limit: plenty}, quiet)
		check(t, s, flushed)
		s.close()
	}
	s := openSmall(t, dir)
	if err := s.Merge(ctx); err != nil {
		t.Fatal(err)
	}
	check(t, s, flushed)
	if left := names(t, dir, partExt); len(left) > 0 || s.Counts().Files != 1 {
		t.Errorf("left behind: %q, %d files", left, s.Counts().Files)
	}
	if len(flushed) < 100 {
		t.Errorf("only %d facts were flushed", len(flushed))
	}
}

func check(t *testing.T, s *opened, flushed map[int]bool) {
	t.Helper()
	for n := range shared {
		f, ok := s.Append(nil, key(n))
		if ok && !bytes.Equal(f, fact(key(n), 1)) || !ok && flushed[n] {
			t.Fatalf("fact %d: %v, %q", n, ok, f)
		}
	}
	if told := s.told(); len(told) > 0 {
		t.Errorf("%q", told)
	}
}

// A disk that is full, and one that is mounted read-only.
func TestFileSystems(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=512k"); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	defer func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	s := openSmall(t, dir)
	s.add(0, 10000, 1)
	n, told := s.Counts(), s.told()
	if n.Put == 0 || n.Dropped == 0 || n.Put+n.Dropped != 10000 || len(told) < 1 || len(told) > 2 {
		t.Errorf("%+v, %q", n, told)
	}
	found := 0
	for i := range 10000 {
		f, ok := s.Append(nil, key(i))
		if ok && !bytes.Equal(f, fact(key(i), 1)) {
			t.Fatalf("fact %d: %q", i, f)
		}
		if ok {
			found++
		}
	}
	s.close()
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, "size=512k"); err != nil {
		t.Fatal(err)
	}
	if _, err := open(disk{dir: dir}, "test", Options{Named: true}, small); errs.CodeOf(err) != errs.Unreadable {
		t.Error(err)
	}
	s = openSmall(t, dir)
	s.Put(key(20000), nil)
	s.flush()
	again := 0
	for i := range 10000 {
		if _, ok := s.Append(nil, key(i)); ok {
			again++
		}
	}
	if told := s.told(); len(told) != 1 || !strings.Contains(told[0], "read-only") || found == 0 || again != found || s.Counts().Dropped != 1 {
		t.Errorf("%q, %d facts, then %d", told, found, again)
	}
	s.close()
}

func anonymous() (int64, error) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if kb, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			n, err := strconv.ParseInt(strings.Fields(kb)[0], 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("the kernel does not say")
}

// remember puts 80,000 facts, and says how much anonymous memory that took, in bytes.
func remember(dir string) error {
	before, err := anonymous()
	if err != nil {
		return err
	}
	lim := usual
	lim.fan = 2 // merges all the time
	s, err := open(disk{dir: dir}, "test", Options{Limit: plenty}, lim)
	if err != nil {
		return err
	}
	most := int64(0)
	one := make([]byte, 1100)
	err = s.Add(ctx, func(yield func(Key, []byte) bool) {
		for i := range 80_000 {
			le.PutUint64(one, uint64(i))
			if !yield(key(i), one) {
				return
			}
			if i%500 == 0 {
				now, _ := anonymous()
				most = max(most, now-before)
			}
		}
	})
	if err != nil {
		return err
	}
	if err := s.Merge(ctx); err != nil {
		return err
	}
	n := 0
	var buf []byte
	for k := range s.All() {
		var ok bool
		if buf, ok = s.Append(buf[:0], k); ok {
			n++
		}
	}
	now, _ := anonymous()
	fmt.Println(max(most, now-before), n)
	return s.Close()
}

func TestMemory(t *testing.T) {
	out, err := child(t, t.TempDir(), 0).Output()
	if err != nil {
		t.Fatal(err)
	}
	var used, n int64
	if _, err := fmt.Sscan(string(out), &used, &n); err != nil || n != 80_000 || used > anonymousMost {
		t.Errorf("%d KiB of anonymous memory, %d facts: %v", used>>10, n, err)
	}
	t.Logf("%d KiB of anonymous memory", used>>10)
}
