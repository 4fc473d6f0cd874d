package toy_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/loader"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stagetest/toy"
)

// folder is one of two toy files with the numbers 100 to 106.
func folder(t *testing.T) string {
	t.Helper()
	t.Setenv("STOKER_CACHE", t.TempDir())
	dir := t.TempDir()
	for name, numbers := range map[string][]uint64{"a.toy": {100, 101, 102}, "b.toy": {103, 104, 105, 106}} {
		body := []byte(toy.Mark)
		for _, n := range numbers {
			body = binary.LittleEndian.AppendUint64(body, n)
		}
		if err := os.WriteFile(filepath.Join(dir, name), body, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func open(t *testing.T, s spec.Spec, formats []dataset.Format) (*loader.Loader, error) {
	t.Helper()
	shared := loader.NewShared(batch.Heap{}, stats.NewBoard(nil, 32))
	l, err := loader.Open(context.Background(), shared, s, loader.Options{Formats: formats})
	t.Cleanup(func() {
		if err == nil {
			l.Close()
		}
		shared.Close()
	})
	return l, err
}

// column is the int64 values that an epoch delivers under a name, in order.
func column(t *testing.T, l *loader.Loader, name string) (out []int64) {
	t.Helper()
	p, err := l.Pass(0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Cancel()
	for {
		b, err := p.Next(context.Background(), time.Minute)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		c := b.Columns[slices.IndexFunc(b.Columns, func(c batch.Column) bool { return c.Name == name })]
		for r := range b.Rows {
			out = append(out, int64(binary.LittleEndian.Uint64(b.Slot.Mem[c.Off+8*int64(r):])))
		}
		b.Release()
	}
}

// A format is on the list by one line, and a folder of its files is found out,
// indexed, shuffled and delivered as those of any other.
func TestAFormatIsOneLine(t *testing.T) {
	dir := folder(t)
	s := spec.Spec{Dataset: spec.Dataset{Path: spec.Paths{dir}}, Batch: spec.Batch{Size: 2}, Order: spec.Order{Shuffle: "full"}}
	formats := append(dataset.Formats(), dataset.Format{Format: toy.Format()})
	l, err := open(t, s, formats)
	if err != nil {
		t.Fatal(err)
	}
	numbers, ids := column(t, l, toy.Number), column(t, l, batch.IDs)
	if l.Format() != "toy" || l.Len() != 7 || len(numbers) != 7 {
		t.Fatalf("%s, %d samples, %v", l.Format(), l.Len(), numbers)
	}
	for i, n := range numbers {
		if n != 100+ids[i] {
			t.Errorf("sample %d is %d", ids[i], n)
		}
	}
	s.Dataset.Format, s.Dataset.Label = "toy", "x"
	if _, err := open(t, s, formats); errs.CodeOf(err) != errs.Config || !strings.Contains(err.Error(), "dataset.label is of parquet, files, table datasets, and this is toy") {
		t.Errorf("a key of others: %v", err)
	}
	s.Dataset.Label = ""
	if _, err := open(t, s, nil); errs.CodeOf(err) != errs.Config || !strings.Contains(err.Error(), `format is "toy"`) {
		t.Errorf("where it is not on the list: %v", err)
	}
}

// elsewhere is a dataset whose samples nobody here makes.
type elsewhere struct{}

func (elsewhere) Len() int64        { return 5 }
func (elsewhere) Digest() string    { return "elsewhere" }
func (elsewhere) Classes() []string { return nil }

// squares is a dataset that is made of the numbers of its samples.
type squares struct{ elsewhere }

func (squares) Ready() []format.ReadyField {
	return []format.ReadyField{{Name: toy.Number, DType: mem.Uint8, Shape: mem.Shape{8}}}
}

func (squares) Parse(id int64, fields []string, _ [][]byte, s *format.Sample) error {
	s.Begin(id)
	for range fields {
		row := binary.LittleEndian.AppendUint64(nil, uint64(id*id))
		s.Fields = append(s.Fields, format.Field{Name: toy.Number, Data: row, File: -1})
	}
	return nil
}

func made(name string, ds format.Dataset) dataset.Format {
	return dataset.Format{Format: format.Format{
		Name: name, Made: true, Open: func(context.Context, format.Opening) (format.Dataset, error) { return ds, nil },
	}}
}

// Samples that are made and not stored are delivered, shuffled and resumed like any;
// those that nobody in this process makes are refused, and named.
func TestSamplesThatAreNotStored(t *testing.T) {
	formats := append(dataset.Formats(), made("squares", squares{}), made("elsewhere", elsewhere{}))
	s := spec.Spec{Dataset: spec.Dataset{Format: "squares"}, Batch: spec.Batch{Size: 2}, Order: spec.Order{Shuffle: "full"}}
	l, err := open(t, s, formats)
	if err != nil {
		t.Fatal(err)
	}
	numbers, ids := column(t, l, toy.Number), column(t, l, batch.IDs)
	for i, n := range numbers {
		if n != ids[i]*ids[i] {
			t.Errorf("sample %d is %d", ids[i], n)
		}
	}
	if err := l.Check(l.State(0, 2)); err != nil || len(numbers) < 5 || l.Digest() != "elsewhere" {
		t.Errorf("%v, %v, %s", err, numbers, l.Digest())
	}
	s.Dataset.Format = "elsewhere"
	if _, err := open(t, s, formats); errs.CodeOf(err) != errs.Config || !strings.Contains(err.Error(), "elsewhere") {
		t.Errorf("%v", err)
	}
}
