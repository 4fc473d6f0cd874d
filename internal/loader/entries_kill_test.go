package loader

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// killedEpochs is how many epochs the engines of TestEnginesAreKilled go through.
const killedEpochs = 6

// said is what an engine of TestEnginesAreKilled says of a batch.
func said(b seen) string { return fmt.Sprintf("%d %d %x", b.Epoch, b.Step, digest([]seen{b})) }

// untilKilled opens loaders, one after the other, and says what their batches are.
func untilKilled(t *testing.T, sp Spec, seed uint64) {
	parent := os.Getppid()
	go func() { // a test that is killed leaves no engine running
		for os.Getppid() == parent {
			time.Sleep(time.Second)
		}
		os.Exit(1)
	}()
	r := rand.New(rand.NewPCG(seed, 22))
	for {
		_, told := alone(t, sp, func(l *Loader) {
			for range 1 + r.IntN(3) {
				for _, b := range walk(t, l, r.Int64N(killedEpochs), 0, 0) {
					fmt.Println(said(b))
				}
			}
		})
		for _, line := range told {
			fmt.Println("notice:", line)
		}
	}
}

// Four engines learn, read and merge one store, and are killed at any moment, again and again;
// between the rounds all pictures get another time, so that there is always something to learn.
// Their batches, and those of a fifth engine after each round, are the ones without entry
// points; nobody is told anything, and what the dead have left goes. STOKER_KILLS is the number
// of rounds; make facts-powercuts has 100.
func TestEnginesAreKilled(t *testing.T) {
	if root := os.Getenv("STOKER_TEST_KILLED_ROOT"); root != "" {
		seed, _ := strconv.ParseUint(os.Getenv("STOKER_TEST_KILLED_SEED"), 10, 64)
		untilKilled(t, cropSpec(t, root), seed)
	}
	rounds := 6
	if n, err := strconv.Atoi(os.Getenv("STOKER_KILLS")); err == nil {
		rounds = n
	}
	t.Setenv("STOKER_CACHE", t.TempDir())
	root := jpegs(t, 12)
	sp := cropSpec(t, root)
	right := map[string]bool{}
	var want [killedEpochs]uint64
	for epoch := range want {
		all := plainly(t, sp, int64(epoch))
		want[epoch] = digest(all)
		for _, b := range all {
			right[said(b)] = true
		}
	}
	r := rand.New(rand.NewPCG(22, 3))
	spoken := 0
	for round := range rounds {
		again := filepath.Join(t.TempDir(), "again")
		if err := os.CopyFS(again, os.DirFS(root)); err != nil {
			t.Fatal(err)
		}
		touchAll(t, again, time.Unix(1_600_000_000+int64(round), 0))
		moveAll(t, again, root, "*")
		var wg sync.WaitGroup
		var mu sync.Mutex
		for p := range 4 {
			cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
			cmd.Env = append(os.Environ(), "STOKER_TEST_KILLED_ROOT="+root, fmt.Sprint("STOKER_TEST_KILLED_SEED=", round*4+p))
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			lines, late := r.IntN(20), time.Duration(r.IntN(40))*time.Millisecond
			wg.Go(func() {
				in := bufio.NewScanner(out)
				for n := 0; in.Scan(); n++ {
					mu.Lock()
					spoken++
					if !right[in.Text()] {
						t.Errorf("round %d: %s", round, in.Text())
					}
					mu.Unlock()
					if n == lines {
						time.AfterFunc(late, func() { _ = cmd.Process.Kill() })
					}
				}
				_ = cmd.Wait()
			})
		}
		wg.Wait()
		epoch := round % killedEpochs
		if found, told := epochOf(t, sp, int64(epoch), want[epoch]); found.Wrong > 0 || len(told) > 0 {
			t.Errorf("round %d: %+v, %q", round, found, told)
		}
		left := leftIn(t)
		if len(left) > 50 {
			t.Fatalf("round %d: %d files: %q", round, len(left), left)
		}
		if r.IntN(3) == 0 { // some of the next engines take over what these have left
			aged(t)
		}
		if round%20 == 19 { // before the limit is reached: facts of old times stay
			for _, name := range left {
				if filepath.Ext(name) == ".facts" {
					_ = os.Remove(filepath.Join(storesOf(t)[0], name))
				}
			}
		}
	}
	if spoken < rounds*8 {
		t.Errorf("%d batches", spoken)
	}
	cleared(t, sp, want[0])
}

// leftIn are the files of the only store.
func leftIn(t *testing.T) (names []string) {
	t.Helper()
	all, err := os.ReadDir(storesOf(t)[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

// aged makes all files of the store two hours old, and returns their time.
func aged(t *testing.T) (then time.Time) {
	t.Helper()
	then = time.Now().Add(-2 * time.Hour)
	for _, name := range leftIn(t) {
		if err := os.Chtimes(filepath.Join(storesOf(t)[0], name), then, then); err != nil {
			t.Fatal(err)
		}
	}
	return then
}

// cleared says whether one engine clears what the dead have left, once that is old enough.
func cleared(t *testing.T, sp Spec, want uint64) {
	t.Helper()
	dir, then := storesOf(t)[0], aged(t)
	unfinished := func(name string) bool { return filepath.Ext(name) == ".part" || filepath.Ext(name) == ".tmp" }
	alone(t, sp, func(l *Loader) {
		if got := digest(walk(t, l, 0, 0, 0)); got != want {
			t.Error("the epoch after all kills differs")
		}
		for end := time.Now().Add(time.Minute); slices.ContainsFunc(leftIn(t), func(name string) bool {
			fi, err := os.Stat(filepath.Join(dir, name))
			return err == nil && unfinished(name) && fi.ModTime().Equal(then)
		}); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("left behind: %q", leftIn(t))
			}
		}
	})
	if told := mergeStore(t, dir); len(told) > 0 {
		t.Errorf("%q", told)
	}
	if left := leftIn(t); len(left) != 2 { // all facts, and the lock
		t.Errorf("left behind: %q", left)
	}
	if found, told := epochOf(t, sp, 0, want); found.Known != found.Pictures || found.Wrong > 0 || len(told) > 0 {
		t.Errorf("after all kills: %+v, %q", found, told)
	}
}
