package dataset

import (
	"context"
	"slices"
	"testing"

	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stagetest/fixture"
)

// A row group of Parquet is a block: the samples whose bytes are stored side by side.
func TestBlocksOfParquet(t *testing.T) {
	t.Setenv("STOKER_CACHE", t.TempDir())
	paths := []string{"../../testdata/parquet/rows-zstd.parquet", "../../testdata/parquet/rows-gzip.parquet"}
	c, err := openCollection(context.Background(), spec.Spec{Dataset: spec.Dataset{Path: paths}}, Options{Formats: Formats()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := c.Blocks(0); !slices.Equal(got, []int64{20, 16, 20, 16}) {
		t.Errorf("blocks of %v", got)
	}
	if got := c.Blocks(30); !slices.Equal(got, []int64{30, 30, 12}) {
		t.Errorf("blocks of %v where 30 are asked for", got)
	}
}

// A page of an FFCV file is a block; where all is numbers there are no pages.
func TestBlocksOfBeton(t *testing.T) {
	t.Setenv("STOKER_CACHE", t.TempDir())
	for name, want := range map[string][]int64{"raw": {9}, "numbers": {5}, "jpg": {3, 3, 3}} {
		path := fixture.Unzipped(t, fixture.FormatDir+"/beton/testdata/"+name+".beton.gz", name+".beton")
		c, err := openCollection(context.Background(), spec.Spec{Dataset: spec.Dataset{Path: spec.Paths{path}}}, Options{Formats: Formats()})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if got := c.Blocks(0); !slices.Equal(got, want) {
			t.Errorf("%s: blocks of %v", name, got)
		}
	}
}
