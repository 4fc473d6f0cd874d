package kernel

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// Lane is the working memory of one worker: a decompressor, buffers that grow, tables.
// One goroutine at a time uses it; Close frees its memory. Once warm, Run allocates
// nothing.
type Lane struct {
	target string
	engine engine
}

// kernelEnv is the environment variable that sets the target.
const kernelEnv = "STOKER_KERNEL"

// Target is the name of the target of a new lane: "go" (the twin), "base", "avx2" or
// "avx512". STOKER_KERNEL asks for one; if the processor or the build does not have it,
// the best one below it runs.
func Target() string {
	have := targets()
	want := os.Getenv(kernelEnv)
	for i := len(have) - 1; i >= 0; i-- {
		if rank(have[i]) <= rank(want) {
			return have[i]
		}
	}
	return have[0]
}

// CheckTarget makes sure that STOKER_KERNEL, if it is set, names a target.
func CheckTarget() error {
	want := os.Getenv(kernelEnv)
	if want == "" || slices.Contains(names, want) {
		return nil
	}
	return JobError(fmt.Sprintf("%s=%s is not a kernel: the choices are %s", kernelEnv, want, strings.Join(names, ", ")))
}

// Libraries names the C libraries that are built in, with their versions:
// libjpeg-turbo, libwebp.
func Libraries() []string {
	all := []string{}
	for _, name := range []string{libjpegVersion(), libwebpVersion()} {
		if name != "" {
			all = append(all, name)
		}
	}
	return all
}

// names are all targets, the best last.
var names = []string{"go", "base", "avx2", "avx512"}

// portable is not a name for users: it is the base target of processors without their
// own vectors, for tests.
const portable = "portable"

// rank orders targets; an unknown name ranks as the best.
func rank(target string) int {
	if i := slices.Index(names, target); i >= 0 {
		return i
	}
	return len(names) - 1
}

// NewLane makes a lane of the target that Target names.
func NewLane() *Lane { return newLane(Target()) }

func newLane(target string) *Lane {
	return &Lane{target: target, engine: newEngine(target)}
}

// Close frees the lane's memory. The lane cannot be used after it.
func (l *Lane) Close() { l.engine.close() }

// Run runs one job and writes all of j.Dst, or fails: with FormatError or
// UnsupportedError because of the bytes, with JobError because of the job, or with
// ErrMemory because there is no memory for it. After an error, the content of Dst is
// undefined.
func (l *Lane) Run(j *Job) error {
	var h header
	w, hh, c := j.Src.W, j.Src.H, j.Src.C
	if j.JPEG != nil {
		var err error
		if h, err = readHeader(j.JPEG); err != nil {
			return err
		}
		w, hh, c = h.W, h.H, 3
		if j.Gray {
			c = 1
		}
	} else if err := checkSource(&j.Src); err != nil {
		return err
	}
	w, hh, c, err := resultSize(w, hh, c, j.Steps)
	if err != nil {
		return err
	}
	if err := j.Out.check(w, hh); err != nil {
		return err
	}
	size := w * hh * c * j.Out.size()
	if len(j.Dst) != size {
		return JobError(fmt.Sprintf("the result takes %d bytes, not %d", size, len(j.Dst)))
	}
	if l.target == "go" {
		return runGo(j, &h)
	}
	return l.engine.run(j, &h)
}
