//go:build bench

// Command native runs stoker's transforms over pictures in memory, as one lane does, an
// operation at a time, when the driver says so.
//
//	native PLAN    serve the plan's programs; bench/augment/serve.py tells the protocol
//
// A pass with the operation runs its program over every picture, with a key of its own;
// a pass without it runs the program of no operations, which only writes the picture to
// its place. The difference is what the operation adds. The stored pixels stand for what
// a decoder leaves: nothing is decoded, read or delivered.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/rng"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

func main() {
	// One P to spare: without it, Go's monitor takes the P of a thread that has been in C for
	// some microseconds, and the thread has to get one back.
	runtime.GOMAXPROCS(2)
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// plan is what bench/augment/make.py wrote.
type plan struct {
	Pictures string
	Side     int
	Programs map[string]struct {
		Ops     []transform.Op
		Missing string // why the client cannot read the operation
	}
}

type request struct {
	Op      string
	Mode    string
	Seconds float64
}

type server struct {
	pictures [][]byte
	programs map[string]*transform.Program
	without  *transform.Program
	lane     *transform.Lane
	dst      []byte
	places   int64 // that were given so far: each picture of a pass has its own
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: native PLAN")
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	var p plan
	if err := json.Unmarshal(text, &p); err != nil {
		return err
	}
	s := &server{programs: map[string]*transform.Program{}, lane: transform.NewLane()}
	defer s.lane.Close()
	missing, err := s.open(&p)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	versions := map[string]string{"go": runtime.Version(), "target": kernel.Target()}
	if err := out.Encode(map[string]any{"versions": versions, "missing": missing}); err != nil {
		return err
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var r request
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			return err
		}
		said, err := s.answer(&r)
		if err != nil {
			said = map[string]any{"failed": err.Error()}
		}
		if err := out.Encode(said); err != nil {
			return err
		}
	}
	return in.Err()
}

// open compiles everything; missing says why an operation has no program.
func (s *server) open(p *plan) (missing map[string]string, _ error) {
	pixels, err := os.ReadFile(p.Pictures)
	if err != nil {
		return nil, err
	}
	shape := mem.Shape{p.Side, p.Side, 3}
	s.pictures = slices.Collect(slices.Chunk(pixels, p.Side*p.Side*3))
	if s.without, err = transform.CompilePixels(shape, nil, "nhwc"); err != nil {
		return nil, err
	}
	missing = map[string]string{}
	for name, of := range p.Programs {
		if of.Missing != "" {
			missing[name] = of.Missing
			continue
		}
		program, err := transform.CompilePixels(shape, of.Ops, "nhwc")
		if err != nil {
			missing[name] = err.Error()
			continue
		}
		s.programs[name] = program
	}
	return missing, nil
}

// picture runs a program over one picture; the result is valid until the next call.
func (s *server) picture(p *transform.Program, number int) (mem.Shape, []byte, error) {
	s.places++
	shape, err := p.Begin(s.lane, s.pictures[number], rng.Sample(1, 0, s.places))
	if err != nil {
		return nil, nil, err
	}
	need := p.DType().Size()
	for _, n := range shape {
		need *= n
	}
	s.dst = slices.Grow(s.dst[:0], need)[:need]
	return shape, s.dst, p.Finish(s.lane, s.dst)
}

// pass is one over all pictures; it returns CPU seconds of this process.
func (s *server) pass(p *transform.Program) (float64, error) {
	begin := cpu()
	for i := range s.pictures {
		if _, _, err := s.picture(p, i); err != nil {
			return 0, err
		}
	}
	return cpu() - begin, nil
}

func (s *server) answer(r *request) (map[string]any, error) {
	p := s.programs[r.Op]
	if p == nil {
		return nil, fmt.Errorf("no program %q", r.Op)
	}
	if r.Mode == "check" {
		return s.check(p)
	}
	var with, without float64
	passes, begin := 0, cpu()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for passes == 0 || cpu()-begin < r.Seconds {
		for _, side := range []struct {
			program *transform.Program
			total   *float64
		}{{p, &with}, {s.without, &without}} {
			took, err := s.pass(side.program)
			if err != nil {
				return nil, err
			}
			*side.total += took
		}
		passes++
	}
	runtime.ReadMemStats(&after)
	n := passes * len(s.pictures)
	return map[string]any{
		"with": with, "without": without, "pictures": n,
		"allocations": float64(after.Mallocs-before.Mallocs) / float64(2*n),
	}, nil
}

// check says whether the operation acts, after three passes that warm the lane.
func (s *server) check(p *transform.Program) (map[string]any, error) {
	changed := 0
	var first []int
	for i, pixels := range s.pictures {
		shape, made, err := s.picture(p, i)
		if err != nil {
			return nil, err
		}
		if first == nil {
			first = slices.Clone(shape)
		}
		if !bytes.Equal(made, pixels) {
			changed++
		}
	}
	for range 3 {
		if _, err := s.pass(p); err != nil {
			return nil, err
		}
	}
	return map[string]any{"changed": changed, "shape": first, "way": "rows"}, nil
}

// cpu is the CPU time of all threads of this process, in seconds.
func cpu() float64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return float64(t.Nano()) / 1e9
}
