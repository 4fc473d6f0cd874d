package mem

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func TestClassesHoldWhatTheyPromise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 1<<30).Draw(t, "n")
		class, size := classOf(n)
		if size < n || (n > 1<<minClassBits && size-n > n/4) {
			t.Fatalf("%d bytes get %d", n, size)
		}
		again, same := classOf(size)
		if again != class || same != size {
			t.Fatalf("class %d of %d bytes is not closed: %d, %d", class, size, again, same)
		}
	})
}

func TestPoolGivesMemoryBack(t *testing.T) {
	p := &Pool{KeepBytes: 1 << 20}
	a := p.Get(5000)
	a.Retain(1)
	a.Release()
	if p.Out() != 1 {
		t.Fatalf("%d buffers out, want 1", p.Out())
	}
	first := &a.Bytes[0]
	a.Release()
	if b := p.Get(4999); &b.Bytes[0] != first || len(b.Bytes) != 4999 {
		t.Fatal("the released buffer was not used again")
	}
}

func TestBudgetNeverExceeded(t *testing.T) {
	b := NewBudget(100)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 200 {
				n := int64(10 + i*5)
				b.Acquire(n, 0, func() bool { return false })
				if used := b.Used(); used > 100 {
					t.Errorf("%d bytes in use of 100", used)
				}
				b.Release(n)
			}
		})
	}
	wg.Wait()
	if !b.Acquire(1000, 0, func() bool { return false }) || b.Used() != 1000 {
		t.Fatal("what is larger than the budget did not go through alone")
	}
	if b.Acquire(1, 0, func() bool { return true }) {
		t.Fatal("stopped, yet acquired")
	}
}

// What is left is the least of the machine's and that of its cgroups, of a hybrid
// machine too, where the limit is in version 1.
func TestCgroupLimits(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"none": {nil, 2000 << 10},
		"version 2": {map[string]string{
			"proc/self/cgroup":                 "0::/job/step\n",
			"sys/fs/cgroup/cgroup.controllers": "memory\n",
			"sys/fs/cgroup/job/memory.max":     "1000\n", "sys/fs/cgroup/job/memory.current": "600\n",
			"sys/fs/cgroup/job/memory.stat":      "anon 400\ninactive_file 150\n",
			"sys/fs/cgroup/job/step/memory.max":  "max\n",
			"sys/fs/cgroup/job/step/cgroup.type": "domain\n",
		}, 550},
		"hybrid": {map[string]string{
			"proc/self/cgroup":                               "4:memory:/job\n0::/system.slice\n",
			"sys/fs/cgroup/unified/cgroup.controllers":       "\n",
			"sys/fs/cgroup/memory/job/memory.limit_in_bytes": "5000\n", "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "1000\n",
		}, 4000},
		"nothing left": {map[string]string{
			"proc/self/cgroup":                 "0::/\n",
			"sys/fs/cgroup/cgroup.controllers": "memory\n", "sys/fs/cgroup/memory.max": "10\n", "sys/fs/cgroup/memory.current": "20\n",
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			write := func(name, text string) {
				path := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			write("proc/meminfo", "MemTotal: 9000 kB\nMemAvailable: 2000 kB\n")
			for name, text := range c.files {
				write(name, text)
			}
			if got := availableBelow(root); got != c.want {
				t.Errorf("%d bytes available, want %d", got, c.want)
			}
		})
	}
	if Available() <= 0 {
		t.Fatal("nothing available on this machine")
	}
}

// Whoever waits holds bytes already: nobody waits for those, and no more than one at
// a time goes on above the limit.
func TestBudgetOfWhatWaitersHold(t *testing.T) {
	b := NewBudget(10)
	never := func() bool { return false }
	if !b.Acquire(4, 0, never) || !b.Acquire(100, 4, never) || b.Used() != 104 {
		t.Fatal("a caller waited for what it holds itself")
	}
	got := make(chan bool)
	go func() { got <- b.Acquire(3, 0, never) }() // the 100 bytes come back without it
	b.Release(100)
	if !<-got || b.Used() != 7 {
		t.Fatalf("%d bytes in use", b.Used())
	}
	b.Release(7)

	// Two that hold six bytes each and want six more: one goes on, then the other.
	b = NewBudget(10)
	b.Force(12)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			b.Acquire(6, 6, never)
			if used := b.Used(); used > 18 {
				t.Errorf("%d bytes in use", used)
			}
			b.Release(12)
		})
	}
	wg.Wait()
	if b.Used() != 0 {
		t.Fatalf("%d bytes in use", b.Used())
	}
}
