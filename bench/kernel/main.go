//go:build bench

// Command kernel is the bound of bench/compare.py: the fused job of
// internal/base/kernel on the same files as every peer, with no loader around
// it. Each thread reads a file, draws a box and a flip by torchvision's rule,
// and runs the job into its place of a ready batch; nothing is delivered.
//
// It pays nothing that the loader is spared: files are opened by the bare system
// calls, and GOMAXPROCS is one more than the threads. Without a spare P, Go's
// monitor takes the P of a thread that has been in C for 20 us, and the thread
// has to get one back after each picture. That made the bound cost more than the
// loader that it bounds.
//
// It takes the options of the Python peers and writes their marks.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/kernel"
)

const (
	side = 224
	// warmBatches is what runs before the window; the Python peers throw away as much or more.
	warmBatches = 17
)

var (
	mean = [3]float64{0.485, 0.456, 0.406}
	std  = [3]float64{0.229, 0.224, 0.225}
)

type options struct {
	data                    string
	samples, batch, threads int
	output                  string
	seed                    uint64
}

func main() {
	var o options
	flag.StringVar(&o.data, "data", "", "folder of class folders of JPEGs")
	flag.IntVar(&o.samples, "samples", 20000, "measured samples, rounded up to whole batches")
	flag.IntVar(&o.batch, "batch", 64, "")
	flag.IntVar(&o.threads, "threads", 2, "")
	flag.Int("workers", 0, "not used")
	flag.StringVar(&o.output, "output", "uint8", "uint8 or float32")
	flag.Uint64Var(&o.seed, "seed", 0, "")
	flag.Parse()
	runtime.GOMAXPROCS(o.threads + 1)
	if err := measure(o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func measure(o options) error {
	paths, err := shuffled(o)
	if err != nil {
		return err
	}
	cpuBegin, begin := cpuSeconds(), time.Now()
	r := newRunner(o, paths)
	defer r.close()
	if err := r.run(o.batch); err != nil {
		return err
	}
	first, firstCPU := time.Since(begin).Seconds(), cpuSeconds()-cpuBegin
	if err := r.run((warmBatches - 1) * o.batch); err != nil {
		return err
	}
	layout := "NHWC"
	if r.out.CHW {
		layout = "NCHW"
	}
	emit("start", map[string]any{
		"first_batch": first, "first_cpu": firstCPU, "warm_batches": warmBatches, "in_flight": 0,
		"resampling": "bilinear antialiased", "layout": layout,
		"versions": map[string]string{"go": runtime.Version(), "kernel": kernel.Target()},
		"settings": map[string]int{"threads": o.threads},
	})
	samples := (o.samples + o.batch - 1) / o.batch * o.batch
	if err := r.run(samples); err != nil {
		return err
	}
	emit("stop", map[string]any{"samples": samples, "wait": true})
	_, err = bufio.NewReader(os.Stdin).ReadString('\n') // the driver reads our memory before it answers
	return err
}

func emit(event string, values map[string]any) {
	values["event"], values["cpu"], values["wall"] = event, cpuSeconds(), float64(time.Now().UnixNano())/1e9
	_ = json.NewEncoder(os.Stdout).Encode(values)
}

// cpuSeconds is the CPU time of the tree of processes, which is this process.
func cpuSeconds() float64 {
	kind, path, _ := strings.Cut(os.Getenv("STOKER_BENCH_CPU"), ":")
	if kind == "walk" {
		path = "/proc/self/stat"
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	switch kind {
	case "v2":
		return number(strings.Fields(string(text))[1]) / 1e6
	case "v1":
		return number(strings.TrimSpace(string(text))) / 1e9
	}
	_, after, _ := strings.Cut(string(text), ") ")
	f := strings.Fields(after)
	return (number(f[11]) + number(f[12])) / 100
}

func number(s string) float64 {
	n, _ := strconv.ParseFloat(s, 64)
	return n
}

func shuffled(o options) ([]string, error) {
	var paths []string
	err := filepath.WalkDir(o.data, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			paths = append(paths, path)
		}
		return err
	})
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("%s: no files", o.data)
	}
	slices.Sort(paths)
	r := rand.New(rand.NewPCG(o.seed, 1))
	r.Shuffle(len(paths), func(i, j int) { paths[i], paths[j] = paths[j], paths[i] })
	return paths, err
}

// runner is a team of threads over one endless, shuffled list of files.
type runner struct {
	o     options
	paths []string
	next  atomic.Int64
	out   kernel.Output
	batch []byte
	team  []*worker
}

// worker is one thread's scratch.
type worker struct {
	lane *kernel.Lane
	rng  *rand.Rand
	file []byte
}

func newRunner(o options, paths []string) *runner {
	r := &runner{o: o, paths: paths, batch: make([]byte, o.batch*side*side*3)}
	if o.output == "float32" {
		r.batch = make([]byte, 4*len(r.batch))
		r.out = kernel.Output{Float: true, CHW: true}
		for c := range mean {
			r.out.Scale[c] = float32(1 / (255 * std[c]))
			r.out.Bias[c] = float32(-mean[c] / std[c])
		}
	}
	for i := range o.threads {
		r.team = append(r.team, &worker{kernel.NewLane(), rand.New(rand.NewPCG(o.seed, uint64(2+i))), make([]byte, 1<<20)})
	}
	return r
}

func (r *runner) close() {
	for _, w := range r.team {
		w.lane.Close()
	}
}

// run makes n more samples and returns when the last one is done.
func (r *runner) run(n int) error {
	end := r.next.Load() + int64(n)
	errs := make([]error, len(r.team))
	var group sync.WaitGroup
	for i, w := range r.team {
		group.Go(func() {
			for {
				at := r.next.Add(1) - 1
				if at >= end || errs[i] != nil {
					return
				}
				errs[i] = r.sample(w, at)
			}
		})
	}
	group.Wait()
	r.next.Store(end)
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) sample(w *worker, at int64) error {
	path := r.paths[at%int64(len(r.paths))]
	if err := w.read(path); err != nil {
		return err
	}
	head, err := kernel.ReadHeader(w.file)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	size := len(r.batch) / r.o.batch
	place := int(at) % r.o.batch
	steps := [3]kernel.Step{crop(w.rng, head.W, head.H), {Op: kernel.OpResize, W: side, H: side}, {Op: kernel.OpFlipH}}
	n := 2 + w.rng.IntN(2)
	job := kernel.Job{JPEG: w.file, Steps: steps[:n], Out: r.out, Dst: r.batch[place*size : (place+1)*size]}
	if err := w.lane.Run(&job); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// read fills w.file, growing it where it must.
func (w *worker) read(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer unix.Close(fd)
	var info unix.Stat_t
	if err := unix.Fstat(fd, &info); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	w.file = slices.Grow(w.file[:0], int(info.Size))[:info.Size]
	if n, err := unix.Pread(fd, w.file, 0); err != nil || n < len(w.file) {
		return fmt.Errorf("%s: %d of %d bytes: %w", path, n, len(w.file), err)
	}
	return nil
}

// crop draws a box by torchvision's RandomResizedCrop.get_params.
func crop(r *rand.Rand, width, height int) kernel.Step {
	low, high := math.Log(3.0/4), math.Log(4.0/3)
	for range 10 {
		area := float64(width*height) * (0.08 + 0.92*r.Float64())
		ratio := math.Exp(low + (high-low)*r.Float64())
		w, h := int(math.Round(math.Sqrt(area*ratio))), int(math.Round(math.Sqrt(area/ratio)))
		if w > 0 && h > 0 && w <= width && h <= height {
			return kernel.Step{Op: kernel.OpCrop, X: r.IntN(width - w + 1), Y: r.IntN(height - h + 1), W: w, H: h}
		}
	}
	w := min(width, int(math.Round(float64(height)*4/3)))
	h := min(height, int(math.Round(float64(width)*4/3)))
	return kernel.Step{Op: kernel.OpCrop, X: (width - w) / 2, Y: (height - h) / 2, W: w, H: h}
}
