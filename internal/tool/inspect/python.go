package inspect

import (
	"github.com/stoker-data/stoker/internal/dataset/script"
	"github.com/stoker-data/stoker/internal/spec"
)

// liner writes the lines of Python that load a dataset.
type liner interface {
	Lines(d spec.Dataset, c script.Contents) script.Lines
}

// pythonLines are lines that load the dataset, as a person would write them.
func pythonLines(d spec.Dataset, kind liner, r *Report) string {
	c := script.Contents{Stored: r.stored, First: r.first}
	for _, f := range r.delivered {
		c.Delivered = append(c.Delivered, script.Field{Name: f.Name, Kind: f.Kind})
	}
	for _, f := range r.Fields {
		c.Checked = append(c.Checked, script.Field{Name: f.Name, Kind: f.Kind, Some: f.Present < r.Checked})
	}
	if d.PathColumn != "" { // a table that names files, whatever format its rows are
		return script.Files(d, c).Whole()
	}
	return kind.Lines(d, c).Whole()
}
