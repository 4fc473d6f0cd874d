package loader

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/order"
)

func raw(t testing.TB, values any) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, values); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func numbersFile(t testing.TB, body []byte) Numbers {
	t.Helper()
	path := filepath.Join(t.TempDir(), "numbers.npy")
	if err := os.WriteFile(path, body, 0o644); err != nil {
		t.Fatal(err)
	}
	return Numbers{File: path}
}

// A file says what a list says: the same stream, and states that fit.
func TestFilesAndListsAreOneStream(t *testing.T) {
	s := ground(t)
	g := newGrid(t)
	byList := g.spec(t)
	byList.Order.Weights = weightsOf(gridTars)
	byFile := byList
	byFile.Order.Weights = numbersFile(t, arrayFile(1, "'<f8'", fmt.Sprintf("(%d,)", gridTars), raw(t, byList.Order.Weights.List)))
	a, b := open(t, s, byList), open(t, s, byFile)
	if !slices.Equal(texts(walkAll(t, a, 0, 0, 0)), texts(walkAll(t, b, 0, 0, 0))) {
		t.Error("another stream")
	}
	if err := b.Check(saved(t, a, 0, 3)); err != nil {
		t.Error(err)
	}
	byList.Order.Weights = Numbers{List: slices.Clone(byList.Order.Weights.List)}
	byList.Order.Weights.List[40] += 0.5
	if err := open(t, s, byList).Check(saved(t, a, 0, 3)); errs.CodeOf(err) != errs.State || !strings.Contains(err.Error(), "weights") {
		t.Errorf("with another weight: %v", err)
	}
	for name, values := range map[string][]float64{"too few": make([]float64, 7), "NaN": append(make([]float64, gridTars-1), math.NaN()), "negative": append(make([]float64, gridTars-1), -1)} {
		byFile.Order.Weights = numbersFile(t, arrayFile(1, "'<f8'", fmt.Sprintf("(%d,)", len(values)), raw(t, values)))
		if _, err := Open(context.Background(), s, byFile, Options{}); errs.CodeOf(err) != errs.Config {
			t.Errorf("%s: %v", name, err)
		}
	}
	nan := g.spec(t)
	nan.Batch.Bucket = 3
	nan.Batch.Lengths.Numbers = numbersFile(t, arrayFile(1, "'<f4'", fmt.Sprintf("(%d,)", gridTars), raw(t, append(make([]float32, gridTars-1), float32(math.NaN())))))
	if _, err := Open(context.Background(), s, nan, Options{}); errs.CodeOf(err) != errs.Config || !strings.Contains(err.Error(), "length 40 is NaN") {
		t.Errorf("a length that is none: %v", err)
	}
}

// balanced draws every class alike, whatever its size, of all samples or of a
// subset.
func TestBalanced(t *testing.T) {
	s := ground(t)
	spec := imageSpec(pictures(t, 30)) // three classes of 10
	spec.Order = Order{Seed: 1, Balanced: true, NumSamples: 3000}
	spec.Batch.Size = 100
	count := func(spec Spec) (out [3]int) {
		for _, b := range walkAll(t, open(t, s, spec), 0, 0, 0) {
			for _, class := range int64s(b.Columns["label"]) {
				out[class]++
			}
		}
		return out
	}
	even := func(name string, got [3]int) {
		for _, n := range got {
			if n < 850 || n > 1150 { // six standard deviations and a half of 26
				t.Errorf("%s: classes came %v times", name, got)
			}
		}
	}
	even("all", count(spec))
	spec.Order.Subset = Numbers{List: []float64{0, 1, 2, 3, 4, 5, 11, 12, 29}}
	even("a subset", count(spec))
}

// A subset is the samples that there are, and is part of what a state says.
func TestSubset(t *testing.T) {
	s := ground(t)
	g := newGrid(t)
	spec := g.spec(t)
	spec.Order.Shuffle = order.Full
	spec.Order.Subset = Numbers{List: []float64{40, 3, 7, 8, 9, 30, 31}}
	l := open(t, s, spec)
	var got []int64
	for _, b := range walkAll(t, l, 0, 0, 0) {
		got = append(got, b.ids()...)
	}
	slices.Sort(got)
	if !slices.Equal(got, []int64{3, 7, 8, 9, 30, 31, 40}) {
		t.Errorf("%v", got)
	}
	st := saved(t, l, 0, 3)
	spec.Order.Subset = Numbers{List: []float64{40, 3, 7, 8, 9, 30, 32}}
	if err := open(t, s, spec).Check(st); errs.CodeOf(err) != errs.State || !strings.Contains(err.Error(), "subset") {
		t.Errorf("another subset: %v", err)
	}
	for _, list := range [][]float64{{}, {41}, {-1}, {1.5}, {math.NaN()}, {1e300}} {
		spec.Order.Subset = Numbers{List: list}
		if _, err := Open(context.Background(), s, spec, Options{}); errs.CodeOf(err) != errs.Config {
			t.Errorf("subset %v: %v", list, err)
		}
	}
}
