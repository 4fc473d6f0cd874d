package synthetic_test

import (
	"slices"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/synthetic"
)

// Every sample is the same picture, of the shape that was asked for.
func TestSamples(t *testing.T) {
	d, err := synthetic.New(3, []int{4, 5, 3})
	if err != nil {
		t.Fatal(err)
	}
	var s format.Sample
	for id := range d.Len() {
		if err := d.Parse(id, []string{"image"}, nil, &s); err != nil || len(s.Fields) != 1 || len(s.Fields[0].Data) != 60 || s.Fields[0].Data[2] != 62 {
			t.Errorf("sample %d: %v, %+v", id, err, s.Fields)
		}
	}
	if f := d.Ready(); len(f) != 1 || !slices.Equal(f[0].Shape, []int{4, 5, 3}) || d.Digest() != "synthetic" || d.Classes() != nil {
		t.Errorf("%+v", f)
	}
	if err := d.Parse(0, []string{"label"}, nil, &s); errs.CodeOf(err) != errs.MissingField {
		t.Error(err)
	}
	if err := d.Parse(3, nil, nil, &s); err == nil {
		t.Error("there is a fourth")
	}
	for _, shape := range [][]int{{0}, {-1, 4}, {1 << 20, 1 << 20}} {
		if _, err := synthetic.New(1, shape); errs.CodeOf(err) != errs.Config {
			t.Errorf("%v: %v", shape, err)
		}
	}
}
