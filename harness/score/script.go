package score

import (
	_ "embed"
	"fmt"
	"strings"
	"text/template"
	"time"
)

// Script is a train.py over torch's DataLoader, as somebody would write it: it
// knows nothing of a doctor, and says at its end how far it came.
type Script struct {
	Batch      int
	Workers    int
	Prefetch   int // a worker; 0: torch's own
	Persistent bool
	Shuffle    bool
	Sampler    string // an expression
	Epoch      int    // samples

	Pin  bool
	Move string // what becomes of x before a step; with a Device only

	Step     time.Duration // of the training, a batch
	Computes bool          // the step is spent on the processor, not on a device

	// Python, line by line. Read and Sample make x of i.
	Imports []string
	Define  []string // functions and classes
	Setup   []string // of the dataset's __init__
	Read    []string // "": by what kind of data it is
	Sample  []string
	Stream  []string // makes the dataset iterable: what its __iter__ begins with
	Collate []string // returns the batch of samples
	Worker  []string // as a worker starts
}

//go:embed train.py.tmpl
var train string

// simulated is the module of a device that is none, which does nothing where there is one.
//
//go:embed simulated_cuda.py
var simulated []byte

// text is the script for a job whose data are below root.
func (s Script) text(j Job, root string) (string, error) {
	t, err := template.New("train.py").Parse(train)
	if err != nil {
		return "", err
	}
	if s.Read == nil {
		s.Read = reading[j.Data]
	}
	var b strings.Builder
	err = t.Execute(&b, struct {
		Script
		Root         string
		Files, Array bool
		Ranks        bool
		Device       bool
		Seconds      string
	}{
		Script: s, Root: root, Ranks: j.Ranks > 1, Device: j.Device, Seconds: seconds(s.Step),
		Files: j.Data != Nothing && j.Data != Array && j.Data != Sizeable,
		Array: j.Data == Array || j.Data == Sizeable,
	})
	return b.String(), err
}

// reading is how a sample of each dataset is read, where nothing else is said.
var reading = map[Data][]string{
	Nothing:  {"x = torch.full((3, 32, 32), float(i))"},
	Files:    readWhole,
	Blobs:    readWhole,
	Array:    readPart,
	Sizeable: readPart,
	Small:    openPicture,
	Large:    openPicture,
}

var (
	readWhole = []string{
		`with open(self.paths[i % len(self.paths)], "rb") as f:`,
		`    x = torch.from_numpy(np.frombuffer(f.read(), np.uint8).copy())`,
	}
	readPart = []string{
		`b = os.pread(self.fd, 131072, self.first + i % self.count * 131072)`,
		`x = torch.from_numpy(np.frombuffer(b, np.uint8).copy())`,
	}
	openPicture = []string{
		`with open(self.paths[i % len(self.paths)], "rb") as f:`,
		`    x = Image.open(f).convert("RGB")`,
	}
)

// seconds is a duration as Python's code has it.
func seconds(d time.Duration) string { return fmt.Sprintf("%.6f", d.Seconds()) }

// computing and sleeping are a call that takes so long, in a script.
func computing(d time.Duration) string { return "compute(" + seconds(d) + ")" }
func sleeping(d time.Duration) string  { return "time.sleep(" + seconds(d) + ")" }
