package loader

import (
	"context"
	"slices"
	"testing"
)

// A row group of Parquet is a block: the samples whose bytes lie side by side.
func TestBlocksOfParquet(t *testing.T) {
	t.Setenv("STOKER_CACHE", t.TempDir())
	paths := []string{"../../testdata/parquet/rows-zstd.parquet", "../../testdata/parquet/rows-gzip.parquet"}
	c, err := openCollection(context.Background(), Dataset{Path: paths}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := c.blocks(0); !slices.Equal(got, []int64{20, 16, 20, 16}) {
		t.Errorf("blocks of %v", got)
	}
	if got := c.blocks(30); !slices.Equal(got, []int64{30, 30, 12}) {
		t.Errorf("blocks of %v where 30 are asked for", got)
	}
}
