package loader

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/compose"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/decode"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

// photos is a folder of n JPEGs: crops of the photographs that ship with the
// project, in several subsamplings.
func photos(t testing.TB, n int) string {
	root := t.TempDir()
	files, err := filepath.Glob("../../testdata/photos/*.jpg")
	if err != nil || len(files) != 6 {
		t.Fatalf("%d photographs: %v", len(files), err)
	}
	lane := kernel.NewLane()
	defer lane.Close()
	for i := range n {
		raw, err := os.ReadFile(files[i%6])
		if err != nil {
			t.Fatal(err)
		}
		h, err := decode.ReadHeader(raw)
		if err != nil {
			t.Fatal(err)
		}
		x, y := (i*37)%(h.W-200), (i*53)%(h.H-150)
		crop := kernel.Pixels{Pix: make([]byte, 200*150*3), W: 200, H: 150, C: 3}
		job := kernel.Job{JPEG: raw, Steps: []kernel.Step{{Op: kernel.OpCrop, X: x, Y: y, W: 200, H: 150}}, Dst: crop.Pix}
		if err := lane.Run(&job); err != nil {
			t.Fatal(err)
		}
		small, err := kernel.EncodeJPEG(crop, 70+i%25, "4:2:0", 0)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(root, fmt.Sprintf("class%d", i%4))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%04d.jpg", i)), small, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func ops(t testing.TB, text string) (out []transform.Op) {
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// ground is a Shared whose memory a test gets back.
func ground(t testing.TB) *Shared {
	t.Setenv("STOKER_CACHE", t.TempDir())
	s := NewShared(batch.Heap{}, stats.NewBoard(nil, 64))
	t.Cleanup(func() {
		s.Close()
		for range 200 { // a reader lets go a moment after the lane it served
			if s.Pool.Out() == 0 {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
		t.Errorf("%d buffers were never released", s.Pool.Out())
	})
	return s
}

func open(t testing.TB, s *Shared, spec Spec, opt ...Options) *Loader {
	t.Helper()
	var o Options
	if len(opt) > 0 {
		o = opt[0]
	}
	l, err := Open(context.Background(), s, spec, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.Close()
		waitQuiet(t, l)
	})
	return l
}

// waitQuiet waits until a closed loader's last batch has come back.
func waitQuiet(t testing.TB, l *Loader) {
	for range 2000 {
		l.shared.mu.Lock()
		n := l.inflight
		l.shared.mu.Unlock()
		if n == 0 {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Errorf("batches are in flight for 10 s after Close")
}

// seen is one batch, copied.
type seen struct {
	Epoch, Step, Position int64
	IDs                   []int64
	Valid                 []bool
	Pixels                [][]byte // rows of field 0
	Bad                   []compose.Bad
}

func copyBatch(l *Loader, b *Batch) seen {
	out := seen{Epoch: b.Epoch, Step: b.Step, Position: b.Position, Bad: b.Bad}
	n := len(l.layout.Fields)
	first := b.Columns[0]
	size := 1
	for _, d := range first.Shape {
		size *= d
	}
	for r := range b.Rows {
		out.IDs = append(out.IDs, int64(binary.LittleEndian.Uint64(l.layout.Row(b.Slot.Mem, n-2, r))))
		out.Valid = append(out.Valid, l.layout.Row(b.Slot.Mem, n-1, r)[0] == 1)
		at := int(first.Off) + r*size
		out.Pixels = append(out.Pixels, bytes.Clone(b.Slot.Mem[at:at+size]))
	}
	return out
}

// next is the next batch, copied and released; nil at the end.
func next(t testing.TB, l *Loader, p *Pass) *seen {
	t.Helper()
	b, err := p.Next(context.Background(), 30*time.Second)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	out := copyBatch(l, b)
	for i := range b.Slot.Mem {
		b.Slot.Mem[i] = 0xA5 // whoever reads it after this reads poison
	}
	b.Release()
	return &out
}

func walk(t testing.TB, l *Loader, epoch, position, step int64) (out []seen) {
	t.Helper()
	p, err := l.Pass(epoch, position, step)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Cancel()
	for b := next(t, l, p); b != nil; b = next(t, l, p) {
		out = append(out, *b)
	}
	return out
}

// digest names everything that a walk delivered.
func digest(batches []seen) uint64 {
	h := xxhash.New()
	for _, b := range batches {
		fmt.Fprintln(h, b.Epoch, b.Step, b.Position, b.IDs, b.Valid)
		for _, row := range b.Pixels {
			_, _ = h.Write(row)
		}
	}
	return h.Sum64()
}
