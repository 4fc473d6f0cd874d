package loader

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/compose"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/order"
)

// ramp is a 12 x 9 PPM whose first channel says its id and whose others are
// ramps, so that a crop or a flip shows.
func ramp(id int) []byte {
	b := []byte("P6 12 9 255\n")
	for y := range 9 {
		for x := range 12 {
			b = append(b, byte(id), byte(20*x), byte(25*y))
		}
	}
	return b
}

// tokensOf are the bytes of sample id's field bin: from 0 to 22 of them, each
// its place in the sample and the id.
func tokensOf(id int) []byte {
	b := make([]byte, (id*7+id/3)%23)
	for i := range b {
		b[i] = byte(id*31 + i)
	}
	return b
}

func lengthsOf(ids ...int) Lengths {
	var out []float64
	for _, id := range ids {
		out = append(out, float64(len(tokensOf(id))))
	}
	return Lengths{Numbers: Numbers{List: out}}
}

func upTo(n int) (ids []int) {
	for id := range n {
		ids = append(ids, id)
	}
	return ids
}

// ramps is a folder of n ramps in three classes, in the order of their ids.
func ramps(t testing.TB, n int) string {
	t.Helper()
	root := t.TempDir()
	for id := range n {
		dir := filepath.Join(root, fmt.Sprintf("class%d", id*3/n))
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, fmt.Sprintf("%06d.ppm", id)), ramp(id), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// mixedShards is shards of the given sizes: every sample a ramp, a class, its tokens.
func mixedShards(t testing.TB, first int, sizes ...int) string {
	t.Helper()
	dir := t.TempDir()
	id := first
	for s, size := range sizes {
		var members []member
		for range size {
			members = append(members,
				member{fmt.Sprintf("%06d.ppm", id), ramp(id)},
				member{fmt.Sprintf("%06d.cls", id), fmt.Appendf(nil, "%d", id%5)},
				member{fmt.Sprintf("%06d.bin", id), tokensOf(id)})
			id++
		}
		writeTar(t, filepath.Join(dir, fmt.Sprintf("m-%03d.tar", s)), members)
	}
	return dir
}

type member struct {
	name string
	body []byte
}

func writeTar(t testing.TB, path string, members []member) {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		if err := w.WriteHeader(&tar.Header{Name: m.name, Size: int64(len(m.body)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(m.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), os.WriteFile(path, b.Bytes(), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// full is all that a batch holds, copied: every column, dense ones as their
// bytes, others row by row.
type full struct {
	Epoch, Step, Position int64
	Rows                  int
	Columns               map[string][]byte
	TokenRows             int
	Sum                   order.Sum
	Real                  int64
	Bad                   []compose.Bad
}

func copyAll(l *Loader, b *Batch) full {
	out := full{
		Epoch: b.Epoch, Step: b.Step, Position: b.Position, Rows: b.Rows, Columns: map[string][]byte{},
		Sum: b.Sum, Real: b.Real, Bad: b.Bad,
	}
	types := map[string]mem.DType{batch.IDs: mem.Int64, batch.Valid: mem.Bool}
	for _, f := range l.fields {
		types[f.Name] = f.DType
	}
	for _, c := range b.Columns {
		if c.Kind == "ragged" {
			var rows []byte
			for _, row := range rowsOf(b, c, types[c.Name]) {
				rows = fmt.Appendf(rows, "%q\n", row)
			}
			out.Columns[c.Name] = rows
			continue
		}
		if c.Data > 0 {
			var rows []byte
			for r := range b.Rows {
				from := binary.LittleEndian.Uint64(b.Slot.Mem[c.Off+8*int64(r):])
				to := binary.LittleEndian.Uint64(b.Slot.Mem[c.Off+8*int64(r)+8:])
				rows = fmt.Appendf(rows, "%q\n", b.Slot.Mem[c.Data+int64(from):c.Data+int64(to)])
			}
			out.Columns[c.Name] = rows
			continue
		}
		n := b.Rows
		if c.Rows > 0 {
			n, out.TokenRows = c.Rows, c.Rows
		}
		n *= mem.Shape(c.Shape).Elems() * types[c.Name].Size()
		out.Columns[c.Name] = bytes.Clone(b.Slot.Mem[c.Off : c.Off+int64(n)])
	}
	return out
}

func int64s(b []byte) (out []int64) {
	for ; len(b) >= 8; b = b[8:] {
		out = append(out, int64(binary.LittleEndian.Uint64(b)))
	}
	return out
}

func int32sOf(b []byte) (out []int) {
	for ; len(b) >= 4; b = b[4:] {
		out = append(out, int(binary.LittleEndian.Uint32(b)))
	}
	return out
}

func (f full) ids() []int64  { return int64s(f.Columns[batch.IDs]) }
func (f full) valid() []byte { return f.Columns[batch.Valid] }

// text is a batch as text: equal texts are equal batches.
func (f full) text() string {
	var b strings.Builder
	fmt.Fprintln(&b, f.Epoch, f.Step, f.Position, f.Rows, f.TokenRows, f.Sum, f.Real, len(f.Bad))
	for _, name := range slices.Sorted(keysOf(f.Columns)) {
		fmt.Fprintf(&b, "%s %x\n", name, f.Columns[name])
	}
	return b.String()
}

func keysOf[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// items cuts a batch into what is dealt to ranks: rows, rows of runs, or the
// whole batch; each without its place in the pass.
func (f full) items(l *Loader) (out []string) {
	row := func(name string, r, of int) []byte {
		c := f.Columns[name]
		if of == 0 {
			return nil
		}
		if c != nil && f.isLoose(l, name) {
			return bytes.SplitAfter(c, []byte("\n"))[r]
		}
		size := len(c) / of
		return c[r*size : (r+1)*size]
	}
	names := slices.Sorted(keysOf(f.Columns))
	switch {
	case l.Stride() == int64(l.spec.World) && (l.spec.Batch.Tokens > 0 || l.spec.Mix.Batches == single):
		g := f
		g.Epoch, g.Step, g.Position = 0, 0, 0
		return []string{g.text()}
	case f.TokenRows > 0:
		pack, at, run := int(l.spec.Batch.Pack), 0, 0
		lens := int32sOf(f.Columns[batch.SeqLens])
		for r := range f.TokenRows {
			var b strings.Builder
			for _, name := range names {
				if field := l.fieldNamed(name); field != nil && field.RunBytes > 0 {
					fmt.Fprintf(&b, "%s %x\n", name, row(name, r, f.TokenRows))
				}
			}
			// An empty sample is between two runs: it does not matter to which row
			// it belongs.
			for at < (r+1)*pack {
				for _, name := range names {
					if lens[run] == 0 {
						break
					}
					if field := l.fieldNamed(name); field == nil || field.RunBytes == 0 {
						fmt.Fprintf(&b, "%s %x\n", name, row(name, run, f.Rows))
					}
				}
				at += lens[run]
				run++
			}
			out = append(out, b.String())
		}
		return out
	}
	for r := range f.Rows {
		var b strings.Builder
		for _, name := range names {
			fmt.Fprintf(&b, "%s %x\n", name, row(name, r, f.Rows))
		}
		out = append(out, b.String())
	}
	return out
}

func (f full) isLoose(l *Loader, name string) bool {
	field := l.fieldNamed(name)
	return field != nil && field.Loose && field.DType == mem.Object
}

func (l *Loader) fieldNamed(name string) *batch.Field {
	i := slices.IndexFunc(l.fields, func(f batch.Field) bool { return f.Name == name })
	if i < 0 {
		return nil
	}
	return &l.fields[i]
}

// drain walks a pass to its end.
func drain(t testing.TB, l *Loader, p *Pass) (out []full) {
	t.Helper()
	defer p.Cancel()
	for {
		b, err := p.Next(context.Background(), 30*time.Second)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, copyAll(l, b))
		for i := range b.Slot.Mem {
			b.Slot.Mem[i] = 0xA5 // whoever reads it after this reads poison
		}
		b.Release()
	}
}

func walkAll(t testing.TB, l *Loader, epoch, position, step int64) []full {
	t.Helper()
	p, err := l.Pass(epoch, position, step)
	if err != nil {
		t.Fatal(err)
	}
	return drain(t, l, p)
}

func texts(batches []full) (out []string) {
	for _, b := range batches {
		out = append(out, b.text())
	}
	return out
}

// dealt puts the batches of all ranks together, item by item.
func dealt(l *Loader, ranks [][]full) (out []string) {
	for step := range ranks[0] {
		var items [][]string
		for r := range ranks {
			items = append(items, ranks[r][step].items(l))
		}
		for i := range items[0] {
			for r := range ranks {
				out = append(out, items[r][i])
			}
		}
	}
	return out
}

// grid is the specs of every kind of order, small.
type grid struct {
	folder, tars, more string
}

const (
	gridFolder = 26 // samples
	gridTars   = 41
	gridMore   = 17
)

func newGrid(t testing.TB) grid {
	return grid{folder: ramps(t, gridFolder), tars: mixedShards(t, 100, 3, 11, 1, 8, 10, 8), more: mixedShards(t, 200, 9, 8)}
}

func (g grid) spec(t testing.TB) Spec {
	return Spec{
		Dataset: Dataset{Path: Paths{g.tars}},
		Fields: []Field{
			{Name: "image", From: "ppm", Decode: "rgb", Transform: ops(t, `[{"op":"RandomResizedCrop","size":[4,5]},{"op":"RandomHorizontalFlip"}]`)},
			{Name: "label", From: "cls", Decode: "int"},
			{Name: "bin"},
		},
		Batch:   BatchSpec{Size: 3},
		Order:   Order{Seed: 11},
		Workers: 2,
		Deliver: Deliver{Prefetch: 3},
	}
}

// mixture is the folder and the shards, each with fields of its own.
func (g grid) mixture(t testing.TB) Spec {
	s := g.spec(t)
	chain := s.Fields[0].Transform
	s.Fields = nil
	s.Dataset = Dataset{Mixed: []Dataset{
		{Path: Paths{g.folder}, Weight: 2, Fields: []Field{{Name: "image", Decode: "rgb", Transform: chain}, {Name: "label", Decode: "int"}}},
		{Path: Paths{g.tars}, Weight: 3, Shuffle: order.BlockWise, Fields: []Field{{Name: "image", From: "ppm", Decode: "rgb", Transform: chain}, {Name: "label", From: "cls", Decode: "int"}}},
		{Path: Paths{g.more}, Fields: []Field{{Name: "image", From: "ppm", Decode: "rgb", Transform: chain}, {Name: "label", From: "cls", Decode: "int"}}},
	}}
	s.Order.Shuffle, s.Order.Streams, s.Order.Window = order.Full, 2, 4
	return s
}

func weightsOf(n int) Numbers {
	var w []float64
	for i := range n {
		w = append(w, float64(i%4)) // every fourth never comes
	}
	return Numbers{List: w}
}

// orders are what decides which sample comes when.
func (g grid) orders(t testing.TB) map[string]Spec {
	out := map[string]Spec{}
	one := func(name string, change func(o *Order)) {
		s := g.spec(t)
		change(&s.Order)
		out[name] = s
	}
	one("none", func(o *Order) { o.Shuffle = order.None })
	one("full", func(o *Order) { o.Shuffle = order.Full })
	one("block", func(o *Order) { o.Shuffle, o.Streams, o.Window = order.BlockWise, 4, 5 })
	one("window", func(o *Order) { o.Shuffle, o.Window = order.WindowAlone, 8 })
	one("weights", func(o *Order) { o.Weights = weightsOf(gridTars) })
	one("weights, each once", func(o *Order) { o.Weights, o.Replacement, o.NumSamples = weightsOf(gridTars), new(false), 28 })
	one("replacement", func(o *Order) { o.Replacement, o.NumSamples = new(true), 50 })
	one("num_samples", func(o *Order) { o.Shuffle, o.NumSamples = order.Full, 17 })
	mix := func(name string, change func(s *Spec)) {
		s := g.mixture(t)
		change(&s)
		out[name] = s
	}
	mix("mixture", func(*Spec) {})
	mix("mixture, all", func(s *Spec) { s.Mix.Stop = order.AllExhausted })
	mix("mixture, repeat", func(s *Spec) { s.Mix.Stop, s.Order.NumSamples = order.Repeat, 47 })
	mix("mixture, scheduled", func(s *Spec) {
		for i := range s.Dataset.Mixed {
			s.Dataset.Mixed[i].Weight = 0
		}
		s.Mix.Schedule = []Stage{{Place: 0, Weights: []float64{1, 0, 1}}, {Place: 20, Weights: []float64{1, 3, 1}}}
		s.Mix.Linear, s.Mix.Stop = true, order.Repeat
	})
	mix("mixture, single", func(s *Spec) { s.Mix.Batches = single })
	mix("mixture, single, global", func(s *Spec) { s.Mix.Batches, s.Batch = single, BatchSpec{GlobalSize: 6} })
	return out
}

// byLength are the ways to put samples together, over n samples of the grid.
func (g grid) byLength(s Spec, how string) (Spec, bool) {
	ids := upTo(141)[100:]
	if s.Dataset.Mixed != nil {
		ids = slices.Concat(upTo(gridFolder), ids, upTo(200 + gridMore)[200:])
		if s.Mix.Batches == single && how != "" {
			return s, false
		}
	}
	switch how {
	case "":
		return s, true
	case "bucket":
		s.Batch.Lengths, s.Batch.Bucket, s.Batch.Window = lengthsOf(ids...), 3, 12
	case "tokens":
		s.Batch = BatchSpec{Lengths: lengthsOf(ids...), Tokens: 60, Window: 20}
	case "tokens, at most 3":
		s.Batch = BatchSpec{Size: 3, Lengths: lengthsOf(ids...), Tokens: 60, Window: 20}
	case "pack":
		if s.Dataset.Mixed != nil {
			s.Dataset.Mixed = slices.Clone(s.Dataset.Mixed)[1:]
			for i := range s.Dataset.Mixed {
				s.Dataset.Mixed[i].Fields = []Field{{Name: "bin"}, {Name: "label", From: "cls", Decode: "int"}}
			}
			s.Mix.Schedule, s.Mix.Linear = nil, false
		} else {
			s.Fields = []Field{{Name: "bin"}, {Name: "label", From: "cls", Decode: "int"}}
		}
		s.Batch = BatchSpec{Size: 2, Lengths: Lengths{Field: "bin"}, Pack: 16, Window: 20}
	}
	return s, true
}

// all are the orders, put together in every way.
func (g grid) all(t testing.TB) map[string]Spec {
	out := map[string]Spec{}
	for name, s := range g.orders(t) {
		for _, how := range []string{"", "bucket", "tokens", "tokens, at most 3", "pack"} {
			if with, ok := g.byLength(s, how); ok {
				out[strings.TrimSuffix(name+" / "+how, " / ")] = with
			}
		}
	}
	return out
}

func inWorld(s Spec, rank, world int) Spec {
	s.Rank, s.World = rank, world
	return s
}

// openRanks are the loaders of all ranks of a world.
func openRanks(t testing.TB, s *Shared, spec Spec, world int) (out []*Loader) {
	t.Helper()
	for rank := range world {
		out = append(out, open(t, s, inWorld(spec, rank, world)))
	}
	return out
}

func jsonOf(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
