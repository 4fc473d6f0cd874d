// Package survey computes what one has to know of a dataset before one trains on
// it: mean and standard deviation of every channel, how often each class comes and
// what it should weigh, how large pictures are, and how long sequences.
//
// Pixels are summed as integers and other numbers exactly, so that the result is a
// function of the dataset alone: not of the number of goroutines, nor of who came
// first. The choice of a share of the samples is keyed, and the same every time.
package survey

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/tool/inspect"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// Config is one description.
type Config struct {
	Dataset spec.Dataset
	Sources []source.Scheme // nil: dataset.Sources()
	Share   float64         // of the samples, more than 0 and less than 1; else all are read
	Headers bool            // read the headers of pictures only: no mean, no deviation

	Indexing func(done, total int64, what string) // may be nil
	Progress func(done, total int64)              // of reading; may be nil
}

// Channels are the figures of one field, by channel, or in total if the field has no
// channels.
type Channels struct {
	Mean []float64 `json:"mean"`
	// Std is the standard deviation of all numbers together (the population's), not the
	// mean of the deviations of single samples, which is too small.
	Std    []float64 `json:"std"`
	Values int64     `json:"values"` // numbers a channel
	// Scale is what the stored numbers were divided by: 255 for pixels, as ToTensor
	// does.
	Scale     float64 `json:"scale"`
	NotFinite int64   `json:"not_finite,omitempty"` // NaN and infinities, left out
}

// Spread is the distribution of a size.
type Spread struct {
	Min    int64   `json:"min"`
	Median int64   `json:"median"`
	P99    int64   `json:"p99"`
	Max    int64   `json:"max"`
	Mean   float64 `json:"mean"`
}

// Field describes one stored name.
type Field struct {
	Name     string    `json:"name"`
	Kind     string    `json:"kind"`    // image, number, text, json, array or bytes
	Present  int64     `json:"present"` // in so many of the samples that were read
	DType    string    `json:"dtype,omitempty"`
	Shape    []int     `json:"shape,omitempty"` // of an array; -1: differs from sample to sample
	Channels *Channels `json:"channels,omitempty"`
	Width    *Spread   `json:"width,omitempty"`
	Height   *Spread   `json:"height,omitempty"`
	Bytes    *Spread   `json:"bytes,omitempty"`  // as stored
	Length   *Spread   `json:"length,omitempty"` // elements of a sequence, characters of a text
	Total    int64     `json:"total,omitempty"`  // the sum of the lengths
}

// Class is one class of the samples.
type Class struct {
	Name    string `json:"name"`
	Samples int64  `json:"samples"`
	// Weight is samples / (classes * samples of this one), so that every class
	// weighs the same in all; 0 for a class without a sample.
	Weight float64 `json:"weight"`
}

// Report is what was found.
type Report struct {
	Path    []string `json:"path"`
	Format  string   `json:"format"`
	Digest  string   `json:"digest"`
	Samples int64    `json:"samples"`
	Read    int64    `json:"read"`
	Fields  []Field  `json:"fields"`
	// Classes are the classes of the index, which are exact, or those of the field
	// ClassesOf.
	Classes   []Class       `json:"classes,omitempty"`
	ClassesOf string        `json:"classes_of,omitempty"`
	Normalize string        `json:"normalize,omitempty"` // of the first pictures, as code
	Damaged   int64         `json:"damaged"`             // of those read; they count nowhere
	Damage    []*wire.Error `json:"damage,omitempty"`    // the first of them
	Notes     []string      `json:"notes,omitempty"`
}

// maxDamage is how much damage is listed.
const maxDamage = 10

// Run describes a dataset. The report lists samples that cannot be used, and its figures
// leave them out.
func Run(ctx context.Context, c Config) (*Report, error) {
	t := &tallies{headers: c.Headers, room: mem.NewRoom(mem.Available() / 4), limit: c.Dataset.MaxPixels}
	defer t.close()
	looked, err := inspect.Run(ctx, inspect.Config{
		Dataset: c.Dataset, Sources: c.Sources, Check: math.MaxInt64, Share: c.Share, Indexing: c.Indexing, Progress: c.Progress,
		Opened: func(ds format.Stored) error {
			t.typed, _ = ds.(format.Typed)
			return nil
		},
		Each: t.each,
	})
	if err != nil {
		return nil, err
	}
	r := &Report{
		Path: looked.Path, Format: looked.Format, Digest: looked.Digest, Samples: looked.Samples, Read: looked.Checked,
		Damaged: looked.Damaged, Damage: looked.Damage[:min(len(looked.Damage), maxDamage)], Notes: looked.Notes,
	}
	found := t.merged()
	for _, f := range looked.Fields { // pictures first, then by name
		one := found[f.Name]
		if one == nil {
			continue
		}
		r.Fields = append(r.Fields, one.field(f))
	}
	r.classes(looked, found)
	for _, f := range r.Fields {
		if f.Kind == "image" && f.Channels != nil {
			r.Normalize = f.Channels.code()
			break
		}
	}
	return r, nil
}

// code is the transform that normalises these channels.
func (c *Channels) code() string {
	list := func(v []float64) string {
		out := make([]string, len(v))
		for i, x := range v {
			out[i] = fmt.Sprintf("%.6f", x)
		}
		return "[" + strings.Join(out, ", ") + "]"
	}
	return "Normalize(mean=" + list(c.Mean) + ", std=" + list(c.Std) + ")"
}

// Err is the error with which a command ends if there is damage; nil if there is none.
func (r *Report) Err() error {
	if r.Damaged == 0 {
		return nil
	}
	return errs.New(errs.Damaged, "%s, and left out of the figures", show.Of(r.Damaged, r.Read, "read", "damaged")).
		Try("`stoker verify` lists them; on_bad=\"skip\" gives the figures of the others")
}
