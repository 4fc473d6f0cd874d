package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/order"
	"github.com/stoker-data/stoker/internal/tool/bench"
	"github.com/stoker-data/stoker/internal/tool/demo"
	"github.com/stoker-data/stoker/internal/tool/show"
)

type demoCmd struct {
	JSON bool `help:"Write JSON."`

	Count   int     `hidden:"" help:"Number of pictures; 0: what the kernel makes in a few seconds."`
	Seconds float64 `hidden:"" default:"1.5" help:"Seconds of each of the two measurements."`
}

func (demoCmd) Help() string {
	return `Makes 1,000 pictures (100 without C) from six photographs that come with stoker, once, in the cache folder (STOKER_CACHE,
or stoker below XDG_CACHE_HOME or ~/.cache). Loads them as training would (RandomResizedCrop(224), flip, batches of 64,
uint8), first as fast as possible, then beside a simulated training step that keeps a GPU busy, and prints the results.`
}

// demoReport is what --json writes.
type demoReport struct {
	Data struct {
		Path    string  `json:"path"`
		Samples int     `json:"samples"`
		Bytes   int64   `json:"bytes"`
		Made    bool    `json:"made"` // else it was there
		Seconds float64 `json:"s"`
	} `json:"data"`
	FullSpeed *bench.Report `json:"full_speed"`
	Training  *bench.Report `json:"training"` // beside a training step of 1.25 times the time a batch took
	Seconds   float64       `json:"seconds"`  // all of it
}

func (d demoCmd) Run(con *console) error {
	if d.Count == 0 {
		d.Count = demo.Count()
	}
	if d.Count < 6 || d.Seconds <= 0 {
		return errs.New(errs.Config, "a demo needs at least six pictures, and some time")
	}
	begin := time.Now()
	r := &demoReport{}
	dir, remove, err := demoFolder()
	if err != nil {
		return err
	}
	defer remove()
	if err := d.prepare(con, dir, r); err != nil {
		return err
	}
	c := bench.Config{
		Spec: spec.Spec{
			Dataset: spec.Dataset{Path: spec.Paths{r.Data.Path}},
			Order:   spec.Order{Shuffle: order.Full}, Batch: spec.Batch{Size: 64},
		},
		Time: seconds(d.Seconds),
	}
	if r.FullSpeed, err = measure(con, c, "loading at full speed"); err != nil {
		return err
	}
	c.StepTime = seconds(1.25 * float64(r.FullSpeed.Batch) / r.FullSpeed.PerSecond)
	if r.Training, err = measure(con, c, "loading while a GPU trains"); err != nil {
		return err
	}
	r.Seconds = time.Since(begin).Seconds()
	if d.JSON {
		return con.writeJSON(r)
	}
	return r.writeText(con)
}

// demoFolder returns the folder for the pictures, beside the indexes. Without such a
// folder they are made for one use.
func demoFolder() (dir string, remove func(), err error) {
	if store := index.DefaultStore(); store.Dir != "" {
		return filepath.Dir(store.Dir), func() {}, nil
	}
	if dir, err = os.MkdirTemp("", "stoker-demo-"); err != nil {
		return "", nil, errs.New(errs.Unreadable, "cannot create a folder for the demo's pictures").Because(err).Try("set STOKER_CACHE to a writable folder")
	}
	return dir, func() { _ = os.RemoveAll(dir) }, nil
}

func (d demoCmd) prepare(con *console, dir string, r *demoReport) error {
	begin := time.Now()
	shown := con.progress("making photographs")
	data, err := demo.Prepare(con.ctx, dir, d.Count, func(done, total int) { shown.count(int64(done), int64(total), "pictures") })
	shown.end()
	if err != nil {
		return err
	}
	r.Data.Path, r.Data.Samples, r.Data.Bytes, r.Data.Made = data.Root, data.Count, data.Bytes, data.Made
	r.Data.Seconds = time.Since(begin).Seconds()
	return nil
}

func (r *demoReport) writeText(con *console) error {
	w, full := con.out, r.FullSpeed
	verb := "checked"
	if r.Data.Made {
		verb = "made"
	}
	fmt.Fprintf(w, "%s photographs of %s on average, %s in %.1f s: %s\n", show.Number(float64(r.Data.Samples)),
		show.Size(r.Data.Bytes/int64(r.Data.Samples)), verb, r.Data.Seconds, r.Data.Path)
	fmt.Fprintf(w, "RandomResizedCrop(224) and flip to uint8, batches of %d, %s (kernel %s)\n\n", full.Batch, show.Count(int64(full.Lanes), "lane", "lanes"), full.Kernel)
	fmt.Fprintf(w, "  %s images/s\n", show.Number(full.PerSecond))
	fmt.Fprintf(w, "  %.2f ms of processor time per image, all processes counted\n", full.CPUPer1000)
	fmt.Fprintf(w, "  %.0f ms to the first batch, %s of memory at most\n", full.FirstBatch*1000, show.Size(full.Memory.PeakRSS))
	fmt.Fprintf(w, "  a GPU that trains %s images/s (%.0f ms per batch) would wait %.1f %% of the time\n",
		show.Number(float64(full.Batch)/r.Training.StepTime), r.Training.StepTime*1000, r.Training.Wait.Share*100)
	if err := full.WriteStages(w); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, `
What to type next:

  stoker bench FOLDER      the same with your own data (a folder per class, or tar shards)
  stoker inspect FOLDER    what is in it, and what is damaged

In Python:

    import stoker
    from stoker import transforms as T

    train = stoker.ImageFolder(%q, transform=T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip()]))
    loader = stoker.DataLoader(train, batch_size=64, shuffle=True)
    for images, labels in loader:
        ...
`, r.Data.Path)
	return err
}
