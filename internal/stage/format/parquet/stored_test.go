package parquet

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// An index whose numbers lead out of its columns, or out of its files, is not used,
// wherever it comes from.
func TestForgedIndex(t *testing.T) {
	src := source.NewFile()
	defer src.Close()
	path, err := filepath.Abs("../../../../testdata/parquet/huggingface.parquet")
	if err != nil {
		t.Fatal(err)
	}
	d, err := Open(context.Background(), src, []string{path}, Options{Store: &index.Store{}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if !open(d.x).valid() {
		t.Fatal("the index as it was built is not valid")
	}
	set := func(v *[]int64, i int, to int64) { *v = slices.Clone(*v); (*v)[i] = to }
	for name, forge := range map[string]func(d *Dataset){
		"groups":         func(d *Dataset) { set(&d.groupFirst, 1, 99) },
		"groups back":    func(d *Dataset) { set(&d.groupFirst, 1, -1) },
		"file":           func(d *Dataset) { d.groupFile = []int32{0, 7, 0} },
		"pages":          func(d *Dataset) { set(&d.chunkPage, 2, 1<<40) },
		"no page":        func(d *Dataset) { set(&d.chunkPage, 1, 0) },
		"page offset":    func(d *Dataset) { set(&d.pageOff, 0, 1<<40) },
		"page length":    func(d *Dataset) { set(&d.pageLen, 0, 1<<62) },
		"page of none":   func(d *Dataset) { set(&d.pageLen, 0, 0) },
		"page rows":      func(d *Dataset) { set(&d.pageRow, 0, 1) },
		"page rows back": func(d *Dataset) { set(&d.pageRow, len(d.pageRow)-1, -1) },
		"dictionary":     func(d *Dataset) { set(&d.dictOff, 0, -4) },
		"fewer flags":    func(d *Dataset) { d.pageFlags = d.pageFlags[1:] },
		"fewer codecs":   func(d *Dataset) { d.chunkCodec = nil },
		"label":          func(d *Dataset) { d.label = 99 },
		"classes":        func(d *Dataset) { d.class = d.class[1:] },
		"no columns":     func(d *Dataset) { d.columns = nil },
		"physical":       func(d *Dataset) { d.columns[0].Physical = 99 },
		"width":          func(d *Dataset) { d.columns[2].Width = 1 },
		"type":           func(d *Dataset) { d.columns[0].DType = 1 },
		"level":          func(d *Dataset) { d.columns[3].ListDef = 0 },
		"lists in lists": func(d *Dataset) { d.columns[3].Rep = 2 },
	} {
		forged := open(d.x)
		forge(forged)
		if forged.valid() {
			t.Errorf("forged %s are used", name)
		}
	}
}

// The same applies to the places of values: they only lead into the file.
func TestForgedPlaces(t *testing.T) {
	src := stagetest.Bytes(stagetest.Unzipped(t, "../../../../testdata/parquet/pictures-dict.parquet.gz"))
	d, err := Open(context.Background(), src, []string{"mem://x.parquet"}, Options{Store: &index.Store{}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if !open(d.x).valid() || len(d.valueOff) != 2*24 {
		t.Fatalf("the index as it was built has %d places", len(d.valueOff))
	}
	set := func(v *[]int64, i int, to int64) { *v = slices.Clone(*v); (*v)[i] = to }
	for name, forge := range map[string]func(d *Dataset){
		"first place":      func(d *Dataset) { set(&d.pageValue, 0, 47) },
		"no first place":   func(d *Dataset) { set(&d.pageValue, 0, -2) },
		"absurd place":     func(d *Dataset) { set(&d.pageValue, 0, 1<<62) },
		"places of labels": func(d *Dataset) { set(&d.pageValue, 1, 0) },
		"fewer pages":      func(d *Dataset) { d.pageValue = d.pageValue[1:] },
		"fewer lengths":    func(d *Dataset) { d.valueLen = d.valueLen[1:] },
		"offset":           func(d *Dataset) { set(&d.valueOff, 3, 1<<62) },
		"offset of none":   func(d *Dataset) { set(&d.valueOff, 3, 3) },
		"length":           func(d *Dataset) { d.valueLen = slices.Clone(d.valueLen); d.valueLen[3] = 1 << 30 },
		"negative length":  func(d *Dataset) { d.valueLen = slices.Clone(d.valueLen); d.valueLen[3] = -2 },
	} {
		forged := open(d.x)
		forge(forged)
		if forged.valid() {
			t.Errorf("forged %s are used", name)
		}
	}
}
