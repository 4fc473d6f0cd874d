package dataset

import (
	"context"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/format"
)

// bare is a dataset that says how many samples it has, and no more.
type bare struct{ closed int }

func (b *bare) Len() int64        { return 3 }
func (b *bare) Digest() string    { return "bare" }
func (b *bare) Classes() []string { return nil }
func (b *bare) Close() error      { b.closed++; return nil }

// parsed makes samples, and says nowhere what of.
type parsed struct{ bare }

func (*parsed) Parse(int64, []string, [][]byte, *format.Sample) error { return nil }

// A dataset whose samples nobody can make is an error, and what it holds is closed.
func TestADatasetThatNobodyCanLoad(t *testing.T) {
	for _, ds := range []interface {
		format.Dataset
		Close() error
	}{&bare{}, &parsed{}} {
		kind := Format{Format: format.Format{Name: "bare", Made: true}, Open: func(context.Context, spec.Dataset, format.Opening) (format.Dataset, error) {
			return ds, nil
		}}
		c, err := Open(context.Background(), spec.Spec{Dataset: spec.Dataset{Format: "bare"}}, Options{Formats: []Format{kind}})
		if err == nil {
			c.Close()
			t.Fatalf("%T is opened", ds)
		}
		want := errs.Unsupported
		if _, made := ds.(format.Samples); !made {
			want = errs.Config // only its own program can
		}
		if errs.CodeOf(err) != want {
			t.Errorf("%T: %v", ds, err)
		}
		closed := 0
		switch ds := ds.(type) {
		case *bare:
			closed = ds.closed
		case *parsed:
			closed = ds.closed
		}
		if closed != 1 {
			t.Errorf("%T was closed %d times", ds, closed)
		}
	}
}
