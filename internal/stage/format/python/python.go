// Package python is a dataset whose samples only the user's Python code can make, in
// processes of the trainer. The engine knows how many there are, and what to call them.
package python

import (
	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
)

// Name is the name of the format.
const Name = "python"

// Dataset is so many samples. Immutable.
type Dataset struct {
	n      int64
	digest string
}

var _ format.Dataset = (*Dataset)(nil)

// New makes n samples; digest names their contents as far as the trainer knows.
func New(n int64, digest string) (*Dataset, error) {
	if n < 0 {
		return nil, errs.New(errs.Config, "a Python dataset has %d samples", n).Try("its __len__ must return 0 or more")
	}
	return &Dataset{n, digest}, nil
}

// Format describes the format.
func Format() format.Format { return format.Format{Name: Name, Made: true} }

// Len implements format.Dataset.
func (d *Dataset) Len() int64 { return d.n }

// Digest implements format.Dataset.
func (d *Dataset) Digest() string { return d.digest }

// Classes implements format.Dataset.
func (d *Dataset) Classes() []string { return nil }
