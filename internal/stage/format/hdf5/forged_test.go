package hdf5

import (
	"context"
	"testing"

	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// An index may come with the data, from anyone: one whose descriptions are not JSON is
// refused, and not opened without them.
func TestForgedDescriptions(t *testing.T) {
	for _, bad := range []string{"", fieldsColumn, layoutColumn, leftColumn} {
		x, err := index.Store{}.Load(context.Background(), index.Plan{
			Key: index.Key{Format: "hdf5"},
			Build: func(_ context.Context, _ *index.Index, b *index.Builder) error {
				format.Describe(b, []source.Info{{Name: "/a.h5", Size: 20, Version: "00000001"}})
				for column, text := range map[string]string{fieldsColumn: "[]", layoutColumn: "[]", leftColumn: "{}"} {
					if column == bad {
						text = "{["
					}
					b.Bytes(column, []byte(text), index.Identity)
				}
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if d, err := open(x); (err == nil) != (bad == "") || (d == nil) != (bad != "") {
			t.Errorf("%q is not JSON: %v", bad, err)
		}
		_ = x.Close()
	}
}
