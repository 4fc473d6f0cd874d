package loader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/order"
)

func packSpec(t testing.TB, g grid) Spec {
	s, _ := g.byLength(g.spec(t), "pack")
	s.Order.Shuffle = order.Full
	return s
}

// A field's name as lengths counts its bytes, in shards and in folders: what a
// list of them says, to the batch.
func TestLengthsOfAField(t *testing.T) {
	s := ground(t)
	g := newGrid(t)
	spec := packSpec(t, g)
	byName := walkAll(t, open(t, s, spec), 0, 0, 0)
	spec.Batch.Lengths = lengthsOf(upTo(141)[100:]...)
	if !slices.Equal(texts(byName), texts(walkAll(t, open(t, s, spec), 0, 0, 0))) {
		t.Error("lengths by name and as a list give other batches")
	}

	root := ramps(t, 12) // of one size each, but for one
	longer := append(ramp(3), make([]byte, 40)...)
	if err := os.WriteFile(filepath.Join(root, "class0", "000003.ppm"), longer, 0o644); err != nil {
		t.Fatal(err)
	}
	files := imageSpec(root)
	files.Batch = BatchSpec{Lengths: Lengths{Field: "image"}, Tokens: 4 * int64(len(ramp(0)))}
	for _, b := range walkAll(t, open(t, s, files), 0, 0, 0) {
		if slices.Contains(b.ids(), 3) && b.Rows > 3 {
			t.Errorf("the longer file is in a batch of %d", b.Rows)
		}
	}
	for field, says := range map[string]string{"label": "does not know how long", "nothing": "nothing"} {
		files.Batch.Lengths.Field = field
		if _, err := Open(context.Background(), s, files, Options{}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("lengths of %s: %v", field, err)
		}
	}
	synthetic := Spec{Dataset: Dataset{Format: "synthetic", Samples: 9, Shape: []int{2}}, Batch: BatchSpec{Lengths: Lengths{Field: "image"}, Tokens: 5}}
	if _, err := Open(context.Background(), s, synthetic, Options{}); errs.CodeOf(err) != errs.Config {
		t.Errorf("a synthetic dataset: %v", err)
	}
}

// Rows of runs, read as a model reads them: each run is its sample's bytes from
// its position on, runs fill the rows, and every byte of every sample comes once.
func TestRowsOfRuns(t *testing.T) {
	s := ground(t)
	g := newGrid(t)
	for _, long := range []order.Long{order.Split, order.Truncate} {
		for _, world := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/%d", long, world), func(t *testing.T) {
				spec := packSpec(t, g)
				spec.Batch.Long = long
				seen := map[int64][]bool{}
				for _, l := range openRanks(t, s, spec, world) {
					for _, b := range walkAll(t, l, 1, 0, 0) {
						readRuns(t, b, 16, seen)
					}
				}
				for id := range int64(gridTars) {
					want := len(tokensOf(int(100 + id)))
					if long == order.Truncate {
						want = min(want, 16)
					}
					if got := seen[id]; got == nil || slices.Contains(got[:want], false) || slices.Contains(got[want:], true) {
						t.Errorf("sample %d, of which %d bytes are wanted: %v", id, want, got)
					}
				}
			})
		}
	}
}

// readRuns checks one batch of runs of the grid's shards, and notes which bytes
// of which samples came.
func readRuns(t *testing.T, b full, pack int, seen map[int64][]bool) {
	t.Helper()
	bin, position, lens, labels := b.Columns["bin"], int32sOf(b.Columns[batch.PositionIDs]), int32sOf(b.Columns[batch.SeqLens]), int64s(b.Columns["label"])
	if len(bin) != b.TokenRows*pack || len(position) != len(bin) || len(lens) != b.Rows || len(labels) != b.Rows {
		t.Fatalf("%d rows of %d: %d bytes, %d positions; %d runs: %d lengths, %d labels", b.TokenRows, pack, len(bin), len(position), b.Rows, len(lens), len(labels))
	}
	at := 0
	for run, id := range b.ids() {
		n := lens[run]
		tokens, places := bin[at:at+n], position[at:at+n]
		if at/pack != (at+n-1)/pack && n > 0 {
			t.Errorf("run %d is in two rows: %d bytes from %d", run, n, at)
		}
		at += n
		if id < 0 {
			if b.valid()[run] != 0 || strings.Trim(string(tokens), "\x00") != "" || labels[run] != 0 {
				t.Errorf("the unused end of a row: %x, valid %d, label %d", tokens, b.valid()[run], labels[run])
			}
			continue
		}
		whole := tokensOf(int(100 + id))
		if b.valid()[run] == 0 {
			continue // padding
		}
		if labels[run] != (100+id)%5 {
			t.Errorf("sample %d has label %d", id, labels[run])
		}
		if n > 0 && !bytes.Equal(tokens, whole[places[0]:places[0]+n]) {
			t.Errorf("sample %d from %d: %x", id, places[0], tokens)
		}
		if seen[id] == nil {
			seen[id] = make([]bool, len(whole))
		}
		for i, p := range places {
			if p != places[0]+i || seen[id][p] {
				t.Errorf("sample %d: positions %v", id, places)
			}
			seen[id][p] = true
		}
	}
	if at != len(bin) {
		t.Errorf("runs of %d bytes in rows of %d", at, len(bin))
	}
}

// What pack cannot work with is reported when the loader opens.
func TestPackRefuses(t *testing.T) {
	s := ground(t)
	g := newGrid(t)
	for name, c := range map[string]struct {
		change func(*Spec)
		says   string
	}{
		"pictures":      {func(s *Spec) { s.Fields = g.spec(t).Fields }, `field "image" is image`},
		"no bytes":      {func(s *Spec) { s.Fields = s.Fields[1:] }, "needs a field of tokens or bytes"},
		"text":          {func(s *Spec) { s.Fields[0].Decode = "text" }, `field "bin" is text`},
		"replace":       {func(s *Spec) { s.OnBad.Policy = Replace }, "replace does not go with pack"},
		"refused":       {func(s *Spec) { s.Batch.Long = order.Refuse }, "raise pack"},
		"absurd":        {func(s *Spec) { s.Batch.Pack = 1 << 40 }, "pack is"},
		"too few":       {func(s *Spec) { s.Batch.Lengths = lengthsOf(1, 2, 3) }, "3 lengths"},
		"no such field": {func(s *Spec) { s.Batch.Lengths = Lengths{Field: "png"} }, "png"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := packSpec(t, g)
			spec.Fields = slices.Clone(spec.Fields)
			c.change(&spec)
			_, err := Open(context.Background(), s, spec, Options{})
			if errs.Classes[errs.CodeOf(err)].Python != "ConfigError" && errs.CodeOf(err) != errs.MissingField || !strings.Contains(fmt.Sprint(err), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
}

// Lengths that are not those of the samples are an error of the user, with the
// sample, whatever becomes of bad ones.
func TestWrongLengths(t *testing.T) {
	s := ground(t)
	spec := packSpec(t, newGrid(t))
	spec.OnBad.Policy = Skip
	spec.Batch.Lengths = lengthsOf(upTo(141)[100:]...)
	spec.Batch.Lengths.List[20]++
	l := open(t, s, spec)
	_, err := lastOf(l)
	if errs.CodeOf(err) != errs.Config || errs.From(err).Where.Sample.Or(-1) != 20 {
		t.Errorf("got %v", err)
	}
}

// lastOf walks epoch 0 to its error or its end (nil), and returns the largest
// number of rows that a batch had.
func lastOf(l *Loader) (rows int, err error) {
	p, err := l.Pass(0, 0, 0)
	if err != nil {
		return 0, err
	}
	defer p.Cancel()
	for {
		b, err := p.Next(context.Background(), 20*time.Second)
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return rows, err
		}
		rows = max(rows, b.Rows)
		b.Release()
	}
}

// Batches that need more rows than any before get larger slots, within the
// memory that was asked for; what no memory holds is an error.
func TestBatchesOutgrowTheirSlots(t *testing.T) {
	s := ground(t)
	n := 3000
	lengths := make([]float64, n)
	for i := range lengths {
		lengths[i] = 1000
		if i >= 10 {
			lengths[i] = float64(1 + 900/(i-9)) // ever shorter: ever more rows
		}
	}
	spec := Spec{
		Dataset: Dataset{Format: "synthetic", Samples: int64(n), Shape: []int{64}},
		Batch:   BatchSpec{Lengths: Lengths{Numbers: Numbers{List: lengths}}, Tokens: 1000, Window: 100},
		Workers: 2, Deliver: Deliver{Prefetch: 8, Memory: 1 << 20},
	}
	l := open(t, s, spec)
	whole := walkAll(t, l, 0, 0, 0)
	most, rows := 0, 0
	for _, b := range whole {
		rows, most = rows+b.Rows, max(most, b.Rows)
	}
	if rows != n || most < 90 {
		t.Fatalf("%d rows of %d, at most %d at once", rows, n, most)
	}
	if got := l.Stats().Memory; got > 1<<20 {
		t.Errorf("%d bytes of slots", got)
	}
	for i, b := range whole {
		if i%20 == 0 && !slices.Equal(texts(walkAll(t, l, 0, b.Position, b.Step+1)), texts(whole[i+1:])) {
			t.Errorf("after step %d: another stream", i)
		}
	}
	spec.Deliver.Memory = 17 << 10 // two batches of 8 KiB and not of 12
	if rows, err := lastOf(open(t, s, spec)); errs.CodeOf(err) != errs.Memory || !strings.Contains(errs.From(err).Hint, "raise memory") {
		t.Errorf("with too little memory: at most %d rows, %v", rows, err)
	}
}

// A batch that is held while larger ones are needed stays as it is.
func TestHeldBatchesSurviveGrowth(t *testing.T) {
	s := ground(t)
	spec := packSpec(t, newGrid(t))
	spec.Order.Shuffle = order.None
	spec.Batch.Size = 1
	l := open(t, s, spec)
	want := texts(walkAll(t, l, 0, 0, 0))
	l = open(t, s, spec) // its slots begin small again
	p, err := l.Pass(0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Cancel()
	var held []*Batch
	for range want {
		b, err := p.Next(context.Background(), 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, b)
	}
	for i, b := range held {
		if copyAll(l, b).text() != want[i] {
			t.Errorf("batch %d changed while it was held", i)
		}
		b.Release()
	}
}
