package format_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// An index gives back the paths that it describes, below the deepest folder that
// holds all of them.
func TestDescribe(t *testing.T) {
	for want, paths := range map[string][]string{
		"/":          {"/a.tar", "/b/c.tar"},
		"/x":         {"/x/a.tar"},
		"/x/y":       {"/x/y/a.tar", "/x/y/b/c.tar"},
		"s3://b":     {"s3://b/a.tar", "s3://b/x/a.tar"},
		"s3://":      {"s3://b/a.tar", "s3://c/a.tar"},
		"":           {"/x/a.tar", "s3://c/a.tar"},
		"http://h/x": {"http://h/x/a.tar"},
	} {
		var objs []source.Info
		for i, p := range paths {
			objs = append(objs, source.Info{Name: p, Size: int64(i), Version: fmt.Sprint(i + 1)})
		}
		x, err := (index.Store{}).Load(context.Background(), index.Plan{Build: func(_ context.Context, _ *index.Index, b *index.Builder) error {
			format.Describe(b, objs)
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		if got := x.Meta().Root; got != want {
			t.Errorf("%q are in %q, not %q", paths, got, want)
		}
		for i, p := range paths {
			size, version := x.Stamp(i)
			if got := string(x.AppendPath(i, nil)); got != p || size != int64(i) || version != fmt.Sprint(i+1) {
				t.Errorf("%q became %q, %d bytes of %q", p, got, size, version)
			}
		}
		_ = x.Close()
	}
}
