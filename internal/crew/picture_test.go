package crew

import (
	"encoding/binary"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/fill"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/worker"
)

// Every pixel of every plane becomes byte * scale + bias, product and sum rounded apart, in
// its row and in no other, whether the bytes are interleaved or in planes.
func TestRowsBecomeNumbers(t *testing.T) {
	p := &painter{}
	defer p.close()
	rapid.Check(t, func(t *rapid.T) {
		side := rapid.IntRange(1, 70)
		c := worker.Picture{Column: 1, W: side.Draw(t, "w"), H: side.Draw(t, "h"), C: rapid.SampledFrom([]int{1, 3}).Draw(t, "c"), Planes: rapid.Bool().Draw(t, "planes")}
		for i := range 3 {
			c.Scale[i] = rapid.Float32Range(-2, 2).Draw(t, "scale")
			c.Bias[i] = rapid.Float32Range(-2, 2).Draw(t, "bias")
		}
		p.columns = []worker.Picture{c}
		plane := c.W * c.H
		n := plane * c.C
		layout := batch.NewLayout([]batch.Field{{Name: "a", DType: mem.Uint8, Shape: mem.Shape{7}}, {Name: "b", DType: mem.Uint8, Shape: mem.Shape{4 * n}}}, 3)
		slot := &batch.Slot{Mem: make([]byte, layout.Bytes())}
		pixels := rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "pixels")
		row := layout.Row(slot.Mem, 1, 1)
		copy(row, pixels)
		for i := n; i < len(row); i++ {
			row[i] = 0xEE // of a worker that died
		}
		b := &fill.Batch{Slot: slot, Layout: layout}
		if err := p.paint(&fill.Task{Batch: b, Row: 1}); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			plane, at := i/plane, i%plane
			from := at*c.C + plane
			if c.Planes {
				from = i
			}
			product := float32(pixels[from]) * c.Scale[plane]
			want := product + c.Bias[plane]
			if got := math.Float32frombits(binary.LittleEndian.Uint32(row[4*i:])); got != want {
				t.Fatalf("number %d of %+v is %v, want %v", i, c, got, want)
			}
		}
		for _, other := range []int{0, 2} {
			for i, v := range layout.Row(slot.Mem, 1, other) {
				if v != 0 {
					t.Fatalf("byte %d of row %d was written", i, other)
				}
			}
		}
	})
}
