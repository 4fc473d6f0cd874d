// Mutants changes the Go packages in 60 small ways, one at a time, and runs the tests
// that cover each change. A change that no test notices is a survivor: a bug there
// would be noticed by nobody either.
//
//	mutants [-seed N] [-n N] [-jobs N] [-keep] [-list] [-only TEXT]
//
// The seed chooses the changes. A package gets them in proportion to the square root
// of the places in it that can be changed, so that large packages get more and small
// ones are not left out. Nothing is written into the working tree: the go command
// reads the changed file through -overlay.
//
// The exit status is 1 if fewer than 95 % are caught. Equivalent changes, which no
// test can notice, are named with the reason in tools/mutants/equivalent.txt and do
// not count.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// wanted is the share of changes that tests must notice.
const wanted = 0.95

func main() {
	seed := flag.Uint64("seed", 1, "chooses the changes")
	n := flag.Int("n", 60, "number of changes")
	jobs := flag.Int("jobs", 1, "changes tested side by side")
	keep := flag.Bool("keep", false, "do not repeat what build/mutants.jsonl has as caught")
	list := flag.Bool("list", false, "show the changes and run nothing")
	only := flag.String("only", "", "only changes whose name contains this")
	flag.Parse()
	if err := run(*seed, *n, *jobs, *keep, *list, *only); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(seed uint64, n, jobs int, keep, list bool, only string) error {
	packages, err := load()
	if err != nil {
		return err
	}
	chosen := choose(packages, seed, n)
	reasons, err := equivalents("tools/mutants/equivalent.txt")
	if err != nil {
		return err
	}
	if list {
		for _, q := range chosen {
			fmt.Println(q.sites[0].name())
		}
		return nil
	}
	if err := os.MkdirAll("build", 0o755); err != nil {
		return err
	}
	r, err := newRunner(packages, reasons, "build/mutants.jsonl", keep, only)
	if err != nil {
		return err
	}
	defer r.close()
	var wg sync.WaitGroup
	next := make(chan queue)
	for range max(jobs, 1) {
		wg.Go(func() {
			for q := range next {
				r.one(q)
			}
		})
	}
	for _, q := range chosen {
		next <- q
	}
	close(next)
	wg.Wait()
	return r.verdict()
}

// Result is what became of one change: a line of build/mutants.jsonl.
type Result struct {
	Name    string  `json:"name"`
	Place   string  `json:"place"`
	Change  string  `json:"change"`
	Outcome string  `json:"outcome"` // caught, survived, equivalent
	By      string  `json:"by"`      // the package and the test that noticed, those that did not, or the reason
	Covered bool    `json:"covered"` // some test ran the line
	Seconds float64 `json:"seconds"`
}

type runner struct {
	packages map[string]*pkg
	reasons  map[string]string
	known    map[string]Result // caught by an earlier run
	only     string
	dir      string // overlays and profiles

	mu       sync.Mutex // for the fields below
	log      *os.File
	done     []Result
	profiles map[[2]string]func() string // of the tests of one package over another
}

func newRunner(packages map[string]*pkg, reasons map[string]string, path string, keep bool, only string) (*runner, error) {
	r := &runner{packages: packages, reasons: reasons, known: map[string]Result{}, only: only, profiles: map[[2]string]func() string{}}
	flags := os.O_CREATE | os.O_WRONLY | os.O_TRUNC
	if keep {
		flags = os.O_CREATE | os.O_WRONLY | os.O_APPEND
		if f, err := os.Open(path); err == nil {
			for lines := bufio.NewScanner(f); lines.Scan(); {
				var old Result
				if json.Unmarshal(lines.Bytes(), &old) == nil && old.Outcome == "caught" {
					r.known[old.Name] = old
				}
			}
			_ = f.Close()
		}
	}
	var err error
	if r.dir, err = os.MkdirTemp("", "mutants"); err != nil {
		return nil, err
	}
	r.log, err = os.OpenFile(path, flags, 0o644)
	return r, err
}

func (r *runner) close() {
	_ = r.log.Close()
	_ = os.RemoveAll(r.dir)
}

// one tests the first change of the queue that compiles.
func (r *runner) one(q queue) {
	for _, s := range q.sites {
		if !strings.Contains(s.name(), r.only) {
			return
		}
		began := time.Now()
		result := Result{Name: s.name(), Place: s.place(), Change: s.change()}
		if old, ok := r.known[s.name()]; ok {
			r.report(old, false)
			return
		}
		if why, ok := r.reasons[s.name()]; ok {
			result.Outcome, result.By = "equivalent", why
			r.report(result, true)
			return
		}
		ok, err := r.test(s, &result)
		if err != nil {
			fmt.Fprintf(os.Stderr, "mutants: %s: %v\n", s.name(), err)
		}
		if !ok { // does not compile: the next one of this package
			continue
		}
		result.Seconds = time.Since(began).Seconds()
		r.report(result, true)
		return
	}
}

func (r *runner) report(result Result, write bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = append(r.done, result)
	fmt.Printf("%3d %-10s %s: %s (%s, %.0f s)\n", len(r.done), result.Outcome, result.Place, result.Change, result.By, result.Seconds)
	if write {
		line, _ := json.Marshal(result)
		_, _ = r.log.Write(append(line, '\n'))
	}
}

func (r *runner) verdict() error {
	count := map[string]int{}
	for _, d := range r.done {
		count[d.Outcome]++
	}
	for _, d := range r.done {
		if d.Outcome == "survived" {
			fmt.Printf("survived: %s\n          %s\n          covered by a test: %v; name for equivalent.txt: %s\n", d.Place, d.Change, d.Covered, d.Name)
		}
	}
	all := count["caught"] + count["survived"]
	fmt.Printf("%d changes: %d caught, %d survived, %d equivalent\n", len(r.done), count["caught"], count["survived"], count["equivalent"])
	if all == 0 {
		return fmt.Errorf("no change was tested")
	}
	if share := float64(count["caught"]) / float64(all); share < wanted {
		return fmt.Errorf("%.1f %% are caught, and %.0f %% are wanted", 100*share, 100*wanted)
	}
	return nil
}

// equivalents reads lines of a name, a tab, and the reason why no test can notice.
func equivalents(path string) (map[string]string, error) {
	data, err := os.ReadFile(filepath.FromSlash(path))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	reasons := map[string]string{}
	for i, line := range strings.Split(string(data), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, why, ok := strings.Cut(line, "\t")
		if !ok || strings.TrimSpace(why) == "" {
			return nil, fmt.Errorf("%s:%d: want a name, a tab and a reason", path, i+1)
		}
		reasons[name] = why
	}
	return reasons, nil
}
