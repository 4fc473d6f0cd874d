package loader

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/compose"
	"github.com/stoker-data/stoker/internal/stage/order"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// windows writes n samples of 9 int64, of which those in bad do not fit into uint8,
// and gives the Spec of two views of each.
func windows(t testing.TB, dir string, n int, bad []int) Spec {
	t.Helper()
	data := make([]byte, 0, n*9*8)
	for i := range n {
		for j := range 9 {
			v := uint64(i*7+j) % 251
			if j == 4 && slices.Contains(bad, i) {
				v = 300
			}
			data = binary.LittleEndian.AppendUint64(data, v)
		}
	}
	path := saveArray(t, dir, "x.npy", mem.Int64, fmt.Sprintf("(%d, 9)", n), data)
	return arraySpec(fieldsOf(t, `[{"name":"a","from":"x","dtype":"uint8","view":[null,-1]},{"name":"b","from":"x","dtype":"uint8","view":[1,null]}]`), path)
}

// told is a pass as its consumer sees it, a line for each step, and one for how it
// ended; largest is the most steps that came at once.
func told(t testing.TB, l *Loader, position, step int64, most int) (lines []string, largest int) {
	t.Helper()
	p, err := l.Pass(1, position, step)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Cancel()
	p.Bundle(most)
	for {
		b, err := p.Next(context.Background(), 20*time.Second)
		if errors.Is(err, io.EOF) {
			return append(lines, "end"), largest
		}
		if err != nil {
			e := errs.From(err)
			return append(lines, fmt.Sprintf("%s %s %v", e.Code, e.What, e.Where)), largest
		}
		largest = max(largest, len(b.Counts))
		lines = append(lines, steps(b)...)
		b.Release()
	}
}

// steps are the lines of one batch or bundle, read as its columns say.
func steps(b *Batch) (lines []string) {
	counts := b.Counts
	if counts == nil {
		counts = []compose.Count{b.Count}
	}
	var rows [][][]byte
	each := b.Rows
	b.Rows *= len(counts)
	for i, c := range b.Columns {
		rows = append(rows, rowsOf(b, c, []mem.DType{mem.Uint8, mem.Uint8, mem.Int64, mem.Bool}[i]))
	}
	for i, c := range counts {
		line := fmt.Sprintf("%d/%d to %d, %s of %d:", b.Epoch, b.Step+int64(i), c.After, c.Sum, c.Real)
		for r := i * each; r < (i+1)*each; r++ {
			for _, column := range rows {
				line += fmt.Sprintf(" %x", column[r])
			}
		}
		for _, x := range b.Bad {
			line += fmt.Sprintf("; %d %d %d %v", x.Place, x.Sample, x.Put, x.Err)
		}
		lines = append(lines, line)
	}
	return lines
}

// Bundles are a matter of cost alone: the same steps in the same order with the same
// receipts, the same bad samples, the same error at the same step.
func TestBundlesDoNotMatter(t *testing.T) {
	s := ground(t)
	dir := t.TempDir()
	rapid.Check(t, func(r *rapid.T) {
		n := rapid.IntRange(1, 150).Draw(r, "samples")
		bad := rapid.SliceOfN(rapid.IntRange(0, n-1), 0, 3).Draw(r, "bad")
		spec := windows(t, dir, n, bad)
		spec.Batch.Size = rapid.IntRange(1, 4).Draw(r, "batch")
		spec.World = rapid.IntRange(1, 3).Draw(r, "world")
		spec.Rank = rapid.IntRange(0, spec.World-1).Draw(r, "rank")
		spec.Workers = rapid.IntRange(1, 3).Draw(r, "lanes")
		spec.Order.Tail = rapid.SampledFrom([]order.Tail{order.Pad, order.Fill, order.Drop}).Draw(r, "tail")
		spec.Order.Shuffle = rapid.SampledFrom([]order.Shuffle{order.None, order.Full}).Draw(r, "shuffle")
		spec.OnBad.Policy = rapid.SampledFrom([]string{Fail, Skip, Replace}).Draw(r, "policy")
		if spec.OnBad.Policy != Fail {
			spec.OnBad.MaxBadRate = rapid.SampledFrom([]float64{0, 0.01, 0.02}).Draw(r, "rate")
		}
		step := rapid.Int64Range(0, 5).Draw(r, "step")
		position := min(step*int64(spec.World*spec.Batch.Size), int64(n))
		l, other := open(t, s, spec), open(t, s, spec)
		defer l.Close()
		defer other.Close()
		want, _ := told(t, l, position, step, 0)
		got, _ := told(t, other, position, step, rapid.IntRange(2, 16).Draw(r, "most"))
		if !slices.Equal(got, want) {
			r.Fatalf("with bundles:\n%s\n\nwithout:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

func TestBundlesGrow(t *testing.T) {
	s := ground(t)
	spec := windows(t, t.TempDir(), 600, nil)
	if _, largest := told(t, open(t, s, spec), 0, 0, 7); largest != 7 {
		t.Errorf("bundles of up to 7: the largest has %d", largest)
	}
	spec.Deliver.Memory = 32 << 10
	if lines, largest := told(t, open(t, s, spec), 0, 0, 7); largest > 1 || len(lines) != 201 {
		t.Errorf("with memory for few batches: %d steps, the largest bundle has %d", len(lines)-1, largest)
	}
	l := open(t, s, imageSpec(pictures(t, 60)))
	p, err := l.Pass(0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Cancel()
	p.Bundle(8)
	for range 15 {
		b, err := p.Next(context.Background(), 20*time.Second)
		if err != nil || b.Counts != nil {
			t.Fatalf("pictures are decoded: a bundle of %d (%v)", len(b.Counts), err)
		}
		b.Release()
	}
}

// A bundle that takes long makes nobody wait for steps that are there.
func TestBundlesWaitForNobody(t *testing.T) {
	s := ground(t)
	spec := windows(t, t.TempDir(), 600, nil)
	spec.Order.Shuffle = order.None
	const slow = 300
	block := make(chan struct{})
	defer close(block)
	at := int64(-1) // of the slow sample in its file
	l := open(t, s, spec, Options{Wrap: func(src source.Source) source.Source {
		return held{src, func(off, n int64) bool { return at >= 0 && off <= at && at < off+n }, block}
	}})
	at = l.data.Extents(slow, nil)[0].Off
	p, err := l.Pass(0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Cancel()
	p.Bundle(16)
	last, largest := int64(-1), 0
	for {
		b, err := p.Next(context.Background(), 2*time.Second)
		if err != nil {
			if errs.CodeOf(err) != errs.Stalled {
				t.Fatal(err)
			}
			break
		}
		largest = max(largest, len(b.Counts))
		last = b.Step + int64(max(len(b.Counts), 1)) - 1
		b.Release()
	}
	if want := int64(slow/spec.Batch.Size) - 1; last != want || largest < 8 {
		t.Errorf("the last step that came is %d, want %d; the largest bundle has %d", last, want, largest)
	}
}

// held is a source some reads of which wait.
type held struct {
	source.Source
	waits func(off, n int64) bool
	block chan struct{}
}

func (h held) ReadAt(ctx context.Context, obj source.Info, p []byte, off int64) error {
	if h.waits(off, int64(len(p))) {
		<-h.block
	}
	return h.Source.ReadAt(ctx, obj, p, off)
}
