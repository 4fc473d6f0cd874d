package loader

import (
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/crew"
	"github.com/stoker-data/stoker/internal/stage/batch"
)

// Half of the bytes, and a quarter more: exact in float32.
const paintScale, paintBias = 0.5, 0.25

// fixedBytes is the size of the first column: 16 bytes, or a picture of them.
func (s *staff) fixedBytes() uint64 {
	if s.painted {
		return 64
	}
	return 16
}

// pictures is the end of a SHAPE: column 0 may be a picture of 4 x 4 x 1.
func (s *staff) pictures() []any {
	if !s.painted {
		return []any{uint32(0)}
	}
	out := []any{uint32(1), uint32(0), uint32(4), uint32(4), uint32(1), []byte{0}}
	for _, v := range []float32{paintScale, paintScale, paintScale, paintBias, paintBias, paintBias} {
		out = append(out, math.Float32bits(v))
	}
	return out
}

// paints is what is written of a row, and its status: bytes, or numbers for every third
// sample, as if its picture had another type.
func (h *hand) paints(fixed []byte) ([]byte, byte) {
	if !h.painted || le.Uint64(fixed)%3 != 0 {
		return fixed, 0
	}
	var out []byte
	for _, b := range fixed {
		out = le.AppendUint32(out, math.Float32bits(float32(b)*paintScale+paintBias))
	}
	return out, 3
}

// unpainted is the 16 bytes of a row, whatever the column has.
func unpainted(mem []byte, col *batch.Column, row int) []byte {
	size := int64(col.Shape[0])
	b := mem[col.Off+size*int64(row):][:size]
	if size == 16 {
		return b
	}
	out := make([]byte, 16)
	for i := range out {
		out[i] = byte((math.Float32frombits(le.Uint32(b[4*i:])) - paintBias) / paintScale)
	}
	return out
}

// The numbers of pictures are made once, whatever happens: workers end, samples are bad and
// replaced, and some rows come with numbers.
func TestPicturesOfWorkersBecomeNumbers(t *testing.T) {
	for _, policy := range []string{Skip, Replace} {
		t.Run(policy, func(t *testing.T) {
			spec := workersSpec(400)
			spec.OnBad.Policy = policy
			l, s := openWorkers(t, spec, false)
			s.painted = true
			s.bad = func(n int64) bool { return n%20 == 3 }
			var dead sync.Map
			s.ends = func(n int64) bool {
				_, was := dead.LoadOrStore(n, true)
				return n%29 == 5 && !was
			}
			stop := s.replace()
			defer stop()
			for epoch := range int64(3) {
				time.AfterFunc(5*time.Millisecond, func() { s.fire(0) })
				got, err := workersWalk(t, l, epoch, 0, false)
				want := expected(l, epoch, 0)
				if err != nil || len(got) != len(want) {
					t.Fatalf("%v, %d rows", err, len(got))
				}
				for i := range got {
					if n := number(want[i]); n%20 != 3 && got[i] != want[i] {
						t.Errorf("row %d: %s, not %s", i, got[i], want[i])
					}
					if n := number(got[i]); n%20 == 3 || n < 0 || n >= 400 {
						t.Errorf("row %d has a bad sample, or none: %s", i, got[i])
					}
				}
			}
		})
	}
}

// The same where batches have another structure: their rows are held back, and come as a
// whole, or return with those that fit.
func TestPicturesOfBatchesOfAnotherStructure(t *testing.T) {
	for _, turns := range []bool{false, true} {
		spec := workersSpec(400)
		spec.Order.Shuffle = ""
		l, s := openCrew(t, spec, crew.Options{Workers: 2, Turns: turns})
		s.painted = true
		s.scale = func(n int64) int { return int(n/8) % 3 }
		defer s.replace()()
		for epoch := range int64(3) {
			for i := range 5 {
				time.AfterFunc(time.Duration(i)*time.Millisecond, func() { s.fire(i) })
			}
			got, err := workersWalk(t, l, epoch, 0, false)
			if err != nil || !slices.Equal(got, expected(l, epoch, 0)) {
				t.Fatalf("turns=%v, epoch %d: %v, %d rows", turns, epoch, err, len(got))
			}
		}
	}
}
